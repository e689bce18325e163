"""Quantities of order: the largest number, the mirrored string, what came after the same token, pairs, nesting."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import torch
from torch import Tensor

from interp.mechanisms.quantities import NOTHING, kind
from interp.mechanisms.quantities_counts import few, plural
from interp.mechanisms.setting import Setting, View

BRACKETS = (("(", ")"), ("[", "]"), ("{", "}"), ("<", ">"))


@kind("extreme")
class Extreme:
    """The largest or smallest number of the string, or the second of these."""

    tokens = False

    @staticmethod
    def candidates(setting: Setting) -> Iterator[tuple[Any, ...]]:
        if setting.numbers:
            yield from (("largest", 1), ("smallest", 1), ("largest", 2), ("smallest", 2))

    @staticmethod
    def words(setting: Setting, which: str, rank: int) -> str:
        return f"the {'second ' if rank == 2 else ''}{which} number"

    @staticmethod
    def code(setting: Setting, which: str, rank: int) -> str:
        order = "sorted(map(int, string), reverse=True)" if which == "largest" else "sorted(map(int, string))"
        return f"({order}[{rank - 1}] if len(string) >= {rank} else -1)"

    @staticmethod
    def values(view: View, which: str, rank: int) -> Tensor:
        sign = 1 if which == "largest" else -1
        far = -(1 << 40)
        each = torch.where(view.content, sign * view.values, far)
        best, second = torch.full_like(each[:, 0], far), torch.full_like(each[:, 0], far)
        columns = []
        for column in each.T:
            second = torch.maximum(second, torch.minimum(best, column))
            best = torch.maximum(best, column)
            columns.append(best if rank == 1 else second)
        found = torch.stack(columns, 1)
        found = found if view.setting.causal else found[:, -1:].expand_as(found)
        return torch.where(found > far, sign * found, NOTHING)


@kind("mirrored")
class Mirrored:
    """At how many places the string differs from its own reverse (each pair of places counts once)."""

    tokens = False

    @staticmethod
    def candidates(setting: Setting) -> Iterator[tuple[Any, ...]]:
        if not setting.causal:
            yield ()

    @staticmethod
    def words(setting: Setting) -> str:
        return "the number of places of the first half that differ from their mirror places"

    @staticmethod
    def has(setting: Setting, value: int) -> str:
        return "the string reads the same backwards" if value == 0 else ""

    @staticmethod
    def code(setting: Setting) -> str:
        return "sum(a != b for a, b in zip(string, reversed(string))) // 2"

    @staticmethod
    def values(view: View) -> Tensor:
        other, there = mirror(view)
        differs = (view.tokens != other) & there
        return (differs.sum(1, keepdim=True) // 2).expand_as(view.tokens)


@kind("mirror pair")
class MirrorPair:
    """Whether the token at a place of the string, from 0, is another one than that at the same place from its end."""

    tokens = False

    @staticmethod
    def candidates(setting: Setting) -> Iterator[tuple[Any, ...]]:
        if not setting.causal and few(setting):
            yield from ((at,) for at in range(6))

    @staticmethod
    def words(setting: Setting, at: int) -> str:
        number = {0: "first", 1: "second", 2: "third"}.get(at, f"{at + 1}th")
        return f"whether the {number} token differs from the {'' if at == 0 else number + ' '}last one"

    @staticmethod
    def has(setting: Setting, at: int, value: int) -> str:
        said = MirrorPair.words(setting, at).removeprefix("whether ")
        return said if value else said.replace("differs from", "is the same as")

    @staticmethod
    def code(setting: Setting, at: int) -> str:
        return f"int(len(string) > {at} and string[{at}] != string[{-1 - at}])"

    @staticmethod
    def values(view: View, at: int) -> Tensor:
        other, there = mirror(view)
        first = view.content.long().argmax(1, keepdim=True)
        here = (view.place == first + at) & there & (view.tokens != other)
        return here.any(1, keepdim=True).long().expand_as(view.tokens)


def mirror(view: View) -> tuple[Tensor, Tensor]:
    """The token at each position's mirror place of the string, and where there is one."""
    first = view.content.long().argmax(1, keepdim=True)
    last = view.tokens.shape[1] - 1 - view.content.flip(1).long().argmax(1, keepdim=True)
    at = first + last - view.place
    inside = view.content & (at >= 0) & (at < view.tokens.shape[1])
    return view.tokens.gather(1, at.clamp(0, view.tokens.shape[1] - 1)), inside


@kind("mirror token")
class MirrorToken:
    """The token at the mirror place of the string."""

    tokens = True

    @staticmethod
    def candidates(setting: Setting) -> Iterator[tuple[Any, ...]]:
        if not setting.causal:
            yield ()

    @staticmethod
    def words(setting: Setting) -> str:
        return "the token at its mirror place"

    @staticmethod
    def code(setting: Setting) -> str:
        return "mirror_token(tokens, i)"

    @staticmethod
    def values(view: View) -> Tensor:
        other, there = mirror(view)
        return other.masked_fill(~there, NOTHING)


@kind("continued")
class Continued:
    """The token that followed the last earlier occurrence of the own token."""

    tokens = True

    @staticmethod
    def candidates(setting: Setting) -> Iterator[tuple[Any, ...]]:
        if setting.causal:
            yield ()

    @staticmethod
    def words(setting: Setting) -> str:
        return "the token that followed its own token the last time"

    @staticmethod
    def code(setting: Setting) -> str:
        return "next((tokens[k + 1] for k in reversed(range(i)) if tokens[k] == tokens[i]), None)"

    @staticmethod
    def values(view: View) -> Tensor:
        tokens, place = view.tokens, view.place
        last = torch.full_like(tokens, -1)
        for token in range(len(view.setting.vocabulary)):
            here = tokens == token
            at = torch.where(here, place, -1).cummax(1).values
            before = torch.nn.functional.pad(at[:, :-1], (1, 0), value=-1)
            last = torch.where(here, before, last)
        found = tokens.gather(1, (last + 1).clamp(max=tokens.shape[1] - 1))
        return torch.where((last >= 0) & view.mask, found, NOTHING)


@kind("changes")
class Changes:
    """How often neighbors differ."""

    tokens = False

    @staticmethod
    def candidates(setting: Setting) -> Iterator[tuple[Any, ...]]:
        yield ()

    @staticmethod
    def words(setting: Setting) -> str:
        return "how often two neighbors differ"

    @staticmethod
    def code(setting: Setting) -> str:
        return "sum(a != b for a, b in zip(string, string[1:]))"

    @staticmethod
    def values(view: View) -> Tensor:
        both = view.content[:, 1:] & view.content[:, :-1]
        each = torch.nn.functional.pad(((view.tokens[:, 1:] != view.tokens[:, :-1]) & both).long(), (1, 0))
        return view.total(each)


@kind("pairs")
class AdjacentPairs:
    """How often one token stands right before another."""

    tokens = False

    @staticmethod
    def candidates(setting: Setting) -> Iterator[tuple[Any, ...]]:
        if len(few(setting)) <= 4:
            yield from product(few(setting), repeat=2)

    @staticmethod
    def words(setting: Setting, one: str, other: str) -> str:
        return f"how often {plural(one).rstrip('s')} is followed by {plural(other).rstrip('s')}"

    @staticmethod
    def code(setting: Setting, one: str, other: str) -> str:
        return f"sum((a, b) == ({one!r}, {other!r}) for a, b in zip(string, string[1:]))"

    @staticmethod
    def values(view: View, one: str, other: str) -> Tensor:
        each = view.is_token(one)[:, :-1] * view.is_token(other)[:, 1:]
        return view.total(torch.nn.functional.pad(each, (1, 0)))


@kind("nesting")
class Nesting:
    """How deep brackets of several kinds are open; -1 once one is closed that is not the last one open."""

    tokens = False

    @staticmethod
    def candidates(setting: Setting) -> Iterator[tuple[Any, ...]]:
        if len(pairs(setting)) > 1:
            yield ()

    @staticmethod
    def words(setting: Setting) -> str:
        return "how many brackets are open (none once a bracket closes that is not the last one open)"

    @staticmethod
    def code(setting: Setting) -> str:
        return f"nesting(string, {dict(pairs(setting))!r})"

    @staticmethod
    def values(view: View) -> Tensor:
        opening = {view.setting.vocabulary.index(a): view.setting.vocabulary.index(b) for a, b in pairs(view.setting)}
        found = torch.zeros_like(view.tokens)
        for row, (tokens, content) in enumerate(zip(view.tokens.tolist(), view.content.tolist())):
            stack: list[int] | None = []
            for at, (token, inside) in enumerate(zip(tokens, content)):
                if inside and stack is not None:
                    if token in opening:
                        stack.append(opening[token])
                    elif token in opening.values():
                        stack = stack[:-1] if stack and stack[-1] == token else None
                found[row, at] = NOTHING if stack is None else len(stack)
        return found if view.setting.causal else found[:, -1:].expand_as(found)


def pairs(setting: Setting) -> list[tuple[str, str]]:
    """The kinds of brackets among the tokens."""
    return [pair for pair in BRACKETS if pair[0] in setting.content and pair[1] in setting.content]


HELPERS = {
    "lowest(": '''def lowest(string, one, other):
    """The smallest number of `one` minus `other` over all beginnings of the string."""
    level = low = 0
    for token in string:
        level += (token == one) - (token == other)
        low = min(low, level)
    return low
''',
    "mirror_token(": '''def mirror_token(tokens, i):
    """The token at the mirror place of the content."""
    places = [k for k, token in enumerate(tokens) if token not in MARKS]
    return tokens[places[0] + places[-1] - i] if i in places else None
''',
    "nesting(": '''def nesting(string, pairs):
    """How many brackets are open; -1 once one closes that is not the last one open."""
    stack = []
    for token in string:
        if token in pairs:
            stack.append(pairs[token])
        elif token in pairs.values():
            if not stack or stack.pop() != token:
                return -1
    return len(stack)
''',
}
"""Functions that some quantities use in the source of a program, by the call that needs them."""
