"""The language of programs: variables at positions, and the steps that make them.

A *variable* has, at each position of a row, a weight for each of its values. Usually one value has all the weight, one
(then the variable is a code). After a soft head, several have some, which sum to one (then it holds shares). Sums
and what is normed hold any numbers.

    token, position            given
    Head(query, key, value)    select and mix: the share of attention on each value of a variable; of attention without
                               softmax, the total of its weights
    Table(of)                  map: one value for each combination of values of a few variables
    Linear(of)                 map: the value with the largest sum of weights (with two values: a threshold)
    Sums(of)                   map: numbers, each a sum of weights; ramps are 0 where that is negative
    Product(of)                map: the weights that two variables with the same values give each of them, multiplied
    Evened(of)                 map: what a soft head would read with even attention
    Normed(of)                 several variables side by side, divided by the length of another one
    Waves(of)                  map: numbers as points on circles, of what is read in a cycle of values; see waves.py
    answer                     readout: as Linear, with the task's answers as values, or Cosines of waves

A step names the part of a model that it describes, so a program is also a claim about the model: see decompile. A
program runs without a model, prints as Python (source.py), is plain JSON, and compiles to weights (compile.py). The
steps are those of Weiss et al. 2021 (RASP), with soft selection and with weights instead of functions, so that a
program can be stored, compared and compiled.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import torch
from jaxtyping import Float, Int, Num
from torch import Tensor

from interp.errors import InterpError, check_one_of, quoted
from interp.measures.interchange import UNDECIDED
from interp.programs.steps import (
    NEVER,  # noqa: F401, it belongs to the language
    ROUNDING,
    Evened,
    Features,
    Head,
    Linear,
    Normed,
    Product,
    Step,
    Sums,
    Table,
    Values,
    codes,
    visible,
)
from interp.programs.waves import Cosines, Waves
from interp.support.records import from_plain
from interp.tasks.batch import Reads, find_first

SCHEMA = 1
TIED = 1e-4
"""The same as ROUNDING for what is read of a model with noise on its weights."""
Answer: TypeAlias = Linear | Cosines
KINDS: dict[str, type[Step]] = {
    "head": Head, "table": Table, "linear": Linear, "sums": Sums, "product": Product,
    "evened": Evened, "normed": Normed, "waves": Waves,
}  # fmt: skip


@dataclass(frozen=True)
class Program:
    """Steps over the tokens of a row, and the answer.

    vocabulary: the tokens, by id. length: the largest number of tokens of a row (positions from 0). causal: whether a
    position sees only those up to itself. pad: the token that fills up rows; no position sees it. read: where the
    answer is read, "all", "first", "last" or a token (its first place). answer: its values are the answers.

    Raises InterpError for steps that do not fit together.
    """

    vocabulary: Values
    length: int
    causal: bool
    steps: tuple[Step, ...]
    answer: Answer
    read: str = "last"
    pad: str | None = None
    words: dict[str, str] = field(default_factory=dict, compare=False, hash=False)
    """What variables mean, in words, where that is known."""

    def __post_init__(self) -> None:
        if problems := self.problems():
            raise InterpError("this is not a program: " + "; ".join(problems))

    # ------------------------------------------------------------ structure

    @cached_property
    def values(self) -> dict[str, Values]:
        """The values of each variable, in the order in which variables are made."""
        values = self._given
        for step in self.steps:
            values[step.name] = step.holds(values)
        return values

    @property
    def _given(self) -> dict[str, Values]:
        return {"token": self.vocabulary, "position": tuple(map(str, range(self.length)))}

    @property
    def answers(self) -> Values:
        """The words of the answers."""
        return self.answer.values

    @property
    def constants(self) -> int:
        """Numbers of the program: table entries, selected pairs, scores, and weights that are not zero."""
        return sum(step.constants for step in (*self.steps, self.answer))

    @property
    def fitted(self) -> bool:
        """Whether it holds weighted sums, which are fitted to a model."""
        return any(isinstance(step, Sums) for step in self.steps)

    @cached_property
    def by_name(self) -> dict[str, Step]:
        """The step that makes each variable; none makes the token and the position."""
        return {step.name: step for step in self.steps}

    def step(self, name: str) -> Step:
        """The step that makes a variable. Raises KeyError for others."""
        return self.by_name[name]

    def problems(self) -> list[str]:
        """List what does not fit together, one sentence each."""
        problems, known, steps = [], self._given, dict[str, Step]()
        for step in (*self.steps, self.answer):
            if missing := [name for name in step.of if name not in known]:
                problems.append(f"{step.name} reads {', '.join(missing)}, which no earlier step makes")
                break
            problems += step.problems(known, steps)
            known[step.name], steps[step.name] = step.holds(known), step
        if self.read not in ("all", "first", "last", *self.vocabulary):
            problems.append(f"read = {self.read!r} is neither all, first or last nor a token")
        if self.pad is not None and self.pad not in self.vocabulary:
            problems.append(f"pad = {self.pad!r} is not a token")
        return problems

    # ------------------------------------------------------------ running

    def weights(self, tokens: Int[Tensor, "rows length"]) -> Float[Tensor, "rows length"]:
        """1 at tokens, 0 at padding."""
        pad = -1 if self.pad is None else self.vocabulary.index(self.pad)
        return (tokens != pad).double()

    def run(
        self,
        tokens: Int[Tensor, "rows length"],
        counts: Num[Tensor, "rows length"] | None = None,
        given: Features | None = None,
    ) -> Features:
        """Return each variable's weights at each position, in float64; `given` variables are not computed.

        counts: how often each position counts (default: 1, and 0 for padding); a row may hold equal tokens once.
        Raises InterpError for rows longer than `length` if a step reads positions.
        """
        made = {"token": codes(tokens, len(self.vocabulary)), **(given or {})}
        if tokens.shape[1] <= self.length:
            made.setdefault("position", codes(torch.arange(tokens.shape[1]).expand_as(tokens), self.length))
        elif any("position" in step.of for step in (*self.steps, self.answer)):
            raise InterpError(f"rows have {tokens.shape[1]} tokens; this program is for at most {self.length}")
        seen = visible(self.weights(tokens) if counts is None else counts, self.causal)
        for step in self.steps:
            if step.name not in made:
                made[step.name] = step.applied(made, seen)
        return made

    def classes(
        self, tokens: Int[Tensor, "rows length"], counts: Num[Tensor, "rows length"] | None = None
    ) -> Int[Tensor, "rows length"]:
        """Return the index of the answer at each position."""
        return self.answer.sums(self.run(tokens, counts)).argmax(-1)

    def reads(self, tokens: Int[Tensor, "rows length"]) -> Int[Tensor, "rows"]:
        """Return where each row is read. Raises InterpError if the token is missing, or answers are at all places."""
        if self.read == "all":
            raise InterpError("this program answers at each position")
        if self.read == "first":
            return torch.zeros(len(tokens), dtype=torch.long)
        if self.read == "last":
            return self.weights(tokens).sum(1).long() - 1
        at = find_first(tokens, self.vocabulary.index(self.read))
        if bool((at < 0).any()):
            raise InterpError(f"row {int((at < 0).int().argmax())} has no {self.read!r}, where the answer is read")
        return at

    def __call__(self, tokens: Sequence[str]) -> str | list[str]:
        """Return the answer to a row of words, or the answer at each position. Raises InterpError for other rows."""
        if not tokens:
            raise InterpError("a row without tokens has no answer")
        for word in tokens:
            check_one_of("token", word, self.vocabulary)
        row = torch.tensor([[self.vocabulary.index(word) for word in tokens]])
        answers = [self.answers[at] for at in self.classes(row)[0].tolist()]
        return answers if self.read == "all" else answers[int(self.reads(row)[0])]

    # ------------------------------------------------------------ plain data

    def to_json(self) -> str:
        """Return plain data without code, so that a file from a stranger is safe to read."""
        names = {kind: name for name, kind in KINDS.items()}
        data = {**asdict(self), "schema": SCHEMA}
        data["steps"] = [{"kind": names[type(step)], **asdict(step)} for step in self.steps]
        for step in data["steps"]:
            for name in ("total", "scaled", "evened"):
                if not step.get(name, True):
                    del step[name]  # the default
        return json.dumps(data)

    @classmethod
    def from_json(cls, text: str) -> Program:
        """Read the result of to_json. Raises InterpError for anything else."""
        try:
            data = entries(text, "a program", SCHEMA)
            steps = tuple(from_plain(KINDS[entry.pop("kind")], entry) for entry in data.pop("steps"))
            arguments, words = data.pop("answer"), data.pop("words")
            answer = from_plain(Cosines if "amplitudes" in arguments else Linear, arguments)
            kinds = {"vocabulary": Values, "length": int, "causal": bool, "read": str, "pad": str | None}
            rest = {name: from_plain(kinds[name], value, name) for name, value in data.items()}
            return cls(**rest, steps=steps, answer=answer, words={str(a): str(b) for a, b in words.items()})
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise misread("a program", error) from None


def sums_at(answer: Answer, made: Features, reads: Reads) -> Float[Tensor, "reads answers"]:
    """The sums of an answer at the reads."""
    return answer.sums({name: reads.pick(made[name])[:, None] for name in ("token", *answer.of)})[:, 0]


def largest(sums: Float[Tensor, "*tried reads answers"], tied: float = ROUNDING) -> Int[Tensor, "*tried reads"]:
    """The place of the largest sum; UNDECIDED where the two largest are equal, up to `tied` (see ROUNDING)."""
    if sums.shape[-1] < 2:
        return sums.argmax(-1)
    first, at = sums.max(-1)
    second = sums.scatter(-1, at[..., None], -torch.inf).amax(-1)
    return at.masked_fill(first - second <= tied * first.abs().clamp(min=1.0), UNDECIDED)


def entries(text: str, what: str, schema: int) -> dict[str, Any]:
    """The entries of plain data, without its schema. Raises InterpError for text that is no such data."""
    try:
        data = json.loads(text)
    except (TypeError, ValueError) as error:
        raise misread(what, error) from None
    if not isinstance(data, dict) or "schema" not in data:
        raise InterpError(f"this is not {what}: it has no entry 'schema'")
    if (other := data.pop("schema")) != schema:
        raise InterpError(f"{what} of schema {quoted(other)} is not known; this version knows {schema}")
    return data


def misread(what: str, error: Exception) -> InterpError:
    """The error for plain data with an entry missing, or of another type."""
    if isinstance(error, InterpError):
        return error
    return InterpError(f"this is not {what}: {f'it has no entry {error}' if isinstance(error, KeyError) else error}")


def tuples(value: Any) -> Any:
    """Turn lists into tuples, within tables, too."""
    if isinstance(value, dict):
        return {name: tuples(item) for name, item in value.items()}
    return tuple(map(tuples, value)) if isinstance(value, list) else value
