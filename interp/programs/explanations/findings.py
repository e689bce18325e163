"""Findings of an explanation: how often a program and a model agree, what was found about each part, and its drawing.

The drawing shows the flow from the tokens to the answer. A vertical line is the residual stream. Each part that is used
reads from it and writes to it, layer by layer. The box of a part says what it does, without numbers. Text is wrapped
for the width of a phone; colors are those of the surrounding page.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from jaxtyping import Int
from torch import Tensor

from interp.measures.interchange import Interchange
from interp.programs.running import Kept
from interp.programs.words import parts_words
from interp.support import words
from interp.tasks.populations import Population
from interp.tasks.scores import wilson

WIDTH, LEFT, BOX = 400, 26, 56
"""Width of the drawing, x of the stream, and x of the boxes (pixels at full size)."""
LINE, PAD, GAP = 17, 10, 22
LETTERS, TITLE = 43, 36
"""Characters per line of a box, and per line of its title."""
USED, OUT = ("explained", "kept"), ("not used", "minor", "stands in")
"""The statuses of parts that are used, and of those that are at their means in the model that is described."""
READOUT = "the readout"
AT_ONCE = "all parts at once"
"""What reads more than is said, where no part reads more by itself."""
AT_ITS_MEANS = "adds its mean at each position, and little else that matters"
"""What a part does that the program does without, if it is explained all the same; its `kept` is of all such parts."""
STATUSES = (*USED, "not read", *OUT)
ARROW = "M0 0 L8 4 L0 8 z"


@dataclass(frozen=True)
class Agreement:
    """The agreement of a program with a model.

    n: number of answers compared. changed: number of answers that differ from the model's. least: the share for the
    frequent answer (at least 1% of all) for which it is smallest. on: the inputs in words ("on all 12,769 inputs");
    unless they are all, they are drawn apart from those on which the program was made.
    low, high: 95% interval of the share (both equal the share if all inputs were compared).
    """

    n: int
    changed: int
    share: float
    least: float
    low: float
    high: float
    on: str

    @classmethod
    def of(cls, given: Int[Tensor, "reads"], answers: Int[Tensor, "reads"], population: Population) -> Agreement:
        """Compare the given answers with those of a model on a population."""
        kept = Kept.of(given, answers)
        low, high = (kept.share, kept.share) if population.exact else wilson(kept.share, population.n)
        on = population.on if population.exact else f"{population.on}, drawn apart from those it was made on"
        return cls(kept.n, int((given != answers).sum()), kept.share, kept.least, low, high, on)

    @property
    def exact(self) -> bool:
        return self.low == self.high

    def __str__(self) -> str:
        text = f"{'all' if not self.changed else words.share(self.share)} of the model's answers {self.on}"
        if self.exact:
            return text
        return f"{text} (95% interval {words.at_least(self.low)} to {words.at_most(self.high)})"


@dataclass(frozen=True)
class PartRole:
    """What was found about one part.

    status: "explained" (its description takes its place in the running model), "kept" (it matters, and no description
    takes its place), "not read" (answers change without it, but the program gives them without it), "minor" (it
    matters, but for fewer answers than a description may change), "not used" (with its mean over positions of the same
    kind in its place, together with that of all parts not used, the answers stay) or "stands in" (not used or minor,
    but the answers change without the parts for which it stands in).
    does: the description in words; brief: without numbers. variable: what it makes, in words, if that is known.
    without: the share of the model's answers that stay with this part alone at its mean, all others as in the model.
    moved: the share that stays with its values at other positions of the same kind instead; of a part that matters
    although its mean alone changes next to nothing.
    kept: the share that stays with the description in the part's place, and with those of earlier parts.
    elsewhere: how much of the model's attention is given otherwise than a described head's: to other positions, or in
    other shares to the same ones (mean total variation, where the head matters). finds_none: of a head that selects
    positions by what is there, the share of its queries, where it matters, that see none and attend evenly to all; None
    if each sees one. only_from: of a head that attends to certain positions, whatever its own is: those from which it
    matters, if it attends otherwise from others.
    like: the part that the program reads in its place, because both carry the same. alike: the share that stays with
    that head's attention in its place, and of all others that are read as that head; None of parts that are known to
    carry the same by interchanges alone.
    """

    part: str
    status: str
    does: str = ""
    brief: str = ""
    variable: str = ""
    without: float | None = None
    moved: float | None = None
    kept: float | None = None
    note: str = ""
    elsewhere: float | None = None
    like: str = ""
    alike: float | None = None
    finds_none: float | None = None
    only_from: tuple[int, ...] | None = None


@dataclass(frozen=True)
class VariableRole:
    """A variable of a program, and whether the model computes with it.

    name: in words. places: the parts in which it lives, together. does: what makes it, in words. interchange: how often
    the model answers as the program does if the variable has its value from another input, in all its places.
    """

    name: str
    places: tuple[str, ...]
    does: str
    interchange: Interchange


@dataclass(frozen=True)
class PairRole:
    """Two variables of a program that are interchanged at once, with their values from two inputs."""

    variables: tuple[str, str]
    interchange: Interchange


@dataclass(frozen=True)
class StandIns:
    """Parts that stand in for each other: with any one of them at its mean, all or most answers stay, but not with all.

    left: the share of the model's answers that stay with all of them at their means. but_one: of three or more, the
    shares with all but each at their means: one may not be enough.
    """

    parts: tuple[str, ...]
    left: float
    but_one: tuple[float, ...] = ()


@dataclass(frozen=True)
class ReadsMore:
    """A part, or the readout, that reads more than the program says; or all of these at once.

    left: the share of the model's answers that stay if the rest of what it reads is from another input. most: what of
    the rest alone, from there, changes most of them; alone: the share that stays then. side: "q", "k" or "v"
    where only the queries, keys or values of a head read more.
    """

    reader: str
    left: float
    most: str = ""
    alone: float = 1.0
    side: str = ""


@dataclass(frozen=True)
class ReadsLess:
    """What a part, or the readout, reads in the program, while next to none of the model's answers follow from it.

    way: "query", "key" or "value" of a head, "in" of others. sources: what writes it. left: the share of the model's
    answers that stay if it alone is from elsewhere: from other inputs, or other positions.
    """

    reader: str
    way: str
    sources: tuple[str, ...]
    left: float


@dataclass(frozen=True)
class Cancelling:
    """Two parts that cancel: with either alone at its mean, answers change, but not with both.

    left: the share of the model's answers that stay with both at their means.
    """

    parts: tuple[str, ...]
    left: float


def svg(parts: Sequence[PartRole], answer: str = "") -> str:
    """Return the drawing as SVG; "" if no part is described."""
    shown = sorted((role for role in parts if role.status in USED), key=in_order)
    if not any(role.does for role in shown):
        return ""
    body, y = [], 12
    text, height = box(["the tokens"], [], y, LEFT - 14, plain=True)
    body.append(text)
    top = y + height
    y = top + GAP
    for alike in grouped(shown):
        role = alike[0]
        title = textwrap.wrap(parts_words([member.part for member in alike]), TITLE)
        text, height = box(title, lines(role), y, BOX, dashed=role.status == "kept")
        body += [text, arrow(LEFT, y + 12, BOX - 2, y + 12), arrow(BOX, y + height - 12, LEFT + 2, y + height - 12)]
        y += height + GAP
    bottom = y
    wrapped = textwrap.wrap(answer, LETTERS)
    text, height = box(["the answer"], wrapped, bottom, LEFT - 14, plain=True)
    body.append(text)
    stream = arrow(LEFT, top, LEFT, bottom - 2, wide=True)
    total = bottom + height + 12
    return (
        f'<svg role="img" viewBox="0 0 {WIDTH} {total}" width="{WIDTH}" height="{total}" '
        'style="max-width:100%;height:auto;font:13px/1.3 system-ui,sans-serif" fill="currentColor" '
        f'xmlns="http://www.w3.org/2000/svg"><title>{escape(in_words(shown))}</title>'
        f'<defs><marker id="explanation-arrow" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto" '
        f'markerUnits="userSpaceOnUse"><path d="{ARROW}"/></marker></defs>{stream}{"".join(body)}</svg>'
    )


def in_order(one: PartRole) -> tuple[int, bool, int]:
    """Sort key: layer by layer, heads before the MLP."""
    kind, number = one.part.split()
    layer, _, head = number.partition(".")
    return int(layer), kind == "MLP", int(head or 0)


def grouped(shown: Sequence[PartRole]) -> list[list[PartRole]]:
    """Group parts of one layer that do the same, so that each group has one box."""
    groups: dict[object, list[PartRole]] = {}
    for role in shown:
        groups.setdefault((in_order(role)[:2], role.status, tuple(lines(role))), []).append(role)
    return sorted(groups.values(), key=lambda group: in_order(group[0]))


def lines(one: PartRole) -> list[str]:
    """Describe a part in wrapped lines."""
    return textwrap.wrap("what it does is not described" if one.status == "kept" else one.brief, LETTERS)


def box(
    title: Sequence[str], text: Sequence[str], y: int, x: int, dashed: bool = False, plain: bool = False
) -> tuple[str, int]:
    """Draw a box with the lines of a title and of text; also return its height."""
    height = 2 * PAD + LINE * (len(title) + len(text)) - 2
    look = 'fill="none" stroke="currentColor" stroke-opacity=".55"'
    dashes = ' stroke-dasharray="4 3"' if dashed else ""
    radius = 12 if plain else 4
    drawn = [f'<rect x="{x}" y="{y}" width="{WIDTH - x - 6}" height="{height}" rx="{radius}" {look}{dashes}/>']
    rows = [*((line, ' font-weight="600"') for line in title), *((line, "") for line in text)]
    for number, (line, weight) in enumerate(rows):
        at = y + PAD + 11 + LINE * number
        drawn.append(f'<text x="{x + 12}" y="{at}"{weight}>{escape(line)}</text>')
    return "".join(drawn), height


def arrow(x1: int, y1: int, x2: int, y2: int, wide: bool = False) -> str:
    width = 2.5 if wide else 1.2
    return (
        f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="currentColor" stroke-width="{width}" '
        'marker-end="url(#explanation-arrow)"/>'
    )


def in_words(shown: Sequence[PartRole]) -> str:
    """Describe the drawing for screen readers."""
    parts = "; ".join(f"{role.part}: {' '.join(lines(role)) or 'needed'}" for role in shown)
    return f"From the tokens to the answer through {parts}."
