"""Findings of an explanation: the program's agreement with the model, and the result for each part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from interp import words


@dataclass(frozen=True)
class Agreement:
    """The agreement of a program with a model.

    n: number of answers compared. changed: number of answers that differ from the model's. on: the inputs in words ("on
    all 12,769 inputs"). right, wrong: agreement where the model is right and where it is wrong (None without such
    answers). low, high: 95% interval of the share (both equal the share if all inputs were compared).
    """

    n: int
    changed: int
    share: float
    low: float
    high: float
    right: float | None
    wrong: float | None
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
    """One part of a model, in words: its status ("cut", "explained" or "kept"), where a head attends, what it moves
    (for an MLP: what its neurons respond to), and the quantity that it carries.

    looks_kept, inside_kept, carries_kept: the share of the model's answers that stay the same with the ideal form.
    """

    part: str
    status: str
    looks: str | None = None
    looks_kept: float | None = None
    inside: str | None = None
    inside_kept: float | None = None
    carries: str | None = None
    carries_kept: float | None = None
    quantities: tuple[Any, ...] = ()
