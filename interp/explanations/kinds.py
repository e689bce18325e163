"""Kinds of quantities: the decorator that declares them, and the simplest kinds.

The simplest kinds are the current token, tokens at fixed places, neighbors, and the position. In source code, `tokens`
are the words of a row, `i` is the position, and `string` is the list of visible tokens that are not marks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from interp.explanations.bench import Setting, View

FEW = 6
"""Largest number of content tokens for which there are quantities per token and per pair."""
NOTHING = -1
"""The value of a missing token, such as the one before the first."""


@dataclass(frozen=True)
class Kind:
    """A kind of quantity. Its functions take the setting (or a view), then the arguments that select one quantity.

    words: a name, such as "the number of 1s". code: a Python expression of tokens, i and string. values: the value at
    each position, NOTHING if there is none. candidates: the arguments to try. tokens: whether values are token ids
    instead of numbers. has: a clause for a value (the last
    argument) if "is" plus a number would be clumsy, otherwise "".
    """

    words: Callable[..., str]
    code: Callable[..., str]
    values: Callable[..., Tensor]
    candidates: Callable[[Setting], Iterable[tuple[Any, ...]]]
    tokens: bool
    has: Callable[..., str]


KINDS: dict[str, Kind] = {}
"""All kinds in the order in which they are tried, simple ones first."""


def kind(
    name: str,
    *,
    words: str | Callable[..., str],
    code: str | Callable[..., str],
    candidates: Callable[[Setting], Iterable[tuple[Any, ...]]] = lambda setting: [()],
    tokens: bool = False,
    has: Callable[..., str] = lambda *arguments: "",
) -> Callable[[Callable[..., Tensor]], Callable[..., Tensor]]:
    """Declare the decorated function as the values of a kind of quantity; see Kind."""

    def register(values: Callable[..., Tensor]) -> Callable[..., Tensor]:
        KINDS[name] = Kind(_function(words), _function(code), values, candidates, tokens, has)
        return values

    return register


def _function(text: str | Callable[..., str]) -> Callable[..., str]:
    return (lambda *arguments: text) if isinstance(text, str) else text


def few(setting: Setting) -> tuple[str, ...]:
    """Return the content tokens, or () if there are more than FEW."""
    return setting.content if len(setting.content) <= FEW else ()


def plural(token: str) -> str:
    """Write the plural of a token: 1s for a number; other tokens are quoted."""
    return f"{token}s" if token.isdecimal() else f'"{token}"'


@kind("own", tokens=True, words="the current token", code="tokens[i]")
def own(view: View) -> Tensor:
    """The token at the position itself."""
    return view.tokens.masked_fill(~view.mask, NOTHING)


def _place_words(_: object, at: int) -> str:
    n = abs(at) if at < 0 else at + 1
    number = {1: "", 2: "second ", 3: "third "}.get(n, f"{n}th ")
    end = "last " if at < 0 else "first " if n == 1 else ""
    return f"the {number}{end}token"


def _place_code(_: object, at: int) -> str:
    return f"(string[{at}] if len(string) >= {-at if at < 0 else at + 1} else None)"


@kind(
    "place",
    tokens=True,
    words=_place_words,
    code=_place_code,
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
    found = order.gather(1, wanted.clamp(0, rank.shape[1]))
    return torch.where(length >= least, found, NOTHING)


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
    found = view.tokens[:, at.clamp(0, length - 1)]
    there = view.mask[:, at.clamp(0, length - 1)] & inside
    return found.masked_fill(~there, NOTHING)


@kind("position", words="the position", code="i")
def position(view: View) -> Tensor:
    """The position, from 0."""
    return view.place.expand_as(view.tokens)
