"""The answer by limits of the own weight: for each value of a variable, where one answer ends and the next begins.

The own weight is that of read_own: what a head reads of a position's own token, say; of soft attention, also what it
would read with even attention. Where its limits give too few of the answers, some are limits of a weighted sum over all
that the head reads instead. Each value needs inputs of its own, so they are drawn for this, apart from those on which
programs are judged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.measures.runs import reads_of
from interp.models.architecture.answers import decide
from interp.programs.decompile import program_of, sketch
from interp.programs.language import Program
from interp.programs.maps import MOST_LIMITS, NEVER
from interp.programs.read_own import products
from interp.programs.reading import Reading, matrix
from interp.programs.running import Kept
from interp.programs.steps import Evened, Head, Linear, Product, Step, Sums
from interp.tasks import Batch
from interp.tasks.populations import Population, sample

FITTED, DRAWN = 400_000, 8
"""Positions to which limits are fitted, and inputs for each on which the program is judged; for sums, of four times as
many those with a value that has one."""
AT_ONCE = 5_000
LEFT = 0.004
"""Share of each answer that limits may give wrongly before sums take their place."""
MOST_SUMMED = 24
"""Largest number of limits that sums take the place of."""
STEPS, PENALTY = 300, 1e-6
"""Largest number of steps of the fit of a sum, and the weight of the squares of its weights."""
SAME = 1e-9
"""Numbers that differ by less, relative to their range, are one number."""


def by_limits(reading: Reading, population: Population) -> Program | None:
    """The program whose answer is found by limits of an own weight; None where no variable has such a weight.

    population: on which the program is judged. Unless it holds all inputs, others are drawn, from another split if
    there is one.
    """
    running, task = reading.running, reading.task
    if running.has_sets:
        return None
    undescribed = any(role.status == "kept" for role in reading.roles.values())
    if undescribed or running.counts is not None or not 3 <= len(running.answers.unique()) <= MOST_LIMITS + 1:
        return None
    tried = []
    for before in own_weights(reading, running.reads.mask(running.batch)):
        points = Points.of(reading, before, drawn(reading, population))
        limits = ValueLimits.of(points)
        tried.append((Kept.of(limits.answers(points), points.target).share, before, points, limits))
    if not tried:
        return None
    _, before, points, limits = max(tried, key=lambda one: one[0])
    if cells := limits.wrong(points):
        values = torch.tensor(sorted({value for value, _ in cells}))
        limits = limits.with_sums(cells, Points.of(reading, before, drawn(reading, population, 4), values))
    answer, more = limits.as_steps(before[-1], tuple(task.answer_words))
    return program_of(reading, (answer, [*before, *more]))


def drawn(reading: Reading, population: Population, times: int = 1) -> Batch:
    """The inputs to which limits are fitted."""
    if population.exact:
        return population.batch
    n = min(FITTED // population.batch.tokens.shape[1], DRAWN * population.n)
    split = next((other for other in reading.task.splits if other != population.split), None)
    return sample(reading.task, times * n, split, seed=times).batch


def own_weights(reading: Reading, mask: Tensor) -> Iterator[tuple[*tuple[Step, ...], Product]]:
    """The steps that make own weights: of what is read, and of what a soft head would read with even attention."""
    for own in products(reading, reading.edges(None), mask):
        yield (own,)
        head = reading.step(own.of[1])
        if isinstance(head, Head) and not head.total and not head.scaled and head.key == head.value:
            of = (head.query, head.name) if head.query else (head.name,)
            even = Evened(f"{head.name} evened", of, head.scores)
            yield even, Product(f"{even.name}, of its {own.of[0]}", (own.of[0], even.name))


@dataclass(frozen=True, eq=False)
class Points:
    """Positions at which answers are read."""

    value: Int[Tensor, "points"]
    """The value of the variable."""
    own: Float[Tensor, "points"]
    """Its own weight."""
    read: Float[Tensor, "points values"]
    """All that is read."""
    target: Int[Tensor, "points"]
    """The model's answer."""

    @classmethod
    def of(cls, reading: Reading, steps: Sequence[Step], batch: Batch, values: Tensor | None = None) -> Points:
        """Run the model and the steps on these inputs; the last gives the own weight. values: only positions that have
        one of them."""
        chunks = [*_points(reading, steps, batch, values)]
        return cls(*(torch.cat(pieces) for pieces in zip(*chunks, strict=True)))


def _points(
    reading: Reading, steps: Sequence[Step], batch: Batch, values: Tensor | None
) -> Iterator[tuple[Tensor, ...]]:
    subject, program, own = reading.running.subject, sketch(reading, None), steps[-1]
    program, (code, other) = replace(program, steps=(*program.steps, *steps), pad=reading.task.pad), own.of
    for start in range(0, len(batch), AT_ONCE):
        reading.check()
        chunk = batch[start : start + AT_ONCE]
        made = program.run(chunk.tokens)
        if values is not None:
            rows = torch.isin(made[code].argmax(-1), values).any(1).nonzero()[:, 0]
            if not len(rows):
                continue
            chunk, made = chunk[rows], {name: made[name][rows] for name in (code, other, own.name)}
        reads = reads_of(subject, chunk)
        at = reads.rows, reads.positions
        value = made[code][at].argmax(-1)
        here = torch.ones_like(value).bool() if values is None else torch.isin(value, values)
        answers = decide(subject.logits(chunk), subject.decision)
        yield value[here], made[own.name][at].sum(-1)[here], made[other][at][here].float(), answers[here]


@dataclass(frozen=True, eq=False)
class ValueLimits:
    """Limits of the own weight for each value; the answer's place in `order` is the number of limits exceeded."""

    order: Int[Tensor, "answers"]
    rarity: Float[Tensor, "answers"]
    """How much a wrong answer counts, so that all answers count alike."""
    sign: Float[Tensor, "values"]
    """-1 for a value whose own weight falls from one answer to the next."""
    at: Float[Tensor, "values limits"]
    reach: float
    """More than the total of the sizes of all that is read at a position."""
    sums: dict[tuple[int, int], tuple[Tensor, float]] = field(default_factory=dict)
    """By value and limit: the weights of a sum over all that is read, and its limit."""

    @classmethod
    def of(cls, points: Points) -> ValueLimits:
        """The limits with the fewest wrong answers."""
        order, rank, n = points.target.unique(return_inverse=True, return_counts=True)
        size, rarity = points.read.shape[1], len(rank) / n.double()
        sign, at = torch.ones(size).double(), torch.zeros(size, len(order) - 1).double()
        for value in points.value.unique().tolist():
            here = points.value == value
            x, y = points.own[here], rank[here]
            sign[value] = -1.0 if float(((x - x.mean()) * (y - y.double().mean())).sum()) < 0 else 1.0
            above = y[:, None] > torch.arange(len(order) - 1)
            at[value] = torch.stack([cut(sign[value] * x, column, rarity[y]) for column in above.T]).cummax(0).values
        return cls(order, rarity, sign, at, 2 * float(points.read.abs().sum(1).max()))

    def rank(self, points: Points) -> Int[Tensor, "points"]:
        """The place of each answer in the order of the answers that occur."""
        return torch.searchsorted(self.order, points.target).clamp(max=len(self.order) - 1)

    def exceeds(self, points: Points) -> Float[Tensor, "points limits"]:
        """How far each limit is exceeded."""
        excess = (self.sign[points.value] * points.own)[:, None] - self.at[points.value]
        for (value, limit), (weights, at) in self.sums.items():
            here = points.value == value
            excess[here, limit] = points.read[here].double() @ weights - at
        return excess

    def places(self, points: Points) -> Int[Tensor, "points"]:
        """The place of the answer: where the sum of what lies before it is largest."""
        return torch.nn.functional.pad(self.exceeds(points).cumsum(1), (1, 0)).argmax(1)

    def answers(self, points: Points) -> Int[Tensor, "points"]:
        return self.order[self.places(points)]

    def wrong(self, points: Points) -> list[tuple[int, int]]:
        """The limits, by value, that would have to be right for all answers to have at most LEFT wrong."""
        rank, place = self.rank(points), self.places(points)
        bad = rank != place
        sizes = (len(self.sign), len(self.order) - 1, len(self.order))
        n = torch.zeros(sizes).double()
        index = (points.value[bad], torch.minimum(rank, place)[bad], rank[bad])
        n.index_put_(index, torch.ones(int(bad.sum())).double(), accumulate=True)
        n *= self.rarity / len(rank)
        cells: list[tuple[int, int]] = []
        while len(cells) < MOST_SUMMED and float((per_answer := n.sum((0, 1))).max()) > LEFT:
            value, limit = divmod(int(n[..., int(per_answer.argmax())].argmax()), sizes[1])
            cells.append((value, limit))
            n[value, limit] = 0.0
        return cells

    def with_sums(self, cells: list[tuple[int, int]], points: Points) -> ValueLimits:
        """Sums in place of limits of the own weight, where they give more answers."""
        rank, place, sums = self.rank(points), self.places(points), dict(self.sums)
        for value, limit in cells:
            near = sum(((n == limit) | (n == limit + 1) for n in (rank, place)), torch.zeros(len(rank)).bool())
            here = (points.value == value) & near
            above, weight = rank[here] > limit, self.rarity[rank[here]]
            if not bool(above.any()) or bool(above.all()):
                continue
            x = points.read[here].double()
            weights = separating(x, above, weight)
            weights = weights / (weights[value].abs() + SAME)
            at = cut(x @ weights, above, weight)
            wrong = (x @ weights > at) != above
            before = (self.sign[value] * points.own[here] > self.at[value, limit]) != above
            if float((weight * wrong).sum()) < float((weight * before).sum()):
                sums[value, limit] = (weights, float(at))
        return replace(self, sums=sums)

    def as_steps(self, own: Product, words: tuple[str, ...]) -> tuple[Linear, list[Step]]:
        """The answer, and the steps before it.

        A sum of one value is 0 at all others: the value adds so much to it that it is positive, and all others so
        little that it is negative.
        """
        (size, n), k, (code, other) = self.at.shape, len(self.sums), own.of
        plain, constant = torch.ones(size, n).double(), -self.at
        gates, numbers = torch.zeros(2, size, k).double()
        least, picked = torch.zeros(k).double(), torch.zeros(k, n).double()
        for i, ((value, limit), (weights, at)) in enumerate(self.sums.items()):
            reach = float(weights.abs().max()) * self.reach
            plain[value, limit], constant[value, limit] = 0.0, -at - reach
            gates[value, i], numbers[:, i], least[i], picked[i, limit] = 2 * reach, weights, -reach, 1.0
        slopes = self._lines(self.sign[:, None] * plain, len(words))
        of, blocks = [code, own.name], [self._lines(constant, len(words)), slopes]
        bias = torch.full((len(words),), NEVER).double()
        bias[self.order] = 0.0
        steps: list[Step] = []
        if k:
            name = f"{other} at some {code}"
            steps.append(Sums(name, (code, other), (matrix(gates), matrix(numbers)), tuple(least.tolist()), ramps=True))
            of, blocks = [*of, name], [*blocks, self._lines(picked, len(words))]
        return Linear("answer", tuple(of), tuple(map(matrix, blocks)), tuple(bias.tolist()), words), steps

    def _lines(self, added: Float[Tensor, "rows limits"], n: int) -> Float[Tensor, "rows n"]:
        """What lies before each answer, from what each limit adds."""
        lines = torch.zeros(len(added), n).double()
        lines[:, self.order] = torch.nn.functional.pad(added.cumsum(1), (1, 0))
        return lines


def cut(
    number: Float[Tensor, "points"], above: Bool[Tensor, "points"], weight: Float[Tensor, "points"]
) -> Float[Tensor, ""]:
    """The limit of a number that puts the least weight of points on the wrong side; halfway between two points."""
    order = number.argsort(stable=True)
    x, up, weight = number[order], above[order], weight[order]
    pad = torch.nn.functional.pad
    wrong = pad((weight * up).cumsum(0), (1, 0)) + (weight * ~up).sum() - pad((weight * ~up).cumsum(0), (1, 0))
    ends = torch.cat([x[:1] - 1, x, x[-1:] + 1])
    wrong[ends.diff() <= SAME * float(x[-1] - x[0])] = torch.inf
    best = (wrong <= float(wrong.min()) + SAME).nonzero()[:, 0]
    at = int(best[len(best) // 2])
    return (ends[at] + ends[at + 1]) / 2


def separating(
    x: Float[Tensor, "points k"], above: Bool[Tensor, "points"], weight: Float[Tensor, "points"]
) -> Float[Tensor, "k"]:
    """The weights of a logistic regression."""
    scale = x.std(0)
    scale = torch.where(scale > SAME, scale, 1.0)
    points, target = (x - x.mean(0)) / scale, above.double()
    weights = torch.zeros(x.shape[1] + 1, dtype=torch.float64, requires_grad=True)
    search = torch.optim.LBFGS([weights], max_iter=STEPS, history_size=20, line_search_fn="strong_wolfe")

    def loss() -> Any:
        search.zero_grad()
        sums = points @ weights[:-1] + weights[-1]
        lost = torch.nn.functional.binary_cross_entropy_with_logits(sums, target, weight / weight.mean())
        lost = lost + PENALTY * weights[:-1].square().sum()
        lost.backward()
        return lost

    search.step(loss)
    return weights.detach()[:-1] / scale
