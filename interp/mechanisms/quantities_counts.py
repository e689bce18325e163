"""Quantities that count: how often a token occurs, differences, remainders, sums of numbers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from typing import Any

import torch
from torch import Tensor

from interp.mechanisms.quantities import FEW, kind, said, where
from interp.mechanisms.setting import Setting, View


def few(setting: Setting) -> tuple[str, ...]:
    """The tokens of the content, where they are few; else none."""
    return setting.content if len(setting.content) <= FEW else ()


def plural(token: str) -> str:
    """Several of a token: 1s, and what is no number in quotes."""
    return f"{token}s" if token.isdecimal() else f'"{token}"'


@kind("length")
class Length:
    """How many tokens the string has."""

    tokens = False

    @staticmethod
    def candidates(setting: Setting) -> Iterator[tuple[Any, ...]]:
        yield ("seen",)

    @staticmethod
    def words(setting: Setting, scope: str) -> str:
        return f"the number of tokens{said(scope)}"

    @staticmethod
    def code(setting: Setting, scope: str) -> str:
        return f"len({where(scope)})"

    @staticmethod
    def values(view: View, scope: str) -> Tensor:
        return view.total(view.content.long(), scope)


@kind("own count")
class OwnCount:
    """How often the token of the position occurs."""

    tokens = False

    @staticmethod
    def candidates(setting: Setting) -> Iterator[tuple[Any, ...]]:
        yield ("seen",)

    @staticmethod
    def words(setting: Setting, scope: str) -> str:
        return f"how often its own token occurs{said(scope)}"

    @staticmethod
    def code(setting: Setting, scope: str) -> str:
        return f"{where(scope)}.count(tokens[i])"

    @staticmethod
    def values(view: View, scope: str) -> Tensor:
        found = torch.zeros_like(view.tokens)
        for token in range(len(view.setting.vocabulary)):
            here = (view.tokens == token) & view.content
            if here.any():
                found = torch.where(view.tokens == token, view.total(here.long(), scope), found)
        return found


@kind("count")
class Count:
    """How often a token occurs."""

    tokens = False

    @staticmethod
    def candidates(setting: Setting) -> Iterator[tuple[Any, ...]]:
        for token in few(setting):
            yield token, "seen"

    @staticmethod
    def words(setting: Setting, token: str, scope: str) -> str:
        return f"the number of {plural(token)}{said(scope)}"

    @staticmethod
    def code(setting: Setting, token: str, scope: str) -> str:
        return f"{where(scope)}.count({token!r})"

    @staticmethod
    def values(view: View, token: str, scope: str) -> Tensor:
        return view.total(view.is_token(token), scope)


@kind("remainder")
class Remainder:
    """How often a token occurs, modulo a number."""

    tokens = False

    @staticmethod
    def candidates(setting: Setting) -> Iterator[tuple[Any, ...]]:
        for modulus in (2, 3, 4, 5):
            for token in few(setting):
                yield token, modulus, "seen"

    @staticmethod
    def words(setting: Setting, token: str, modulus: int, scope: str) -> str:
        if modulus == 2:
            return f"the parity of the number of {plural(token)}{said(scope)}"
        return f"the number of {plural(token)}{said(scope)} modulo {modulus}"

    @staticmethod
    def has(setting: Setting, token: str, modulus: int, scope: str, value: int) -> str:
        parity = ("even", "odd")[value] if modulus == 2 else ""
        return parity and f"the number of {plural(token)}{said(scope)} is {parity}"

    @staticmethod
    def code(setting: Setting, token: str, modulus: int, scope: str) -> str:
        return f"{where(scope)}.count({token!r}) % {modulus}"

    @staticmethod
    def values(view: View, token: str, modulus: int, scope: str) -> Tensor:
        return view.total(view.is_token(token), scope) % modulus


@kind("difference")
class Difference:
    """How much more often one token occurs than another: the elevation, of two brackets."""

    tokens = False

    @staticmethod
    def candidates(setting: Setting) -> Iterator[tuple[Any, ...]]:
        for one, other in permutations(few(setting), 2):
            yield one, other, "seen"

    @staticmethod
    def words(setting: Setting, one: str, other: str, scope: str) -> str:
        return f"the number of {plural(one)} minus the number of {plural(other)}{said(scope)}"

    @staticmethod
    def code(setting: Setting, one: str, other: str, scope: str) -> str:
        return f"{where(scope)}.count({one!r}) - {where(scope)}.count({other!r})"

    @staticmethod
    def values(view: View, one: str, other: str, scope: str) -> Tensor:
        return view.total(view.is_token(one) - view.is_token(other), scope)


@kind("lowest")
class Lowest:
    """The smallest difference of two counts over all beginnings of the string, 0 for the empty one."""

    tokens = False

    @staticmethod
    def candidates(setting: Setting) -> Iterator[tuple[Any, ...]]:
        yield from permutations(few(setting), 2)

    @staticmethod
    def words(setting: Setting, one: str, other: str) -> str:
        return f"the lowest value of the number of {plural(one)} minus the number of {plural(other)} along the string"

    @staticmethod
    def code(setting: Setting, one: str, other: str) -> str:
        return f"lowest(string, {one!r}, {other!r})"

    @staticmethod
    def values(view: View, one: str, other: str) -> Tensor:
        level = (view.is_token(one) - view.is_token(other)).cumsum(1)
        return view.least(level).clamp(max=0)


@kind("sum")
class Sum:
    """The sum of tokens that are numbers."""

    tokens = False

    @staticmethod
    def candidates(setting: Setting) -> Iterator[tuple[Any, ...]]:
        if setting.numbers:
            yield ("seen",)

    @staticmethod
    def words(setting: Setting, scope: str) -> str:
        return f"the sum of the numbers{said(scope)}"

    @staticmethod
    def code(setting: Setting, scope: str) -> str:
        return f"sum(map(int, {where(scope)}))"

    @staticmethod
    def values(view: View, scope: str) -> Tensor:
        return view.total(view.values, scope)


@kind("sum modulo")
class SumModulo:
    """The sum of tokens that are numbers, modulo how many numbers there are."""

    tokens = False

    @staticmethod
    def candidates(setting: Setting) -> Iterator[tuple[Any, ...]]:
        if len(setting.numbers) > 1:
            yield len(setting.numbers), "seen"

    @staticmethod
    def words(setting: Setting, modulus: int, scope: str) -> str:
        return f"the sum of the numbers{said(scope)} modulo {modulus}"

    @staticmethod
    def code(setting: Setting, modulus: int, scope: str) -> str:
        return f"sum(map(int, {where(scope)})) % {modulus}"

    @staticmethod
    def values(view: View, modulus: int, scope: str) -> Tensor:
        return view.total(view.values, scope) % modulus


@kind("distinct")
class Distinct:
    """How many different tokens the string has."""

    tokens = False

    @staticmethod
    def candidates(setting: Setting) -> Iterator[tuple[Any, ...]]:
        yield ()

    @staticmethod
    def words(setting: Setting) -> str:
        return "how many different tokens there are"

    @staticmethod
    def code(setting: Setting) -> str:
        return "len(set(string))"

    @staticmethod
    def values(view: View) -> Tensor:
        found = torch.zeros_like(view.tokens)
        for token in view.setting.content:
            found = found + (view.total(view.is_token(token)) > 0)
        return found
