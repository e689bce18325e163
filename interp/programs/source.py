"""A program as plain Python: a module that needs nothing, made from checked data alone."""

from __future__ import annotations

import builtins
import keyword
from collections.abc import Sequence
from typing import Any

from interp.programs.language import Program
from interp.programs.steps import NEVER, Head, Linear, Table
from interp.programs.words import step_words

FIRST = "# A variable is a list with a table {value: weight} for each position.\n"
HELPERS = '''\
def select(query, key, scores, tokens):
    """The share of attention of each position on each position that it sees."""
    rows = []
    for i, q in enumerate(query):
        seen = [k for k in range(len(tokens)) if tokens[k] != PAD and (k <= i or not CAUSAL)]
        score = [sum(a * b * scores.get((x, y), NEVER) for x, a in q.items() for y, b in key[k].items()) for k in seen]
        weight = [exp(s - max(score)) for s in score]
        rows.append({k: w / sum(weight) for k, w in zip(seen, weight)})
    return rows


def mix(shares, value):
    """What is read: the share of attention on each value."""
    rows = []
    for row in shares:
        mixed = {}
        for k, share in row.items():
            for v, weight in value[k].items():
                mixed[v] = mixed.get(v, 0.0) + share * weight
        rows.append(mixed)
    return rows


def most(weights):
    """The value with the largest weight (the first of equal ones)."""
    return max(weights, key=weights.get)


def look_up(table, default, *variables):
    """The entry for each position's values."""
    return [{table.get(tuple(most(one) for one in each), default): 1.0} for each in zip(*variables)]


def sums(values, bias, *weighed):
    """Sums of weights, at each position."""
    rows = []
    for each in zip(*(variable for variable, _ in weighed)):
        total = dict(zip(values, bias))
        for one, (_, weights) in zip(each, weighed):
            for value, share in one.items():
                for new, weight in zip(values, weights[value]):
                    total[new] += share * weight
        rows.append(total)
    return rows


def largest(values, bias, *weighed):
    """The value with the largest sum of weights, at each position."""
    return [{most(total): 1.0} for total in sums(values, bias, *weighed)]


def ramps(values, bias, *weighed):
    """Sums of weights, or 0 where they are negative."""
    return [{value: max(0.0, x) for value, x in total.items()} for total in sums(values, bias, *weighed)]


def divided(by, *variables):
    """The constant 1 and variables side by side, divided by the root of the sum of another one's squares."""
    rows = []
    for numbers, *each in zip(by, *variables):
        row = {1: 1.0, **{(i, value): weight for i, one in enumerate(each) for value, weight in one.items()}}
        length = sum(x * x for x in numbers.values()) ** 0.5
        rows.append({value: weight / length for value, weight in row.items()})
    return rows
'''

WEIGH = '''\
def weigh(query, key, scores, tokens):
    """The weight of each position for each position that sees it: the scores themselves."""
    rows = []
    for i, q in enumerate(query):
        seen = [k for k in range(len(tokens)) if tokens[k] != PAD and (k <= i or not CAUSAL)]
        rows.append({k: sum(a * b * scores[x, y] for x, a in q.items() for y, b in key[k].items()) for k in seen})
    return rows
'''

WAVES = '''\
def waves(frequencies, period, terms, fading, *read):
    """cos and sin of 2 pi k x / period, for each frequency k; x is the sum of the numbers that are read.

    A number that is read alone counts `terms` times. fading: times the length of the mean of the numbers' points.
    """
    rows = []
    for each in zip(*(variable for variable, _ in read)):
        found = {n[v] for one, (_, n) in zip(each, read) for v, weight in one.items() if weight and v in n}
        x, row = terms * sum(found) / max(len(found), 1), {}
        for k in frequencies:
            points = [2 * pi * k * number / period for number in found]
            mean = hypot(sum(map(cos, points)), sum(map(sin, points))) / max(len(found), 1)
            size = mean if fading else float(bool(found))
            row[f"cos {k}"], row[f"sin {k}"] = (size * wave(2 * pi * k * x / period) for wave in (cos, sin))
        rows.append(row)
    return rows


def cosines(amplitudes, answers, waves):
    """For each answer c: the sum of amplitude * cos(2 pi k (x - c) / period), of the waves of x."""
    rows = []
    for row in waves:
        total = dict.fromkeys(answers, 0.0)
        for number, c in enumerate(answers):
            for k, size in amplitudes.items():
                angle = 2 * pi * k * number / len(answers)
                total[c] += size * (row[f"cos {k}"] * cos(angle) + row[f"sin {k}"] * sin(angle))
        rows.append(total)
    return rows
'''

BY_LENGTH = '''\
def by_length(query, tokens):
    """A query whose weights, and so its scores, are multiplied by the logarithm of the number of positions seen."""
    there = [token != PAD for token in tokens]
    seen = [sum(there[: i + 1] if CAUSAL else there) for i in range(len(tokens))]
    return [{q: weight * log(n) for q, weight in one.items()} for one, n in zip(query, seen)]
'''

MULTIPLY = '''\
def product(one, other):
    """The weights that two variables give to the same value, multiplied, at each position."""
    return [{value: weight * b.get(value, 0.0) for value, weight in a.items()} for a, b in zip(one, other)]
'''

EVENED_SOURCE = '''\
def evened(query, shares, scores):
    """What would be read with even attention: the shares divided by the weights of their scores."""
    rows = []
    for q, row in zip(query, shares):
        q, found = most(q), {}
        lowest = min(score for (one, _), score in scores.items() if one == q)
        for value, share in row.items():
            if (q, value) in scores:
                found[value] = share * exp(lowest - scores[q, value])
        rows.append({value: share / (sum(found.values()) or 1.0) for value, share in found.items()})
    return rows
'''
IN_ORDER = '''\
def in_order(variable, values):
    """All values of a variable with their weights, in this order: of equal ones, the first is read."""
    return [{value: one.get(value, 0.0) for value in values} for one in variable]
'''
SPARSE = '''\
def sparse(n, rows):
    """For each value a row of n weights: those given by their places, and 0 elsewhere."""
    return {value: tuple(row.get(i, 0.0) for i in range(n)) for value, row in rows.items()}
'''
ADDED = {"in_order": IN_ORDER, "weigh": WEIGH, "waves": WAVES, "by_length": BY_LENGTH, "evened": EVENED_SOURCE,
         "product": MULTIPLY, "sparse": SPARSE}  # fmt: skip
"""Functions that are added where they are called; `waves` comes with `cosines`."""
MATH = {"waves": ("cos", "hypot", "pi", "sin"), "by_length": ("log",)}
"""What these import."""

TAKEN = (
    "answer", "by_length", "cos", "cosines", "divided", "evened", "exp", "hypot", "in_order", "largest", "log",
    "look_up", "mix", "most", "pi", "product", "ramps", "select", "sin", "sparse", "sums", "tokens", "waves", "weigh",
)  # fmt: skip
"""Names that variables must not have."""


def source(program: Program) -> str:
    """Return the program as the source of a Python module with one function, answer(tokens)."""
    names = {"": "[{None: 1.0}] * len(tokens)", "token": "token", "position": "position"}
    shown: dict[str, Sequence[Any]] = {"": (None,), "token": program.vocabulary, "position": range(program.length)}
    constants, body, calls = list[str](), list[str](), list[str]()
    single = _single(program)
    for step in program.steps:
        name = _name(step.name, set(names.values()))
        read = {of: f"in_order({names[of]}, {tuple(shown[of])!r})" for of in step.of if of not in single}
        more, call = step.python(name.upper(), names | read if isinstance(step, Table) else names, shown)
        names[step.name], shown[step.name] = name, step.shown(shown)
        what = f"{step.part}: {step_words(program, step)}" if step.part else step_words(program, step)
        what = " ".join(what.split())  # a comment ends with its line
        body += [f"    # {what[0].upper()}{what[1:]}.", f"    {name} = {call}"]
        constants += more
        calls.append(call)
    more, call = program.answer.python("ANSWER", names, shown)
    end = {
        "all": "    return [most(one) for one in found]",
        "first": "    return most(found[0])",
        "last": "    return most(found[max(k for k in range(len(tokens)) if tokens[k] != PAD)])",
    }.get(program.read, f"    return most(found[tokens.index({program.read!r})])")
    head = [
        "def answer(tokens):", '    """The answer to a row of tokens."""', "    token = [{t: 1.0} for t in tokens]",
        "    position = [{i: 1.0} for i in range(len(tokens))]", *body, f"    found = {call}", end,
    ]  # fmt: skip
    settings = [f"PAD = {program.pad!r}", f"CAUSAL = {program.causal!r}", f"NEVER = {NEVER!r}", *constants, *more]
    added = [name for name in ADDED if any(f"{name}(" in line for line in (*calls, *settings))]
    needed = sorted({"exp"}.union(*(MATH.get(name, ()) for name in added)))
    first = f"from math import {', '.join(needed)}\n\n{FIRST}"
    helpers = [HELPERS, *(ADDED[name] for name in added)]
    # Python looks names up when it calls answer, so that what one wants to read comes first.
    return "\n\n".join([first, "\n".join(head) + "\n", *helpers, "\n".join(settings) + "\n"])


def _single(program: Program) -> set[str]:
    """The variables that have one value at each position, whatever the tokens; others may have two of equal shares."""
    found = {"token", "position"}
    for step in program.steps:
        if isinstance(step, Table | Linear) or (isinstance(step, Head) and step.value in found and _one_place(step)):
            found.add(step.name)
    return found


def _one_place(head: Head) -> bool:
    """Whether a head attends to one position that it always sees: the first one, its own, or one before it."""
    chosen = [[key for key, score in enumerate(row) if score > NEVER] for row in head.scores]
    placed = head.key == "position" and head.query in ("", "position") and not head.total
    own = head.query == "position"
    return placed and all(len(row) == 1 and row[0] <= at * own for at, row in enumerate(chosen))


def _name(name: str, taken: set[str]) -> str:
    """A variable's name in Python."""
    identifier = "".join(letter if f"v{letter}".isidentifier() else "_" for letter in name.lower()).strip("_") or "v"
    known = identifier in TAKEN or hasattr(builtins, identifier) or keyword.iskeyword(identifier)
    identifier = f"v_{identifier}" if known or not identifier.isidentifier() else identifier
    while identifier in taken:
        identifier += "_"
    return identifier
