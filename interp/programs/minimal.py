"""A program without inputs of its steps that change no answer, of the model as of the program.

An input of a part is left out if all of the model's answers stay with it from elsewhere (see inputs_tried), nearly all
with the others that are left out besides, and the program gives the same answers without it; of a program that does not
give all of the model's answers, or has fitted sums, all but a few. A head may do without its keys, and so without its
queries, if even attention changes no answer either. Where a head tells tokens apart, but no answer changes with other
ones of the same kind, it only tells content from marks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from interp.errors import InterpError
from interp.programs.inputs_tried import InputsTried
from interp.programs.language import NEVER, TIED, Answer, Program, largest
from interp.programs.steps import Head, Linear, Step, Sums, Table, first_largest
from interp.programs.words import same_word

ROWS_TRIED = 3
"""Most rows of a head's scores that are tried as those of every query."""
NEXT_TO_NONE = 0.001
"""An input that decides no more of the model's answers cannot be told from one that decides none."""
TOGETHER = 0.99
"""Share of the model's answers that must stay with all inputs of a part from elsewhere that the program leaves out."""


class StepInput(NamedTuple):
    """An input of a step: the way by which a head reads it ("in" of other steps), and the variable; "content" for what
    tells tokens of content apart."""

    step: str
    way: str
    variable: str


def without_inputs(
    program: Program,
    tried: InputsTried,
    matter: set[str],
    copies: Mapping[str, str],
    keep: Set[StepInput] = frozenset(),
    loss: float = 0.0,
) -> list[tuple[StepInput, Program]]:
    """Inputs that the program does without, in turn, each with the program without it and those before it.

    matter: parts that must stay. copies: parts that are read as another one. keep: inputs that stay. loss: share of
    the program's answers that may change; if any may, an input that decides NEXT_TO_NONE of the model's goes, too.
    """
    running = tried.running
    removed: list[tuple[StepInput, Program]] = []
    gone: dict[tuple[str, str], list[str]] = {}
    wanted, stay = largest(running.sums_of(program), TIED), 1 - NEXT_TO_NONE * (loss > 0)

    def as_before(program: Program) -> float:
        return float((largest(running.sums_of(program), TIED) == wanted).double().mean())

    variables = program.run(running.batch.tokens, running.weights)
    made = {name: weights[running.mask] for name, weights in variables.items()}
    steps: list[Step] = [*program.steps, program.answer]
    for step in reversed(steps):
        reader = running.by_name.get(step.part)
        inner = (reader is None and step is not steps[-1]) or (
            reader is not None and reader.head is not None and not isinstance(step, Head)
        )  # of what is computed of parts, and of how a head's value is read, nothing can be tried
        for way, name in [] if inner else inputs(step):
            now = next((current for current in (*program.steps, program.answer) if current.name == step.name), None)
            if now is None or (way, name) not in inputs(now):
                continue
            sources = writers(program, name, step.part)
            sources += [copy for copy, other in copies.items() if other in sources]
            together = [*gone.get((step.name, way), ()), *sources]
            this, new = StepInput(step.name, way, name), list[Step]()
            if this not in keep and not tried.matters(reader, way, sources, stay):
                needed = (way == "key" and reader is not None and not tried.even(reader)) or (
                    len(together) > len(sources) and tried.matters(reader, way, together, stay=TOGETHER)
                )
                new = [] if needed else [*without(now, way, name, made, program)]
            if not new and name == "token" and isinstance(now, Head) and way != "value":
                this = StepInput(step.name, way, "content")
                if this not in keep and not tried.matters(reader, way, sources, stay, of_its_kind=True):
                    new = alike_for_content(now, way, made["token"].sum(0), tried.kinds.content)
            tries = [with_step(program, changed) for changed in new]
            fewer = [less for less in tries if less is not None and parts(program) & matter <= parts(less)]
            share, less = max(
                ((as_before(less), less) for less in fewer), key=lambda pair: pair[0], default=(0.0, program)
            )
            if share >= 1 - loss:
                program = less
                removed.append((this, program))
                if this.variable == name:
                    gone[step.name, way] = together
    return removed


def minimal(
    program: Program, tried: InputsTried, matter: set[str], copies: Mapping[str, str],
    holds: Callable[[Program], bool] = lambda _: True, loss: float = 0.0,
) -> Program:  # fmt: skip
    """The program without as many inputs as possible, such that `holds` is true of what is left.

    matter, copies, loss: see without_inputs.
    If it is false without all of them, the first input whose removal makes it false stays, and others are tried.
    """
    keep: set[StepInput] = set()
    low, best = 0, program  # of the programs in turn, this many hold
    while len(removed := without_inputs(program, tried, matter, copies, keep, loss)) > low:
        high = len(removed)
        if holds(removed[-1][1]):
            return removed[-1][1]
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if holds(removed[middle - 1][1]) else (low, middle)
        best = removed[low - 1][1] if low else program
        keep.add(removed[high - 1][0])
    return best


def without_idle_columns(program: Program) -> Program:
    """The same program, with tables over only those variables that their entries differ by."""
    for step in program.steps:
        if isinstance(step, Table) and len(step.of) > 1:
            entries = torch.tensor(step.entries).reshape([len(program.values[name]) for name in step.of])
            first = [entries.narrow(axis, 0, 1) for axis in range(entries.dim())]
            read = [axis for axis, one in enumerate(first) if not bool((entries == one).all())] or [0]
            for axis in range(entries.dim()):
                entries = entries if axis in read else entries.narrow(axis, 0, 1)
            new = replace(step, of=tuple(step.of[axis] for axis in read), entries=tuple(entries.flatten().tolist()))
            program = with_step(program, new) or program
    return program


def inputs(step: Step) -> list[tuple[str, str]]:
    """The inputs of a step: the way by which a head reads ("in" of others), and the variable."""
    if isinstance(step, Head):
        return [(way, name) for way in ("key", "query", "value") if (name := getattr(step, way))]
    return [("in", name) for name in step.of]


def writers(program: Program, name: str, reader: str) -> list[str]:
    """What writes a variable: the token, the position, or parts other than the one that reads it."""
    if name in ("token", "position"):
        return [name]
    step = program.step(name)
    if step.part and step.part != reader:
        return [step.part]
    return [*dict.fromkeys(source for variable in step.of for source in writers(program, variable, reader))]


def parts(program: Program) -> set[str]:
    """The parts that a program describes."""
    return {step.part for step in program.steps if step.part}


def with_step(program: Program, new: Step) -> Program | None:
    """The program with a step changed, and without steps that nothing reads then; None if that is no program."""
    changed = [new if step.name == new.name else step for step in (*program.steps, program.answer)]
    wanted, kept = {changed[-1].name}, list[Step]()
    for step in reversed(changed):
        if step.name in wanted:
            kept.insert(0, step)
            wanted |= set(step.of)
    answer = kept.pop()
    assert isinstance(answer, Answer)
    try:
        return replace(program, steps=tuple(kept), answer=answer)
    except InterpError:  # a later step needs this one as it is
        return None


def without(step: Step, way: str, name: str, made: Mapping[str, Tensor], program: Program) -> Iterator[Step]:
    """The step without one of its inputs, in ways that may give the same. made: the variables, (points, values)."""
    if isinstance(step, Head) and not step.total and way != "value":
        yield from _without_attention(step, way, made)
    elif isinstance(step, Table) and len(step.of) > 1:
        yield _without_column(step, step.of.index(name), made, [len(program.values[variable]) for variable in step.of])
    elif isinstance(step, Linear | Sums) and len(step.of) > 1:
        at = step.of.index(name)
        weights = torch.tensor(step.weights[at], dtype=torch.float64)
        bias = torch.tensor(step.bias, dtype=torch.float64) + made[name].mean(0) @ weights
        rest = [n for n in range(len(step.of)) if n != at]
        of, kept = tuple(step.of[n] for n in rest), tuple(step.weights[n] for n in rest)
        if step is program.answer and len(of) == 1 and {*step.values} <= {*map(str, program.values[of[0]])}:
            same = same_word(program.values[of[0]], step.values)
            yield replace(step, of=of, weights=(same,), bias=(0.0,) * len(step.values))  # the largest share
        yield replace(step, of=of, weights=kept, bias=tuple(bias.tolist()))


def _without_attention(step: Head, way: str, made: Mapping[str, Tensor]) -> Iterator[Head]:
    """A head without its keys reads anywhere; without its queries, every query has the scores of one of them."""
    if way == "key":
        yield replace(step, query="", key="", scores=((0.0,),), scaled=False, evened=True)
        return
    met = made[step.query].sum(0)
    frequent = met.argsort(descending=True, stable=True).tolist()
    rows = [*dict.fromkeys(step.scores[query] for query in frequent)][:ROWS_TRIED]
    for row in [mean_scores(step, met), *rows]:
        yield replace(step, query="", scores=(row,))


def alike_for_content(step: Head, way: str, met: Tensor, content: Sequence[int]) -> list[Step]:
    """The head with the same scores for all tokens of content, as its keys or as its queries, if they differ, none is
    selected, and there are other tokens. met: how often each token occurs."""
    scores = torch.tensor(step.scores, dtype=torch.float64)
    side = scores if way == "key" else scores.T
    here, weight = side[:, content], met[content].double()
    alone = len(content) >= int((met > 0).sum())
    if step.total or alone or bool((here <= NEVER).any()) or bool((here == here[:, :1]).all()):
        return []
    side[:, content] = (here @ weight / weight.sum())[:, None].expand_as(here)
    return [replace(step, scores=tuple(map(tuple, scores.tolist())))]


def mean_scores(step: Head, met: Tensor) -> tuple[float, ...]:
    """The mean of a head's scores for each key over the queries that may attend to it. met: (queries,) how often."""
    scores = torch.tensor(step.scores, dtype=torch.float64)
    weight = met[:, None] * (scores > NEVER)
    mean = (scores * weight).sum(0) / weight.sum(0).clamp_min(1e-6)
    return tuple(torch.where(weight.sum(0) > 0, mean, NEVER).tolist())


def _without_column(step: Table, at: int, made: Mapping[str, Tensor], sizes: list[int]) -> Table:
    """A table whose entries are those that are met most often with any value of one variable."""
    cell = torch.zeros(len(next(iter(made.values()))), dtype=torch.long)
    for name, size in zip(step.of, sizes):
        cell = cell * size + first_largest(made[name])
    met = torch.bincount(cell, minlength=prod(sizes)).double() + 1e-6
    entries, met = (
        cells.reshape(sizes).movedim(at, -1).reshape(-1, sizes[at]) for cells in (torch.tensor(step.entries), met)
    )
    votes = torch.zeros(len(entries), len(step.values), dtype=torch.float64).scatter_add_(1, entries, met)
    of = tuple(variable for n, variable in enumerate(step.of) if n != at)
    return replace(step, of=of, entries=tuple(votes.argmax(1).tolist()))
