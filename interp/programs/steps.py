"""The steps of programs: what each kind reads, what it makes of that, and what must fit."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, pairwise, product
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypeVar

import torch
from jaxtyping import Bool, Float, Int, Num
from torch import Tensor

from interp.programs.relations import relation_of

NEVER = -1e4
"""A score that gives no attention. It is finite: where all scores are NEVER, attention is even."""
ROUNDING = 1e-9
"""Sums that differ by less, as a share of the largest (or of 1, if it is smaller), are equal."""
NOTHING, APART = 1e-2, 30.0
"""Weights are rounding if they are smaller than NOTHING, as a share of the step's largest, and all others are at least
APART times as large. What rounding makes differs between forms of one model, and has no largest size of its own."""
SAME = 1e-4
"""Scores that differ by less, as a share of the largest where that is below 1, are equal."""
OCCURS = -1e3
"""Values with scores below this have no share that can be evened."""
PATTERNS = 2**18
"""Most shares of attention that are held at once."""

Values: TypeAlias = tuple[str, ...]
Matrix: TypeAlias = tuple[tuple[float, ...], ...]
Features: TypeAlias = dict[str, Tensor]
"""The weights of each variable, (rows, length, values of the variable)."""
Known: TypeAlias = Mapping[str, Any]
"""The values of each variable: words, or what stands for them in source.py."""
Lines: TypeAlias = tuple[list[str], str]


@dataclass(frozen=True)
class Step:
    """What makes a variable from earlier ones. A kind of step is one class, and its name in language.KINDS.

    name: the variable's. of: the variables that are read. part: the part of a model that it describes, or "".
    """

    name: str

    if TYPE_CHECKING:  # fields or properties of each kind

        @property
        def of(self) -> tuple[str, ...]: ...

        @property
        def values(self) -> Values: ...

        @property
        def part(self) -> str: ...

    @property
    def constants(self) -> int:
        """How many numbers of the step count as constants of the program."""
        return 0

    def holds(self, known: Known) -> Values:
        """The values of the new variable; known: those of the variables before."""
        return self.values

    def problems(self, known: Known, steps: Mapping[str, Step]) -> list[str]:
        """List what does not fit the variables and steps before, one sentence each."""
        return []

    def applied(self, made: Features, seen: Float[Tensor, "rows query key"]) -> Float[Tensor, "rows length values"]:
        """The weights of the new variable, from those of the variables before; seen: see `visible`."""
        return self.mapped(made)

    def mapped(self, made: Features) -> Float[Tensor, "rows length values"]:
        """The same of a map, which reads at each position what is there."""
        raise NotImplementedError(f"{type(self).__name__} is no map")

    def shown(self, known: Known) -> Sequence[Any]:
        """The values of the new variable as they stand in source.py; known: those of the variables before."""
        return self.holds(known)

    def python(self, upper: str, names: Mapping[str, str], shown: Known) -> Lines:
        """Constants whose names begin with `upper`, and the expression; names, shown: of the variables before, and of
        the constant "", which an empty query or key stands for."""
        raise NotImplementedError


@dataclass(frozen=True)
class Head(Step):
    """Select and mix: softmax of a score for each pair of values, then the share of attention on each value.

    scores: (values of query) x (values of key); NEVER where there is no attention. An empty query or key is a constant.
    value: the variable that is mixed; the new variable has the same values. part: such as "head 0.3". total: scores are
    weights as they are, without softmax. scaled: scores are multiplied by the logarithm of the number of positions seen
    (Chiang & Cholak 2022), so weights are powers of it. evened: the part attends otherwise, but even attention
    changes no answer.
    """

    query: str
    key: str
    scores: Matrix
    value: str
    part: str = ""
    total: bool = False
    scaled: bool = False
    evened: bool = False

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
        """Number of pairs that get attention, or of a relation that says which and its exceptions, if these are fewer;
        if attention is graded, a score that most have counts once."""
        if self.hard:
            chosen = torch.tensor(self.scores) > NEVER
            relation = relation_of(chosen, torch.ones_like(chosen), places=self.query == self.key == "position")
            return min(int(chosen.sum()), relation.constants)
        flat = sorted(score for row in self.scores for score in row if self.total or score != NEVER)
        same = SAME * min(1.0, max(map(abs, flat), default=0.0))  # equal but for rounding
        most = max((bisect_right(flat, score + same) - n for n, score in enumerate(flat)), default=0)
        return len(flat) - most + 1 if 2 * most > len(flat) else len(flat)

    def holds(self, known: Known) -> Values:
        return known[self.value]

    def problems(self, known: Known, steps: Mapping[str, Step]) -> list[str]:
        shape = tuple(len(known[name]) if name else 1 for name in (self.query, self.key))
        fits = (len(self.scores), *{len(row) for row in self.scores}) == shape
        return [] if fits else [f"the scores of {self.name} must be {shape[0]} x {shape[1]}"]

    def attention(self, made: Features, seen: Float[Tensor, "rows query key"]) -> Float[Tensor, "rows query key"]:
        """The pattern: softmax of the scores over the positions that are seen (none seen: no attention), or the scores
        themselves; multiplied by the logarithm of how many are seen, if the head is scaled."""
        return torch.cat([pattern for _, pattern in self._patterns(made, seen)])

    def _patterns(
        self, made: Features, seen: Float[Tensor, "rows query key"]
    ) -> Iterator[tuple[slice, Float[Tensor, "some query key"]]]:
        """The pattern of a few rows at a time, and which these are: that of many does not fit into a cache."""
        scores = torch.tensor(self.scores, dtype=torch.float64)
        at_once = max(1, PATTERNS // max(1, seen.shape[1] * seen.shape[2]))
        for start in range(0, max(1, len(seen)), at_once):
            some = slice(start, start + at_once)
            here = seen[some]
            ones = scores.new_ones(*here.shape[:2], 1)
            query, key = (made[name][some] if name else ones for name in (self.query, self.key))
            if self.scaled:
                same = here.stride(1) == 0  # all queries of a row see the same
                query = query * (here[:, :1] if same else here).logsumexp(-1, keepdim=True)
            yield some, weights_of(query @ scores @ key.transpose(1, 2), here, self.total)

    def finds_none(self, made: Features, seen: Float[Tensor, "rows query key"]) -> Bool[Tensor, "rows query"]:
        """Where a head that selects keys sees none of these: it attends evenly to all then."""
        weights = tuple(tuple(float(score == 0.0) for score in row) for row in self.scores)
        return replace(self, scores=weights, total=True).attention(made, seen).sum(-1) == 0

    def applied(self, made: Features, seen: Float[Tensor, "rows query key"]) -> Float[Tensor, "rows length values"]:
        return torch.cat([pattern @ made[self.value][some] for some, pattern in self._patterns(made, seen)])

    def python(self, upper: str, names: Mapping[str, str], shown: Known) -> Lines:
        pairs = zip(product(shown[self.query], shown[self.key]), chain(*self.scores))
        scores = {pair: score for pair, score in pairs if score > NEVER}
        query = f"by_length({names[self.query]}, tokens)" if self.scaled else names[self.query]
        how = f"{'weigh' if self.total else 'select'}({query}, {names[self.key]}, {upper}_SCORES, tokens)"
        return [f"{upper}_SCORES = {scores!r}"], f"mix({how}, {names[self.value]})"


@dataclass(frozen=True)
class Table(Step):
    """Map: entries[i] is the new value for the i-th combination of values of `of` (the last variable varies fastest).

    A variable that holds shares is read at its largest share.
    """

    of: tuple[str, ...]
    entries: tuple[int, ...]
    values: Values
    part: str = ""

    @property
    def constants(self) -> int:
        return len(self.entries) - max(self.entries.count(value) for value in set(self.entries)) + 1

    def problems(self, known: Known, steps: Mapping[str, Step]) -> list[str]:
        n = prod(len(known[name]) for name in self.of)
        fits = len(self.entries) == n and all(0 <= entry < len(self.values) for entry in self.entries)
        return [] if fits else [f"{self.name} needs {n} entries below {len(self.values)}"]

    def mapped(self, made: Features) -> Float[Tensor, "rows length values"]:
        index = torch.zeros((), dtype=torch.long)
        for name in self.of:
            index = index * made[name].shape[-1] + first_largest(made[name])
        entries = torch.tensor(self.entries)[index]
        return codes(entries.expand(made["token"].shape[:2]), len(self.values))

    def python(self, upper: str, names: Mapping[str, str], shown: Known) -> Lines:
        default = max(set(self.entries), key=self.entries.count)
        cells = zip(product(*(shown[name] for name in self.of)), self.entries)
        table = {cell: self.values[entry] for cell, entry in cells if entry != default}
        constants = [f"{upper}_TABLE = {table!r}", f"{upper}_ELSE = {self.values[default]!r}"]
        return constants, f"look_up({upper}_TABLE, {upper}_ELSE, {', '.join(names[name] for name in self.of)})"


@dataclass(frozen=True)
class Weighed(Step):
    """Sums of weights, each with its bias; weights[i] is (values of of[i]) x (sums)."""

    of: tuple[str, ...]
    weights: tuple[Matrix, ...]
    bias: tuple[float, ...]

    if TYPE_CHECKING:

        @property
        def how(self) -> str: ...

    @property
    def constants(self) -> int:
        """Number of weights that are not zero; so a value that picks an answer counts once.

        Where all values of a variable have the same weights, these count once; so do the weights that two variables
        have alike.
        """
        different = dict.fromkeys((*self.weights, (self.bias,)))
        alike = (matrix[:1] if len(set(matrix)) == 1 else matrix for matrix in different)
        return sum(weight != 0.0 for matrix in alike for row in matrix for weight in row)

    def problems(self, known: Known, steps: Mapping[str, Step]) -> list[str]:
        n = len(self.values)
        shapes = [(len(matrix), {len(row) for row in matrix}) for matrix in self.weights]
        if shapes == [(len(known[name]), {n}) for name in self.of] and len(self.bias) == n:
            return []
        return [f"the weights of {self.name} do not fit its variables and its {n} values"]

    def sums(
        self, made: Features, of: Collection[str] | None = None, bias: bool = True
    ) -> Float[Tensor, "rows length values"]:
        """The sums of weights. of: the variables that are summed up, if not all; bias: whether it is added."""
        constant, *matrices = self._tensors
        n_rows, length = made["token"].shape[:2]
        total = (constant if bias else torch.zeros_like(constant)).repeat(n_rows * length, 1)
        for name, weights in zip(self.of, matrices, strict=True):
            if of is None or name in of:
                total.addmm_(made[name].flatten(0, 1), weights)  # in place, without a sum beside it
        return total.view(n_rows, length, len(constant))

    @cached_property
    def _tensors(self) -> tuple[Tensor, ...]:
        """The bias and the weights."""
        return tuple(torch.tensor(numbers, dtype=torch.float64) for numbers in (self.bias, *self.weights))

    def python(self, upper: str, names: Mapping[str, str], shown: Known) -> Lines:
        constants = [f"{upper}_VALUES = {tuple(self.values)!r}", f"{upper}_BIAS = {tuple(self.bias)!r}"]
        known: dict[str, str] = {}
        for i, (name, matrix) in enumerate(zip(self.of, self.weights)):
            rows = _rows(shown[name], matrix)
            constants.append(f"{upper}_WEIGHTS_{i} = {known.get(rows, rows)}")
            known.setdefault(rows, f"{upper}_WEIGHTS_{i}")
        if not self.of:
            zipped = f"dict(zip({upper}_VALUES, {upper}_BIAS))"
            return constants, f"[{f'{{most({zipped}): 1.0}}' if self.how == 'largest' else zipped}] * len(tokens)"
        weighed = ", ".join(f"({names[name]}, {upper}_WEIGHTS_{i})" for i, name in enumerate(self.of))
        return constants, f"{self.how}({upper}_VALUES, {upper}_BIAS, {weighed})"


def _rows(values: Sequence[Any], matrix: Matrix) -> str:
    """The row of weights of each value, in Python. Of a matrix that is mostly 0, only the others are written."""
    whole = repr(dict(zip(values, matrix)))
    rows = {value: {i: weight for i, weight in enumerate(row) if weight} for value, row in zip(values, matrix)}
    few = f"sparse({len(matrix[0]) if matrix else 0}, {rows!r})"
    return few if len(few) < len(whole) / 2 else whole


@dataclass(frozen=True)
class Linear(Weighed):
    """Map: the value with the largest sum of weights; weights[i] is (values of of[i]) x (new values)."""

    values: Values
    part: str = ""
    how: ClassVar[str] = "largest"

    def mapped(self, made: Features) -> Float[Tensor, "rows length values"]:
        return codes(first_largest(self.sums(made)), len(self.values))


@dataclass(frozen=True)
class Sums(Weighed):
    """Map: numbers, each a sum of weights; weights[i] is (values of of[i]) x (numbers). ramps: max(0, the sum)."""

    ramps: bool = False
    part: str = ""

    @property
    def values(self) -> Values:
        return tuple(f"{self.how[:-1]} {i}" for i in range(len(self.bias)))

    @property
    def how(self) -> str:
        return "ramps" if self.ramps else "sums"

    def mapped(self, made: Features) -> Float[Tensor, "rows length values"]:
        return self.sums(made).relu() if self.ramps else self.sums(made)


@dataclass(frozen=True)
class Product(Step):
    """Map: for each value of two variables that have the same values, their weights of it, multiplied.

    Where the first has one value, this is the second's weight of that value: of the shares of all tokens, that of the
    own token, for example.
    """

    of: tuple[str, ...]
    part: str = ""

    def holds(self, known: Known) -> Values:
        return known[self.of[0]] if self.of else ()

    def problems(self, known: Known, steps: Mapping[str, Step]) -> list[str]:
        fits = len(self.of) == 2 and len({known[name] for name in self.of}) == 1
        return [] if fits else [f"the variables of {self.name} must be two that have the same values"]

    def mapped(self, made: Features) -> Float[Tensor, "rows length values"]:
        first, second = (made[name] for name in self.of)
        return first * second

    def python(self, upper: str, names: Mapping[str, str], shown: Known) -> Lines:
        return [], f"product({', '.join(names[name] for name in self.of)})"


@dataclass(frozen=True)
class Evened(Step):
    """Map: what a head would read with even attention: each share divided by exp(score) of its value; they sum to one
    again. So how often each value occurs is known from the shares of a soft head, as models that count know it.

    of: the head's query (none if it is a constant), and the head, which has softmax and reads what its scores are
    about. scores: the head's own, (values of query) x (values), so they are not counted again.
    """

    of: tuple[str, ...]
    scores: Matrix
    part: str = ""

    @property
    def head(self) -> str:
        return self.of[-1]

    def holds(self, known: Known) -> Values:
        return known[self.head] if self.of else ()

    def problems(self, known: Known, steps: Mapping[str, Step]) -> list[str]:
        head = steps.get(self.head) if self.of else None
        if (
            isinstance(head, Head) and not head.total and not head.scaled and head.key == head.value
            and self.scores == head.scores and self.of[:-1] == ((head.query,) if head.query else ())
        ):  # fmt: skip
            return []
        return [f"{self.name} must have the scores of a head with softmax that reads its keys"]

    def mapped(self, made: Features) -> Float[Tensor, "rows length values"]:
        """The shares of even attention; 0 where nothing is read."""
        scores = torch.tensor(self.scores, dtype=torch.float64)
        lowest = torch.where(scores > OCCURS, scores, torch.inf).amin(1, keepdim=True)
        weights = torch.where(scores > OCCURS, (lowest - scores).exp(), 0.0)
        factors = weights[made[self.of[0]].argmax(-1) if len(self.of) > 1 else torch.zeros((), dtype=torch.long)]
        shares = made[self.head] * factors
        return shares / shares.sum(-1, keepdim=True).clamp(min=1e-300)

    def python(self, upper: str, names: Mapping[str, str], shown: Known) -> Lines:
        query = names[self.of[0] if len(self.of) > 1 else ""]
        return [], f"evened({query}, {names[self.head]}, {names[self.head].upper()}_SCORES)"


@dataclass(frozen=True)
class Normed(Step):
    """The constant 1 and the weights of variables, divided by a length.

    length: a variable; its length is the root of the sum of the squares of its weights.
    """

    divided: tuple[str, ...]
    length: str
    part: str = ""

    @property
    def of(self) -> tuple[str, ...]:
        """The variables that the step reads."""
        return tuple(dict.fromkeys((*self.divided, self.length)))

    def holds(self, known: Known) -> Values:
        return "1", *(f"{name} {value}" for name in self.divided for value in known[name])

    def mapped(self, made: Features) -> Float[Tensor, "rows length values"]:
        """The weights side by side after the constant, divided by the length."""
        ones = made["token"].new_ones(*made["token"].shape[:2], 1)
        weights = torch.cat([ones, *(made[name] for name in self.divided)], -1)
        return weights / made[self.length].norm(dim=-1, keepdim=True).clamp(min=1e-6)

    def shown(self, known: Known) -> Sequence[Any]:
        return 1, *((i, value) for i, name in enumerate(self.divided) for value in known[name])

    def python(self, upper: str, names: Mapping[str, str], shown: Known) -> Lines:
        return [], f"divided({', '.join(names[name] for name in (self.length, *self.divided))})"


AnyStep = TypeVar("AnyStep", bound=Step)


def without_rounding(step: AnyStep, cut: int = 0) -> AnyStep:
    """The step with weights of 0 in place of those that are rounding. cut: at which gap between sizes, from the largest
    on; after the last, none is left out."""
    if not isinstance(step, Weighed):
        return step
    sizes = sorted((abs(weight) for row in (step.bias, *chain(*step.weights)) for weight in row), reverse=True)
    small = [low for high, low in pairwise(sizes) if low <= NOTHING * sizes[0] and low * APART <= high]
    least = [*small, 0.0][min(cut, len(small))]

    def rounded(row: tuple[float, ...]) -> tuple[float, ...]:
        return tuple(weight if abs(weight) > least else 0.0 for weight in row)

    weights = tuple(tuple(map(rounded, matrix)) for matrix in step.weights)
    return replace(step, weights=weights, bias=rounded(step.bias))


# ---------------------------------------------------------------- weights of variables


def first_largest(weights: Float[Tensor, "... values"]) -> Int[Tensor, "..."]:
    """The first value with the largest weight, up to ROUNDING."""
    most = weights.amax(-1, keepdim=True)
    return (weights >= most - ROUNDING * most.abs().clamp(min=1.0)).byte().argmax(-1)


def codes(values: Int[Tensor, "rows length"], size: int) -> Float[Tensor, "rows length values"]:
    """One value with all the weight at each position."""
    return torch.zeros(*values.shape, size, dtype=torch.float64).scatter_(-1, values.long()[..., None], 1.0)


def visible(counts: Num[Tensor, "rows length"], causal: bool) -> Float[Tensor, "rows query key"]:
    """The logarithm of how often each position (last axis) counts for each position; -inf where it is not seen."""
    seen = counts.double().log()[:, None, :].expand(-1, counts.shape[1], -1)
    if not causal:
        return seen
    return seen.masked_fill(~torch.ones(seen.shape[1:], dtype=torch.bool).tril(), -torch.inf)


def weights_of(scores: Tensor, seen: Tensor, total: bool) -> Tensor:
    """The attention that scores give to keys; seen: see `visible`."""
    if total:
        return scores * seen.exp()
    weights = scores + seen  # a new tensor, the only one of its size
    weights = weights.sub_(weights.amax(-1, keepdim=True)).exp_()  # softmax itself is slow over a few keys
    return weights.div_(weights.sum(-1, keepdim=True)).nan_to_num_(0.0)
