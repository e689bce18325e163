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
    Evened(of)                 map: what a soft head would read with even attention; see evened.py
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
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

import torch
from jaxtyping import Float, Int, Num
from torch import Tensor

from interp.errors import InterpError
from interp.programs.evened import Evened, evened
from interp.programs.waves import Cosines, Waves, cosines, waved

SCHEMA = 1
NEVER = -1e4
"""A score that gives no attention. It is finite: where all scores are NEVER, attention is even."""

Values: TypeAlias = tuple[str, ...]
Matrix: TypeAlias = tuple[tuple[float, ...], ...]
Features: TypeAlias = dict[str, Tensor]
"""The weights of each variable, (rows, length, values of the variable)."""


@dataclass(frozen=True)
class Head:
    """Select and mix: softmax of a score for each pair of values, then the share of attention on each value.

    scores: (values of query) x (values of key); NEVER where there is no attention. An empty query or key is a constant.
    value: the variable that is mixed; the new variable has the same values. part: such as "head 0.3". total: scores are
    weights as they are, without softmax. scaled: scores are multiplied by the logarithm of the number of positions seen
    (Chiang & Cholak 2022), so weights are powers of it.
    """

    name: str
    query: str
    key: str
    scores: Matrix
    value: str
    part: str = ""
    total: bool = False
    scaled: bool = False

    @property
    def of(self) -> tuple[str, ...]:
        """The variables that the step reads."""
        return tuple(dict.fromkeys(name for name in (self.query, self.key, self.value) if name))

    @property
    def hard(self) -> bool:
        """Whether each key is either selected or not."""
        return not self.total and all(score in (0.0, NEVER) for row in self.scores for score in row)

    @property
    def constants(self) -> int:
        """Number of pairs that get attention; if it is graded, a score that most have counts once."""
        flat = [score for row in self.scores for score in row if self.total or score != NEVER]
        most = 0 if self.hard or not flat else max(Counter(flat).values())
        return len(flat) - most + 1 if 2 * most > len(flat) else len(flat)


@dataclass(frozen=True)
class Table:
    """Map: entries[i] is the new value for the i-th combination of values of `of` (the last variable varies fastest).

    A variable that holds shares is read at its largest share.
    """

    name: str
    of: tuple[str, ...]
    entries: tuple[int, ...]
    values: Values
    part: str = ""

    @property
    def constants(self) -> int:
        return len(self.entries) - max(self.entries.count(value) for value in set(self.entries)) + 1


@dataclass(frozen=True)
class Linear:
    """Map: the value with the largest sum of weights; weights[i] is (values of of[i]) x (new values)."""

    name: str
    of: tuple[str, ...]
    weights: tuple[Matrix, ...]
    bias: tuple[float, ...]
    values: Values
    part: str = ""

    @property
    def constants(self) -> int:
        return nonzero(*self.weights, (self.bias,))


@dataclass(frozen=True)
class Sums:
    """Map: numbers, each a sum of weights; weights[i] is (values of of[i]) x (numbers). ramps: max(0, the sum)."""

    name: str
    of: tuple[str, ...]
    weights: tuple[Matrix, ...]
    bias: tuple[float, ...]
    ramps: bool = False
    part: str = ""

    @property
    def values(self) -> Values:
        return tuple(f"{'ramp' if self.ramps else 'sum'} {i}" for i in range(len(self.bias)))

    @property
    def constants(self) -> int:
        return nonzero(*self.weights, (self.bias,))


@dataclass(frozen=True)
class Product:
    """Map: for each value of two variables that have the same values, their weights of it, multiplied.

    Where the first has one value, this is the second's weight of that value: of the shares of all tokens, that of the
    own token, for example.
    """

    name: str
    of: tuple[str, ...]
    part: str = ""

    @property
    def constants(self) -> int:
        return 0


@dataclass(frozen=True)
class Normed:
    """The constant 1 and the weights of variables, divided by a length.

    length: a variable; its length is the root of the sum of the squares of its weights.
    """

    name: str
    divided: tuple[str, ...]
    length: str
    part: str = ""

    @property
    def of(self) -> tuple[str, ...]:
        """The variables that the step reads."""
        return tuple(dict.fromkeys((*self.divided, self.length)))

    @property
    def constants(self) -> int:
        return 0


def nonzero(*matrices: Matrix) -> int:
    """Number of weights that are not zero; so a value that picks an answer counts once.

    Where all values of a variable have the same weights, these count once.
    """
    alike = (matrix[:1] if len(set(matrix)) == 1 else matrix for matrix in matrices)
    return sum(weight != 0.0 for matrix in alike for row in matrix for weight in row)


Step: TypeAlias = Head | Table | Linear | Sums | Product | Evened | Normed | Waves
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
        if found := self.problems():
            raise InterpError("this is not a program: " + "; ".join(found))

    # ------------------------------------------------------------ structure

    @cached_property
    def values(self) -> dict[str, Values]:
        """The values of each variable, in the order in which variables are made."""
        found: dict[str, Values] = {"token": self.vocabulary, "position": tuple(map(str, range(self.length)))}
        for step in self.steps:
            if isinstance(step, Head):
                found[step.name] = found.get(step.value, ())
            elif isinstance(step, Product):
                found[step.name] = found.get(step.of[0], ()) if step.of else ()
            elif isinstance(step, Evened):
                found[step.name] = found.get(step.head, ()) if step.of else ()
            elif isinstance(step, Normed):
                found[step.name] = ("1", *(f"{name} {one}" for name in step.divided for one in found.get(name, ())))
            else:
                found[step.name] = step.values
        return found

    @property
    def answers(self) -> Values:
        """The words of the answers."""
        return self.answer.values

    @property
    def constants(self) -> int:
        """Numbers of the program: table entries, selected pairs, scores, and weights that are not zero."""
        return sum(step.constants for step in (*self.steps, self.answer))

    def step(self, name: str) -> Step:
        """The step that makes a variable. Raises KeyError for others."""
        return {step.name: step for step in self.steps}[name]

    def problems(self) -> list[str]:
        """List what does not fit together, one sentence each."""
        found, known = [], {"token": len(self.vocabulary), "position": self.length}
        for step in (*self.steps, self.answer):
            if missing := [name for name in step.of if name not in known]:
                found.append(f"{step.name} reads {', '.join(missing)}, which no earlier step makes")
                break
            sizes = [known[name] for name in step.of]
            if isinstance(step, Product):
                if len(step.of) != 2 or len({self.values[name] for name in step.of}) != 1:
                    found.append(f"the variables of {step.name} must be two that have the same values")
                    break
                known[step.name] = sizes[0]
                continue
            if isinstance(step, Evened):
                if not self._evens(step):
                    found.append(f"{step.name} must have the scores of a head with softmax that reads its keys")
                    break
                known[step.name] = known[step.head]
                continue
            if isinstance(step, Normed):
                known[step.name] = 1 + sum(known[name] for name in step.divided)
                continue
            if isinstance(step, Head):
                shape = (known.get(step.query, 1), known.get(step.key, 1))
                if (len(step.scores), *{len(row) for row in step.scores}) != shape:
                    found.append(f"the scores of {step.name} must be {shape[0]} x {shape[1]}")
                known[step.name] = known[step.value]
                continue
            if isinstance(step, Waves | Cosines):
                found += step.problems(sizes)
            elif isinstance(step, Table):
                n = 1
                for size in sizes:
                    n *= size
                if len(step.entries) != n or not all(0 <= entry < len(step.values) for entry in step.entries):
                    found.append(f"{step.name} needs {n} entries below {len(step.values)}")
            else:
                n = len(step.values)
                shapes = [(len(matrix), {len(row) for row in matrix}) for matrix in step.weights]
                if shapes != [(size, {n}) for size in sizes] or len(step.bias) != n:
                    found.append(
                        f"the weights of {step.name} do not fit its variables and its {len(step.values)} values"
                    )
            known[step.name] = len(step.values)
        if self.read not in ("all", "first", "last", *self.vocabulary):
            found.append(f"read = {self.read!r} is neither all, first or last nor a token")
        if self.pad is not None and self.pad not in self.vocabulary:
            found.append(f"pad = {self.pad!r} is not a token")
        return found

    def _evens(self, step: Evened) -> bool:
        head = next((one for one in self.steps if step.of and one.name == step.head), None)
        if not isinstance(head, Head) or head.total or head.scaled or head.key != head.value:
            return False
        return step.scores == head.scores and step.of[:-1] == ((head.query,) if head.query else ())

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
            made["position"] = codes(torch.arange(tokens.shape[1]).expand_as(tokens), self.length)
        elif any("position" in step.of for step in (*self.steps, self.answer)):
            raise InterpError(f"rows have {tokens.shape[1]} tokens; this program is for at most {self.length}")
        seen = visible(self.weights(tokens) if counts is None else counts, self.causal)
        for step in self.steps:
            if step.name not in made:
                made[step.name] = applied(step, made, seen)
        return made

    def classes(
        self, tokens: Int[Tensor, "rows length"], counts: Num[Tensor, "rows length"] | None = None
    ) -> Int[Tensor, "rows length"]:
        """Return the index of the answer at each position."""
        return linear(self.answer, self.run(tokens, counts)).argmax(-1)

    def reads(self, tokens: Int[Tensor, "rows length"]) -> Int[Tensor, "rows"]:
        """Return where each row is read. Raises InterpError if the token is missing, or answers are at all places."""
        if self.read == "all":
            raise InterpError("this program answers at each position")
        if self.read == "first":
            return torch.zeros(len(tokens), dtype=torch.long)
        if self.read == "last":
            pad = None if self.pad is None else self.vocabulary.index(self.pad)
            return (tokens != pad).sum(1) - 1 if pad is not None else torch.full((len(tokens),), tokens.shape[1] - 1)
        here = tokens == self.vocabulary.index(self.read)
        if not bool(here.any(1).all()):
            raise InterpError(
                f"row {int((~here.any(1)).int().argmax())} has no {self.read!r}, where the answer is read"
            )
        return here.int().argmax(1)

    def __call__(self, tokens: Sequence[str]) -> str | list[str]:
        """Return the answer to a row of words, or the answer at each position. Raises InterpError for other tokens."""
        if unknown := [word for word in tokens if word not in self.vocabulary]:
            raise InterpError(f"{unknown[0]!r} is not a token of this program: {', '.join(self.vocabulary)}")
        row = torch.tensor([[self.vocabulary.index(word) for word in tokens]])
        found = self.classes(row)[0].tolist()
        return (
            [self.answers[at] for at in found] if self.read == "all" else self.answers[found[int(self.reads(row)[0])]]
        )

    # ------------------------------------------------------------ plain data

    def to_json(self) -> str:
        """Return plain data without code, so that a file from a stranger is safe to read."""
        names = {kind: name for name, kind in KINDS.items()}
        data = {**asdict(self), "schema": SCHEMA}
        data["steps"] = [{"kind": names[type(step)], **asdict(step)} for step in self.steps]
        for step in data["steps"]:
            for name in ("total", "scaled"):
                if not step.get(name, True):
                    del step[name]  # the default
        return json.dumps(data)

    @classmethod
    def from_json(cls, text: str) -> Program:
        """Read the result of to_json. Raises InterpError for anything else."""
        try:
            data = json.loads(text)
            if data.pop("schema") != SCHEMA:
                raise InterpError(f"a program of another schema than {SCHEMA}")
            steps = tuple(KINDS[one.pop("kind")](**_tuples(one)) for one in data.pop("steps"))
            given, said = _tuples(data.pop("answer")), data.pop("words")
            answer = Cosines(**given) if "amplitudes" in given else Linear(**given)
            return cls(**_tuples(data), steps=steps, answer=answer, words={str(a): str(b) for a, b in said.items()})
        except (json.JSONDecodeError, KeyError, TypeError, AttributeError, ValueError) as error:
            raise InterpError(f"this is not a program: {error}") from None


def _tuples(value: Any) -> Any:
    """Turn lists into tuples, within tables, too."""
    if isinstance(value, dict):
        return {name: _tuples(one) for name, one in value.items()}
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


# ---------------------------------------------------------------- steps


def codes(values: Int[Tensor, "rows length"], size: int) -> Float[Tensor, "rows length values"]:
    """One value with all the weight at each position."""
    return torch.nn.functional.one_hot(values, size).double()


def visible(counts: Num[Tensor, "rows length"], causal: bool) -> Float[Tensor, "rows query key"]:
    """The logarithm of how often each position (last axis) counts for each position; -inf where it is not seen."""
    seen = counts.double().log()[:, None, :].expand(-1, counts.shape[1], -1)
    if not causal:
        return seen
    return seen.masked_fill(~torch.ones(seen.shape[1:], dtype=torch.bool).tril(), -torch.inf)


def applied(step: Step, made: Features, seen: Float[Tensor, "rows query key"]) -> Float[Tensor, "rows length values"]:
    """The variable that a step makes."""
    if isinstance(step, Head):
        return attention(step, made, seen) @ made[step.value]
    if isinstance(step, Waves):
        return waved(step, made)
    if isinstance(step, Evened):
        return evened(step, made)
    return normed(step, made) if isinstance(step, Normed) else mapped(step, made)


def normed(step: Normed, made: Features) -> Float[Tensor, "rows length values"]:
    """The weights side by side after the constant, divided by the length."""
    ones = made["token"].new_ones(*made["token"].shape[:2], 1)
    found = torch.cat([ones, *(made[name] for name in step.divided)], -1)
    return found / made[step.length].norm(dim=-1, keepdim=True).clamp(min=1e-6)


def attention(step: Head, made: Features, seen: Float[Tensor, "rows query key"]) -> Float[Tensor, "rows query key"]:
    """The pattern of a head: softmax of the scores over the positions that are seen (none seen: no attention), or the
    scores themselves; multiplied by the logarithm of how many are seen, if the head is scaled."""
    ones = next(iter(made.values())).new_ones(*seen.shape[:2], 1)
    query, key = (made[name] if name else ones for name in (step.query, step.key))
    query = query * seen.logsumexp(-1, keepdim=True) if step.scaled else query
    scores = query @ torch.tensor(step.scores, dtype=query.dtype) @ key.transpose(1, 2)
    return weights_of(scores, seen, step.total)


def weights_of(scores: Tensor, seen: Tensor, total: bool) -> Tensor:
    """The attention that scores give to keys; seen: see `visible`."""
    return scores * seen.exp() if total else (scores + seen).softmax(-1).nan_to_num(0.0)


def mapped(step: Table | Linear | Sums | Product, made: Features) -> Float[Tensor, "rows length values"]:
    """The values of a map: codes, or numbers."""
    if isinstance(step, Product):
        one, other = (made[name] for name in step.of)
        return one * other
    if isinstance(step, Sums):
        return linear(step, made).relu() if step.ramps else linear(step, made)
    if isinstance(step, Linear):
        return codes(linear(step, made).argmax(-1), len(step.values))
    index = torch.zeros((), dtype=torch.long)
    for name in step.of:
        index = index * made[name].shape[-1] + made[name].argmax(-1)
    found = torch.tensor(step.entries)[index]
    return codes(found.expand(made["token"].shape[:2]), len(step.values))


def linear(step: Answer | Sums, made: Features) -> Float[Tensor, "rows length values"]:
    """The sums of weights of a map or of the answer."""
    if isinstance(step, Cosines):
        return cosines(step, made)
    total = torch.tensor(step.bias, dtype=torch.float64).expand(*made["token"].shape[:2], -1)
    for name, weights in zip(step.of, step.weights, strict=True):
        total = total + made[name] @ torch.tensor(weights, dtype=torch.float64)
    return total
