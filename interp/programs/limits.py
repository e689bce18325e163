"""Limits of one sum: values in an order, by a sum of weights of variables and the limits between neighbours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

MOST_LIMITS = 15
"""Largest number of limits that are fitted."""
FITTED = 6_000
"""Largest number of points to which weights are fitted."""
STEPS = 400
"""Largest number of steps of the fit."""
EXACT, LOOSE = 1e-9, 1e-6
"""Weight of the squares of the weights, which stay finite where the values are separate; a loose fit is also about
other inputs."""
NEVER = -1e3
"""Bias of values that do not occur."""


@dataclass(frozen=True)
class Limits:
    """Weights of the values of variables, and the limits of their sum; share of the points whose value they give."""

    of: tuple[str, ...]
    weights: tuple[Float[Tensor, "values"], ...]
    order: Int[Tensor, "classes"]
    """The values that occur, from that of the smallest sums on."""
    at: Float[Tensor, "limits"]
    share: float

    def bias(self, n: int) -> Float[Tensor, "n"]:
        """Where a line for each of n values begins; the highest line at the sum is the line of its value."""
        found = torch.full((n,), NEVER).double()
        found[self.order] = -torch.cat([torch.zeros(1).double(), self.at.cumsum(0)])
        return found

    def slopes(self, weights: Float[Tensor, "values"], n: int) -> Float[Tensor, "values n"]:
        """How fast these lines rise: the number of limits below a value, times a variable's weights in the sum."""
        found = torch.zeros(len(weights), n).double()
        found[:, self.order] = weights[:, None] * torch.arange(len(self.order)).double()
        return found


def ranked(target: Int[Tensor, "points"], x: Float[Tensor, "points k"]) -> Int[Tensor, "classes"]:
    """The values in the order of their means along the direction in which these differ most."""
    classes = target.unique()
    means = torch.stack([x[target == one].mean(0) for one in classes])
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
    some = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))[:FITTED]
    middle, scale = x.mean(0), x.std(0)
    scale = torch.where(scale > 1e-9, scale, 1.0)
    points, above = ((x - middle) / scale)[some], (rank[some, None] > torch.arange(n)).double()
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
    lowest, highest = (torch.stack([end(z[rank == one]) for one in range(n + 1)]) for end in (torch.min, torch.max))
    ends = torch.where(highest[:-1] < lowest[1:], (highest[:-1] + lowest[1:]) / 2, ends)
    ends = ends.sort().values
    share = float(((z[:, None] > ends).sum(1) == rank).double().mean())
    sizes = [one.shape[1] for one in features.values()]
    return Limits(tuple(features), w.split(sizes), order, ends, share)
