"""Counting quantities: occurrences of tokens, their differences and remainders, and sums of numbers."""

from __future__ import annotations

from itertools import permutations

import torch
from torch import Tensor

from interp.explanations.kinds import few, kind, plural, scope_code, scope_words
from interp.explanations.setting import Setting, View


@kind(
    "length",
    words=lambda _, scope: f"the number of tokens{scope_words(scope)}",
    code=lambda _, scope: f"len({scope_code(scope)})",
    candidates=lambda setting: [("seen",)],
)
def length(view: View, scope: str) -> Tensor:
    """The number of tokens in the string."""
    return view.total(view.content.long(), scope)


@kind(
    "own count",
    words=lambda _, scope: f"how often the current token occurs{scope_words(scope)}",
    code=lambda _, scope: f"{scope_code(scope)}.count(tokens[i])",
    candidates=lambda setting: [("seen",)],
)
def own_count(view: View, scope: str) -> Tensor:
    """How often the current position's token occurs."""
    found = torch.zeros_like(view.tokens)
    for token in range(len(view.setting.vocabulary)):
        here = (view.tokens == token) & view.content
        if here.any():
            found = torch.where(view.tokens == token, view.total(here.long(), scope), found)
    return found


def _count_words(_: object, token: str, scope: str) -> str:
    return f"the number of {plural(token)}{scope_words(scope)}"


@kind(
    "count",
    words=_count_words,
    code=lambda _, token, scope: f"{scope_code(scope)}.count({token!r})",
    candidates=lambda setting: [(token, "seen") for token in few(setting)],
)
def count(view: View, token: str, scope: str) -> Tensor:
    """How often a token occurs."""
    return view.total(view.is_token(token), scope)


def _remainder_words(setting: Setting, token: str, modulus: int, scope: str) -> str:
    number = _count_words(setting, token, scope)
    return f"the parity of {number}" if modulus == 2 else f"{number} modulo {modulus}"


def _has_remainder(setting: Setting, token: str, modulus: int, scope: str, value: int) -> str:
    return f"{_count_words(setting, token, scope)} is {('even', 'odd')[value]}" if modulus == 2 else ""


@kind(
    "remainder",
    words=_remainder_words,
    has=_has_remainder,
    code=lambda _, token, modulus, scope: f"{scope_code(scope)}.count({token!r}) % {modulus}",
    candidates=lambda setting: [(token, modulus, "seen") for modulus in (2, 3, 4, 5) for token in few(setting)],
)
def remainder(view: View, token: str, modulus: int, scope: str) -> Tensor:
    """How often a token occurs, modulo a number."""
    return view.total(view.is_token(token), scope) % modulus


def _difference_code(_: object, one: str, other: str, scope: str) -> str:
    return f"{scope_code(scope)}.count({one!r}) - {scope_code(scope)}.count({other!r})"


def _difference_words(one: str, other: str) -> str:
    return f"the number of {plural(one)} minus the number of {plural(other)}"


@kind(
    "difference",
    words=lambda _, one, other, scope: _difference_words(one, other) + scope_words(scope),
    code=_difference_code,
    candidates=lambda setting: [(one, other, "seen") for one, other in permutations(few(setting), 2)],
)
def difference(view: View, one: str, other: str, scope: str) -> Tensor:
    """How much more often one token occurs than another (for two brackets: the elevation)."""
    return view.total(view.is_token(one) - view.is_token(other), scope)


@kind(
    "lowest",
    words=lambda _, one, other: f"the lowest value of {_difference_words(one, other)} along the string",
    code=lambda _, one, other: f"lowest(string, {one!r}, {other!r})",
    candidates=lambda setting: permutations(few(setting), 2),
)
def lowest(view: View, one: str, other: str) -> Tensor:
    """The smallest difference of two counts over all prefixes of the string, with 0 for the empty prefix."""
    level = (view.is_token(one) - view.is_token(other)).cumsum(1)
    return view.least(level).clamp(max=0)


@kind(
    "sum",
    words=lambda _, scope: f"the sum of the numbers{scope_words(scope)}",
    code=lambda _, scope: f"sum(map(int, {scope_code(scope)}))",
    candidates=lambda setting: [("seen",)] if setting.numbers else [],
)
def sum_of_numbers(view: View, scope: str) -> Tensor:
    """The sum of the number tokens."""
    return view.total(view.values, scope)


@kind(
    "sum modulo",
    words=lambda _, modulus, scope: f"the sum of the numbers{scope_words(scope)} modulo {modulus}",
    code=lambda _, modulus, scope: f"sum(map(int, {scope_code(scope)})) % {modulus}",
    candidates=lambda setting: [(len(setting.numbers), "seen")] if len(setting.numbers) > 1 else [],
)
def sum_modulo(view: View, modulus: int, scope: str) -> Tensor:
    """The sum of the number tokens modulo the size of their alphabet."""
    return view.total(view.values, scope) % modulus


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
