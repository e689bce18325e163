"""Kinds of quantities: the decorator that declares them, and the simplest kinds: single tokens, counts and sums.

In source code, `tokens` are the words of a row, `i` is the position, and `string` is the list of visible tokens that
are not marks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import torch
from torch import Tensor

from interp.programs.explanations.bench import Setting, View

FEW = 6
"""Largest number of content tokens for which there are quantities per token and per pair."""
NOTHING = -1
"""The value of a missing token, such as the one before the first."""


@dataclass(frozen=True)
class Kind:
    """A kind of quantity. Its functions take the setting (or a view), then the arguments that select one quantity.

    words: a name, such as "the number of 1s", or a function that gives it. code: a Python expression of tokens, i and
    string, or a function. values: the value at each position, NOTHING if there is none. candidates: the arguments to
    try. tokens: whether values are token ids instead of numbers. has: a clause for a value (the last argument) if "is"
    plus a number would be clumsy, otherwise "". helper: a Python function that the code calls, or "".
    """

    values: Callable[..., Tensor]
    words: str | Callable[..., str]
    code: str | Callable[..., str]
    candidates: Callable[[Setting], Iterable[tuple[Any, ...]]] = lambda setting: [()]
    tokens: bool = False
    has: Callable[..., str] = lambda *arguments: ""
    helper: str = ""


KINDS: dict[str, Kind] = {}
"""All kinds in the order in which they are tried, simple ones first."""


def kind(name: str, **about: Any) -> Callable[[Callable[..., Tensor]], Callable[..., Tensor]]:
    """Declare the decorated function as the values of a kind of quantity; about: its other entries, see Kind."""

    def register(values: Callable[..., Tensor]) -> Callable[..., Tensor]:
        KINDS[name] = Kind(values, **about)
        return values

    return register


def few(setting: Setting) -> tuple[str, ...]:
    """Return the content tokens, or () if there are more than FEW."""
    return setting.content if len(setting.content) <= FEW else ()


def plural(token: str) -> str:
    """Write the plural of a token: 1s for a number; other tokens are quoted."""
    return f"{token}s" if token.isdecimal() else f'"{token}"'


@kind("own", tokens=True, words="the current token", code="tokens[i]")
def value_here(view: View) -> Tensor:
    """The token at the position itself."""
    return view.tokens.masked_fill(~view.mask, NOTHING)


def _place_words(_: object, at: int) -> str:
    n = abs(at) if at < 0 else at + 1
    number = {1: "", 2: "second ", 3: "third "}.get(n, f"{n}th ")
    end = "last " if at < 0 else "first " if n == 1 else ""
    return f"the {number}{end}token"


@kind(
    "place",
    tokens=True,
    words=_place_words,
    code=lambda _, at: f"(string[{at}] if len(string) >= {-at if at < 0 else at + 1} else None)",
    # In causal models, the second last token is a neighbor.
    candidates=lambda setting: [(at,) for at in (0, -1, 1, *(() if setting.causal else (-2,)))],
)
def place(view: View, at: int) -> Tensor:
    """The token at a fixed place of the string, counted from 0, or from -1 at its end."""
    content = view.content.long()
    rank = content.cumsum(1)  # 1 at the first token of the string
    length = view.total(content)
    wanted = length + at + 1 if at < 0 else torch.full_like(length, at + 1)
    # For each position, find the content token with the requested rank.
    order = torch.full((len(rank), rank.shape[1] + 2), NOTHING)
    order.scatter_(1, torch.where(view.content, rank, 0), torch.where(view.content, view.tokens, NOTHING))
    order[:, 0] = NOTHING
    least = -at if at < 0 else at + 1
    token = order.gather(1, wanted.clamp(0, rank.shape[1]))
    return torch.where(length >= least, token, NOTHING)


def neighbor_words(offset: int) -> str:
    """Describe the token at this offset to the right (negative: to the left)."""
    if abs(offset) == 1:
        return "the previous token" if offset < 0 else "the next token"
    return f"the token {abs(offset)} positions {'back' if offset < 0 else 'ahead'}"


def _neighbor_code(_: object, offset: int) -> str:
    at = f"i {'-' if offset < 0 else '+'} {abs(offset)}"
    return f"(tokens[{at}] if 0 <= {at} < len(tokens) else None)"


@kind(
    "neighbor",
    tokens=True,
    words=lambda _, offset: neighbor_words(offset),
    code=_neighbor_code,
    candidates=lambda setting: [(offset,) for offset in (-1, -2, -3, *(() if setting.causal else (1,)))],
)
def neighbor(view: View, offset: int) -> Tensor:
    """The token at this offset to the right (negative: to the left)."""
    length = view.tokens.shape[1]
    at = view.place + offset
    inside = (at >= 0) & (at < length)
    token = view.tokens[:, at.clamp(0, length - 1)]
    there = view.mask[:, at.clamp(0, length - 1)] & inside
    return token.masked_fill(~there, NOTHING)


@kind("position", words="the position", code="i")
def position(view: View) -> Tensor:
    """The position, from 0."""
    return view.place.expand_as(view.tokens)


@kind("length", words="the number of tokens", code="len(string)")
def length(view: View) -> Tensor:
    """The number of tokens in the string."""
    return view.total(view.content.long())


@kind("own count", words="how often the current token occurs", code="string.count(tokens[i])")
def own_count(view: View) -> Tensor:
    """How often the current position's token occurs."""
    counts = torch.zeros_like(view.tokens)
    for token in range(len(view.setting.vocabulary)):
        here = (view.tokens == token) & view.content
        if here.any():
            counts = torch.where(view.tokens == token, view.total(here.long()), counts)
    return counts


def _count_words(_: object, token: str) -> str:
    return f"the number of {plural(token)}"


@kind(
    "count",
    words=_count_words,
    code=lambda _, token: f"string.count({token!r})",
    candidates=lambda setting: [(token,) for token in few(setting)],
)
def count(view: View, token: str) -> Tensor:
    """How often a token occurs."""
    return view.total(view.is_token(token))


def _remainder_words(setting: Setting, token: str, modulus: int) -> str:
    number = _count_words(setting, token)
    return f"the parity of {number}" if modulus == 2 else f"{number} modulo {modulus}"


def _has_remainder(setting: Setting, token: str, modulus: int, value: int) -> str:
    return f"{_count_words(setting, token)} is {('even', 'odd')[value]}" if modulus == 2 else ""


@kind(
    "remainder",
    words=_remainder_words,
    has=_has_remainder,
    code=lambda _, token, modulus: f"string.count({token!r}) % {modulus}",
    candidates=lambda setting: [(token, modulus) for modulus in (2, 3, 4, 5) for token in few(setting)],
)
def remainder(view: View, token: str, modulus: int) -> Tensor:
    """How often a token occurs, modulo a number."""
    return view.total(view.is_token(token)) % modulus


def _difference_words(_: object, one: str, other: str) -> str:
    return f"the number of {plural(one)} minus the number of {plural(other)}"


@kind(
    "difference",
    words=_difference_words,
    code=lambda _, one, other: f"string.count({one!r}) - string.count({other!r})",
    candidates=lambda setting: permutations(few(setting), 2),
)
def difference(view: View, one: str, other: str) -> Tensor:
    """How much more often one token occurs than another (for two brackets: the elevation)."""
    return view.total(view.is_token(one) - view.is_token(other))


@kind(
    "lowest",
    words=lambda *arguments: f"the lowest value of {_difference_words(*arguments)} along the string",
    code=lambda _, one, other: f"lowest(string, {one!r}, {other!r})",
    candidates=lambda setting: permutations(few(setting), 2),
    helper='''def lowest(string, one, other):
    """The smallest number of `one` minus `other` over all beginnings of the string."""
    level = low = 0
    for token in string:
        level += (token == one) - (token == other)
        low = min(low, level)
    return low
''',
)
def lowest(view: View, one: str, other: str) -> Tensor:
    """The smallest difference of two counts over all prefixes of the string, with 0 for the empty prefix."""
    level = (view.is_token(one) - view.is_token(other)).cumsum(1)
    return view.seen(level.cummin(1).values).clamp(max=0)


@kind(
    "sum",
    words="the sum of the numbers",
    code="sum(map(int, string))",
    candidates=lambda setting: [()] if setting.numbers else [],
)
def sum_of_numbers(view: View) -> Tensor:
    """The sum of the number tokens."""
    return view.total(view.values)


@kind(
    "sum modulo",
    words=lambda _, modulus: f"the sum of the numbers modulo {modulus}",
    code=lambda _, modulus: f"sum(map(int, string)) % {modulus}",
    candidates=lambda setting: [(len(setting.numbers),)] if len(setting.numbers) > 1 else [],
)
def sum_modulo(view: View, modulus: int) -> Tensor:
    """The sum of the number tokens modulo the size of their alphabet."""
    return view.total(view.values) % modulus


@kind("distinct", words="how many different tokens there are", code="len(set(string))")
def distinct(view: View) -> Tensor:
    """The number of different tokens in the string."""
    number = torch.zeros_like(view.tokens)
    for token in view.setting.content:
        number = number + (view.total(view.is_token(token)) > 0)
    return number
