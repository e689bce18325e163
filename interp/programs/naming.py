"""Names for the values of variables: what they stand for, as far as the program itself says it.

A value that a description numbers ("v2") gets the words of what it is made from (the values that a table maps to it, a
number of positions), or of what follows from it (the place that a head attends to, the answer). No result depends on
names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from itertools import product

import torch

from interp.programs.language import Program
from interp.programs.steps import Head, Linear, Step, Table, Values

NUMBERED = re.compile(r"v\d+")
LEVEL = re.compile(r"level \d+")
"""The values of a soft head's levels, as they are before they have names."""
FEW = 3
"""Most values whose names are joined into one."""


def unnamed(values: Values) -> bool:
    """Whether some values have a number for a name."""
    return any(NUMBERED.fullmatch(value) for value in values)


def with_names(program: Program, marks: Collection[str] = ()) -> Program:
    """The program with names of values that say what they stand for, where these are all different.

    marks: tokens that each row has once.
    """
    ways: tuple[Callable[[Program, Step], Values | None], ...] = (_selecting, _tabled, _answering)
    for step in program.steps:
        if not isinstance(step, Table | Linear) or not unnamed(step.values):
            continue
        if (numbers := counts_tokens(program, step, marks)) is not None:
            program = renamed(program, step.name, tuple(map(str, numbers)))
            beside = program.values[step.of[0]][_once(program, step.of[0], marks)[0]]
            meaning = f"the number of positions that {step.of[0]} selects beside {beside!r}"
            program = replace(program, words={**program.words, step.name: meaning})
            continue
        tried = (way(program, program.step(step.name)) for way in ways)
        names = next((values for values in tried if values is not None and len(set(values)) == len(values)), None)
        if names is not None:
            program = renamed(program, step.name, names)
    return program


def renamed(program: Program, name: str, values: Values) -> Program:
    """The program with other words for the values of a step."""
    steps = tuple(
        replace(step, values=values) if isinstance(step, Table | Linear) and step.name == name else step
        for step in program.steps
    )
    return replace(program, steps=steps)


def with_numbers(program: Program, name: str, numbers: Mapping[str, str]) -> Program:
    """The program with other words for the levels of a soft head, and for the values of tables over these alone, which
    are named after them."""
    for step in program.steps:
        if step.name == name or (isinstance(step, Table) and step.of == (name,)):
            values = tuple(numbers.get(value, value) for value in program.values[step.name])
            program = renamed(program, step.name, values)
    return program


def _tabled(program: Program, step: Step) -> Values | None:
    """The values that a table maps to each, joined; for the value of most of them, "other"."""
    if not isinstance(step, Table):
        return None
    cells = [" ".join(cell) for cell in product(*(program.values[name] for name in step.of))]
    groups = [[cell for cell, entry in zip(cells, step.entries) if entry == at] for at in range(len(step.values))]
    largest = max(map(len, groups))
    if any(len(group) > FEW and len(group) < largest for group in groups) or not all(groups):
        return None
    return tuple("other" if len(group) > FEW else " or ".join(group) for group in groups)


def _selecting(program: Program, step: Step) -> Values | None:
    """The one value that a head selects by each."""
    for head in program.steps:
        if not isinstance(head, Head) or not head.hard or step.name not in (head.query, head.key):
            continue
        other = head.key if step.name == head.query else head.query
        rows = torch.tensor(head.scores) == 0
        rows = rows if step.name == head.query else rows.T
        words = program.values.get(other, ())
        if other == step.name or not words or unnamed(words):
            continue
        selected = [[words[at] for at in row.nonzero()[:, 0].tolist()] for row in rows]
        if all(len(row) <= 1 for row in selected) and sum(map(len, selected)) >= len(selected) - 1:
            return tuple(row[0] if row else "none" for row in selected)
    return None


def _answering(program: Program, step: Step) -> Values | None:
    """The answer that follows from each, if it follows from nothing else."""
    answer = program.answer
    if not isinstance(answer, Linear) or answer.of != (step.name,):
        return None
    best = (torch.tensor(answer.weights[0]) + torch.tensor(answer.bias)).argmax(1)
    return tuple(answer.values[at] for at in best.tolist())


def counts_tokens(program: Program, step: Step, marks: Collection[str]) -> list[int] | None:
    """For each value, the number n of positions at which it is taken, if it is by a share of 1 / (1 + n).

    The step reads one head with even attention, of which it weighs the value of a mark against all others.
    """
    if not isinstance(step, Linear) or len(step.of) != 1 or not (places := _once(program, step.of[0], marks)):
        return None
    weights, bias = (torch.tensor(numbers, dtype=torch.float64) for numbers in (step.weights[0], step.bias))
    marked, rest = weights[places[0]], weights[1 - places[0]]
    for least in range(len(step.values)):
        share = 1 / (1 + least + torch.arange(len(step.values)).double())[:, None]
        taken = (marked * share + rest * (1 - share) + bias).argmax(1)
        if sorted(taken.tolist()) == list(range(len(taken))) and bool(((marked - rest)[taken].diff() < 0).all()):
            return (least + taken.argsort()).tolist()
    return None


def _once(program: Program, name: str, marks: Collection[str]) -> list[int]:
    """The one of two values that a head reads of a mark, which each query that selects anything selects, too."""
    head = program.by_name.get(name)
    if not isinstance(head, Head) or not head.hard or head.key not in ("", "token"):
        return []
    read, rows = program.values[name], torch.tensor(head.scores) == 0
    always = [word for at, word in enumerate(program.vocabulary)
              if word in marks and bool(rows.all() if not head.key else rows[rows.any(1)][:, at].all())]  # fmt: skip
    return [at for at, value in enumerate(read) if value in always] if len(read) == 2 else []
