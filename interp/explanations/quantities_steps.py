"""Quantities computed step by step: the state of an automaton, and the digits of a sum with their carries."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from interp.explanations.bench import Setting, View
from interp.explanations.kinds import NOTHING, kind

Arrows = tuple[tuple[int, ...], ...]


def _state_words(_: object, letters: tuple[str, ...], arrows: Arrows) -> str:
    steps = []
    for state, row in enumerate(arrows):
        to: dict[int, list[str]] = {}
        for letter, target in zip(letters, row):
            to.setdefault(target, []).append(letter)
        leaving = ", ".join(f"{'/'.join(by)} leads to {target}" for target, by in to.items() if target != state)
        steps.append(f"in {state} {leaving}" if leaving else f"{state} is never left")
    return f"the state after the string (start in 0; {'; '.join(steps)})"


@kind(
    "state",
    words=_state_words,
    code=lambda _, letters, arrows: f"state(string, {[dict(zip(letters, row)) for row in arrows]!r})",
    candidates=lambda setting: [],  # transitions are learned: see explanations.engine
)
def state(view: View, letters: tuple[str, ...], arrows: Arrows) -> Tensor:
    """The state of an automaton that reads the string from state 0; None after a token outside its alphabet."""
    vocabulary, n = view.setting.vocabulary, len(arrows)
    table = torch.full((n + 1, len(vocabulary)), n)  # state n: None
    for number, letter in enumerate(letters):
        table[:n, vocabulary.index(letter)] = torch.tensor([row[number] for row in arrows])
    at, columns = torch.zeros(len(view.tokens), dtype=torch.long), []
    for tokens, inside in zip(view.tokens.T, view.content.T):
        at = torch.where(inside, table[at, tokens], at)
        columns.append(at)
    found = torch.stack(columns, 1)
    found = torch.where(found == n, NOTHING, found)
    return found if view.setting.causal else found[:, -1:].expand_as(found)


def _sum_candidates(setting: Setting) -> list[tuple[Any, ...]]:
    base = len(setting.numbers)
    if base < 2 or not setting.causal or sorted(setting.numbers.values()) != list(range(base)) or not setting.fixed:
        return []
    return [
        (base, numbers, answer, setting.fixed)
        for numbers, answer in (("least", "least"), ("most", "most"), ("most", "least"))
    ]


def _sum_words(_: object, base: int, numbers: str, answer: str, breaks: tuple[int, ...]) -> str:
    order = f"{answer} significant digit first"
    if numbers != answer:
        order += f", of the numbers {numbers} significant first"
    return f"the next digit of the sum of the two numbers in base {base}, carries included ({order})"


@kind(
    "sum digit",
    words=_sum_words,
    code=lambda _, *arguments: f"sum_digit(tokens, i, {', '.join(map(repr, arguments))})",
    candidates=_sum_candidates,
)
def sum_digit(view: View, base: int, numbers: str, answer: str, breaks: tuple[int, ...]) -> Tensor:
    """The digit of the sum of two numbers at this place of the answer.

    Numbers are runs of digits between fixed separators (signs, or a digit that never changes). The answer starts after
    the second number and has one more digit. numbers, answer: the digit that comes first, "least" or "most".
    """
    numbers_of = torch.tensor([view.setting.numbers.get(token, 0) for token in view.setting.vocabulary])
    values, found = numbers_of[view.tokens], torch.full_like(view.tokens, NOTHING)
    runs = _runs(view.tokens.shape[1], breaks)
    if len(runs) < 2 or len(runs[0]) != len(runs[1]):
        return found
    one, other = (values[:, run if numbers == "least" else run[::-1]] for run in runs[:2])
    nothing = torch.zeros_like(values[:, 0])
    columns, carry = [], nothing
    for total in [*(one + other).T, nothing]:
        columns.append((total + carry) % base)
        carry = (total + carry) // base
    places = range(runs[1][-1] + 1, view.tokens.shape[1])
    for at, column in zip(places, columns if answer == "least" else columns[::-1]):
        found[:, at] = column
    return found


def _runs(length: int, breaks: tuple[int, ...]) -> list[list[int]]:
    """Return the places between separators."""
    runs: list[list[int]] = [[]]
    for at in range(length):
        if at not in breaks:
            runs[-1].append(at)
        elif runs[-1]:
            runs.append([])
    return [run for run in runs if run]


HELPERS = {
    "state(string": '''def state(string, arrows):
    """The state that a string ends in, from state 0; -1 after a letter without an arrow."""
    at = 0
    for token in string:
        at = arrows[at].get(token, -1) if at >= 0 else -1
    return at
''',
    "sum_digit(": '''def sum_digit(tokens, i, base, numbers, answer, breaks):
    """The digit of the sum that follows position i; numbers and answer: which digit comes first; breaks: signs."""
    runs = [[]]
    for place, token in enumerate(tokens[: i + 1]):
        if place not in breaks:
            runs[-1].append(int(token))
        elif runs[-1]:
            runs.append([])
    if len(runs) < 3:
        return -1
    one, other, said = runs[0], runs[1], runs[2]
    if numbers == "most":
        one, other = one[::-1], other[::-1]
    digits, carry = [], 0
    for a, b in [*zip(one, other), (0, 0)]:
        digits.append((a + b + carry) % base)
        carry = (a + b + carry) // base
    if answer == "most":
        digits = digits[::-1]
    return digits[len(said)] if len(said) < len(digits) else -1
''',
}
"""Helper functions for the source of a program, by the call that needs them."""
