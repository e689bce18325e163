"""Counting quantities: occurrences of tokens, their differences and remainders, and sums of numbers."""

from __future__ import annotations

from itertools import permutations

import torch
from torch import Tensor

from interp.explanations.bench import Setting, View
from interp.explanations.kinds import few, kind, plural


@kind("length", words="the number of tokens", code="len(string)")
def length(view: View) -> Tensor:
    """The number of tokens in the string."""
    return view.total(view.content.long())


@kind("own count", words="how often the current token occurs", code="string.count(tokens[i])")
def own_count(view: View) -> Tensor:
    """How often the current position's token occurs."""
    found = torch.zeros_like(view.tokens)
    for token in range(len(view.setting.vocabulary)):
        here = (view.tokens == token) & view.content
        if here.any():
            found = torch.where(view.tokens == token, view.total(here.long()), found)
    return found


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
    words=lambda *given: f"the lowest value of {_difference_words(*given)} along the string",
    code=lambda _, one, other: f"lowest(string, {one!r}, {other!r})",
    candidates=lambda setting: permutations(few(setting), 2),
)
def lowest(view: View, one: str, other: str) -> Tensor:
    """The smallest difference of two counts over all prefixes of the string, with 0 for the empty prefix."""
    level = (view.is_token(one) - view.is_token(other)).cumsum(1)
    return view.least(level).clamp(max=0)


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
    found = torch.zeros_like(view.tokens)
    for token in view.setting.content:
        found = found + (view.total(view.is_token(token)) > 0)
    return found


HELPERS = {
    "lowest(": '''def lowest(string, one, other):
    """The smallest number of `one` minus `other` over all beginnings of the string."""
    level = low = 0
    for token in string:
        level += (token == one) - (token == other)
        low = min(low, level)
    return low
''',
}
"""Helper functions for the source of a program, by the call that needs them."""
