"""Populations: the inputs that a number is measured on.

A population is one of

- exact: every input of the task's domain, each once;
- sample: n inputs from the sampler of a split, possibly with repetitions; n is one of SIZES, or set by the user;
- dataset: the task's fixed data set of a split, or a part of it;
- given: inputs that the caller chose.

    population = choose(task, lambda length: 10**6 * length)              # a million operations for each token
    right = subject.right(population.batch)
    score = population.score(right)                                       # with an interval, unless it is exact
    f"Accuracy {score} {population.on}."                                  # Accuracy .9790 (95% interval ...) on ...

The number of inputs depends on the work, which is counted and not timed: `choose` takes the largest size whose
operations fit a budget. So the same model, task and options give the same inputs on any machine, under any load.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.errors import InterpError, UnsupportedError, check_size, quoted
from interp.support import words
from interp.tasks.batch import Batch, concatenate
from interp.tasks.domain import every_input, n_inputs
from interp.tasks.scores import Score, wilson
from interp.tasks.task import Task

Kind = Literal["exact", "sample", "dataset", "given"]
SIZES = (200, 1_000, 5_000, 20_000)
"""Sizes of samples; the largest affordable size is used."""
SPEED = 10**10
"""Nominal operations per second, about those of one core. It translates seconds to operations; nothing is timed."""
SECONDS = 1.0
"""Default budget per section, in nominal seconds."""
LISTED = 1 << 20
"""Largest domain whose inputs are all listed."""
TOKENS = 1 << 24
"""Largest number of tokens in a sample."""

Cost = Callable[[int], float]
"""The operations that some work takes on one input, from the input's length in tokens."""


@dataclass(frozen=True)
class InputsAsked:
    """A user's request per section: a number of inputs or a budget in nominal seconds (SPEED)."""

    inputs: int | None = None
    seconds: float | None = None

    @classmethod
    def of(cls, inputs: object = None, seconds: object = None) -> InputsAsked:
        """Check both values. Raises InterpError unless inputs is a positive integer and seconds a positive number."""
        if inputs is not None and (type(inputs) is not int or inputs < 1):
            raise InterpError(f"inputs = {quoted(inputs)} must be a positive integer")
        number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
        if seconds is not None and not (number and 0 < seconds < math.inf):  # type: ignore[operator]
            raise InterpError(f"seconds = {quoted(seconds)} must be a number above 0")
        return cls(inputs, None if seconds is None else float(seconds))  # type: ignore[arg-type]

    def or_else(self, other: InputsAsked) -> InputsAsked:
        """Return this request, or the other one if this one is empty."""
        return other if self == InputsAsked() else self


@dataclass(frozen=True)
class Population:
    """The inputs that a number is measured on; see the module's docstring.

    total: size of the whole domain or data set (None: unknown). split, seed: of the sampler or data set. weights: the
    sampler's probabilities of these inputs, normalized to sum to 1 (None: unknown). own: whether the task's splits are
    those of the model under study. instead_of: the split whose longer inputs these replace.
    """

    kind: Kind
    batch: Batch
    total: int | None = None
    split: str | None = None
    seed: int | None = None
    weights: Float[Tensor, "rows"] | None = None
    own: bool = True
    instead_of: str | None = None

    @property
    def n(self) -> int:
        return len(self.batch)

    @property
    def exact(self) -> bool:
        """Whether these are all inputs, so that shares have no sampling error."""
        return self.kind == "exact"

    @property
    def few(self) -> bool:
        """Whether the sample is so small that the first sentence must say so."""
        return not self.exact and self.n < SIZES[0]

    def drawn_like(self, other: Population) -> bool:
        """Test whether another population has the same inputs, drawn in the same way."""
        names = ("kind", "n", "total", "split", "seed", "own")
        return self.kind != "given" and all(getattr(self, name) == getattr(other, name) for name in names)

    @property
    def on(self) -> str:
        """For a sentence: "on all 2,046 inputs", "on a sample of 1,000 inputs (split test, seed 0)"."""
        inputs = words.counted(self.n, "input")
        if self.kind == "exact":
            return f"on {'the only input' if self.n == 1 else f'all {inputs}'}"
        only = "only " if self.few else ""
        if self.kind == "dataset":
            whole = self.total is None or self.total == self.n
            part = f"the {inputs}" if whole else f"{only}{self.n:,} of the {self.total:,} inputs (seed {self.seed})"
            return f"on {part} of the {self.split} set"
        if self.kind == "given":
            return f"on the {inputs} given"
        source = f"split {self.split}" if self.own else "from the task's sampler"
        shorter = f", shorter than those of {self.instead_of}" if self.instead_of else ""
        drawn = f"({source}{shorter}, seed {self.seed})"
        return f"on {f'{inputs} only' if self.few else f'a sample of {inputs}'} {drawn}"

    @property
    def measured(self) -> str:
        """`on`, with the largest error of a share: "on ... (split test, seed 0; 95% intervals ±0.031 or less)"."""
        if self.exact:
            return self.on
        off = f"95% intervals ±{words.at_most(self.margin, 3)} or less"
        return f"{self.on[:-1]}; {off})" if self.on.endswith(")") else f"{self.on} ({off})"

    @property
    def margin(self) -> float:
        """Half the width of the widest 95% interval of a share; 0 if shares are exact."""
        return 0.0 if self.exact else wilson(0.5, self.n)[1] - 0.5

    def score(self, right: Bool[Tensor, "answers"] | float) -> Score:
        """Return the score of these answers, or of a given accuracy with one answer per input."""
        if isinstance(right, float | int):
            return Score(self.n, right * self.n, self.n, self.exact)
        return Score(len(right), int(right.sum()), self.n, self.exact)

    def leaders(self, accuracies: Mapping[str, float], least: bool = False) -> list[str]:
        """Return names by decreasing (or increasing) accuracy: the first, and all whose intervals overlap with its."""
        order = sorted(accuracies, key=lambda name: accuracies[name] if least else -accuracies[name])
        scores = [self.score(accuracies[name]) for name in order]
        ahead = [scores[0].exceeds(score) or score.exceeds(scores[0]) for score in scores]
        return [name for name, apart in zip(order, ahead) if not apart]


# ---------------------------------------------------------------- choosing


def choose(
    task: Task,
    cost: Cost,
    asked: InputsAsked | None = None,
    *,
    split: str | None = None,
    seed: int = 0,
    fixed: bool = True,
    exact: bool = True,
    seconds: float | int = SECONDS,
    most: int = SIZES[-1],
    once: Callable[..., Any] | None = None,
) -> Population:
    """Choose the inputs for some work: a fixed data set, all inputs, or a sample, depending on the cost.

    cost: the operations of the work on one input of a length. asked: the user's choice, which takes precedence. split:
    of a sample or data set (default: the task's last; or, if even SIZES[0] of its inputs exceed the budget, the split
    with the shortest, with another seed than the inputs that separators and means are from). fixed: use the task's data
    set of the split if there is one. exact: use all inputs if the work on them fits the budget. seconds: the budget, at
    SPEED. most: largest sample. once: calls a function of the task and more arguments, and may keep what it gives.

    Raises InterpError for an unknown split, and for a task that has neither a sampler nor few enough inputs.
    """
    asked, once = asked or InputsAsked(), once or (lambda make, *arguments: make(*arguments))
    named = _split(task, split)
    whole = once(_dataset, task, named) if fixed else None
    last, limit = named, asked.inputs
    if limit is None:
        budget = SPEED * (asked.seconds or seconds)
        if split is None and whole is None:
            shorter = _shorter(task, cost, named, lambda name: once(_length, task, name, seed), budget)
            named, seed = (named, seed) if shorter is None else (shorter, seed + 1)
        length = once(_length, task, named, seed) if whole is None else whole.tokens.shape[1]
        total = (total_of(task) if exact else None) if whole is None else len(whole)
        # Without a sampler, and with too many inputs to list, `sample` raises the error.
        limit = SIZES[0] if length is None else _affordable(cost, length, total, budget, most)
    if whole is not None:
        return _part(whole, limit, named, seed)
    if exact and (total := total_of(task)) is not None and total <= min(limit, LISTED):
        return everything(task)
    return replace(sample(task, limit, split=named, seed=seed), instead_of=last if named != last else None)


def usual(
    task: Task, split: str | None = None, n: int = 1_000, fixed: bool = True, most: int | None = None
) -> Population:
    """Return the default inputs of a measure, and of its section in a report, the same on every machine.

    With `fixed`, they are the task's data set of the split, if any. Otherwise they are all inputs, if there are at most
    SIZES[2] (or n, if larger) and the split is the last one, or else a sample of n. most: if there are more, a random
    part of the data set or a sample of `most`.
    """
    named, most = _split(task, split), LISTED if most is None else most
    if fixed and (whole := _dataset(task, named)) is not None:
        return _part(whole, most, named, seed=0)
    last = named == task.splits[-1]
    if last and (total := total_of(task)) is not None and total <= min(max(n, SIZES[2]), most):
        return everything(task)
    return sample(task, min(n, most), named, seed=0)


def total_of(task: Task) -> int | None:
    """Return the number of a task's inputs, counted if the task lists them and does not state it; None: unknown."""
    try:
        return n_inputs(task)
    except UnsupportedError:
        return None


def everything(task: Task) -> Population:
    """Return every input of the task once, with the sampler's probabilities if the task declares them.

    Raises UnsupportedError for a task that does not list its inputs, and InterpError if the list contradicts the task's
    own declarations (see tasks.domain).
    """
    batch = concatenate([*every_input(task)], task.pad_id)
    return Population("exact", batch, total=len(batch), weights=weights_of(task, batch))


def sample(task: Task, n: int, split: str | None = None, seed: int = 0) -> Population:
    """Draw n inputs from the task's sampler, or from the list of all inputs if it has no sampler for them."""
    named = _split(task, split)
    check_size("seed", seed, least=0)
    try:
        return Population("sample", task.sample(n, named, seed), task.n_inputs, named, seed)
    except UnsupportedError:
        # Some tasks list inputs and have no sampler for them: see Histogram with L > T.
        if task.n_inputs is None or task.n_inputs > LISTED:
            raise
        batch = concatenate([*every_input(task)], task.pad_id)
        rows = torch.randint(len(batch), (n,), generator=torch.Generator().manual_seed(seed))
        return Population("sample", batch[rows], task.n_inputs, named, seed)


def population_of(batch: Batch) -> Population:
    """Make a population of inputs that the caller chose."""
    return Population("given", batch)


def weights_of(task: Task, batch: Batch) -> Float[Tensor, "rows"] | None:
    """Return the sampler's probabilities of these inputs, normalized to sum to 1; None if the task declares none.

    Raises InterpError for weights that are not probabilities.
    """
    weights = task.weights(batch)
    if weights is None:
        return None
    if weights.shape != (len(batch),) or not bool((weights >= 0).all()) or not 0 < float(weights.sum()) < math.inf:
        raise InterpError(
            f"task {task.name}: weights(batch) must return one number of at least 0 per row, and not only zeros"
        )
    return weights.double() / weights.double().sum()


def _split(task: Task, split: str | None) -> str:
    """Return the split if the task has it, otherwise its first split for "train" and its last for other names."""
    if split in task.splits:
        return str(split)
    return task.splits[0 if split == "train" else -1]


def _dataset(task: Task, split: str) -> Batch | None:
    try:
        return task.dataset(split)
    except UnsupportedError:
        return None


def _part(whole: Batch, n: int, split: str, seed: int) -> Population:
    """Draw n rows of a data set without replacement, in their original order; all rows if there are at most n."""
    if n >= len(whole):
        return Population("dataset", whole, len(whole), split, None)
    rows = torch.randperm(len(whole), generator=torch.Generator().manual_seed(seed))[:n].sort().values
    return Population("dataset", whole[rows], len(whole), split, seed)


def _length(task: Task, split: str, seed: int) -> int | None:
    """Return the length of a batch of SIZES[0] samples; None if there is no sampler, and too many inputs to list."""
    try:
        return sample(task, SIZES[0], split, seed).batch.tokens.shape[1]
    except UnsupportedError:
        return None


def _shorter(
    task: Task, cost: Cost, split: str, length: Callable[[str], int | None], budget: float | int
) -> str | None:
    """Return the split with the shortest inputs if SIZES[0] inputs of `split` exceed the budget, and it is another."""
    longest = length(split)
    if longest is None or SIZES[0] * cost(longest) <= budget:
        return None
    lengths = {name: of_split for name in task.splits if (of_split := length(name)) is not None}
    shortest = min(lengths, key=lengths.__getitem__)
    return shortest if lengths[shortest] < longest else None


def _affordable(cost: Cost, length: int, total: int | None, budget: float | int, most: int) -> int:
    """Return the number of inputs on which the work fits the budget: one of SIZES, the least if none fits, or all."""
    each = cost(length)
    if total is not None and total <= LISTED and total * each <= budget:
        return total
    fits = [n for n in SIZES if n <= most and n * length <= TOKENS and n * each <= budget]
    return max(fits, default=SIZES[0])
