"""Findings of an explanation: how often a program and a model agree, and what was found about each part."""

from __future__ import annotations

from dataclasses import dataclass

from interp import words


@dataclass(frozen=True)
class Agreement:
    """The agreement of a program with a model.

    n: number of answers compared. changed: number of answers that differ from the model's. least: the share for the
    frequent answer (at least 1% of all) for which it is smallest. on: the inputs in words ("on all 12,769 inputs").
    low, high: 95% interval of the share (both equal the share if all inputs were compared).
    """

    n: int
    changed: int
    share: float
    least: float
    low: float
    high: float
    on: str

    @property
    def exact(self) -> bool:
        return self.low == self.high

    def __str__(self) -> str:
        said = f"{'all' if not self.changed else words.share(self.share)} of the model's answers {self.on}"
        if self.exact:
            return said
        return f"{said} (95% interval {words.at_least(self.low)} to {words.at_most(self.high)})"


@dataclass(frozen=True)
class PartRole:
    """What was found about one part.

    status: "explained" (its description takes its place in the running model), "kept" (it matters, and no description
    takes its place), "minor" (it matters, but for fewer answers than a description may change) or "not used" (with its
    mean over positions of the same kind in its place, together with that of all parts not used, the answers stay).
    does: the description in words; brief: without numbers. variable: what it makes, in words, if that is known.
    without: the share of the model's answers that stay with this part at its mean, together with all that are minor or
    not used.
    kept: the share that stays with the description in the part's place, and with those of earlier parts.
    elsewhere: how much of the model's attention goes elsewhere than a described head's (mean total variation, where the
    head matters).
    """

    part: str
    status: str
    does: str = ""
    brief: str = ""
    variable: str = ""
    without: float | None = None
    kept: float | None = None
    note: str = ""
    elsewhere: float | None = None
