"""Quantities: functions of an input and a position, in words, as Python source and as a tensor.

A quantity is plain data, its kind and arguments: ["count", "0"]. Words, source and values are derived from
these, so a program on disk contains no code. Kinds are declared in the kinds* files; `candidates` lists the
quantities that make sense in a setting, simple ones first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any

import numpy as np
from jaxtyping import Int
from torch import Tensor

from interp.errors import check_one_of
from interp.programs.explanations import kinds_in_order as kinds_in_order  # declares its kinds
from interp.programs.explanations.bench import Setting, View
from interp.programs.explanations.kinds import KINDS, NOTHING
from interp.programs.language import tuples


@dataclass(frozen=True)
class Quantity:
    """One quantity of a setting."""

    setting: Setting
    kind: str
    arguments: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        check_one_of("kind of quantity", self.kind, KINDS)

    @property
    def words(self) -> str:
        return self._said(KINDS[self.kind].words)

    @property
    def code(self) -> str:
        return self._said(KINDS[self.kind].code)

    def _said(self, text: str | Callable[..., str]) -> str:
        return text if isinstance(text, str) else text(self.setting, *self.arguments)

    @property
    def tokens(self) -> bool:
        """Whether the values are tokens."""
        return KINDS[self.kind].tokens

    @property
    def constants(self) -> int:
        """Number of constants (numbers and tokens) in the definition."""
        return _leaves(self.arguments)

    def values(self, view: View) -> Int[Tensor, "rows length"]:
        return KINDS[self.kind].values(view, *self.arguments).long()

    def spoken(self, value: int) -> Any:
        """Convert a value to what the source returns: a token's word, a number, or None."""
        if self.tokens:
            return None if value == NOTHING else self.setting.vocabulary[value]
        return value

    def said(self, value: int) -> str:
        """Write a value in a sentence."""
        spoken = self.spoken(value)
        return "nothing" if spoken is None else str(spoken)

    def has(self, value: int) -> str:
        """Return a clause that states a value: "the number of 1s is 3", "the number of 1s is odd"."""
        return KINDS[self.kind].has(self.setting, *self.arguments, value) or f"{self.words} is {self.said(value)}"

    def to_json(self) -> list[Any]:
        return [self.kind, *self.arguments]

    @classmethod
    def from_json(cls, setting: Setting, data: list[Any]) -> Quantity:
        """Make a quantity from plain data. Raises ValueError for text in the place of a number."""
        found = cls(setting, str(data[0]), tuples(data[1:]))
        parameters = [*signature(KINDS[found.kind].values).parameters.values()][1:]
        for parameter, argument in zip(parameters, found.arguments):
            if parameter.annotation in (int, "int") and type(argument) is not int:
                raise ValueError(f"{parameter.name} is no whole number")
        return found


def _leaves(argument: Any) -> int:
    """Count the constants in an argument."""
    return sum(map(_leaves, argument)) if isinstance(argument, tuple) else 1


def candidates(setting: Setting) -> list[Quantity]:
    """Return the quantities that make sense in a setting, in the order of their kinds' declarations."""
    return [Quantity(setting, name, arguments) for name, one in KINDS.items() for arguments in one.candidates(setting)]


def combine(values: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Number the combinations of values of several quantities; return each input's number, and the combinations."""
    codes, cells = np.zeros(len(values[0]), dtype=np.int64), np.zeros((1, 0), dtype=np.int64)
    for value in values:
        known, index = np.unique(value, return_inverse=True)
        codes = codes * len(known) + index
        seen, codes = np.unique(codes, return_inverse=True)
        cells = np.column_stack([cells[seen // len(known)], known[seen % len(known)]])
    return codes, cells
