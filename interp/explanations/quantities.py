"""Quantities: functions of an input and a position, in words, as Python source and as a tensor.

A quantity is plain data, its kind and arguments: ["count", "0", "seen"]. Words, source and values are derived from
these, so a program on disk contains no code. Kinds are declared in kinds.py and the quantities_* files; `candidates`
lists the quantities that make sense in a setting, simple ones first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jaxtyping import Int
from torch import Tensor

from interp.errors import InterpError, one_of
from interp.explanations import quantities_counts, quantities_order, quantities_steps
from interp.explanations.kinds import KINDS, NOTHING, Scope
from interp.explanations.setting import Setting, View

HELPERS = quantities_counts.HELPERS | quantities_order.HELPERS | quantities_steps.HELPERS
"""Helper functions for the source of a program, by the call that needs them."""


@dataclass(frozen=True)
class Quantity:
    """One quantity of a setting."""

    setting: Setting
    kind: str
    arguments: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InterpError(one_of("kind of quantity", self.kind, KINDS))

    @property
    def words(self) -> str:
        return KINDS[self.kind].words(self.setting, *self.arguments)

    @property
    def brief(self) -> str:
        """A short name for readers who know the program, such as "the state after the string"."""
        return KINDS[self.kind].brief or self.words

    @property
    def code(self) -> str:
        return KINDS[self.kind].code(self.setting, *self.arguments)

    @property
    def inner(self) -> tuple[Quantity, ...]:
        """The quantities from which this one is computed, if its kind declares any."""
        return tuple(Quantity(self.setting, *one) for one in KINDS[self.kind].inner(self.setting, *self.arguments))

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

    def has(self, value: int) -> str:
        """Return a clause that states a value: "the number of 1s is 3", "the number of 1s is odd"."""
        spoken = self.spoken(value)
        special = KINDS[self.kind].has(self.setting, *self.arguments, value)
        return special or f"{self.words} is {'nothing' if spoken is None else spoken}"

    def to_json(self) -> list[Any]:
        return [self.kind, *_lists(self.arguments)]

    @classmethod
    def from_json(cls, setting: Setting, data: list[Any]) -> Quantity:
        return cls(setting, str(data[0]), _tuples(data[1:]))


def _leaves(argument: Any) -> int:
    """Count the constants in an argument."""
    if isinstance(argument, tuple):
        return sum(map(_leaves, argument))
    return int(argument not in ("seen", "upto", "from"))


def _lists(arguments: tuple[Any, ...]) -> list[Any]:
    return [_lists(one) if isinstance(one, tuple) else one for one in arguments]


def _tuples(arguments: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(_tuples(one) if isinstance(one, list | tuple) else one for one in arguments)


def candidates(setting: Setting, scopes: tuple[Scope, ...] = ("seen",)) -> list[Quantity]:
    """Return the quantities that make sense in a setting, in the order of their kinds' declarations."""
    found = []
    for name, one in KINDS.items():
        for arguments in one.candidates(setting):
            if "seen" in arguments:
                for scope in scopes:
                    found.append(Quantity(setting, name, tuple(scope if a == "seen" else a for a in arguments)))
            else:
                found.append(Quantity(setting, name, arguments))
    return found
