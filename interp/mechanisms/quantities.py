"""Quantities: what a position may know of an input, each in words, as Python source and as a tensor.

A quantity is named by its kind and arguments, plain data: ["count", "0", "seen"]. Words, source and values follow from
these, so that a program on disk holds no source that anybody has to trust. Kinds are declared in kinds.py and the
quantities_* files; `candidates` lists those that make sense in a setting, simple ones first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jaxtyping import Int
from torch import Tensor

from interp.errors import InterpError, one_of
from interp.mechanisms import quantities_counts, quantities_order, quantities_steps
from interp.mechanisms.kinds import KINDS, NOTHING, Scope
from interp.mechanisms.setting import Setting, View

HELPERS = quantities_counts.HELPERS | quantities_order.HELPERS | quantities_steps.HELPERS
"""Functions that the source of a program needs, by the call that needs them."""


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
        """Its words where a reader knows the program, which has them in full: "the state after the string"."""
        return KINDS[self.kind].brief or self.words

    @property
    def code(self) -> str:
        return KINDS[self.kind].code(self.setting, *self.arguments)

    @property
    def inner(self) -> tuple[Quantity, ...]:
        """The quantities that it is computed from, as far as its kind names them."""
        return tuple(Quantity(self.setting, *one) for one in KINDS[self.kind].inner(self.setting, *self.arguments))

    @property
    def tokens(self) -> bool:
        """Are its values tokens?"""
        return KINDS[self.kind].tokens

    @property
    def constants(self) -> int:
        """How many numbers and tokens its definition names."""
        return _leaves(self.arguments)

    def values(self, view: View) -> Int[Tensor, "rows length"]:
        return KINDS[self.kind].values(view, *self.arguments).long()

    def spoken(self, value: int) -> Any:
        """A value as the source gives it: a token's word, a number, None for nothing."""
        if self.tokens:
            return None if value == NOTHING else self.setting.vocabulary[value]
        return value

    def has(self, value: int) -> str:
        """A clause that says that it has a value: "the number of 1s is 3", "the number of 1s is odd"."""
        spoken = self.spoken(value)
        special = KINDS[self.kind].has(self.setting, *self.arguments, value)
        return special or f"{self.words} is {'nothing' if spoken is None else spoken}"

    def to_json(self) -> list[Any]:
        return [self.kind, *_lists(self.arguments)]

    @classmethod
    def from_json(cls, setting: Setting, data: list[Any]) -> Quantity:
        return cls(setting, str(data[0]), _tuples(data[1:]))


def _leaves(argument: Any) -> int:
    """How many numbers and tokens an argument names."""
    if isinstance(argument, tuple):
        return sum(map(_leaves, argument))
    return int(argument not in ("seen", "upto", "from"))


def _lists(arguments: tuple[Any, ...]) -> list[Any]:
    return [_lists(one) if isinstance(one, tuple) else one for one in arguments]


def _tuples(arguments: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(_tuples(one) if isinstance(one, list | tuple) else one for one in arguments)


def candidates(setting: Setting, scopes: tuple[Scope, ...] = ("seen",)) -> list[Quantity]:
    """The quantities that make sense in a setting, in the order in which kinds are declared."""
    found = []
    for name, one in KINDS.items():
        for arguments in one.candidates(setting):
            if "seen" in arguments:
                for scope in scopes:
                    found.append(Quantity(setting, name, tuple(scope if a == "seen" else a for a in arguments)))
            else:
                found.append(Quantity(setting, name, arguments))
    return found
