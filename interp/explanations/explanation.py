"""The result of explain: the program of a model's parts, or a rule for its answers, and how often they agree."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import Any, Literal, TypeAlias

import pandas as pd

from interp import words
from interp.errors import InterpError
from interp.explanations.findings import Agreement, PartRole
from interp.explanations.picture import svg
from interp.explanations.rule import Rule
from interp.explanations.sentences import how, summary
from interp.measures.hypothesis import Hypothesis
from interp.programs.as_hypothesis import as_hypothesis
from interp.programs.language import Program
from interp.programs.source import function, source
from interp.views import view

SCHEMA = 2

Level: TypeAlias = Literal["explained", "in part", "answers only", "none"]
LEVELS: tuple[Level, ...] = ("explained", "in part", "answers only", "none")


@dataclass(frozen=True)
class Explanation:
    """What `interp.explain` found in a model.

    level: "explained": the program of the parts gives 99% of the model's answers, and of each frequent answer. "in
    part": some parts have a description that takes their place. "answers only": a rule gives the answers, but nothing
    is said about how the model does it. "none": neither.
    program: the program of the parts, if it is complete. rule: a rule for the answers, searched for where there is no
    such program. agreement: of the program, or else of the rule, with the model. parts: what was found about each head
    and MLP. without: the share of the model's answers that stay with all parts that are minor or not used at their
    means. spare: the share that stays without all used parts that each alone may be at their mean, too. joint: the
    share that stays with all descriptions in place. tested_on: the inputs of these numbers, in words. listing: what a
    program of the parts gives or has, if it is no explanation. reason: why nothing more was found.

    Example:

        >>> found = interp.explain(interp.build("algorithmic/max-of-k-exact", K=3, v=8))
        >>> found.level, found.answer(["3", "1", "4", "="])
        ('explained', '4')
    """

    model: str
    task: str
    parameters: int
    level: Level = "none"
    program: Program | None = None
    rule: Rule | None = None
    agreement: Agreement | None = None
    parts: tuple[PartRole, ...] = ()
    without: float | None = None
    spare: float | None = None
    joint: float | None = None
    tested_on: str = ""
    listing: str = ""
    reason: str = ""

    # ------------------------------------------------------------ the program

    @property
    def found(self) -> bool:
        """Whether there is a program or a rule."""
        return self.program is not None or self.rule is not None

    @property
    def source(self) -> str:
        """The program, or else the rule, as Python source. Raises InterpError if there is neither."""
        if self.program is not None:
            return source(self.program)
        return self._rule.source

    @property
    def constants(self) -> int:
        """Numbers, tokens and table entries of the program or rule."""
        return self.program.constants if self.program is not None else self._rule.constants

    def answer(self, tokens: Sequence[str], position: int = -1) -> Any:
        """Return the answer of the program or rule at a position of a row of tokens (words, without padding).

        Raises InterpError if there is neither.
        """
        row = list(tokens)
        if self.program is None:
            return self._rule(row, position % len(row))
        given = function(self.program)(row)
        return given[position] if self.program.read == "all" else given

    @property
    def _rule(self) -> Rule:
        if self.rule is None:
            raise InterpError(f"no explanation was found for {self.model}: {self.reason}")
        return self.rule

    @property
    def hypothesis(self) -> Hypothesis:
        """The program's variables with their places: interp.evaluate_hypothesis(model, found.hypothesis).

        Raises InterpError without a program of the parts.
        """
        if self.program is None:
            raise InterpError(f"{self.model} has no program of its parts, so there is no hypothesis to test")
        return as_hypothesis(self.program)

    # ------------------------------------------------------------ in words

    @property
    def sentence(self) -> str:
        """A summary in a few sentences."""
        return summary(self)

    @property
    def how(self) -> str:
        """How the parts give the answers, in at most three sentences; empty if no part has a description."""
        return how(self)

    @property
    def size(self) -> str:
        """The size of the program compared with the model."""
        return f"{words.counted(self.constants, 'constant')} in place of {words.counted(self.parameters, 'parameter')}"

    def to_frame(self) -> pd.DataFrame:
        """Return one row per part."""
        columns = ["part", "status", "does", "variable", "without", "kept", "elsewhere", "note"]
        return pd.DataFrame([asdict(one) for one in self.parts], columns=columns)

    def count(self, status: str) -> int:
        """Count the parts with a status: "explained", "kept", "minor" or "not used"."""
        return sum(one.status == status for one in self.parts)

    def __str__(self) -> str:
        if not self.found:
            return self.sentence
        return f"{self.sentence}\n\n{self.size[0].upper()}{self.size[1:]}.\n\n{self.source}"

    def _repr_html_(self) -> str:
        said = f"<p><b>{escape(self.model)}</b>: {escape(self.sentence)}</p>"
        rows = [(one.part, one.status, one.does, one.variable) for one in self.parts]
        parts = view("Parts", rows, ("part", "status", "does", "makes"))
        code = f"<details><summary>{escape(self.size)}</summary><pre>{escape(self.source)}</pre></details>"
        return f"{said}{svg(self.parts)}{code if self.found else ''}{parts}"

    # ------------------------------------------------------------ plain data

    def to_json(self) -> str:
        """Return plain data without code, so that a file from a stranger is safe to read."""
        data = {**self.__dict__, "schema": SCHEMA}
        data["program"] = None if self.program is None else json.loads(self.program.to_json())
        data["rule"] = None if self.rule is None else self.rule.to_json()
        data["agreement"] = None if self.agreement is None else asdict(self.agreement)
        data["parts"] = [asdict(one) for one in self.parts]
        return json.dumps(data, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Explanation:
        """Read the result of to_json. Raises InterpError for anything else."""
        try:
            data = json.loads(text)
            if (schema := data.pop("schema")) != SCHEMA:
                raise InterpError(f"an explanation of schema {schema} is not known; this version knows {SCHEMA}")
            if data["level"] not in LEVELS:
                raise InterpError(f"the level {data['level']!r} is not one of {', '.join(LEVELS)}")
            program = None if data["program"] is None else Program.from_json(json.dumps(data["program"]))
            rule = None if data["rule"] is None else Rule.from_json(data["rule"])
            agreement = None if data["agreement"] is None else Agreement(**data["agreement"])
            parts = tuple(PartRole(**one) for one in data["parts"])
            return cls(**{**data, "program": program, "rule": rule, "agreement": agreement, "parts": parts})
        except (json.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
            raise InterpError(f"this is not an explanation: {error}") from None
