"""Quantities: what a position may know of an input, each in words, as Python source and as a tensor.

A quantity is named by its kind and arguments, plain data: ["count", "0", "seen"]. Words, source and values follow from
these, so that a program on disk holds no source that anybody has to trust. In the source, `tokens` are the words of a
row, `i` is the position, `seen` what is visible from there, and `string` the content of it (without marks).

Kinds are declared by @kind below and in the files beside this one; `candidates` lists those that make sense in a
setting, simple ones first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Int
from torch import Tensor

from interp.errors import InterpError, one_of
from interp.mechanisms.setting import Setting, View

Scope = Literal["seen", "upto", "from"]
FEW = 6
"""Tokens of the content up to which each of them, and each pair, has quantities of its own."""
NOTHING = -1
"""The value where there is nothing: the token before the first one."""


@runtime_checkable
class Kind(Protocol):
    """A kind of quantity; each method takes the arguments that name one.

    A kind may also say in words that it has a value, where "is" and a number would be clumsy: has(setting, *arguments,
    value), "" for other values.
    """

    tokens: bool
    """Are its values tokens (ids), and not numbers?"""

    @staticmethod
    def candidates(setting: Setting) -> Iterator[tuple[Any, ...]]:
        """Arguments of those that make sense."""

    @staticmethod
    def words(setting: Setting, *arguments: Any) -> str:
        """What it is: "the number of 1s"."""

    @staticmethod
    def code(setting: Setting, *arguments: Any) -> str:
        """A Python expression of tokens, i, seen and string."""

    @staticmethod
    def values(view: View, *arguments: Any) -> Int[Tensor, "rows length"]:
        """Its value at each position; NOTHING where there is none."""


_KINDS: dict[str, type[Kind]] = {}


def kind(name: str) -> Callable[[type], type]:
    """Declare a kind of quantity."""

    def register(cls: type) -> type:
        _KINDS[name] = cls
        return cls

    return register


@dataclass(frozen=True)
class Quantity:
    """One quantity of a setting."""

    setting: Setting
    kind: str
    arguments: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        declare()
        if self.kind not in _KINDS:
            raise InterpError(one_of("kind of quantity", self.kind, _KINDS))

    @property
    def words(self) -> str:
        return _KINDS[self.kind].words(self.setting, *self.arguments)

    @property
    def brief(self) -> str:
        """Its words where a reader knows the program, which has them in full: "the state after the string"."""
        special = getattr(_KINDS[self.kind], "brief", None)
        return self.words if special is None else special

    @property
    def code(self) -> str:
        return _KINDS[self.kind].code(self.setting, *self.arguments)

    @property
    def inner(self) -> tuple[Quantity, ...]:
        """The quantities that it is computed from, as far as its kind names them."""
        named = getattr(_KINDS[self.kind], "inner", None)
        return (
            () if named is None else tuple(Quantity(self.setting, *one) for one in named(self.setting, *self.arguments))
        )

    @property
    def tokens(self) -> bool:
        """Are its values tokens?"""
        return _KINDS[self.kind].tokens

    @property
    def constants(self) -> int:
        """How many numbers and tokens its definition names."""
        return _leaves(self.arguments)

    def values(self, view: View) -> Int[Tensor, "rows length"]:
        return _KINDS[self.kind].values(view, *self.arguments).long()

    def spoken(self, value: int) -> Any:
        """A value as the source gives it: a token's word, a number, None for nothing."""
        if self.tokens:
            return None if value == NOTHING else self.setting.vocabulary[value]
        return value

    def has(self, value: int) -> str:
        """A clause that says that it has a value: "the number of 1s is 3", "the number of 1s is odd"."""
        special = getattr(_KINDS[self.kind], "has", None)
        said = None if special is None else special(self.setting, *self.arguments, value)
        spoken = self.spoken(value)
        return said or f"{self.words} is {'nothing' if spoken is None else spoken}"

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


def declare() -> None:
    """Import the files that declare kinds."""
    import interp.mechanisms.quantities_counts
    import interp.mechanisms.quantities_order
    import interp.mechanisms.quantities_steps  # noqa: F401


def candidates(setting: Setting, scopes: tuple[Scope, ...] = ("seen",)) -> list[Quantity]:
    """The quantities that make sense in a setting, in the order in which kinds are declared."""
    declare()
    found = []
    for name, cls in _KINDS.items():
        for arguments in cls.candidates(setting):
            if "seen" in arguments:
                for scope in scopes:
                    found.append(Quantity(setting, name, tuple(scope if a == "seen" else a for a in arguments)))
            else:
                found.append(Quantity(setting, name, arguments))
    return found


def where(scope: str) -> str:
    """The string that a scope names, in source: the string itself, or the part of it up to or from position i."""
    return {"seen": "string", "upto": "content(tokens[: i + 1])", "from": "content(tokens[i:])"}[scope]


def said(scope: str) -> str:
    """What a scope adds to words."""
    return {"seen": "", "upto": " up to its own position", "from": " from its own position on"}[scope]


# ---------------------------------------------------------------- the token itself and those at fixed places


@kind("own")
class Own:
    """The token at the position itself."""

    tokens = True

    @staticmethod
    def candidates(setting: Setting) -> Iterator[tuple[Any, ...]]:
        yield ()

    @staticmethod
    def words(setting: Setting) -> str:
        return "its own token"

    @staticmethod
    def code(setting: Setting) -> str:
        return "tokens[i]"

    @staticmethod
    def values(view: View) -> Tensor:
        return view.tokens.masked_fill(~view.mask, NOTHING)


@kind("place")
class Place:
    """The token at a fixed place of the string, counted from 0, or from -1 at its end."""

    tokens = True

    @staticmethod
    def candidates(setting: Setting) -> Iterator[tuple[Any, ...]]:
        for at in (0, -1, 1, *(() if setting.causal else (-2,))):  # where causal, the token before it says so
            yield (at, "seen")

    @staticmethod
    def words(setting: Setting, at: int, scope: str) -> str:
        n = abs(at) if at < 0 else at + 1
        number = {1: "", 2: "second ", 3: "third "}.get(n, f"{n}th ")
        end = "last" if at < 0 else "first" if n == 1 else ""
        return f"the {number}{end}{' ' if end else ''}token{said(scope)}"

    @staticmethod
    def code(setting: Setting, at: int, scope: str) -> str:
        source, least = where(scope), -at if at < 0 else at + 1
        return f"({source}[{at}] if len({source}) >= {least} else None)"

    @staticmethod
    def values(view: View, at: int, scope: str) -> Tensor:
        content = view.content.long()
        rank = content.cumsum(1)  # 1 at the first token of the string
        length = view.total(content, scope)
        before = rank - content if scope == "from" else torch.zeros_like(rank)  # content left of the position
        wanted = before + (length + at + 1 if at < 0 else torch.full_like(length, at + 1))
        # The position of the wanted-th token of the content, for each position that asks.
        order = torch.full((len(rank), rank.shape[1] + 2), NOTHING)
        order.scatter_(1, torch.where(view.content, rank, 0), torch.where(view.content, view.tokens, NOTHING))
        order[:, 0] = NOTHING
        least = -at if at < 0 else at + 1
        found = order.gather(1, wanted.clamp(0, rank.shape[1]))
        return torch.where(length >= least, found, NOTHING)


@kind("neighbor")
class Neighbor:
    """The token so many places to the right (negative: to the left)."""

    tokens = True

    @staticmethod
    def candidates(setting: Setting) -> Iterator[tuple[Any, ...]]:
        for offset in (-1, -2, -3, *(() if setting.causal else (1,))):
            yield (offset,)

    @staticmethod
    def words(setting: Setting, offset: int) -> str:
        side = "before" if offset < 0 else "behind"
        return f"the token {side} it" if abs(offset) == 1 else f"the token {abs(offset)} places {side} it"

    @staticmethod
    def code(setting: Setting, offset: int) -> str:
        at = f"i {'-' if offset < 0 else '+'} {abs(offset)}"
        return f"(tokens[{at}] if 0 <= {at} < len(tokens) else None)"

    @staticmethod
    def values(view: View, offset: int) -> Tensor:
        length = view.tokens.shape[1]
        at = view.place + offset
        inside = (at >= 0) & (at < length)
        found = view.tokens[:, at.clamp(0, length - 1)]
        there = view.mask[:, at.clamp(0, length - 1)] & inside
        return found.masked_fill(~there, NOTHING)


@kind("position")
class Position:
    """The position, from 0."""

    tokens = False

    @staticmethod
    def candidates(setting: Setting) -> Iterator[tuple[Any, ...]]:
        yield ()

    @staticmethod
    def words(setting: Setting) -> str:
        return "its position"

    @staticmethod
    def code(setting: Setting) -> str:
        return "i"

    @staticmethod
    def values(view: View) -> Tensor:
        return view.place.expand_as(view.tokens)
