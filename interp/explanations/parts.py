"""What the parts of a model do: which are not needed, and which can be replaced by ideal forms.

Greedy and honest: parts are cut first, from those that matter least on, as long as the answers stay; of the parts left,
each head's pattern and each part's output is tried against every mechanism; at last all ideal outputs are put in
together, and those that break the whole are given up, worst first. What is left over is "not explained".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from interp.measures.runs import Part, heads_of, mlps_of
from interp.mechanisms.base import Finding, found
from interp.mechanisms.bench import Bench, Edit, Kept, Mean, OutOfTime

T = TypeVar("T")
CLOSE = 0.9
"""How close a head's own pattern must be to the ideal one before a sentence says that it looks so."""

INSIDE = 0.5
"""How much of the variance of a head's values, and how many of an MLP's neurons, what is said must give."""


@dataclass(frozen=True)
class Role:
    """What became of one part.

    status: "cut" (its mean does as well), "explained" (an ideal form of what it puts out does as well), or "kept" (it
    resists). looks: of a head, where it looks; inside: what it moves from there, or what the neurons of an MLP follow;
    carries: what it puts out.
    """

    part: Part
    status: str
    looks: Finding | None = None
    inside: Finding | None = None
    carries: Finding | None = None


@dataclass(frozen=True)
class Roles:
    """All parts; cut and joint: what stays with parts cut, and with everything replaced at once; empty: with every part
    cut; complete: the time was enough to try everything."""

    roles: tuple[Role, ...]
    cut: Kept
    joint: Kept
    empty: Kept
    complete: bool

    def of(self, status: str) -> list[Role]:
        return [role for role in self.roles if role.status == status]


def roles(bench: Bench, share: float) -> Roles:
    """Cut, then replace, until the bench's clock says that the time is over; then with what there is."""
    parts = [*heads_of(bench.subject), *mlps_of(bench.subject)]
    means = {part: Mean.of(bench, part) for part in parts}
    cut: list[Part] = []
    in_time = within(bench, lambda: _cut(bench, parts, means, (1 + share) / 2, cut), False)
    edits: list[Edit] = [means[part] for part in cut]
    left = [part for part in parts if part not in cut]
    looks: dict[Part, Finding | None] = {}
    inside: dict[Part, Finding | None] = {}
    carries: dict[Part, Finding | None] = {}
    for part in left:  # what parts carry first: it says more than where they look
        carries[part] = within(bench, partial(found, bench, part, "output", edits, share), None)
    for part in left:
        inside[part] = within(bench, partial(found, bench, part, "inside", edits, share, INSIDE), None)
        if part.head is not None:
            looks[part] = within(bench, partial(found, bench, part, "pattern", edits, share, CLOSE), None)
    in_time = in_time and bench.clock.left > 0
    bench.clock.until = math.inf  # the few runs that judge what was found
    used, joint = _together(bench, edits, [one for one in carries.values() if one is not None], share)
    made = []
    for part in parts:
        if part in cut:
            made.append(Role(part, "cut"))
        else:
            kept = carries[part] if carries[part] in used else None
            status = "explained" if kept is not None else "kept"
            made.append(Role(part, status, looks.get(part), inside[part], kept))
    everything = bench.kept(list(means.values()))
    return Roles(tuple(made), bench.kept(edits), joint, everything, in_time)


def within(bench: Bench, work: Callable[[], T], otherwise: T) -> T:
    """What the work gives, or something else where the bench's time is over first."""
    try:
        bench.clock.check()
        return work()
    except OutOfTime:
        return otherwise


def _cut(bench: Bench, parts: Sequence[Part], means: dict[Part, Mean], share: float, cut: list[Part]) -> bool:
    """Parts that are not needed, taken out one after the other, from those that matter least on; into `cut`."""
    alone = []
    for part in parts:
        kept = bench.kept([means[part]])
        alone.append((kept.least, kept.share, part))
    for least, _, part in sorted(alone, key=lambda one: (-one[0], -one[1], one[2].layer)):
        if least < share:
            break
        if bench.kept([*(means[one] for one in cut), means[part]]).least >= share:
            cut.append(part)
    return True


def _together(
    bench: Bench, edits: Sequence[Edit], findings: Sequence[Finding], share: float
) -> tuple[list[Finding], Kept]:
    """The ideal outputs that can stand in together, and what stays with them."""
    used = sorted(findings, key=lambda one: one.kept.least)
    while True:
        kept = bench.kept([*edits, *(one.proposal.edit for one in used)])
        if kept.least >= share or not used:
            return used, kept
        used = used[1:]
