"""Kinds of quantities that read a string in order: the largest number, mirrored positions, the token after an earlier
copy, pairs, nesting, the state of an automaton, and the digits of a sum with their carries."""

from __future__ import annotations

from itertools import product
from typing import Any

import torch
from torch import Tensor

from interp.programs.explanations.bench import Setting, View
from interp.programs.explanations.kinds import NOTHING, few, kind, plural

Arrows = tuple[tuple[int, ...], ...]
BRACKETS = (("(", ")"), ("[", "]"), ("{", "}"), ("<", ">"))


def _extreme_code(_: object, which: str, rank: int) -> str:
    order = "sorted(map(int, string), reverse=True)" if which == "largest" else "sorted(map(int, string))"
    return f"({order}[{rank - 1}] if len(string) >= {rank} else -1)"


@kind(
    "extreme",
    words=lambda _, which, rank: f"the {'second ' if rank == 2 else ''}{which} number",
    code=_extreme_code,
    candidates=lambda setting: (
        [(w, rank) for rank in (1, 2) for w in ("largest", "smallest")] if setting.numbers else []
    ),
)
def extreme(view: View, which: str, rank: int) -> Tensor:
    """The largest, smallest, second largest or second smallest number of the string."""
    sign = 1 if which == "largest" else -1
    far = -(1 << 40)
    signed = torch.where(view.content, sign * view.values, far)
    best, second = torch.full_like(signed[:, 0], far), torch.full_like(signed[:, 0], far)
    columns = []
    for column in signed.T:
        second = torch.maximum(second, torch.minimum(best, column))
        best = torch.maximum(best, column)
        columns.append(best if rank == 1 else second)
    number = view.seen(torch.stack(columns, 1))
    return torch.where(number > far, sign * number, NOTHING)


def mirror(view: View) -> tuple[Tensor, Tensor]:
    """Return the token at each position's mirror position, and whether there is one."""
    first = view.content.long().argmax(1, keepdim=True)
    last = view.tokens.shape[1] - 1 - view.content.flip(1).long().argmax(1, keepdim=True)
    at = first + last - view.place
    inside = view.content & (at >= 0) & (at < view.tokens.shape[1])
    return view.tokens.gather(1, at.clamp(0, view.tokens.shape[1] - 1)), inside


@kind(
    "mirrored",
    words="the number of mismatched mirror pairs",
    has=lambda _, value: "the string reads the same backwards" if value == 0 else "",
    code="sum(a != b for a, b in zip(string, reversed(string))) // 2",
    candidates=lambda setting: [] if setting.causal else [()],
)
def mirrored(view: View) -> Tensor:
    """The number of pairs of mirror positions with different tokens."""
    other, there = mirror(view)
    differs = (view.tokens != other) & there
    return (differs.sum(1, keepdim=True) // 2).expand_as(view.tokens)


def _mirror_words(at: int, relation: str) -> str:
    number = {0: "first", 1: "second", 2: "third"}.get(at, f"{at + 1}th")
    return f"the {number} token {relation} the {'' if at == 0 else number + ' '}last one"


@kind(
    "mirror pair",
    words=lambda _, at: f"whether {_mirror_words(at, 'differs from')}",
    has=lambda _, at, value: _mirror_words(at, "differs from" if value else "is the same as"),
    code=lambda _, at: f"int(len(string) > {at} and string[{at}] != string[{-1 - at}])",
    candidates=lambda setting: [(at,) for at in range(6)] if few(setting) and not setting.causal else [],
)
def mirror_pair(view: View, at: int) -> Tensor:
    """Whether the token at an index of the string (from 0) differs from the one at the same index from the end."""
    other, there = mirror(view)
    first = view.content.long().argmax(1, keepdim=True)
    here = (view.place == first + at) & there & (view.tokens != other)
    return here.any(1, keepdim=True).long().expand_as(view.tokens)


@kind(
    "mirror token",
    tokens=True,
    words="the token at the mirror position",
    code="mirror_token(tokens, i)",
    candidates=lambda setting: [] if setting.causal else [()],
    helper='''def mirror_token(tokens, i):
    """The token at the mirror place of the content."""
    places = [k for k, token in enumerate(tokens) if token not in MARKS]
    return tokens[places[0] + places[-1] - i] if i in places else None
''',
)
def mirror_token(view: View) -> Tensor:
    """The token at the mirror position in the string."""
    other, there = mirror(view)
    return other.masked_fill(~there, NOTHING)


@kind(
    "continued",
    tokens=True,
    words="the token that followed the most recent earlier occurrence of the current one (nothing if there is none)",
    code="next((tokens[k + 1] for k in reversed(range(i)) if tokens[k] == tokens[i]), None)",
    candidates=lambda setting: [()] if setting.causal else [],
)
def continued(view: View) -> Tensor:
    """The token that followed the last earlier occurrence of the current token."""
    tokens, place = view.tokens, view.place
    last = torch.full_like(tokens, -1)
    for token in range(len(view.setting.vocabulary)):
        here = tokens == token
        at = torch.where(here, place, -1).cummax(1).values
        before = torch.nn.functional.pad(at[:, :-1], (1, 0), value=-1)
        last = torch.where(here, before, last)
    following = tokens.gather(1, (last + 1).clamp(max=tokens.shape[1] - 1))
    return torch.where((last >= 0) & view.mask, following, NOTHING)


@kind("changes", words="how often two neighbors differ", code="sum(a != b for a, b in zip(string, string[1:]))")
def changes(view: View) -> Tensor:
    """The number of neighboring pairs of different tokens."""
    both = view.content[:, 1:] & view.content[:, :-1]
    differs = torch.nn.functional.pad(((view.tokens[:, 1:] != view.tokens[:, :-1]) & both).long(), (1, 0))
    return view.total(differs)


@kind(
    "pairs",
    words=lambda _, one, other: f"how often {plural(one).rstrip('s')} is followed by {plural(other).rstrip('s')}",
    code=lambda _, one, other: f"sum((a, b) == ({one!r}, {other!r}) for a, b in zip(string, string[1:]))",
    candidates=lambda setting: product(few(setting), repeat=2) if len(few(setting)) <= 4 else [],
)
def adjacent_pairs(view: View, one: str, other: str) -> Tensor:
    """How often one token comes directly before another."""
    hits = view.is_token(one)[:, :-1] * view.is_token(other)[:, 1:]
    return view.total(torch.nn.functional.pad(hits, (1, 0)))


@kind(
    "nesting",
    words="how many brackets are open (none once a bracket closes that is not the last one open)",
    code=lambda setting: f"nesting(string, {dict(pairs(setting))!r})",
    candidates=lambda setting: [()] if len(pairs(setting)) > 1 else [],
    helper='''def nesting(string, pairs):
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
)
def nesting(view: View) -> Tensor:
    """The number of open brackets, of several kinds; -1 once a closing bracket does not match the last open one."""
    opening = {view.setting.vocabulary.index(a): view.setting.vocabulary.index(b) for a, b in pairs(view.setting)}
    depths = torch.zeros_like(view.tokens)
    for row, (tokens, content) in enumerate(zip(view.tokens.tolist(), view.content.tolist())):
        stack: list[int] | None = []
        for at, (token, inside) in enumerate(zip(tokens, content)):
            if inside and stack is not None:
                if token in opening:
                    stack.append(opening[token])
                elif token in opening.values():
                    stack = stack[:-1] if stack and stack[-1] == token else None
            depths[row, at] = NOTHING if stack is None else len(stack)
    return view.seen(depths)


def pairs(setting: Setting) -> list[tuple[str, str]]:
    """The kinds of brackets among the tokens."""
    return [pair for pair in BRACKETS if pair[0] in setting.content and pair[1] in setting.content]


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
    helper='''def state(string, arrows):
    """The state that a string ends in, from state 0; -1 after a letter without an arrow."""
    at = 0
    for token in string:
        at = arrows[at].get(token, -1) if at >= 0 else -1
    return at
''',
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
    states = view.seen(torch.stack(columns, 1))
    return torch.where(states == n, NOTHING, states)


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
    helper='''def sum_digit(tokens, i, base, numbers, answer, breaks):
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
)
def sum_digit(view: View, base: int, numbers: str, answer: str, breaks: tuple[int, ...]) -> Tensor:
    """The digit of the sum of two numbers at this place of the answer.

    Numbers are runs of digits between fixed separators (signs, or a digit that never changes). The answer starts after
    the second number and has one more digit. numbers, answer: the digit that comes first, "least" or "most".
    """
    values, digits = view.values, torch.full_like(view.tokens, NOTHING)
    runs = _runs(view.tokens.shape[1], breaks)
    if len(runs) < 2 or len(runs[0]) != len(runs[1]):
        return digits
    first, second = (values[:, run if numbers == "least" else run[::-1]] for run in runs[:2])
    nothing = torch.zeros_like(values[:, 0])
    columns, carry = [], nothing
    for total in [*(first + second).T, nothing]:
        columns.append((total + carry) % base)
        carry = (total + carry) // base
    places = range(runs[1][-1] + 1, view.tokens.shape[1])
    for at, column in zip(places, columns if answer == "least" else columns[::-1]):
        digits[:, at] = column
    return digits


def _runs(length: int, breaks: tuple[int, ...]) -> list[list[int]]:
    """Return the places between separators."""
    runs: list[list[int]] = [[]]
    for at in range(length):
        if at not in breaks:
            runs[-1].append(at)
        elif runs[-1]:
            runs.append([])
    return [run for run in runs if run]
