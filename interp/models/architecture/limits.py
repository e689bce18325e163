"""Length limits: the longest strings on which a constructed model is exact, by dtype."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from interp.errors import InterpError, check_one_of


@dataclass(frozen=True)
class LengthLimit:
    """The longest strings on which a proof holds in finite precision.

    name: the model's name, for messages. longest: number of symbols by dtype name; 0 or missing: the dtype cannot
    represent the model. marks: number of tokens per row that are not symbols, such as CLS. beyond: "refuse" raises an
    error for longer strings, "warn" warns.
    """

    name: str
    longest: Mapping[str, int]
    marks: int
    beyond: str = "refuse"

    def __post_init__(self) -> None:
        check_one_of("value of beyond", self.beyond, ("refuse", "warn"))

    def in_dtype(self, dtype: torch.dtype) -> int:
        """Return the longest length in a dtype."""
        return self.longest.get(str(dtype).removeprefix("torch."), 0)

    def check(self, n_tokens: int, dtype: torch.dtype) -> None:
        """Raise InterpError, or warn, if a row of n_tokens tokens is too long for a dtype."""
        length, longest = n_tokens - self.marks, self.in_dtype(dtype)
        if length <= longest:
            return
        others = ", ".join(f"{most} in {name}" for name, most in self.longest.items())
        here = str(dtype).removeprefix("torch.")
        message = f"a string of length {length}: {self.name} is exact up to length {longest} in {here} ({others})"
        if self.beyond == "refuse":
            raise InterpError(f"{message}; with beyond='warn', it runs anyway")
        warnings.warn(message, stacklevel=3)
