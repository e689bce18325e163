"""What an explanation found: how many of the model's answers a program gives, and what became of each part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from interp import words


@dataclass(frozen=True)
class Agreement:
    """How many of a model's answers a program gives.

    n answers on the inputs that `on` names ("on all 12,769 inputs"), `changed` of them another one than the model's;
    right and wrong: the shares among the answers that the model gets right and wrong (None: there are none). low, high:
    the 95% interval of the share (equal where the inputs are all inputs).
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
    """One part of a model, in words: "cut", "explained" or "kept"; where a head looks, what it moves from there (of
    an MLP: what its neurons follow), what it carries.

    looks_kept, inside_kept, carries_kept: the share of the model's answers that stays with the ideal form in its place.
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
