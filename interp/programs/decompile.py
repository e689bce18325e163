"""Read a program out of a model: what matters, what each part that matters is, and the readout.

Parts are described in the order in which they run; earlier ones are already replaced by their descriptions, and each
description takes the part's place in the running model. What has no description keeps its own values. At last the
program runs alone. Heads are described in read_heads.py, MLPs in read_mlps.py, the readout in readout.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from interp.measures.runs import Part
from interp.programs.language import Answer, Program
from interp.programs.minimal import minimal, without_idle_columns
from interp.programs.naming import with_names
from interp.programs.quantize import SHARE_KEPT_BY_VALUES
from interp.programs.read_heads import describe_head, elsewhere
from interp.programs.read_mlps import describe_mlp
from interp.programs.reading import Reading, Role
from interp.programs.readout import Reached, readout
from interp.programs.relevance import CHANGED, backups, cancelling, stand_ins, used
from interp.programs.running import Running
from interp.programs.steps import Features, Head, Linear, Step, Table, codes, without_rounding

CUTS = 3
"""Most gaps between the sizes of weights below which weights are tried as rounding."""


def decompile(
    running: Running, check: Callable[[], None] = lambda: None, strict: bool = True, matter: Sequence[Part] = (),
    finer: bool = False, of_other_rows: bool = False,
) -> Reading:  # fmt: skip
    """Describe each part that matters. check: is called often, and may raise to stop; strict, finer, of_other_rows: see
    `Reading`. matter: the parts that do, if they are known; see relevance.used."""
    reading = Reading(running, check, strict, finer, of_other_rows)
    reading.made = given(running)
    reading.without = {part: reading.left([part]) for part in reading.running.parts}
    reading.pairs = cancelling(reading.running, reading.kinds, reading.without, reading.left)
    matter = [*matter] or used(reading.running, reading.kinds, reading.check, reading.strict, reading.pairs)
    reading.matter = sorted(matter, key=lambda part: (part.layer, part.head is None, *reading.precedence(part)))
    describe(reading)
    reading.elsewhere = heads_elsewhere(reading)
    loose = [part for part, share in reading.without.items() if share >= SHARE_KEPT_BY_VALUES]
    reading.groups = [
        *stand_ins(loose, lambda out: reading.left_without(*out) >= SHARE_KEPT_BY_VALUES), *backed(reading, loose)
    ]  # fmt: skip
    odd = [part for part in reading.matter if part in loose and not any(part in group for group in reading.groups)]
    reading.moved = {part: reading.left([part], moved=True) for part in odd}
    return reading


def backed(reading: Reading, loose: Sequence[Part]) -> list[list[Part]]:
    """Each part without which a few answers change, with the loose ones (without which next to none do) that stand in
    for it."""
    groups = ({part, *backups(part, loose, reading.left_without)} for part in reading.matter if part not in loose)
    return [[part for part in reading.running.parts if part in group] for group in groups if len(group) > 1]


def describe(reading: Reading) -> None:
    """Describe the parts that matter, in the order in which they run; the others are at their means."""
    unused = [part for part in reading.running.parts if part not in reading.matter]
    reading.roles |= {part: Role(str(part), "not used") for part in unused}
    reading.put({part: reading.kinds.means(part) for part in unused})
    for part in reading.matter:
        reading.check()
        (describe_head if part.head is not None else describe_mlp)(reading, part)


def heads_elsewhere(reading: Reading) -> dict[Part, float]:
    """How much of each described head's attention in the model is given otherwise."""
    heads = [part for part in reading.matter if isinstance(reading.step(str(part)), Head)]
    return {part: elsewhere(reading, part) for part in heads}


def given(running: Running) -> Features:
    """The token and the position."""
    tokens = running.batch.tokens
    places = torch.arange(tokens.shape[1]).expand_as(tokens)
    return {"token": codes(tokens, len(running.subject.task.vocabulary)), "position": codes(places, tokens.shape[1])}


def program_of(reading: Reading, found: Reached | None = None) -> Program | None:
    """The program of the parts, without steps that nothing reads; None if the answer is not reached.

    found: the answer and the steps before it, if they are known.
    """
    found = found or readout(reading)
    if found is None:
        return None
    answer, more = found
    wanted, kept = set(answer.of), []
    for step in reversed([*reading.steps, *more]):
        if step.name in wanted:
            kept.append(step)
            wanted |= set(step.of)
    if wanted & reading.given:
        return None
    subject, kept = reading.running.subject, kept[::-1]
    for cut in range(CUTS):  # a tiny weight that breaks ties is no rounding
        rounded, simple = [without_rounding(step, cut) for step in kept], without_rounding(answer, cut)
        if (rounded, simple) == (kept, answer):
            break
        if reading.answered(simple, rounded).share >= reading.answered(answer, kept).share:
            kept, answer = rounded, simple
            break
    program = replace(_of_steps(reading, kept, answer), read=subject.read_at, pad=reading.task.pad)
    return with_names(program, [reading.task.vocabulary[token] for token in reading.kinds.marks])


def smaller(reading: Reading, program: Program, holds: Callable[[Program], bool], loss: float = 0.0) -> Program:
    """The program without inputs that change no answer, such that `holds` is true of it; see programs.minimal."""
    matter = {str(part) for part, share in reading.without.items() if share < 1 - CHANGED}
    return without_idle_columns(minimal(program, reading.tried, matter, reading.alike, holds, loss))


def revise(reading: Reading, program: Program) -> None:
    """Let the descriptions of parts be those of a program."""
    changed = {step.name: step for step in program.steps if step != reading.step(step.name)}
    reading.steps = [changed.get(step.name, step) for step in reading.steps]
    for part in reading.elsewhere:
        if isinstance(step := changed.get(str(part)), Head):
            reading.elsewhere[part] = 0.0 if step.evened else elsewhere(reading, part)


def sketch(reading: Reading, program: Program | None) -> Program:
    """All steps so far as a program, with the words of `program`; its answer is constant."""
    answer = Linear("answer", (), (), (0.0,), ("",))
    tables = [
        Table(name, (), (0,), tuple(map(str, range(reading.made[name].shape[-1])))) for name in sorted(reading.given)
    ]
    named = {} if program is None else program.by_name
    steps = [*tables, *(named.get(step.name, step) for step in reading.steps)]
    return replace(_of_steps(reading, steps, answer), words={} if program is None else program.words)


def _of_steps(reading: Reading, steps: Sequence[Step], answer: Answer) -> Program:
    """A program of these steps, in the order of the model's parts, over the task's tokens."""
    n_positions = reading.made["position"].shape[-1]
    steps = by_part(steps, [*reading.running.by_name])
    return Program(tuple(reading.task.vocabulary), n_positions, reading.causal, steps, answer)


def by_part(steps: Sequence[Step], parts: Sequence[str]) -> tuple[Step, ...]:
    """Steps in the order of these parts, each after those that it reads."""
    named, ordered = {step.name: step for step in steps}, dict[str, Step]()

    def add(step: Step) -> None:
        for name in () if step.name in ordered else step.of:
            if name in named:
                add(named[name])
        ordered.setdefault(step.name, step)

    of_parts = [step for step in steps if step.part]
    for step in [*sorted(of_parts, key=lambda step: parts.index(step.part)), *steps]:
        add(step)
    return tuple(ordered.values())
