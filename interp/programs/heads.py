"""What a head does: attention by a query variable and a key variable, times a value by the key's variable.

The scores are fitted by a table over the values of two variables, up to a constant for each query, which the softmax
does not see. What a head reads at each position is fitted by its mean for each value of a third variable. Both are
judged in the running model: the described head takes the place of the real one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.programs.maps import Codes
from interp.programs.steps import NEVER, weights_of

FITTED = 100_000
"""Largest number of pairs of query and key on which scores are fitted."""
ALIKE = 3.0
"""Largest difference of scores that counts as none."""
ROUNDS = 4
"""Rounds of fitting tables and the constants of queries in turn."""


@dataclass(frozen=True, eq=False)
class Pattern:
    """Scores by a query's and a key's value, and how far the pattern is from the model's (mean total variation)."""

    query: str
    key: str
    scores: Float[Tensor, "queries keys"]
    seen: Tensor
    distance: float

    @property
    def cost(self) -> int:
        return self.scores.numel()


@dataclass(frozen=True, eq=False)
class Queries:
    """The queries of a head: where they are, their scores, and the logarithm of how often each key counts.

    total: the scores are the attention, without softmax. times: what the scores are multiplied by.
    """

    rows: Int[Tensor, "queries"]
    positions: Int[Tensor, "queries"]
    scores: Float[Tensor, "queries keys"]
    counts: Float[Tensor, "queries keys"]
    times: Float[Tensor, "queries 1"]
    total: bool = False

    @property
    def pattern(self) -> Float[Tensor, "queries keys"]:
        return self.attention(self.scores)

    def attention(self, scores: Float[Tensor, "queries keys"]) -> Float[Tensor, "queries keys"]:
        """The attention that these scores give."""
        return weights_of(scores * self.times, self.counts, self.total)

    def distance(self, scores: Float[Tensor, "queries keys"]) -> float:
        """How far the attention of other scores is from the head's."""
        return self.far(self.attention(scores))

    def far(self, attention: Float[Tensor, "queries keys"]) -> float:
        """How far other attention is from the head's: half the absolute difference, as a share of all."""
        pattern = self.pattern
        return float((attention - pattern).abs().sum() / pattern.abs().sum().clamp(min=1e-30)) / 2

    def some(self) -> Queries:
        """As many as can be fitted, spread evenly."""
        most = max(50, FITTED // self.scores.shape[1])
        if len(self.rows) <= most:
            return self
        at = torch.randperm(len(self.rows), generator=torch.Generator().manual_seed(0))[:most].sort().values
        return Queries(self.rows[at], self.positions[at], self.scores[at], self.counts[at], self.times[at], self.total)


def patterns(asked: Queries, queries: Codes, keys: Codes) -> Iterator[Pattern]:
    """Fit a table of scores for each pair of a query's and a key's variable; the empty name is a constant."""
    there = asked.counts > -torch.inf
    scores = torch.where(there, asked.scores, 0.0)
    one = (torch.zeros(int(asked.rows.max()) + 1, asked.scores.shape[1], dtype=torch.long), 1)
    for query, (query_code, n_query) in {"": one, **queries}.items():
        q = query_code[asked.rows, asked.positions]
        for key, (key_code, n_key) in {"": one, **keys}.items():
            if not key and query and not asked.total:
                continue  # scores that depend on the query alone are even attention, which "" and "" say
            k = key_code[asked.rows]
            cell = q[:, None] * n_key + k
            distance, table = min(
                (
                    (asked.distance(one[cell]), one)
                    for one in _fitted(cell, scores, there, n_query * n_key)[: 1 if asked.total else 2]
                ),
                key=lambda pair: pair[0],
            )
            seen = torch.zeros(n_query * n_key, dtype=torch.bool)
            seen[cell[there]] = True
            shape = (n_query, n_key)
            yield Pattern(query, key, table.reshape(shape), seen.reshape(shape), distance)


def _fitted(cell: Tensor, scores: Tensor, there: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """The mean score of each cell, and the same up to a constant for each query (fitted in turn), which a softmax does
    not see."""
    flat, weight = cell.flatten(), there.float()
    mass = torch.zeros(n).index_add_(0, flat, weight.flatten()).clamp(min=1e-30)

    def mean(values: Tensor) -> Tensor:
        return torch.zeros(n).index_add_(0, flat, (values * weight).flatten()) / mass

    first = table = mean(scores)
    for _ in range(ROUNDS):
        shift = ((scores - table[cell]) * weight).sum(-1) / weight.sum(-1).clamp(min=1.0)
        table = mean(scores - shift[:, None])
    return first, table


def hardened(pattern: Pattern) -> Float[Tensor, "queries keys"]:
    """The same selection without grades: for each query value, keys within e^-3 of the best one alike, others never."""
    scores = pattern.scores.masked_fill(~pattern.seen, -torch.inf)
    best = scores.amax(1, keepdim=True)
    return torch.where((scores >= best - ALIKE) & pattern.seen, 0.0, NEVER)


def ordered(pattern: Pattern) -> bool:
    """Whether keys that are not selected differ for some query value, so that the next comes where the first is not."""
    others = pattern.seen & (hardened(pattern) < 0)
    scores = pattern.scores
    spread = scores.masked_fill(~others, -torch.inf).amax(1) - scores.masked_fill(~others, torch.inf).amin(1)
    return bool((spread > ALIKE).any())


def alike(weights: Float[Tensor, "queries keys"], seen: Tensor, n: int) -> Float[Tensor, "queries keys"]:
    """The same weights with all pairs but n at their median."""
    middle = weights[seen].median()
    far = torch.where(seen, (weights - middle).abs(), -1.0).flatten()
    kept = torch.zeros(len(far), dtype=torch.bool).index_fill_(0, far.argsort(descending=True)[:n], True)
    return torch.where(kept.reshape(weights.shape), weights, middle)


def soft(pattern: Pattern) -> Float[Tensor, "queries keys"]:
    """The scores with their largest at 0 for each query value, and NEVER where no pair was seen."""
    scores = pattern.scores.masked_fill(~pattern.seen, -torch.inf)
    scores = scores - scores.amax(1, keepdim=True).nan_to_num(neginf=0.0)
    return scores.clamp(min=NEVER).nan_to_num(neginf=NEVER)


def values_by(
    v: Float[Tensor, "rows length d"], weight: Float[Tensor, "rows length"], code: Int[Tensor, "rows length"], n: int,
    low: Float[Tensor, "d r"],
) -> tuple[Float[Tensor, "values d"], float]:  # fmt: skip
    """What a head reads, by the value of a variable, and the share of its variance that this leaves out.

    weight: attention that each position gets. low: the metric of what later parts read.
    """
    flat, w = code.flatten(), weight.flatten()
    mass = torch.zeros(n).index_add_(0, flat, w)
    mean = (
        torch.zeros(n, v.shape[-1]).index_add_(0, flat, v.flatten(0, 1) * w[:, None]) / mass.clamp(min=1e-12)[:, None]
    )
    seen = (v.flatten(0, 1) - mean[flat]) @ low
    whole = (v.flatten(0, 1) - (v.flatten(0, 1) * w[:, None]).sum(0) / w.sum().clamp(min=1e-12)) @ low
    left = float((seen.square().sum(1) * w).sum() / (whole.square().sum(1) * w).sum().clamp(min=1e-20))
    return mean, left


def values_of_shares(
    v: Float[Tensor, "rows length d"], weight: Float[Tensor, "rows length"],
    shares: Float[Tensor, "rows length values"], low: Float[Tensor, "d r"],
) -> tuple[Float[Tensor, "values d"], float]:  # fmt: skip
    """The same for a variable that has several values with shares at one position: a sum of vectors by the shares."""
    w, x, y = weight.flatten().double(), shares.flatten(0, 1).double(), v.flatten(0, 1).double()
    root = w.sqrt()[:, None]
    mean = torch.linalg.lstsq(root * x, root * y, driver="gelsd").solution
    whole = y - (y * w[:, None]).sum(0) / w.sum().clamp(min=1e-12)
    left = ((y - x @ mean) @ low.double()).square().sum(1) @ w / ((whole @ low.double()).square().sum(1) @ w + 1e-20)
    return mean.float(), float(left)
