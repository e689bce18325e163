"""Describe parts on rows some of which take one variable from another row.

On inputs as they are, some values never meet, so more than one table, set of scores or limit of a sum fits. Which one
is the model's shows where a variable comes from another input, as in an interchange (see programs.interchange). So each
row is copied, and each copy takes the variable of one part, once that is described, from another row of its length.
Later parts are described and judged on what the model then gives.

Parts that stand in for others are described, too: which of them a variable is read by may show only there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Int
from torch import Tensor

from interp.measures.runs import Part
from interp.programs.decompile import describe, find_stand_ins, given, heads_elsewhere, program_of
from interp.programs.language import Program
from interp.programs.reading import Reading
from interp.programs.readout import readout
from interp.programs.running import Moved, Running
from interp.tasks.batch import Reads

COPIES = 2
"""Copies of each row."""
POSITIONS = 18_000
"""Most positions of the rows that are copied."""


def described_on_moved_rows(reading: Reading, drawn: int | None = None) -> tuple[Reading, Program | None]:
    """The reading with its parts described anew, on its rows (or some, of many) and on copies that take a variable from
    another row; and the program of these parts. drawn: how many of its rows, the first ones, are no edges; see
    `explanations.engine.with_edges`."""
    used = {*reading.matter, *idle(reading)}
    reading = on_fewer(reading, drawn)
    before = reading.running.original
    running, matter = with_copies(before), [part for part in before.parts if part in used]
    again = Reading(running, reading.check, reading.strict, others=other_rows(running.batch.lengths, matter))
    again.made = given(running)
    again.without, again.pairs, again.matter = reading.without, reading.pairs, matter
    describe(again)
    found = readout(again)
    n = len(before.batch)
    replaced = {part: value[:n] for part, value in again.running.replaced.items()}
    plain = replace(
        reading, running=before.after(replaced), matter=matter, steps=again.steps, given=again.given,
        vectors=again.vectors,
        made={name: value[:n] for name, value in again.made.items()}, lows=again.lows, roles=again.roles,
        alike=again.alike, needed={name: where[:n] for name, where in again.needed.items()},
    )  # fmt: skip
    plain.elsewhere = heads_elsewhere(plain)
    return plain, None if found is None else program_of(plain, found)


def on_fewer(reading: Reading, drawn: int | None) -> Reading:
    """The reading, on as many rows as are copied. Of many, edges are left out: with a variable of another row, they are
    like no input, and a description that fails on one of few rows would not do."""
    batch = reading.running.batch
    n = max(1, POSITIONS // batch.tokens.shape[1])
    if len(batch) <= n or reading.running.counts is not None:
        return reading
    drawn = len(batch) if drawn is None else drawn
    some = torch.randperm(drawn, generator=torch.Generator().manual_seed(0))[:n].sort().values
    fewer = replace(reading, running=Running.of(reading.running.subject, batch[some]))
    fewer.without = {part: fewer.left([part]) for part in reading.without}
    find_stand_ins(fewer)
    return fewer


def idle(reading: Reading) -> list[Part]:
    """The parts that stand in for parts that matter, and that the reading does without."""
    groups = (group for group in reading.groups if not set(group).isdisjoint(reading.matter))
    return [part for group in groups for part in group if part not in reading.matter]


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
    each, n = torch.arange(len(lengths)), len(lengths) // (1 + COPIES)
    random = torch.Generator().manual_seed(0)
    other = each.clone()
    for length in lengths.unique():
        copies, rows = (lengths == length).nonzero()[:, 0], (lengths[:n] == length).nonzero()[:, 0]
        other[copies] = rows[torch.randint(len(rows), (len(copies),), generator=random)]
    turn = torch.randint(len(parts), (len(lengths),), generator=random)
    return {part: torch.where((each >= n) & (turn == at), other, each) for at, part in enumerate(parts)}
