"""Values of other rows: what the model answers with them, and how often a description of a part says the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.measures.runs import Part
from interp.models.architecture.blocks import PostNormBlock
from interp.programs.reading import Reading
from interp.programs.steps import Features, Step

Described: TypeAlias = tuple[list[Step], Tensor, Tensor]
"""Steps of a part, the vector of each value of the last one's variable, and the value of the part that these give."""


@dataclass(frozen=True, eq=False)
class Swapped:
    """Rows in which a part reads one of its sources from another row, each row another source: the variables then, the
    residual stream that the part reads, what it writes, and the model's answers. source: the number of the one that is
    moved, of each read; -1 where there is no other row."""

    part: Part
    features: Features
    stream: Float[Tensor, "rows length d_model"]
    value: Float[Tensor, "rows length d"]
    answers: Int[Tensor, "reads"]
    source: Int[Tensor, "reads"]


def as_swapped(reading: Reading, part: Part) -> list[Swapped]:
    """Rows in which a part reads one of its sources from another row, drawn twice, if the reading asks for them."""
    running = reading.running
    if not reading.of_other_rows or isinstance(running.blocks[part.layer], PostNormBlock) or not running.paths:
        return []
    found = []
    for rows, moved in reading.tried.other_rows:
        change = {name: one.flatten(0, 1)[rows] - one for name, one in reading.sources(part).items()}
        change = {name: one for name, one in change.items() if bool(one.any())}
        given, turn = dict[str, Tensor](), torch.arange(len(rows)) % max(1, len(change))
        for n, source in enumerate(change):
            here = (turn == n)[:, None, None]
            change[source] = change[source] * here
            made = {name: reading.made[name] for name in reading.of_part(source)}
            given |= {name: value.flatten(0, 1)[rows].where(here, value) for name, value in made.items()}
        out = running.mlp_on(part.layer, change) if part.head is None else running.head_on(part, "qkv", change)
        stream = running.stream(change, part.layer, reads=False, attention=part.head is not None)
        answers = running.answers_with({part: out})
        moves = turn[running.reads.rows].where(moved, -1)
        found.append(Swapped(part, reading.remade(given), stream, out, answers, moves))
    return found


def same_when_swapped(reading: Reading, described: Described, swapped: Sequence[Swapped]) -> float:
    """How often the description of a part gives these answers, for the source of which it gives fewest."""
    steps, vectors, value = described
    own, given = reading.variable(*steps), list[Tensor]()
    for one in swapped:
        new = value + ((applied(steps, one.features, reading) - own) @ vectors.double()).float()
        answers = reading.running.answers_with({one.part: new})
        given.append(torch.stack([one.answers, answers, reading.running.answers, one.source]))
    if not given:
        return 1.0
    model, answers, before, source = torch.cat(given, 1)
    each = (source == n for n in source[source >= 0].unique())
    return min((as_often(model[here], answers[here], before[here]) for here in each), default=1.0)


def applied(steps: Sequence[Step], features: Features, reading: Reading) -> Tensor:
    """The variable that the last of these steps makes of other variables."""
    made = dict(features)
    for step in steps:
        made[step.name] = step.applied(made, reading.seen)
    return made[steps[-1].name]


def answers_elsewhere(reading: Reading, part: Part) -> list[Int[Tensor, "reads"]]:
    """What the model answers with a part's value from another row, for each draw of rows."""
    value = reading.running.value(part).flatten(0, 1)
    return [reading.running.answers_with({part: value[rows]}) for rows, _ in reading.tried.other_rows]


def same_elsewhere(
    reading: Reading, part: Part, value: Tensor, model: Sequence[Int[Tensor, "reads"]] | None = None
) -> float:
    """The share of the model's answers that stay if a part's value from another row is replaced by what its
    description gives in that row. model: these answers; see answers_elsewhere."""
    if not reading.of_other_rows:
        return 1.0
    running, shares = reading.running, list[float]()
    for (rows, moved), given in zip(reading.tried.other_rows, model or answers_elsewhere(reading, part), strict=True):
        described = running.answers_with({part: value.flatten(0, 1)[rows]})
        shares.append(as_often(given[moved], described[moved], running.answers[moved]))
    return min(shares)


def as_often(model: Int[Tensor, "reads"], described: Int[Tensor, "reads"], before: Int[Tensor, "reads"]) -> float:
    """How often a description gives the model's answers: the smaller share of those that changed and of those that
    stayed."""
    changed, same = model != before, (model == described).double()
    shares = (float(same[where].mean()) for where in (changed, ~changed) if bool(where.any()))
    return min(shares, default=1.0)
