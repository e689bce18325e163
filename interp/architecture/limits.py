"""Up to which length a model is exact, number format by number format, and what happens beyond."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from interp.errors import InterpError, one_of


@dataclass(frozen=True)
class LengthLimit:
    """The longest strings on which a proof holds in finite precision.

    name: whose limit it is. longest: number of symbols by dtype name; a dtype that is missing, or at 0, cannot hold
    the model at all. marks: tokens of a row that are no symbols. beyond: "refuse" raises, "warn" warns.
    """

    name: str
    longest: Mapping[str, int]
    marks: int
    beyond: str = "refuse"

    def __post_init__(self) -> None:
        if self.beyond not in ("refuse", "warn"):
            raise InterpError(one_of("value of beyond", self.beyond, ("refuse", "warn")))

    def in_dtype(self, dtype: torch.dtype) -> int:
        """The longest string in a number format."""
        return self.longest.get(str(dtype).removeprefix("torch."), 0)

    def check(self, n_tokens: int, dtype: torch.dtype) -> None:
        """Raise InterpError, or warn, for a row of more tokens than the number format can hold."""
        length, longest = n_tokens - self.marks, self.in_dtype(dtype)
        if length <= longest:
            return
        others = ", ".join(f"{most} in {name}" for name, most in self.longest.items())
        here = str(dtype).removeprefix("torch.")
        message = f"a string of length {length}: {self.name} is exact up to length {longest} in {here} ({others})"
        if self.beyond == "refuse":
            raise InterpError(f"{message}; beyond='warn' builds it to run all the same")
        warnings.warn(message, stacklevel=3)
