"""A program as plain Python: a module that needs nothing, made from checked data alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from interp.programs.language import Answer, Program
from interp.programs.steps import NEVER, Evened, Head, Linear, Normed, Product, Step, Sums, Table, Weighed
from interp.programs.waves import Cosines, Waves
from interp.programs.words import step_words

HEADER = '''\
from math import exp

# A variable is a list with a table {value: weight} for each position.


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


WEIGH = '''


def weigh(query, key, scores, tokens):
    """The weight of each position for each position that sees it: the scores themselves."""
    rows = []
    for i, q in enumerate(query):
        seen = [k for k in range(len(tokens)) if tokens[k] != PAD and (k <= i or not CAUSAL)]
        rows.append({k: sum(a * b * scores[x, y] for x, a in q.items() for y, b in key[k].items()) for k in seen})
    return rows
'''
"""Added where a head has no softmax."""

WAVES = '''


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
"""Added where a step has waves."""

BY_LENGTH = '''


def by_length(query, tokens):
    """A query whose weights, and so its scores, are multiplied by the logarithm of the number of positions seen."""
    there = [token != PAD for token in tokens]
    seen = [sum(there[: i + 1] if CAUSAL else there) for i in range(len(tokens))]
    return [{q: weight * log(n) for q, weight in one.items()} for one, n in zip(query, seen)]
'''
"""Added where a head's scores grow with the length."""

MULTIPLY = '''


def product(one, other):
    """The weights that two variables give to the same value, multiplied, at each position."""
    return [{value: weight * b.get(value, 0.0) for value, weight in a.items()} for a, b in zip(one, other)]
'''
"""Added where two variables are multiplied."""

EVEN = '''


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
"""Added where shares are divided by the weights of a head."""

TAKEN = (
    "answer", "by_length", "cos", "cosines", "divided", "evened", "exp", "hypot", "largest", "log", "look_up", "mix",
    "most", "pi", "product", "ramps", "select", "sin", "sums", "tokens", "waves", "weigh",
)  # fmt: skip
"""Names that variables must not have."""


def source(program: Program) -> str:
    """Return the program as the source of a Python module with one function, answer(tokens)."""
    names = {"token": "token", "position": "position"}
    constants, body = [], []
    for step in program.steps:
        name = names[step.name] = _name(step.name, set(names.values()))
        what = f"{step.part}: {step_words(program, step)}" if step.part else step_words(program, step)
        body.append(f"    # {what[0].upper()}{what[1:]}.")
        constants += _constants(program, step, name)
        body.append(f"    {name} = {_call(program, step, names)}")
    constants += _constants(program, program.answer, "answer")
    given = "    found = " + _call(program, program.answer, {**names, "answer": "answer"})
    end = {
        "all": "    return [most(one) for one in found]",
        "first": "    return most(found[0])",
        "last": "    return most(found[max(k for k in range(len(tokens)) if tokens[k] != PAD)])",
    }.get(program.read, f"    return most(found[tokens.index({program.read!r})])")
    head = [
        "def answer(tokens):", '    """The answer to a row of tokens."""', "    token = [{t: 1.0} for t in tokens]",
        "    position = [{i: 1.0} for i in range(len(tokens))]", *body, given, end,
    ]  # fmt: skip
    heads = [step for step in program.steps if isinstance(step, Head)]
    header, needed = HEADER + WEIGH * any(step.total for step in heads), ["exp"]
    if any(isinstance(step, Waves) for step in program.steps):
        header, needed = header + WAVES, [*needed, "cos", "hypot", "pi", "sin"]
    if any(step.scaled for step in heads):
        header, needed = header + BY_LENGTH, [*needed, "log"]
    header = header.replace("import exp", f"import {', '.join(sorted(needed))}")
    header += EVEN * any(isinstance(step, Evened) for step in program.steps)
    header += MULTIPLY * any(isinstance(step, Product) for step in program.steps)
    settings = [f"PAD = {program.pad!r}", f"CAUSAL = {program.causal!r}", f"NEVER = {NEVER!r}", *constants]
    return (
        "\n\n".join([header.rstrip("\n"), "\n".join(settings), "\n" + "\n".join(head)]).replace("\n\n\n\n", "\n\n\n")
        + "\n"
    )


def _name(name: str, taken: set[str]) -> str:
    """A variable's name in Python."""
    made = "".join(letter if letter.isalnum() else "_" for letter in name.lower()).strip("_") or "v"
    made = f"v_{made}" if made[0].isdigit() or made in TAKEN else made
    while made in taken:
        made += "_"
    return made


def _value(program: Program, name: str, at: int) -> Any:
    """A value as it stands in the source: positions as numbers, others as words; normed ones with their variable."""
    if name in ("token", "position"):
        return at if name == "position" else program.vocabulary[at]
    step = program.step(name)
    if isinstance(step, Head | Product | Evened):
        return _value(program, step.value if isinstance(step, Head) else step.of[-1], at)
    return [1, *_inner(program, step)][at] if isinstance(step, Normed) else program.values[name][at]


def _inner(program: Program, step: Normed) -> list[tuple[int, Any]]:
    """The values of normed variables."""
    return [(i, _value(program, of, at)) for i, of in enumerate(step.divided) for at in range(len(program.values[of]))]


def _constants(program: Program, step: Step | Answer, name: str) -> list[str]:
    upper = name.upper()
    if isinstance(step, Product | Evened | Normed):
        return []
    if isinstance(step, Head):
        pairs = {
            (_key(program, step.query, q), _key(program, step.key, k)): score
            for q, row in enumerate(step.scores)
            for k, score in enumerate(row)
            if score > NEVER
        }
        return [f"{upper}_SCORES = {pairs!r}"]
    if isinstance(step, Table):
        sizes = [len(program.values[one]) for one in step.of]
        counts = {entry: step.entries.count(entry) for entry in set(step.entries)}
        default = max(counts, key=counts.__getitem__)
        table = {}
        for index, entry in enumerate(step.entries):
            if entry != default:
                table[_cell(program, step, sizes, index)] = step.values[entry]
        return [f"{upper}_TABLE = {table!r}", f"{upper}_ELSE = {step.values[default]!r}"]
    if isinstance(step, Cosines):
        amplitudes = dict(zip(step.frequencies, step.amplitudes))
        return [f"{upper}_AMPLITUDES = {amplitudes!r}", f"{upper}_VALUES = {_listed(step.values)}"]
    if isinstance(step, Waves):
        numbers = [[_value(program, one, at) for at in range(step.period)] for one in step.of]
        return [f"{upper}_NUMBERS_{i} = {{value: n for n, value in enumerate({_listed(one)})}}"
                for i, one in enumerate(numbers)]  # fmt: skip
    assert isinstance(step, Weighed)
    found = []
    for at, (of, matrix) in enumerate(zip(step.of, step.weights)):
        rows = {_value(program, of, value): tuple(row) for value, row in enumerate(matrix)}
        found.append(f"{upper}_WEIGHTS_{at} = {rows!r}")
    return [f"{upper}_VALUES = {tuple(step.values)!r}", f"{upper}_BIAS = {tuple(step.bias)!r}", *found]


def _listed(values: Sequence[Any]) -> str:
    """Values as they stand in the source; the numbers from 0 on are not listed."""
    counted = list(values) == [str(i) for i in range(len(values))]
    return f"[str(n) for n in range({len(values)})]" if counted else repr(list(values))


def _key(program: Program, name: str, at: int) -> Any:
    return _value(program, name, at) if name else None


def _cell(program: Program, step: Table, sizes: list[int], index: int) -> tuple[Any, ...]:
    found = []
    for name, size in zip(reversed(step.of), reversed(sizes)):
        found.append(_value(program, name, index % size))
        index //= size
    return tuple(reversed(found))


def _call(program: Program, step: Step | Answer, names: dict[str, str]) -> str:
    upper = names[step.name].upper()
    if isinstance(step, Head):
        query, key = (names[one] if one else "[{None: 1.0}] * len(tokens)" for one in (step.query, step.key))
        query = f"by_length({query}, tokens)" if step.scaled else query
        how = "weigh" if step.total else "select"
        return f"mix({how}({query}, {key}, {upper}_SCORES, tokens), {names[step.value]})"
    if isinstance(step, Table):
        return f"look_up({upper}_TABLE, {upper}_ELSE, {', '.join(names[one] for one in step.of)})"
    if isinstance(step, Product):
        return f"product({', '.join(names[one] for one in step.of)})"
    if isinstance(step, Evened):
        query = names[step.of[0]] if len(step.of) > 1 else "[{None: 1.0}] * len(tokens)"
        return f"evened({query}, {names[step.head]}, {names[step.head].upper()}_SCORES)"
    if isinstance(step, Normed):
        return f"divided({', '.join(names[one] for one in (step.length, *step.divided))})"
    if isinstance(step, Waves):
        read = ", ".join(f"({names[one]}, {upper}_NUMBERS_{i})" for i, one in enumerate(step.of))
        return f"waves({step.frequencies!r}, {step.period!r}, {step.terms!r}, {step.fading!r}, {read})"
    if isinstance(step, Cosines):
        return f"cosines({upper}_AMPLITUDES, {upper}_VALUES, {names[step.of[0]]})"
    if isinstance(step, Sums) and not step.of:
        return f"[dict(zip({upper}_VALUES, {upper}_BIAS))] * len(tokens)"
    if isinstance(step, Linear) and not step.of:
        return f"[{{most(dict(zip({upper}_VALUES, {upper}_BIAS))): 1.0}}] * len(tokens)"
    weighed = ", ".join(f"({names[one]}, {upper}_WEIGHTS_{at})" for at, one in enumerate(step.of))
    how = "ramps" if isinstance(step, Sums) and step.ramps else "sums" if isinstance(step, Sums) else "largest"
    return f"{how}({upper}_VALUES, {upper}_BIAS, {weighed})"


def function(program: Program) -> Callable[[Sequence[str]], Any]:
    """The program's own Python as a function of a row of words; it is made from checked data alone."""
    names: dict[str, Any] = {}
    exec(compile(source(program), "<program>", "exec"), names)
    return names["answer"]
