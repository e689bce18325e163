"""A rule for answers: plain data over quantities, in words, as Python source code, and as a function on tokens.

A rule is a form, the quantities that it reads, and its constants. The source is generated only from checked data, so a
rule that is read from a file cannot contain code: unknown kinds of quantities and arguments of other types are refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from jaxtyping import Int
from torch import Tensor

from interp.errors import InterpError, check_one_of, quoted
from interp.programs.explanations.bench import Setting, View
from interp.programs.explanations.forms import FORMS, LISTED, RuleData, copies
from interp.programs.explanations.kinds import KINDS
from interp.programs.explanations.quantities import Quantity
from interp.programs.language import tuples

CONTENT = '''def content(tokens):
    """The tokens that are not marks."""
    return [token for token in tokens if token not in MARKS]
'''


@dataclass(frozen=True)
class Rule(RuleData):
    """A rule for a model's answers, found from the answers alone: it says nothing of how the model gives them.

    form: "same" (the token), "number" (the number plus `shift`), "steps" (one number compared with thresholds), "all"
    (yes if every quantity has one of its listed values), "sum" (a weighted sum of numbers compared with a threshold),
    "table" (an answer per combination of values, otherwise `default`), "except" (the first number plus `shift`, except
    for listed pairs of it and a second quantity).
    """

    @property
    def constants(self) -> int:
        """Number of constants in the rule: numbers, tokens and answers; a table entry counts as one."""
        return sum(quantity.constants for quantity in self.quantities) + FORMS[self.form].constants(self.data)

    @property
    def listing(self) -> bool:
        """Whether the rule is a table of many entries, and so no algorithm."""
        return self.form == "table" and len(self.data["entries"]) > LISTED and not copies(self)

    def at(self, view: View, rows: Tensor, positions: Tensor) -> Int[Tensor, "reads"]:
        """Return the output indices at reads, computed with tensors: the same answers as the function, but faster."""
        return self.answers([quantity.values(view)[rows, positions] for quantity in self.quantities])

    def answers(self, values: Sequence[Int[Tensor, "n"]]) -> Int[Tensor, "n"]:
        """Return output indices from values of the quantities; -1 for tokens and numbers that are not answers."""
        return FORMS[self.form].answers(self, values)

    def __call__(self, tokens: Sequence[str], position: int) -> Any:
        """Return the word of the answer at a position of a row of tokens (words, without padding).

        Raises InterpError for other tokens.
        """
        for word in tokens:
            check_one_of("token", word, self.setting.vocabulary)
        return self._function(tokens, position)

    @cached_property
    def _function(self) -> Callable[[Sequence[str], int], Any]:
        names: dict[str, Any] = {}
        exec(compile(self.source, "<rule of an explanation>", "exec"), names)  # generated above from checked data
        return names["answer"]

    @cached_property
    def source(self) -> str:
        """The rule as a self-contained Python module."""
        lines = [f"{name} = {quantity.code}" for name, quantity in zip(self.names, self.quantities)]
        read = {quantity.kind for quantity in self.quantities}
        helpers = [entry.helper for kind, entry in KINDS.items() if kind in read and entry.helper]
        if any("string" in line for line in lines):
            lines = [f"string = content({'tokens[: i + 1]' if self.setting.causal else 'tokens'})", *lines]
            helpers = [CONTENT, *helpers]
        marks = (f"MARKS = {self.setting.marks!r}\n",) if any("MARKS" in text for text in helpers) else ()
        form = FORMS[self.form]
        tables = (f"{form.table} = {{\n{self._entries}}}\n",) if form.table else ()
        where = "i: the position where the answer is read, from 0."
        said = self.words.replace("\\", "\\\\").replace('"""', "'''").rstrip('"')
        lines = [f'"""{said} {where}"""', *lines, form.code(self)]
        answer = "\n    ".join(["def answer(tokens, i):", *lines])
        return "\n".join([*marks, *tables, *(f"\n{text}" for text in (*helpers, f"{answer}\n"))])

    @property
    def _entries(self) -> str:
        spoken = [[q.spoken(value) for q, value in zip(self.quantities, entry)] for entry in self.data["entries"]]
        keys = [tuple(key) if len(key) > 1 else key[0] for key in spoken]
        return "".join(f"    {key!r}: {self.literal(entry[-1])},\n" for key, entry in zip(keys, self.data["entries"]))

    @property
    def words(self) -> str:
        """The rule in one sentence."""
        return FORMS[self.form].words(self)

    def to_json(self) -> dict[str, Any]:
        rule = {"form": self.form, "of": [quantity.to_json() for quantity in self.quantities], **self.data}
        return {"setting": asdict(self.setting), "rule": rule}

    @classmethod
    def from_json(cls, data: Any) -> Rule:
        """Make a rule from plain data. Raises InterpError for invalid data."""
        try:
            json.dumps(data)  # refuses what is more than plain data
            setting, rest = Setting(**tuples(data["setting"])), dict(data["rule"])
            rule = cls(setting, rest.pop("form"), tuple(Quantity.from_json(setting, q) for q in rest.pop("of")), rest)
        except (KeyError, TypeError, ValueError, IndexError):
            raise InterpError(f"{quoted(str(data)[:60])} is not a rule") from None
        if rule.form not in list(FORMS):
            raise InterpError(f"a rule of form {quoted(rule.form)} is not known")
        if not _numbers([*rest.values()]):  # they are written into the source
            raise InterpError("the constants of a rule are numbers; this file has others")
        return rule


def _numbers(data: Any) -> bool:
    """Whether data holds nothing but numbers, in lists."""
    if isinstance(data, list | tuple):
        return all(map(_numbers, data))
    return data is None or isinstance(data, int | float)
