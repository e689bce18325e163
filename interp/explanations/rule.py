"""A rule for answers: plain data over quantities, in words, as Python source code, and as a function on tokens.

A rule is a form, the quantities that it reads, and its constants. The source is generated only from checked data, so a
rule that is read from a file cannot contain code: unknown kinds of quantities and arguments of other types are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from interp import words
from interp.errors import InterpError, quoted
from interp.explanations.bench import Setting, View
from interp.explanations.kinds import KINDS
from interp.explanations.quantities import Quantity, combine

FORMS = ("same", "number", "steps", "all", "sum", "table", "except")
MAIN = -2
"""Marks cells without an exception, where the main rule applies."""
LISTED = 12
"""Most entries of a table that is no mere look-up table."""
SHOWN = 12
"""Largest number of table entries named in the text."""


@dataclass(frozen=True)
class Rule:
    """A rule for a model's answers, found from the answers alone: it says nothing of how the model gives them.

    form: "same" (the token), "number" (the number plus `shift`), "steps" (one number compared with thresholds), "all"
    (yes if every quantity has one of its listed values), "sum" (a weighted sum of numbers compared with a threshold),
    "table" (an answer per combination of values, otherwise `default`), "except" (the first number plus `shift`, except
    for listed pairs of it and a second quantity).
    """

    setting: Setting
    form: str
    quantities: tuple[Quantity, ...] = ()
    data: dict[str, Any] = field(default_factory=dict)

    @property
    def constants(self) -> int:
        """Number of constants in the rule: numbers, tokens and answers; a table entry counts as one."""
        own, data = sum(one.constants for one in self.quantities), self.data
        if self.form == "steps":
            return own + len(data["starts"]) + len(data["answers"])
        if self.form == "all":
            return own + sum(len(values) for values in data["values"]) + 1
        if self.form == "sum":
            return own + len(data["weights"]) + 3
        return own + len(data.get("entries", ())) + ("default" in data) + (data.get("shift", 0) != 0)

    @property
    def listing(self) -> bool:
        """Whether the rule is a table of many entries, and so no algorithm."""
        return self.form == "table" and len(self.data["entries"]) > LISTED

    def at(self, view: View, rows: Tensor, positions: Tensor) -> Int[Tensor, "reads"]:
        """Return the output indices at reads, computed with tensors: the same answers as the function, but faster."""
        return self.answers([one.values(view)[rows, positions] for one in self.quantities])

    def answers(self, values: Sequence[Int[Tensor, "n"]]) -> Int[Tensor, "n"]:
        """Return output indices from values of the quantities; -1 for tokens and numbers that are not answers."""
        data = self.data
        if self.form in ("same", "number"):
            return _named(self, values[0])
        if self.form == "steps":
            starts = torch.tensor(data["starts"])
            return torch.tensor(data["answers"])[torch.bucketize(values[0], starts, right=True)]
        if self.form == "all":
            yes = torch.ones_like(values[0], dtype=torch.bool)
            for value, allowed in zip(values, data["values"]):
                yes &= torch.isin(value, torch.tensor(allowed))
            return torch.where(yes, data["yes"], data["no"])
        if self.form == "sum":
            total = sum(weight * value.double() for weight, value in zip(data["weights"], values))
            assert isinstance(total, Tensor)
            return torch.where(total > data["threshold"], data["yes"], data["no"])
        if self.form == "except":
            plain = _named(self, values[0])
            return torch.where((said := _looked_up(data["entries"], MAIN, values)) == MAIN, plain, said)
        return _looked_up(data["entries"], data["default"], values)

    def __call__(self, tokens: Sequence[str], position: int) -> Any:
        """Return the word of the answer at a position of a row of tokens (words, without padding)."""
        return self._function(tokens, position)

    @cached_property
    def _function(self) -> Callable[[Sequence[str], int], Any]:
        names: dict[str, Any] = {}
        exec(compile(self.source, "<rule of an explanation>", "exec"), names)  # generated above from checked data
        return names["answer"]

    @cached_property
    def source(self) -> str:
        """The rule as a self-contained Python module."""
        body = _body(self)
        marks = self.setting.marks
        names = [chr(ord("a") + n) for n in range(len(self.quantities))]
        lines = [f"    {name} = {one.code}" for name, one in zip(names, self.quantities)]
        read = {one.kind for one in self.quantities}
        helpers = [one.helper for kind, one in KINDS.items() if kind in read and one.helper]
        if any("string" in line for line in lines):
            seen = "tokens[: i + 1]" if self.setting.causal else "tokens"
            lines = [f"    string = content({seen})", *lines]
            helpers = ['def content(tokens):\n    """The tokens that are not marks."""\n'
                       "    return [token for token in tokens if token not in MARKS]\n", *helpers]  # fmt: skip
        needs_marks = any("MARKS" in text for text in helpers)
        parts = [f"MARKS = {marks!r}\n"] if needs_marks else []
        parts += _tables(self)
        parts += [f"\n{text}" for text in helpers]
        says = quoted_docstring(self.words)
        parts.append("\n" + "\n".join(["def answer(tokens, i):", f'    """{says}"""', *lines, *body]) + "\n")
        return "\n".join(parts)

    @property
    def words(self) -> str:
        """The rule in one sentence."""
        return rule_words(self)

    def to_json(self) -> dict[str, Any]:
        own = {"form": self.form, "of": [one.to_json() for one in self.quantities], **self.data}
        return {"setting": self.setting.to_json(), "rule": own}

    @classmethod
    def from_json(cls, data: Any) -> Rule:
        """Make a rule from plain data. Raises InterpError for invalid data."""
        try:
            setting, own = Setting.from_json(data["setting"]), dict(data["rule"])
            rule = cls(setting, own.pop("form"), tuple(Quantity.from_json(setting, one) for one in own.pop("of")), own)
        except (KeyError, TypeError, ValueError, IndexError):
            raise InterpError(f"{quoted(str(data)[:60])} is not a rule") from None
        if rule.form not in FORMS or not _plain(data):
            raise InterpError(f"a rule of form {quoted(rule.form)} is not known, or contains more than plain data")
        return rule


def _named(rule: Rule, values: Tensor) -> Tensor:
    """Return the answer with the same word as the token or number."""
    answers = {word: number for number, word in enumerate(rule.setting.answers)}
    known, where = values.unique(return_inverse=True)
    shift = rule.data.get("shift", 0)
    quantity = rule.quantities[0]
    found = [
        answers.get(str(quantity.spoken(int(v)) if quantity.tokens else int(v) + shift), -1) for v in known.tolist()
    ]
    return torch.tensor(found)[where]


def _looked_up(entries: list[list[Any]], default: int, values: Sequence[Tensor]) -> Tensor:
    keys = {tuple(entry[:-1]): entry[-1] for entry in entries}
    codes, cells = combine([value.numpy() for value in values])
    return torch.tensor([keys.get(tuple(cell), default) for cell in cells.tolist()])[torch.from_numpy(codes)]


def _plain(data: Any) -> bool:
    if isinstance(data, dict):
        return all(isinstance(key, str) and _plain(value) for key, value in data.items())
    if isinstance(data, list | tuple):
        return all(map(_plain, data))
    return data is None or isinstance(data, str | int | float | bool)


def quoted_docstring(text: str) -> str:
    """Escape text for a triple-quoted string."""
    return text.replace("\\", "\\\\").replace('"""', "'''").rstrip('"')


# ---------------------------------------------------------------- source


def _tables(rule: Rule) -> list[str]:
    if rule.form not in ("table", "except"):
        return []
    entries = []
    for *key, answer in rule.data["entries"]:
        spoken = tuple(one.spoken(value) for one, value in zip(rule.quantities, key))
        entries.append(f"    {(spoken[0] if len(spoken) == 1 else spoken)!r}: {_answer(rule, answer)}")
    name = "TABLE" if rule.form == "table" else "EXCEPTIONS"
    return [f"{name} = {{\n" + ",\n".join(entries) + ",\n}\n"]


def _answer(rule: Rule, index: int) -> str:
    return repr(rule.setting.answers[index])


def _body(rule: Rule) -> list[str]:
    """Return the lines that turn quantities a, b, ... into the answer."""
    data, names = rule.data, [chr(ord("a") + n) for n in range(len(rule.quantities))]
    if rule.form == "same":
        return ["    return a"]
    if rule.form == "number":
        shift = f" {'+' if data['shift'] > 0 else '-'} {abs(data['shift'])}" if data["shift"] else ""
        return [f"    return str(a{shift})"]
    if rule.form == "steps":
        lines = [f"    if a < {start}:\n        return {_answer(rule, said)}"
                 for start, said in zip(data["starts"], data["answers"])]  # fmt: skip
        return [*lines, f"    return {_answer(rule, data['answers'][-1])}"]
    if rule.form == "all":
        tests = []
        for name, one, allowed in zip(names, rule.quantities, data["values"]):
            spoken = [one.spoken(value) for value in allowed]
            tests.append(f"{name} == {spoken[0]!r}" if len(spoken) == 1 else f"{name} in {spoken!r}")
        return [f"    return {_answer(rule, data['yes'])} if {' and '.join(tests)} else {_answer(rule, data['no'])}"]
    if rule.form == "sum":
        total = " + ".join(f"{weight} * {name}" for weight, name in zip(data["weights"], names)).replace("+ -", "- ")
        test = f"{total} > {data['threshold']}"
        return [f"    return {_answer(rule, data['yes'])} if {test} else {_answer(rule, data['no'])}"]
    if rule.form == "except":
        shift = f" {'+' if data['shift'] > 0 else '-'} {abs(data['shift'])}" if data["shift"] else ""
        return [f"    return EXCEPTIONS.get((a, b), str(a{shift}))"]
    key = "a" if len(names) == 1 else f"({', '.join(names)})"
    return [f"    return TABLE.get({key}, {_answer(rule, data['default'])})"]


# ---------------------------------------------------------------- words


def rule_words(rule: Rule) -> str:
    """Describe a rule in one sentence."""
    data, of = rule.data, [one.words for one in rule.quantities]
    if rule.form == "same":
        return f"The answer is {of[0]}."
    if rule.form == "number":
        shift = data["shift"]
        more = f", {'plus' if shift > 0 else 'minus'} {abs(shift)}" if shift else ""
        return f"The answer is {of[0]}{more}."
    if rule.form == "steps":
        return _steps_words(rule, of[0])
    if rule.form == "all":
        tests = [one.has(allowed[0]) if len(allowed) == 1 else f"{one.words} is {_values(one, allowed)}"
                 for one, allowed in zip(rule.quantities, data["values"])]  # fmt: skip
        return (
            f"The answer is {_word(rule, data['yes'])} if {' and '.join(tests)}, otherwise {_word(rule, data['no'])}."
        )
    if rule.form == "sum":
        terms = " + ".join(f"{weight:g} × ({one})" for weight, one in zip(data["weights"], of))
        terms = terms.replace("+ -", "\N{MINUS SIGN} ")
        test = f"{terms} is above {data['threshold']:g}"
        return _yes_or_no(rule, test)
    if rule.form == "except":
        main = rule_words(Rule(rule.setting, "number", rule.quantities[:1], {"shift": data["shift"]})).rstrip(".")
        n = len(data["entries"])
        pairs = [f"{_spoken(rule.quantities[0], a)} and {_spoken(rule.quantities[1], b)} give {_word(rule, answer)}"
                 for a, b, answer in data["entries"][:SHOWN]]  # fmt: skip
        more = f", and {n - SHOWN} more" if n > SHOWN else ""
        return f"{main}, except for {words.counted(n, 'pair')} of this number and {of[1]} ({', '.join(pairs)}{more})."
    n = len(data["entries"])
    if n == 1:
        *key, answer = data["entries"][0]
        where = " and ".join(one.has(value) for one, value in zip(rule.quantities, key))
        return f"The answer is {_word(rule, answer)} if {where}, otherwise {_word(rule, data['default'])}."
    default = f"anything else gives {_word(rule, data['default'])}"
    said = f"; {default}"
    if n <= SHOWN:
        pairs = []
        for *key, answer in data["entries"]:
            spoken = words.joined(_spoken(one, value) for one, value in zip(rule.quantities, key))
            pairs.append(f"{spoken} {'gives' if len(key) == 1 else 'give'} {_word(rule, answer)}")
        said = f": {', '.join([*pairs, default])}"
    entries = f"a table of {words.counted(n, 'entry', 'entries')}"
    return f"The answer is looked up by {words.joined(of)} in {entries}{said}."


def _yes_or_no(rule: Rule, test: str) -> str:
    return f"The answer is {_word(rule, rule.data['yes'])} if {test}, otherwise {_word(rule, rule.data['no'])}."


def _word(rule: Rule, index: int) -> str:
    word = rule.setting.answers[index]
    return f'"{word}"' if " " in word else word


def _spoken(one: Quantity, value: int) -> str:
    spoken = one.spoken(value)
    return "nothing" if spoken is None else str(spoken)


def _values(one: Quantity, allowed: Sequence[int]) -> str:
    spoken = [_spoken(one, value) for value in allowed]
    if len(spoken) <= 3:
        return words.either(spoken)
    if not one.tokens and max(allowed) - min(allowed) == len(allowed) - 1:
        return f"from {min(allowed)} to {max(allowed)}"
    return f"one of {len(spoken)} values ({', '.join(spoken[:SHOWN])}{', ...' if len(spoken) > SHOWN else ''})"


def _steps_words(rule: Rule, one: str) -> str:
    starts, said = rule.data["starts"], [_word(rule, answer) for answer in rule.data["answers"]]
    if len(starts) == 1:
        return f"The answer is {said[1]} if {one} is at least {starts[0]}, otherwise {said[0]}."
    steps = [f"{answer} if it is below {start}" for start, answer in zip(starts, said)]
    return f"The answer follows from {one}: {', '.join(steps)}, otherwise {said[-1]}."
