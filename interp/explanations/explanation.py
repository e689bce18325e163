"""The result of explain: a program, where the model computes it, and how often they agree."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import Any

import pandas as pd

from interp import words
from interp.errors import InterpError
from interp.explanations.as_hypothesis import as_hypothesis
from interp.explanations.findings import Agreement, PartRole
from interp.explanations.picture import svg
from interp.explanations.program import Program
from interp.explanations.sentences import how, nothing_found
from interp.measures.hypothesis import Hypothesis
from interp.views import view

SCHEMA = 1


@dataclass(frozen=True)
class Explanation:
    """The algorithm that `interp.explain` found in a model.

    program: None if none was found, for the given `reason`. agreement: the share of the model's answers that it gives.
    parts: the result for each head and MLP. cut, joint, empty: the share of the model's answers that stay the same
    with the unneeded parts at their mean, with the explained parts also replaced by their ideal forms, and with every
    part at its mean. recovered: the share of the loss between `empty` and the model that `joint` recovers. complete:
    False if time ran out before every mechanism was tried on every part. notes: further measurements in words; the
    summary contains the first sentence of each.

    Example:

        >>> found = interp.explain(interp.build("algorithmic/max-of-k-exact", K=3, v=8))
        >>> found.answer(["3", "1", "4", "="])
        '4'
    """

    model: str
    task: str
    parameters: int
    seconds: float
    program: Program | None = None
    agreement: Agreement | None = None
    parts: tuple[PartRole, ...] = ()
    cut: float | None = None
    joint: float | None = None
    empty: float | None = None
    recovered: float | None = None
    tested_on: str = ""
    complete: bool = True
    notes: tuple[str, ...] = ()
    reason: str = ""

    # ------------------------------------------------------------ the program

    @property
    def found(self) -> bool:
        """Whether a program was found."""
        return self.program is not None

    @property
    def source(self) -> str:
        """The program as Python source. Raises InterpError if there is none."""
        return self._program.source

    @property
    def constants(self) -> int:
        """Numbers, tokens and table entries of the program."""
        return self._program.constants

    def answer(self, tokens: Sequence[str], position: int = -1) -> Any:
        """Return the program's answer at a position of a row of tokens (words, without padding).

        Raises InterpError if no program was found.
        """
        row = list(tokens)
        return self._program(row, position % len(row))

    @property
    def _program(self) -> Program:
        if self.program is None:
            raise InterpError(f"no explanation was found for {self.model}: {self.reason}")
        return self.program

    @property
    def hypothesis(self) -> Hypothesis:
        """The explained parts as variables with their places: interp.evaluate_hypothesis(model, found.hypothesis).

        Raises InterpError if no part was explained.
        """
        if self.program is None:
            raise InterpError(f"no part of {self.model} was explained, so there is no hypothesis to test")
        return as_hypothesis(self.program.setting, self.parts, self.model)

    # ------------------------------------------------------------ in words

    @property
    def sentence(self) -> str:
        """A summary in a few sentences."""
        if self.program is None or self.agreement is None:
            return nothing_found(self.reason)
        return how(self.program.words, self.parts, self.agreement, self.notes)

    @property
    def size(self) -> str:
        """The size of the program compared with the model."""
        return f"{words.counted(self.constants, 'constant')} in place of {words.counted(self.parameters, 'parameter')}"

    def to_frame(self) -> pd.DataFrame:
        """Return one row per part."""
        rows = [{k: v for k, v in asdict(one).items() if k != "quantities"} for one in self.parts]
        return pd.DataFrame(
            rows, columns=["part", "status", "looks", "looks_kept", "inside", "inside_kept", "carries", "carries_kept"]
        )

    def count(self, status: str) -> int:
        """Count the parts with a status: "explained", "kept" (as they are) or "cut"."""
        return sum(one.status == status for one in self.parts)

    def __str__(self) -> str:
        if not self.found:
            return self.sentence
        kinds = ", ".join(f"{self.count(status)} {status}" for status in ("explained", "kept", "cut"))
        return f"{self.sentence}\n\nParts: {kinds}. {self.size[0].upper()}{self.size[1:]}.\n\n{self.source}"

    def _repr_html_(self) -> str:
        said = f"<p><b>{escape(self.model)}</b>: {escape(self.sentence)}</p>"
        if not self.found:
            return said
        rows = [(one.part, one.status, one.looks or "", one.inside or "", one.carries or "") for one in self.parts]
        parts = view(f"{self.size[0].upper()}{self.size[1:]}", rows, ("part", "status", "looks", "inside", "carries"))
        return f"{said}{svg(self.program, self.parts)}<pre>{escape(self.source)}</pre>{parts}"

    # ------------------------------------------------------------ plain data

    def to_json(self) -> str:
        """Return plain data without code, so that a file from a stranger is safe to read."""
        data = {**self.__dict__, "schema": SCHEMA}
        data["program"] = None if self.program is None else self.program.to_json()
        data["agreement"] = None if self.agreement is None else asdict(self.agreement)
        data["parts"] = [asdict(one) for one in self.parts]
        return json.dumps(data, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Explanation:
        """Read the result of to_json. Raises InterpError for anything else."""
        try:
            data = json.loads(text)
            if data.pop("schema") != SCHEMA:
                raise InterpError(
                    f"an explanation of schema {data.get('schema')} is not known; this version knows {SCHEMA}"
                )
            program = None if data["program"] is None else Program.from_json(data["program"])
            agreement = None if data["agreement"] is None else Agreement(**data["agreement"])
            parts = tuple(
                PartRole(**{**one, "quantities": tuple(map(tuple, one["quantities"]))}) for one in data["parts"]
            )
            return cls(**{**data, "program": program, "agreement": agreement, "parts": parts,
                          "notes": tuple(data.get("notes", ()))})  # fmt: skip
        except (json.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
            raise InterpError(f"this is not an explanation: {error}") from None
