"""The forms of rules: how a rule is fitted to a model's answers, gives answers, and is written as source and in words.

One class for each form; FORMS lists them. A rule of a form is its quantities and its constants (`rule.data`).
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from interp.measures.logistic import logistic
from interp.programs.explanations.bench import Setting
from interp.programs.explanations.quantities import Quantity, combine
from interp.support import words

PRICE = 1000.0
"""Cost of getting all answers wrong, in constants: 1/1000 of the answers is worth one constant."""
FINE, LEAST_GAIN = 4, 3
"""An exception must gain answers worth at least 1/FINE of a constant, and at least LEAST_GAIN answers."""
MAIN = -2
"""Marks cells without an exception, where the main rule applies."""
LISTED = 12
"""Most entries of a table that is no mere look-up table."""
SHOWN = 12
"""Largest number of table entries named in the text."""

Data = dict[str, Any]
Values = Sequence[Int[Tensor, "n"]]


@dataclass(frozen=True)
class Grouped:
    """The values of some quantities, and a model's answers, at the same reads."""

    setting: Setting
    quantities: Sequence[Quantity]
    values: Sequence[np.ndarray]
    answers: np.ndarray

    @cached_property
    def combined(self) -> tuple[np.ndarray, np.ndarray]:
        """The number of each read's cell, and the cells: the combinations of values."""
        return combine(self.values)

    @property
    def cells(self) -> np.ndarray:
        return self.combined[1]

    @cached_property
    def counts(self) -> np.ndarray:
        """How often each answer is given in each cell."""
        (codes, cells), n_answers = self.combined, len(self.setting.answers)
        counts = np.bincount(codes * n_answers + self.answers, minlength=len(cells) * n_answers)
        return counts.reshape(len(cells), n_answers)

    @cached_property
    def best(self) -> np.ndarray:
        """The most frequent answer of each cell."""
        return self.counts.argmax(1)

    @property
    def worth(self) -> float:
        """The number of answers that is worth one constant."""
        return len(self.answers) / PRICE


@dataclass(frozen=True)
class RuleData:
    """What a rule is, as data: its form, the quantities that it reads, and its constants (`data`)."""

    setting: Setting
    form: str
    quantities: tuple[Quantity, ...] = ()
    data: Data = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """The names of the quantities in the source."""
        return [chr(ord("a") + n) for n in range(len(self.quantities))]

    def literal(self, answer: int) -> str:
        """Write an answer in the source."""
        return repr(self.setting.answers[answer])

    def word(self, answer: int) -> str:
        """Write an answer in a sentence."""
        word = self.setting.answers[answer]
        return f'"{word}"' if " " in word else word


class RuleForm(ABC):
    """A form of rules. table: the name of the table that its source looks up, or ""."""

    table = ""

    def fit(self, seen: Grouped) -> Iterable[tuple[Sequence[Quantity], Data]]:
        """Yield quantities and constants of rules that read all of these quantities; none if this form does not fit."""
        return ()

    def constants(self, data: Data) -> int:
        """Number of constants besides those of the quantities; a table entry counts as one."""
        return len(data.get("entries", ())) + ("default" in data) + (data.get("shift", 0) != 0)

    @abstractmethod
    def answers(self, rule: RuleData, values: Values) -> Int[Tensor, "n"]:
        """Output indices from values of the quantities; -1 for tokens and numbers that are not answers."""

    @abstractmethod
    def code(self, rule: RuleData) -> str:
        """Lines of Python that return the answer, from quantities a, b, ..."""

    @abstractmethod
    def words(self, rule: RuleData) -> str:
        """The rule in one sentence."""


class Same(RuleForm):
    """The answer is the token."""

    def fit(self, seen: Grouped) -> Iterable[tuple[Sequence[Quantity], Data]]:
        if len(seen.quantities) == 1 and seen.quantities[0].tokens:
            yield seen.quantities, {}

    def answers(self, rule: RuleData, values: Values) -> Int[Tensor, "n"]:
        return named(rule.setting, rule.quantities[0], values[0], rule.data.get("shift", 0))

    def code(self, rule: RuleData) -> str:
        return "return a"

    def words(self, rule: RuleData) -> str:
        shift = rule.data.get("shift", 0)
        more = f", {'plus' if shift > 0 else 'minus'} {abs(shift)}" if shift else ""
        return f"The answer is {rule.quantities[0].words}{more}."


class Number(Same):
    """The answer is the number plus `shift`."""

    def fit(self, seen: Grouped) -> Iterable[tuple[Sequence[Quantity], Data]]:
        if len(seen.quantities) == 1 and (shift := self.shift(seen, 0)) is not None:
            yield seen.quantities, {"shift": shift}

    def shift(self, seen: Grouped, which: int) -> int | None:
        """The most frequent difference between the answer and a quantity; None if these are not numbers."""
        numbers = [int(word) if word.isdecimal() else None for word in seen.setting.answers]
        if seen.quantities[which].tokens or all(number is None for number in numbers):
            return None
        numeric = np.array([-(1 << 30) if number is None else number for number in numbers])[seen.answers]
        shifts, often = np.unique(numeric - seen.values[which], return_counts=True)
        return int(shifts[often.argmax()])

    def code(self, rule: RuleData) -> str:
        return f"return {self.shifted(rule)}"

    def shifted(self, rule: RuleData) -> str:
        shift = rule.data["shift"]
        return f"str(a {'+' if shift > 0 else '-'} {abs(shift)})" if shift else "str(a)"


class Except(Number):
    """The answer is the first number plus `shift`, except for listed pairs of it and a second quantity."""

    table = "EXCEPTIONS"

    def fit(self, seen: Grouped) -> Iterable[tuple[Sequence[Quantity], Data]]:
        for main, other in ((0, 1), (1, 0)) if len(seen.quantities) == 2 else ():
            if (shift := self.shift(seen, main)) is None:
                continue
            number, second = seen.quantities[main], seen.quantities[other]
            plain = named(seen.setting, number, torch.from_numpy(seen.cells[:, main].copy()), shift).numpy()
            right = np.where(plain < 0, 0, seen.counts[np.arange(len(plain)), plain])
            gains = (seen.counts.max(1) - right).astype(float)
            chosen = (gains >= max(LEAST_GAIN, seen.worth / FINE)).nonzero()[0]
            entries = [
                [int(seen.cells[at, main]), int(seen.cells[at, other]), int(seen.best[at])]
                for at in chosen[np.argsort(-gains[chosen])]
            ]
            if entries:
                yield (number, second), {"shift": shift, "entries": entries}

    def answers(self, rule: RuleData, values: Values) -> Int[Tensor, "n"]:
        entry = looked_up(rule.data["entries"], MAIN, values)
        return torch.where(entry == MAIN, super().answers(rule, values), entry)

    def code(self, rule: RuleData) -> str:
        return f"return EXCEPTIONS.get((a, b), {self.shifted(rule)})"

    def words(self, rule: RuleData) -> str:
        (number, second), entries = rule.quantities, rule.data["entries"]
        n = len(entries)
        pairs = [f"{number.said(a)} and {second.said(b)} give {rule.word(answer)}" for a, b, answer in entries[:SHOWN]]
        more = f", and {n - SHOWN} more" if n > SHOWN else ""
        return (
            f"{super().words(rule).rstrip('.')}, except for {words.counted(n, 'pair')} of this number and "
            f"{second.words} ({', '.join(pairs)}{more})."
        )


class Thresholds(RuleForm):
    """One number is compared with thresholds: below starts[k], the answer is answers[k]."""

    def fit(self, seen: Grouped) -> Iterable[tuple[Sequence[Quantity], Data]]:
        """Fit thresholds if a table of the number's values would be larger."""
        if len(seen.quantities) > 1 or seen.quantities[0].tokens or len(seen.cells) < 3:
            return
        known = seen.cells[:, 0].tolist()
        steps = merged(list(enumerate(seen.counts)), 2 * seen.worth)
        if len(steps) >= 2 and 2 * len(steps) < len(known) + 2:
            answers = [int(counts.argmax()) for _, counts in steps]
            yield seen.quantities, {"starts": [known[at] for at, _ in steps[1:]], "answers": answers}

    def constants(self, data: Data) -> int:
        return len(data["starts"]) + len(data["answers"])

    def answers(self, rule: RuleData, values: Values) -> Int[Tensor, "n"]:
        starts = torch.tensor(rule.data["starts"])
        return torch.tensor(rule.data["answers"])[torch.bucketize(values[0], starts, right=True)]

    def code(self, rule: RuleData) -> str:
        starts, literals = rule.data["starts"], [rule.literal(answer) for answer in rule.data["answers"]]
        tests = [f"if a < {start}:\n        return {answer}" for start, answer in zip(starts, literals)]
        return "\n    ".join([*tests, f"return {literals[-1]}"])

    def words(self, rule: RuleData) -> str:
        starts, answers, number = rule.data["starts"], rule.data["answers"], rule.quantities[0].words
        if len(starts) == 1:
            return either(rule, answers[1], f"{number} is at least {starts[0]}", answers[0])
        steps = [f"{rule.word(answer)} if it is below {start}" for start, answer in zip(starts, answers)]
        return f"The answer follows from {number}: {', '.join(steps)}, otherwise {rule.word(answers[-1])}."


def merged(steps: list[tuple[int, np.ndarray]], worth: float) -> list[tuple[int, np.ndarray]]:
    """Merge neighboring steps, cheapest first, while that costs fewer answers than a step is worth."""
    while len(steps) > 1:
        costs = [
            (int(left.max() + right.max() - (left + right).max()), at)
            for at, ((_, left), (_, right)) in enumerate(itertools.pairwise(steps))
        ]
        cost, at = min(costs)
        if cost > 0 and cost >= worth:
            break
        steps = [*steps[:at], (steps[at][0], steps[at][1] + steps[at + 1][1]), *steps[at + 2 :]]
    return steps


class YesOrNo(RuleForm):
    """One of two answers: `yes` where a test holds, `no` elsewhere."""

    @abstractmethod
    def holds(self, rule: RuleData, values: Values) -> Bool[Tensor, "n"]: ...

    @abstractmethod
    def test(self, rule: RuleData) -> str:
        """The test in Python."""

    @abstractmethod
    def clause(self, rule: RuleData) -> str:
        """The test in words."""

    def answers(self, rule: RuleData, values: Values) -> Int[Tensor, "n"]:
        return torch.where(self.holds(rule, values), rule.data["yes"], rule.data["no"])

    def code(self, rule: RuleData) -> str:
        yes, no = rule.literal(rule.data["yes"]), rule.literal(rule.data["no"])
        return f"return {yes} if {self.test(rule)} else {no}"

    def words(self, rule: RuleData) -> str:
        return either(rule, rule.data["yes"], self.clause(rule), rule.data["no"])


class All(YesOrNo):
    """Yes if every quantity has one of its listed values."""

    def fit(self, seen: Grouped) -> Iterable[tuple[Sequence[Quantity], Data]]:
        two, options = np.unique(seen.best), []
        for yes, no in (two[::-1], two) if len(two) == 2 else ():  # "yes" first: preferred if both are equally short
            mine, columns = seen.best == yes, seen.cells.T
            allowed = [np.unique(column[mine]) for column in columns]
            if (np.all([np.isin(column, a) for column, a in zip(columns, allowed)], axis=0) == mine).all():
                options.append({"values": [a.tolist() for a in allowed], "yes": int(yes), "no": int(no)})
        if options:
            yield seen.quantities, min(options, key=self.constants)

    def constants(self, data: Data) -> int:
        return sum(map(len, data["values"])) + 1

    def holds(self, rule: RuleData, values: Values) -> Bool[Tensor, "n"]:
        inside = [torch.isin(value, torch.tensor(allowed)) for value, allowed in zip(values, rule.data["values"])]
        return torch.stack(inside).all(0)

    def test(self, rule: RuleData) -> str:
        tests = []
        for name, quantity, allowed in zip(rule.names, rule.quantities, rule.data["values"]):
            spoken = [quantity.spoken(value) for value in allowed]
            tests.append(f"{name} == {spoken[0]!r}" if len(spoken) == 1 else f"{name} in {spoken!r}")
        return " and ".join(tests)

    def clause(self, rule: RuleData) -> str:
        return " and ".join(
            quantity.has(allowed[0]) if len(allowed) == 1 else f"{quantity.words} is {_among(quantity, allowed)}"
            for quantity, allowed in zip(rule.quantities, rule.data["values"])
        )


def _among(quantity: Quantity, allowed: Sequence[int]) -> str:
    spoken = [quantity.said(value) for value in allowed]
    if len(spoken) <= 3:
        return words.either(spoken)
    if not quantity.tokens and max(allowed) - min(allowed) == len(allowed) - 1:
        return f"from {min(allowed)} to {max(allowed)}"
    return f"one of {len(spoken)} values ({', '.join(spoken[:SHOWN])}{', ...' if len(spoken) > SHOWN else ''})"


class Sum(YesOrNo):
    """Yes if a weighted sum of numbers is above a threshold. It is fitted to all counts at once (see search)."""

    def weigh(self, seen: Grouped) -> Data | None:
        """Fit weights and a threshold, rounded to three digits. The largest weight is 1 in size."""
        two = np.unique(seen.answers)
        if len(two) != 2 or any(quantity.tokens for quantity in seen.quantities):
            return None
        design = np.column_stack(seen.values).astype(float)
        width = np.abs(design).max(0).clip(1)
        slopes, constants, _ = logistic(design / width, seen.answers == two[1], weak=1e4)
        weights = slopes[:, 1] / width
        if (largest := np.abs(weights).max()) == 0:
            return None
        rounded = [float(f"{w / largest:.3g}") for w in (*weights, -constants[1])]
        return {"weights": rounded[:-1], "threshold": rounded[-1], "yes": int(two[1]), "no": int(two[0])}

    def constants(self, data: Data) -> int:
        return len(data["weights"]) + 3

    def holds(self, rule: RuleData, values: Values) -> Bool[Tensor, "n"]:
        total = sum(weight * value.double() for weight, value in zip(rule.data["weights"], values))
        assert isinstance(total, Tensor)
        return total > rule.data["threshold"]

    def test(self, rule: RuleData) -> str:
        total = " + ".join(f"{weight} * {name}" for weight, name in zip(rule.data["weights"], rule.names))
        return f"{total} > {rule.data['threshold']}".replace("+ -", "- ")

    def clause(self, rule: RuleData) -> str:
        terms = " + ".join(f"{weight:g} × ({q.words})" for weight, q in zip(rule.data["weights"], rule.quantities))
        return terms.replace("+ -", "\N{MINUS SIGN} ") + f" is above {rule.data['threshold']:g}"


class LookUp(RuleForm):
    """An answer for each combination of values, otherwise `default`."""

    table = "TABLE"

    def fit(self, seen: Grouped) -> Iterable[tuple[Sequence[Quantity], Data]]:
        """Fit a table without the entries for which the default answer is nearly as good."""
        default = int(np.bincount(seen.best).argmax())
        gains = seen.counts.max(1) - seen.counts[:, default]
        kept = (gains >= seen.worth) & (seen.best != default)
        entries = np.column_stack([seen.cells, seen.best])[kept].tolist()
        yield seen.quantities, {"entries": entries, "default": default}

    def answers(self, rule: RuleData, values: Values) -> Int[Tensor, "n"]:
        return looked_up(rule.data["entries"], rule.data["default"], values)

    def code(self, rule: RuleData) -> str:
        key = "a" if len(rule.names) == 1 else f"({', '.join(rule.names)})"
        return f"return TABLE.get({key}, {rule.literal(rule.data['default'])})"

    def words(self, rule: RuleData) -> str:
        entries, default, of = rule.data["entries"], rule.data["default"], rule.quantities
        n = len(entries)
        if n == 1:
            *key, answer = entries[0]
            return either(rule, answer, " and ".join(quantity.has(value) for quantity, value in zip(of, key)), default)
        if copies(rule):
            phrases = [of[0].said(value) for value, _ in entries]
            listed = words.either(phrases, n) if n <= SHOWN else _among(of[0], [value for value, _ in entries])
            name = of[0].words.removesuffix(" (nothing if there is none)")  # said by the default
            return f"The answer is {name} if this is {listed}, otherwise {rule.word(default)}."
        tail = f"; anything else gives {rule.word(default)}"
        if n <= SHOWN:
            pairs = []
            for *key, answer in entries:
                spoken = words.joined(quantity.said(value) for quantity, value in zip(of, key))
                pairs.append(f"{spoken} {'gives' if len(key) == 1 else 'give'} {rule.word(answer)}")
            tail = f": {', '.join([*pairs, tail[2:]])}"
        table = f"a table of {words.counted(n, 'entry', 'entries')}"
        return f"The answer is looked up by {words.joined(quantity.words for quantity in of)} in {table}{tail}."


FORMS: dict[str, RuleForm] = {
    "same": Same(), "number": Number(), "steps": Thresholds(), "except": Except(), "all": All(), "sum": Sum(),
    "table": LookUp(),
}  # fmt: skip
"""All forms, in the order in which they are fitted."""


def copies(rule: RuleData) -> bool:
    """Whether a table gives the looked up value itself, where it does not give the default."""
    first, entries, answers = rule.quantities[0], rule.data["entries"], rule.setting.answers
    return len(rule.quantities) == 1 and all(str(first.spoken(value)) == answers[answer] for value, answer in entries)


def either(rule: RuleData, yes: int, test: str, no: int) -> str:
    return f"The answer is {rule.word(yes)} if {test}, otherwise {rule.word(no)}."


def named(setting: Setting, one: Quantity, values: Tensor, shift: int) -> Tensor:
    """Return the answer with the same word as the token, or as the number plus `shift`; -1 if there is none."""
    answers = {word: number for number, word in enumerate(setting.answers)}
    known, where = values.unique(return_inverse=True)
    numbers = [answers.get(str(one.spoken(v) if one.tokens else v + shift), -1) for v in known.tolist()]
    return torch.tensor(numbers)[where]


def looked_up(entries: list[list[Any]], default: int, values: Sequence[Tensor]) -> Tensor:
    keys = {tuple(entry[:-1]): entry[-1] for entry in entries}
    codes, cells = combine([value.numpy() for value in values])
    return torch.tensor([keys.get(tuple(cell), default) for cell in cells.tolist()])[torch.from_numpy(codes)]
