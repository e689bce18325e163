"""The values of a part: the fewest vectors that can stand for its outputs while the model's answers stay.

Outputs are compared by what later parts read of them (see readers), and clustered (Ward). Where they fall into clearly
separate clusters, these are the values, even if fewer would keep the answers: a variable keeps its own partition.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import pdist
from torch import Tensor

from interp.measures.runs import Part
from interp.programs.relevance import Kinds
from interp.programs.running import Running

SHARE_KEPT_BY_VALUES = 0.9975
"""Share of the model's answers that values must keep; all of them in a finer reading."""
FIXED = 2e-4
"""Largest share of the answers that may change where a part is said not to matter at positions of a kind."""
SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 20, 24, 32, 48, 64)
MOST_CLUSTERED = 1000
"""Largest number of different outputs that are clustered; of more, a sample, and the rest go to the nearest."""
EXACT_WHOLE = 2.0**53
"""Below this, float64 holds each whole number."""
FINEST = 1e-5
"""Distances that differ by less, as a share of the largest, are equal."""
MOST_SEPARATE, SEPARATE = 32, 20.0
"""Most clusters that are separate: if the gap between them is this many times the largest distance within one."""


@dataclass(frozen=True, eq=False)
class Quantized:
    """The values of a part: code (rows, length) and one vector for each, (values, d) as hook_z or hook_mlp_out.

    needed: positions at which the part's output matters; elsewhere it is the mean of the position's kind, and its code
    is -1. share: of the model's answers that stay.
    """

    part: Part
    code: Int[Tensor, "rows length"]
    vectors: Float[Tensor, "values d"]
    needed: Bool[Tensor, "rows length"]
    elsewhere: Float[Tensor, "rows length d"]
    share: float

    @property
    def size(self) -> int:
        return len(self.vectors)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"v{i}" for i in range(self.size))

    def put(self, code: Tensor | None = None) -> Float[Tensor, "rows length d"]:
        """The part's values with each code at its vector."""
        code = self.code if code is None else code
        new = self.elsewhere.clone()
        new[self.needed] = self.vectors[code[self.needed]]
        return new


def enough_of(now: float, finer: bool) -> float:
    """The share of answers that values must keep, where the share `now` has been kept so far."""
    return now if finer else min(SHARE_KEPT_BY_VALUES, now - (1 - SHARE_KEPT_BY_VALUES) / 4)


def quantize(
    running: Running, kinds: Kinds, part: Part, low: Float[Tensor, "d r"], strict: bool = True, finer: bool = False
) -> Quantized:
    """Find the values of a part; low: see `Readers.of`; strict, finer: see `Reading`."""
    value = running.value(part)
    original = running.original.value(part) @ low
    base = running.kept({}).share
    enough = enough_of(base, finer)
    exact = base - FIXED if strict else enough
    where = kinds.present
    fixed: tuple[int, ...] = ()
    reached = kinds.reached(part)
    for kind in where:
        if kind not in reached:
            fixed += (kind,)
            continue
        here = original[kinds.each == kind]
        if float((here - here[:1]).abs().max()) <= 1e-3 * float(original.abs().max()):  # one value as it is
            alike = [kinds.foreign(kinds.mean(value, fixed), kind)]
        else:
            alike = [kinds.mean(value, (*fixed, kind))]
            alike += [kinds.shuffled(value, (*fixed, kind))] if strict else []
        if all(running.kept({part: new}).share >= exact for new in alike):
            fixed += (kind,)
    if set(fixed) == set(where):  # the part matters for fewer answers than one value may change
        fixed = where[:-1]
    elsewhere = kinds.mean(value, fixed)
    needed = running.mask.clone()
    for kind in fixed:
        needed &= kinds.each != kind
    points = value[needed]
    different, back = distinct(points @ low.to(points))
    chosen = Quantized(part, torch.full_like(kinds.each, -1), points[:1], needed, elsewhere, 0.0)
    tree = None if len(different) < 2 else linkage(apart(different[sampled(len(different))]), "ward")
    tried = 0
    misleads = strict and running.kept({part: kinds.shuffled(value)}).share < exact
    for size in SIZES:
        if size > len(different):
            break
        chosen = clustered(chosen, points, different, back, tree, size)
        share = running.kept({part: chosen.put()}).share
        if share >= enough and (chosen.size > 1 or not misleads):  # what misleads with another value has several
            if (natural := separate(tree, tried + 1)) not in (0, size):
                closer = clustered(chosen, points, different, back, tree, natural)
                if (closer_share := running.kept({part: closer.put()}).share) >= enough or natural > size:
                    chosen, share = closer, closer_share
            return replace(chosen, share=share)
        tried = size
    if len(different) <= SIZES[-1]:
        chosen = clustered(chosen, points, different, back, tree, len(different))
    return replace(chosen, share=running.kept({part: chosen.put()}).share)


def clustered(
    base: Quantized, points: Tensor, low: Tensor, back: Tensor, tree: np.ndarray | None, size: int
) -> Quantized:
    """Cut the tree of the different outputs into this many clusters."""
    label = torch.zeros(len(low), dtype=torch.long)
    if tree is not None and size > 1:
        drawn = sampled(len(low))
        cut = torch.as_tensor(fcluster(tree, size, "maxclust")).long() - 1
        centers = torch.stack([low[drawn][cut == cluster].mean(0) for cluster in range(int(cut.max()) + 1)])
        label = torch.cdist(low, centers).argmin(1)
    code = torch.full_like(base.code, -1)
    code[base.needed] = cluster = in_order_of_appearance(label[back])
    n = torch.bincount(cluster)
    vectors = torch.zeros(len(n), points.shape[1]).double().index_add_(0, cluster, points.double()) / n[:, None]
    return replace(base, code=code, vectors=vectors.to(points), share=0.0)


def in_order_of_appearance(labels: Int[Tensor, "points"]) -> Int[Tensor, "points"]:
    """The labels as numbers from 0 on, by where each occurs first: in all forms of a model, the same order."""
    values, dense = labels.unique(return_inverse=True)
    first = torch.full((len(values),), len(labels)).scatter_reduce_(0, dense, torch.arange(len(labels)), "amin")
    return first.argsort().argsort()[dense]


def apart(points: Float[Tensor, "points d"]) -> np.ndarray:
    """The distances of points, each pair once; without what rounding adds, so that equal ones are equal."""
    distances = pdist(points.double().numpy())
    step = max(float(distances.max()), 1e-30) * FINEST
    return np.round(distances / step) * step


def sampled(n: int) -> Tensor:
    if n <= MOST_CLUSTERED:
        return torch.arange(n)
    return torch.randperm(n, generator=torch.Generator().manual_seed(0))[:MOST_CLUSTERED].sort().values


def separate(tree: np.ndarray | None, least: int) -> int:
    """The smallest number of clusters, from `least` on, that are clearly separate; 0 if no number is.

    The smallest, since noise has clusters of its own.
    """
    if tree is None:
        return 0
    heights = np.maximum(tree[::-1, 2], 1e-9 * tree[-1, 2])  # heights[i] joins i + 2 clusters into i + 1
    below = np.append(heights[1:], 1e-9 * heights[0])
    clear = [i + 2 for i in range(min(MOST_SEPARATE, len(heights))) if heights[i] > SEPARATE * below[i]]
    return next((n for n in clear if n >= least), 0)


def numbered(rows: Float[Tensor, "rows columns"]) -> Int[Tensor, "rows"]:
    """The number of each row of whole numbers among the different ones, in their order."""
    rows = rows.double()
    low, widths = rows.amin(0), rows.amax(0) - rows.amin(0) + 1
    number, size = torch.zeros(len(rows)).double(), 1.0
    for column, width in zip((rows - low).T, widths.tolist(), strict=True):
        if size * width >= EXACT_WHOLE:  # renumbered: below the number of rows
            number = number.unique(return_inverse=True)[1].double()
            size = float(number.max()) + 1
        if size * width >= EXACT_WHOLE:
            column = column.unique(return_inverse=True)[1].double()
            width = float(column.max()) + 1
        number, size = number * width + column, size * width
    return number.unique(return_inverse=True)[1]


def distinct(points: Float[Tensor, "points d"]) -> tuple[Tensor, Tensor]:
    """The different points, up to a rounding that leaves at most a few thousand, and the index of each."""
    scale = float(points.abs().max()) + 1e-30
    for steps in (2e4, 2e3, 200.0, 40.0):
        back = in_order_of_appearance(numbered((points / scale * steps).round()))
        n = int(back.max()) + 1
        if n <= 4 * MOST_CLUSTERED:
            break
    total = torch.zeros(n, points.shape[1]).double().index_add_(0, back, points.double())
    return (total / torch.bincount(back, minlength=n)[:, None]).to(points), back
