"""What a map does: a value as a table over at most three variables, as a sum of weights over a few, or by limits of one
sum: values in an order, by a sum of weights and the limits between neighbours."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb, prod
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.measures.logistic import logistic

DETERMINED = 0.995
"""Share of the points at which a table must give the value."""
MOST_CELLS = 4096
MOST_TABLES = 5_000
"""Largest number of tables of three variables that are tried; beyond it, the variables that say most alone are kept."""
FITTED = 3_000
"""Largest number of points to which weights are fitted."""
ORDERED = 0.5
"""Share from which on limits of one sum are tried."""
SHARP = 0.98
"""Share from which on weights are fitted again, nearly without a penalty, if they are to give more."""
MOST_WEIGHED = 4
"""Largest number of variables whose weights are summed."""
MOST_LIMITS = 15
"""Largest number of limits that are fitted."""
FITTED_LIMITS = 6_000
"""The same of limits."""
STEPS = 400
"""Largest number of steps of the fit of limits."""
EXACT, LOOSE = 1e-9, 1e-6
"""Weight of the squares of the weights, which stay finite where the values are separate; a loose fit is also about
other inputs."""
NEVER = -1e3
"""Bias of values that do not occur."""

Codes = Mapping[str, tuple[Tensor, int]]
"""Variables by name: the value at each point, and the number of values."""


@dataclass(frozen=True)
class Lookup:
    """A table over variables: an entry for each combination, and the share of the points at which it is right.

    met: whether each combination occurs.
    """

    of: tuple[str, ...]
    entries: tuple[int, ...]
    share: float
    met: tuple[bool, ...]

    @property
    def cells(self) -> int:
        """How many combinations occur."""
        return sum(self.met)


def tables(target: Int[Tensor, "points"], codes: Codes, most: int = 3, enough: float = DETERMINED) -> Iterator[Lookup]:
    """Yield the tables that give a value, with fewer variables first, then with fewer cells that occur."""
    n_target = int(target.max()) + 1
    alone = {name: lookup_of(target, n_target, codes, (name,)).share for name in codes}
    names = sorted(codes, key=lambda name: -alone[name])
    for size in range(1, most + 1):
        if size == 3:
            while comb(len(names), 3) > MOST_TABLES:
                names = names[:-1]
        lookups = []
        for chosen in combinations(names, size):
            if prod(codes[name][1] for name in chosen) > MOST_CELLS:
                continue
            lookup = lookup_of(target, n_target, codes, tuple(name for name in codes if name in chosen))
            if lookup.share >= enough:
                lookups.append(lookup)
        yield from sorted(lookups, key=lambda lookup: (lookup.cells, -lookup.share))


def lookup_of(target: Int[Tensor, "points"], n_target: int, codes: Codes, of: tuple[str, ...]) -> Lookup:
    """The table over these variables with the most frequent value in each cell; empty cells get the most frequent."""
    index, n = joint(codes, of)
    counts = torch.bincount(index * n_target + target, minlength=n * n_target).reshape(n, n_target)
    met = counts.sum(1) > 0
    entries = torch.where(met, counts.argmax(1), int(torch.bincount(target).argmax()))
    return Lookup(of, tuple(entries.tolist()), float(counts.amax(1).sum()) / len(target), tuple(met.tolist()))


def joint(codes: Codes, of: Sequence[str]) -> tuple[Tensor, int]:
    """The combined value of several variables, the last varying fastest."""
    index, n = torch.zeros((), dtype=torch.long), 1
    for name in of:
        code, size = codes[name]
        index, n = index * size + code, n * size
    return index, n


@dataclass(frozen=True)
class Weights:
    """Weights of the values of variables, whose sums decide."""

    of: tuple[str, ...]
    weights: tuple[Tensor, ...]
    """(values, classes) for each variable."""
    bias: Float[Tensor, "classes"]
    share: float


def weighed(
    target: Int[Tensor, "points"], features: Mapping[str, Tensor], n_target: int, enough: float, whole: bool = False
) -> Weights:
    """Fit sums of weights that give a value: the variable that says most first, then others while they help.

    features: (points, values) for each variable. whole: fit all of them at once.
    """
    if whole:
        return _fit(target, features, list(features), n_target)
    best = _fit(target, features, [], n_target)
    ordered = 2 < len(target.unique()) <= MOST_LIMITS + 1
    while best.share < enough and len(best.of) < min(MOST_WEIGHED, len(features)):
        tried = [_fit(target, features, [*best.of, name], n_target) for name in features if name not in best.of]
        top = max(tried, key=lambda fit: fit.share)
        if best.of and top.share < best.share + 1e-3:
            break
        best = top
        if ordered and best.share >= ORDERED:
            fit = limits(target, {name: features[name] for name in best.of})
            if fit.share == 1.0:
                return Weights(fit.of, tuple(fit.slopes(w, n_target) for w in fit.weights), fit.bias(n_target), 1.0)
    if SHARP <= best.share < enough:
        best = max(best, _fit(target, features, list(best.of), n_target, free=True), key=lambda fit: fit.share)
    return best


def _fit(target: Tensor, features: Mapping[str, Tensor], of: list[str], n_target: int, free: bool = False) -> Weights:
    """Multinomial logistic regression, nearly without a penalty; free: with next to none. Of two values, the first has
    no weights."""
    x = torch.cat([torch.zeros(len(target), 0), *(features[name] for name in of)], 1).double()
    drawn = torch.arange(len(x))
    if len(x) > FITTED and not free:
        drawn = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))[:FITTED]
    weights, bias = torch.zeros(x.shape[1], n_target, dtype=torch.float64), torch.full((n_target,), NEVER).double()
    if len(target[drawn].unique()) == 1 or not of:
        bias[torch.bincount(target).argmax()] = 0.0
    else:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "lbfgs failed to converge")  # it is one of many fits that are tried
            weak, precision = (1e8, 1e-8) if free else (1e4, 1e-4)
            fitted = logistic(x[drawn].numpy(), target[drawn].numpy(), weak, precision)
        slopes, constants, classes = map(torch.as_tensor, fitted)
        weights[:, classes], bias[classes] = slopes, constants
    share = float(((x @ weights + bias).argmax(1) == target).double().mean())
    sizes = [features[name].shape[1] for name in of]
    return Weights(tuple(of), tuple(weights.split(sizes)), bias, share)


# ---------------------------------------------------------------- limits


@dataclass(frozen=True)
class Limits:
    """Weights of the values of variables, and the limits of their sum; share of the points whose value they give."""

    of: tuple[str, ...]
    weights: tuple[Float[Tensor, "_"], ...]
    order: Int[Tensor, "classes"]
    """The values that occur, from that of the smallest sums on."""
    at: Float[Tensor, "limits"]
    share: float

    def bias(self, n: int) -> Float[Tensor, "n"]:
        """Where a line for each of n values begins; the highest line at the sum is the line of its value."""
        starts = torch.full((n,), NEVER).double()
        starts[self.order] = -torch.cat([torch.zeros(1).double(), self.at.cumsum(0)])
        return starts

    def slopes(self, weights: Float[Tensor, "values"], n: int) -> Float[Tensor, "values n"]:
        """How fast these lines rise: the number of limits below a value, times a variable's weights in the sum."""
        slopes = torch.zeros(len(weights), n).double()
        slopes[:, self.order] = weights[:, None] * torch.arange(len(self.order)).double()
        return slopes


def ranked(target: Int[Tensor, "points"], x: Float[Tensor, "points k"]) -> Int[Tensor, "classes"]:
    """The values in the order of their means along the direction in which these differ most."""
    classes = target.unique()
    means = torch.stack([x[target == value].mean(0) for value in classes])
    means -= means.mean(0)
    return classes[(means @ torch.linalg.svd(means, full_matrices=False).Vh[0]).argsort()]


def limits(
    target: Int[Tensor, "points"], features: Mapping[str, Tensor], order: Int[Tensor, "classes"] | None = None,
    penalty: float = EXACT,
) -> Limits:  # fmt: skip
    """Fit weights and limits by the logistic regression of being above each limit; order: see `ranked`.

    features: (points, values) for each variable.
    """
    x = torch.cat([*features.values()], 1).double()
    order = ranked(target, x) if order is None else order
    n = len(order) - 1
    rank = torch.zeros(int(target.max()) + 1, dtype=torch.long).scatter(0, order, torch.arange(n + 1))[target]
    drawn = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))[:FITTED_LIMITS]
    middle, scale = x.mean(0), x.std(0)
    scale = torch.where(scale > 1e-9, scale, 1.0)
    points, above = ((x - middle) / scale)[drawn], (rank[drawn, None] > torch.arange(n)).double()
    weight = torch.zeros(x.shape[1], dtype=torch.float64, requires_grad=True)
    at = torch.arange(n, dtype=torch.float64).requires_grad_()
    search = torch.optim.LBFGS([weight, at], max_iter=STEPS, history_size=30, line_search_fn="strong_wolfe",
                               tolerance_grad=1e-10, tolerance_change=1e-13)  # fmt: skip

    def loss() -> Any:
        search.zero_grad()
        sums = (points @ weight)[:, None] - at
        lost = torch.nn.functional.binary_cross_entropy_with_logits(sums, above) + penalty * weight.square().sum()
        lost.backward()
        return lost

    search.step(loss)
    w = weight.detach() / scale
    z, ends = x @ w, at.detach() + middle @ w
    lowest, highest = (torch.stack([end(z[rank == place]) for place in range(n + 1)]) for end in (torch.min, torch.max))
    ends = torch.where(highest[:-1] < lowest[1:], (highest[:-1] + lowest[1:]) / 2, ends)
    ends = ends.sort().values
    share = float(((z[:, None] > ends).sum(1) == rank).double().mean())
    sizes = [feature.shape[1] for feature in features.values()]
    return Limits(tuple(features), w.split(sizes), order, ends, share)
