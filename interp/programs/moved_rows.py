"""Describe parts on rows some of which take one variable from another row.

On inputs as they are, some values never meet, so more than one table, set of scores or limit of a sum fits. Which one
is the model's shows where a variable comes from another input, as in an interchange (see programs.interchange). So each
row is copied, and each copy takes the variable of one part, once that is described, from another row of its length.
Later parts are described and judged on what the model then gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Int
from torch import Tensor

from interp.measures.runs import Part
from interp.programs.decompile import describe, given, heads_elsewhere, program_of
from interp.programs.language import Program
from interp.programs.reading import Reading
from interp.programs.readout import readout
from interp.programs.running import Moved, Running
from interp.tasks.batch import Reads

COPIES = 2
"""Copies of each row."""


def described_on_moved_rows(reading: Reading) -> tuple[Reading, Program | None]:
    """The reading with its parts described anew, on the same rows and on copies that take a variable from another row;
    and the program of these parts."""
    before = reading.running.original
    running = with_copies(before)
    others = other_rows(running.batch.lengths, reading.matter)
    again = Reading(running, reading.check, reading.strict, reading.finer, others=others)
    again.made = given(running)
    again.without, again.pairs, again.matter = reading.without, reading.pairs, reading.matter
    describe(again)
    reached = readout(again)
    n = len(before.batch)
    replaced = {part: value[:n] for part, value in again.running.replaced.items()}
    plain = replace(
        reading, running=before.after(replaced), steps=again.steps, given=again.given, vectors=again.vectors,
        made={name: value[:n] for name, value in again.made.items()}, roles=again.roles, alike=again.alike,
        needed={name: where[:n] for name, where in again.needed.items()},
    )  # fmt: skip
    plain.elsewhere = heads_elsewhere(plain)
    return plain, None if reached is None else program_of(plain, reached)


def with_copies(running: Running) -> Running:
    """The rows, and then their copies."""
    n, reads, times = len(running.batch), running.reads, 1 + COPIES
    rows, first = torch.arange(n).repeat(times), n * torch.arange(times).repeat_interleave(len(reads))
    copies = Reads(reads.rows.repeat(times) + first, reads.positions.repeat(times), reads.classes.repeat(times))
    counts = None if running.counts is None else running.counts[rows]
    return replace(
        Running(running.subject, running.batch[rows], copies, counts),
        moved=Moved(running.answers.repeat(times), len(reads)),
    )


def other_rows(lengths: Int[Tensor, "rows"], parts: Sequence[Part]) -> dict[Part, Int[Tensor, "rows"]]:
    """For each part, the row from which each row takes the part's variable: itself, or another of the same length. Each
    copy takes the variable of one part, drawn at random."""
    numbers, n = torch.arange(len(lengths)), len(lengths) // (1 + COPIES)
    random = torch.Generator().manual_seed(0)
    other = numbers.clone()
    for length in lengths.unique():
        copies, rows = (lengths == length).nonzero()[:, 0], (lengths[:n] == length).nonzero()[:, 0]
        other[copies] = rows[torch.randint(len(rows), (len(copies),), generator=random)]
    turn = torch.randint(len(parts), (len(lengths),), generator=random)
    return {part: torch.where((numbers >= n) & (turn == at), other, numbers) for at, part in enumerate(parts)}
