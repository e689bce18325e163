"""Interchange interventions: what a model answers if a variable has its value from another input.

A base input runs with a variable's places at their values on a source input. The causal model (a program, or a
hypothesis) says which answer must come out. The interchange intervention accuracy is the share of cases in which the
model gives this answer (Geiger et al. 2021, arXiv:2106.02997), here apart for the cases in which the causal model says
that the answer changes and those in which it says that it stays: an intervention without any effect is right in all of
the latter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from jaxtyping import Bool
from torch import Tensor

from interp.support import words
from interp.tasks.scores import Score

LEAST, LOWEST = 0.95, 0.9
"""Least interchange intervention accuracy of a variable that is the model's own, and least lower end of its 95%
interval."""
UNDECIDED = -3
"""What a causal model answers where several answers are equally good: it does not say which, so this is no case."""
FEW = 35
"""With fewer cases, the interval never begins that high: all must be right then, and where answers change, nothing is
shown."""

Verdict: TypeAlias = Literal["shown", "refuted", "too few cases"]


@dataclass(frozen=True)
class Cases(Score):
    """In how many of n cases a model answers as it must. rows: base inputs, of which each may have several answers."""

    @classmethod
    def of(cls, good: Bool[Tensor, "cases"], rows: Tensor, exact: bool = False) -> Cases:
        """good: whether the answer is as it must be. rows: the base input of each case."""
        return cls(len(good), int(good.sum()), len(rows.unique()), exact)

    def __add__(self, other: Cases) -> Cases:
        exact = all(cases.exact for cases in (self, other) if cases.n)
        return Cases(self.n + other.n, self.right + other.right, max(self.rows, other.rows), exact)

    @property
    def shown(self) -> bool:
        """Whether these are enough cases, with enough right ones."""
        few = self.right == self.n if self.n < FEW else self.low >= LOWEST
        return self.n == 0 or (self.accuracy >= LEAST and (few or self.exact))

    @property
    def refuted(self) -> bool:
        """Whether these are enough cases to tell that too many are wrong."""
        if not self.n or self.accuracy >= LEAST:
            return False
        return self.exact or min(self.n, self.rows) >= FEW or self.high < LEAST

    def __str__(self) -> str:
        if not self.n:
            return "no case"
        low, high = self.interval
        interval = "" if low == high else f" ({words.at_least(low)} to {words.at_most(high)})"
        return f"{words.share(self.accuracy)}{interval}, n = {self.n:,}"


@dataclass(frozen=True)
class Interchange:
    """The interchange intervention accuracy of some variables that are interchanged together.

    changes, stays: the cases in which the causal model's answer changes (to one that is not the model's own answer
    either, so that without any effect none is right), and those in which it stays. how: the pairs of base and source,
    in words. undecided: in how many, of those tried, the causal model has no answer, because two are as good as each
    other; these are in neither.
    """

    changes: Cases
    stays: Cases
    how: str = ""
    undecided: int = 0
    tried: int = 0

    @classmethod
    def of(
        cls, given: Tensor, wanted: Tensor, own: Tensor, before: Tensor, rows: Tensor, exact: bool = False,
        how: str = "",
    ) -> Interchange:  # fmt: skip
        """Score the answers that a model gives. wanted: those that it must give. own, before: the causal model's and
        the model's answers without an intervention; rows: the base inputs."""
        good = given == wanted
        changes, stays = (Cases.of(good[where], rows[where], exact) for where in split(wanted, own, before))
        return cls(changes, stays, how, int((wanted == UNDECIDED).sum()), len(wanted))

    @classmethod
    def none(cls) -> Interchange:
        """No case yet."""
        return cls(Cases(0, 0, 0), Cases(0, 0, 0))

    def __add__(self, other: Interchange) -> Interchange:
        tied, tried = self.undecided + other.undecided, self.tried + other.tried
        return Interchange(self.changes + other.changes, self.stays + other.stays, self.how or other.how, tied, tried)

    @property
    def accuracy(self) -> float:
        """The lower one of the accuracies where the answer changes and where it stays; NaN if it never changes."""
        if not self.changes.n:
            return float("nan")
        return min(cases.accuracy for cases in (self.changes, self.stays) if cases.n)

    @property
    def shown(self) -> bool:
        """Whether the variable is the model's own: the answer changes, and the model answers as the causal model."""
        enough = self.changes.exact or self.changes.n >= FEW
        return self.changes.n > 0 and enough and self.changes.shown and self.stays.shown

    @property
    def verdict(self) -> Verdict:
        """Whether the variable is the model's own, or not, or whether there are too few cases to tell."""
        if self.shown:
            return "shown"
        return "refuted" if self.changes.refuted or self.stays.refuted else "too few cases"

    def row(self) -> dict[str, Any]:
        """The columns of a table."""
        columns: dict[str, Any] = {}
        for name, cases in (("changes", self.changes), ("stays", self.stays)):
            columns |= {
                name: cases.accuracy,
                f"{name}_n": cases.n,
                f"{name}_low": cases.low,
                f"{name}_high": cases.high,
            }
        return columns


def split(wanted: Tensor, own: Tensor, before: Tensor) -> tuple[Bool[Tensor, "..."], Bool[Tensor, "..."]]:
    """Where an answer changes, and where it stays; see Interchange. Neither where it is UNDECIDED."""
    return (wanted != own) & (wanted != before) & (wanted != UNDECIDED), wanted == own
