"""Find the roles of a model's parts: which are not needed, and which can be replaced by an ideal form.

The search is greedy. First, parts are cut, least important first, as long as the answers stay the same. Then every
mechanism is tried on the pattern of each remaining head, and on the inside and the output of each remaining part.
Finally, all ideal outputs are put in place together. As long as they change too many answers, the worst one is dropped.
The parts without an ideal output are "not explained".
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
"""Least agreement of a head's pattern with the ideal one for a statement about where it attends."""

INSIDE = 0.5
"""Least share of the variance of a head's values, or of an MLP's neurons, that a description must explain."""


@dataclass(frozen=True)
class Role:
    """The role of one part.

    status: "cut" (its mean works as well), "explained" (an ideal form of its output works as well), or "kept" (neither
    does). looks: where a head attends. inside: what it reads there, or what an MLP's neurons depend on. carries: what
    its output represents.
    """

    part: Part
    status: str
    looks: Finding | None = None
    inside: Finding | None = None
    carries: Finding | None = None


@dataclass(frozen=True)
class Roles:
    """The roles of all parts.

    cut, joint, empty: the answers kept with the unneeded parts cut, with all replacements together, and with every part
    cut. complete: whether there was time to try everything.
    """

    roles: tuple[Role, ...]
    cut: Kept
    joint: Kept
    empty: Kept
    complete: bool

    def of(self, status: str) -> list[Role]:
        return [role for role in self.roles if role.status == status]


def roles(bench: Bench, share: float) -> Roles:
    """Cut parts, then try replacements for the others, until the time limit; return the roles found by then."""
    parts = [*heads_of(bench.subject), *mlps_of(bench.subject)]
    means = {part: Mean.of(bench, part) for part in parts}
    cut: list[Part] = []
    in_time = within(bench, lambda: _cut(bench, parts, means, (1 + share) / 2, cut), False)
    edits: list[Edit] = [means[part] for part in cut]
    left = [part for part in parts if part not in cut]
    looks: dict[Part, Finding | None] = {}
    inside: dict[Part, Finding | None] = {}
    carries: dict[Part, Finding | None] = {}
    for part in left:  # outputs come first: what a part carries explains more than where it attends
        carries[part] = within(bench, partial(found, bench, part, "output", edits, share), None)
    for part in left:
        inside[part] = within(bench, partial(found, bench, part, "inside", edits, share, INSIDE), None)
        if part.head is not None:
            looks[part] = within(bench, partial(found, bench, part, "pattern", edits, share, CLOSE), None)
    in_time = in_time and bench.clock.left > 0
    bench.clock.until = math.inf  # the final checks take only a few runs
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
    """Return the result of the work, or `otherwise` if the bench's time runs out first."""
    try:
        bench.clock.check()
        return work()
    except OutOfTime:
        return otherwise


def _cut(bench: Bench, parts: Sequence[Part], means: dict[Part, Mean], share: float, cut: list[Part]) -> bool:
    """Add the parts that are not needed to `cut`, one by one, least important first."""
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
    """Return the ideal outputs that can replace parts together, and the answers kept with them."""
    used = sorted(findings, key=lambda one: one.kept.least)
    while True:
        kept = bench.kept([*edits, *(one.proposal.edit for one in used)])
        if kept.least >= share or not used:
            return used, kept
        used = used[1:]
