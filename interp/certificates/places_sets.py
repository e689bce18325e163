"""Bounds on the margins of sets of inputs that have the same token at the read position.

That token determines the query. Each head writes in a few directions. Per cell (set of inputs), places_ranges.py bounds
the head's output along each direction, and places_forms.py propagates all such outputs through the rest of the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float, Int

from interp.certificates.arithmetic import ROUNDOFF, exp_error, gamma, limits
from interp.certificates.places_forms import FormArithmetic, Forms
from interp.certificates.places_model import OneLayer, PositionTables
from interp.certificates.places_ranges import Cells, HeadTerms, Routes
from interp.certificates.rounding import behind_attention
from interp.support import resources

Array = np.ndarray
U64 = ROUNDOFF[torch.float64]
RANK = 1e-11
"""Singular values of a head's values below this share of the largest count as remainder."""
TINIEST = float(np.finfo(np.float64).tiny)
COPIES = 6
"""Number of arrays of slopes that are in memory at the same time."""
LIGHTEST = 400.0
"""Largest gap to the top score at which sums of weights surely stay positive; at some place, no gap may be larger."""


@dataclass(frozen=True)
class Bounds:
    """Bounds on the margin per cell: the right output minus the best other output.

    low, high: in exact arithmetic. own_low, own_high: in the model's own arithmetic.
    """

    low: Float[Array, "cells"]
    high: Float[Array, "cells"]
    own_low: Float[Array, "cells"]
    own_high: Float[Array, "cells"]

    @property
    def right(self) -> Bool[Array, "cells"]:
        """Cells whose inputs are all right, in exact arithmetic and as run."""
        return (self.low > 0) & (self.own_low > 0)

    @property
    def wrong(self) -> Bool[Array, "cells"]:
        """Cells whose inputs are all wrong, in exact arithmetic and as run."""
        return (self.high < 0) & (self.own_high < 0)

    @property
    def rounding(self) -> Float[Array, "cells"]:
        """How far rounding can move the model's margins beyond the exact bounds."""
        with np.errstate(invalid="ignore"):  # bounds may be infinite
            further = np.maximum(self.low - self.own_low, self.own_high - self.high)
        return np.maximum(np.nan_to_num(further, nan=np.inf, posinf=np.inf), 0)

    @classmethod
    def joined(cls, parts: Sequence[tuple[Array, Bounds]], n: int) -> Bounds:
        """Merge bounds of several groups of cells, each with the indices of its cells."""
        arrays = []
        for name in ("low", "high", "own_low", "own_high"):
            whole = np.zeros(n)
            for index, part in parts:
                whole[index] = getattr(part, name)
            arrays.append(whole)
        return cls(*arrays)


@dataclass(frozen=True)
class HeadSums:
    """One head for one query token: it writes `middle` plus coordinates, given by `sums`, times `directions`.

    remainder: bound on the part of its output outside the directions. moved: how far rounding of the attention weights
    can move each coordinate.
    """

    sums: HeadTerms
    middle: Float[Array, "d_model"]
    directions: Float[Array, "r d_model"]
    remainder: Float[Array, "d_model"]
    moved: Float[Array, "r"]


@dataclass(frozen=True)
class Sight:
    """All inputs with one token at the read position.

    stream: the residual stream there before attention. rest: its error in exact arithmetic; error: in the model's own.
    """

    net: OneLayer
    routes: Routes
    token: int
    heads: tuple[HeadSums, ...]
    stream: Float[Array, "d_model"]
    rest: Float[Array, "d_model"]
    error: Float[Array, "d_model"]

    def stream_of(self, cells: Cells) -> tuple[Forms, Float[Array, "k cells"]]:
        """Return the residual stream after attention over each cell, with rounded attention weights.

        Also returns the share of each slope's range that exact arithmetic needs.
        """
        n = len(cells)
        center, rest = np.tile(self.stream[:, None], n), np.tile(self.rest[:, None], n)
        slopes, shares = [], []
        for head in self.heads:
            center += head.middle[:, None]
            rest += head.remainder[:, None]
            if not len(head.directions):
                continue
            low, high = head.sums.box(cells)
            middle, half = (low + high) / 2, np.maximum((high - low) / 2, 0) * (1 + 4 * U64)
            center += head.directions.T @ middle
            whole = half + head.moved[:, None]
            rest += (np.abs(head.directions).T @ (np.abs(middle) + whole)) * 8 * U64
            slopes += list(head.directions[:, :, None] * whole[:, None])
            shares += list(np.where(whole > 0, half / whole, 1.0))
        k = np.stack(slopes, 1) if slopes else np.zeros((len(center), 0, n))
        filled = np.array(shares).reshape(len(shares), n)
        return Forms(center, k, rest, np.tile(self.error[:, None], n)), filled

    @cached_property
    def sizes(self) -> tuple[int, int, int]:
        """The numbers of slopes, of components of the stream, and of neurons (twice, if they are gated)."""
        mlp = self.net.model.spec.layers[0].mlp
        neurons = 0 if mlp is None else mlp.d_mlp * (1 + mlp.gated)
        return sum(len(head.directions) for head in self.heads), len(self.stream), neurons

    @property
    def cost(self) -> float:
        """Approximate number of operations per cell."""
        slopes, d, neurons = self.sizes
        return 5e4 + (1 + slopes) * (400.0 * (d + neurons) + 2 * d * neurons)

    def bounds(self, cells: Cells, right: Int[Array, "cells"]) -> Bounds:
        """Bound the margins of cells, in parts that fit in memory. right: the right output on all inputs of a cell."""
        numbers, parts = FormArithmetic(self.net.dtype), []
        slopes, d, neurons = self.sizes
        some = max(1, int(resources.MEMORY / (8 * COPIES * (slopes + 4) * (d + neurons))))
        for start in range(0, len(cells), some):
            here = slice(start, start + some)
            with np.errstate(all="ignore"):
                stream, filled = self.stream_of(cells[here])
                last = behind_attention(numbers, self.net.model, 0, stream)
                for label in np.unique(right[here]):
                    index = np.flatnonzero(right[here] == label)
                    parts.append((start + index, margins(self.net, last[index], filled[:, index], int(label))))
        return Bounds.joined(parts, len(cells))


def margins(net: OneLayer, x: Forms, filled: Float[Array, "k cells"], right: int) -> Bounds:
    """Bound the right output minus each other one. A single output s answers 1 if s > 0, otherwise 0.

    filled: the share of each slope's range that exact arithmetic needs.
    """
    read, bias = net.read.numpy(), net.b_read.numpy()
    n, n_out = read.shape
    numbers = FormArithmetic(net.dtype)
    sized = np.abs(read).T @ x.size + np.abs(bias)[:, None]
    own = gamma(n + 3, numbers.u) * sized + numbers.smallest * (n + 3 + np.abs(read).sum(0))[:, None]
    own = np.where(sized < numbers.largest, own, np.inf)
    if n_out == 1:
        sign = 1.0 if right else -1.0
        lead, shift = sign * read, sign * bias
        errors = np.abs(read).T @ x.error + own
    else:
        others = np.delete(np.arange(n_out), right)
        lead, shift = read[:, [right]] - read[:, others], bias[right] - bias[others]
        errors = np.abs(lead).T @ x.error + own[right] + own[others]
    center = lead.T @ x.center + shift[:, None]
    slopes = np.abs(np.einsum("nm,nkc->mkc", lead, x.slopes))
    rest = np.abs(lead).T @ x.rest + gamma(n + x.slopes.shape[1] + 4, 2 * U64) * 2 * sized.max(0)
    real = (slopes * filled).sum(1) + rest
    own = slopes.sum(1) + rest + errors
    ends = [(center - part).min(0) for part in (real, own)], [(center + part).min(0) for part in (real, own)]
    (low, own_low), (high, own_high) = ends
    return Bounds(
        np.nan_to_num(low, nan=-np.inf, neginf=-np.inf), np.nan_to_num(high, nan=np.inf, posinf=np.inf),
        np.nan_to_num(own_low, nan=-np.inf, neginf=-np.inf), np.nan_to_num(own_high, nan=np.inf, posinf=np.inf),
    )  # fmt: skip


def sight(net: OneLayer, routes: Routes, at: int, token: int, real: PositionTables, own: PositionTables) -> Sight:
    """Return the Sight of this token at the read position.

    real: the tables with the errors of float64; own: with those of the model's number format.
    """
    order = np.array(routes.paths.order)
    seen = real.values.value.shape[1]
    here = np.flatnonzero(order < seen)
    heads = []
    d = len(net.b_write)
    stream = real.stream[token]
    rest = stream.error.numpy() + 1e-300
    u, (smallest, _) = ROUNDOFF[net.dtype], limits(net.dtype)
    error = np.zeros(d)
    written = np.zeros(d)
    usable = np.zeros((len(order), real.values.value.shape[2]), dtype=bool)
    for place in here:
        usable[place, routes.steps[place][1]] = True
    for head in range(net.n_heads):
        tables = _placed(order, here, real.scores.value[head, token].numpy(), real.scores.error[head, token].numpy(),
                         own.scores.error[head, token].numpy())  # fmt: skip
        weight, slack, slip = _weights(tables, usable, routes, u)
        write = net.write[head].numpy()
        values = real.values.value[head].numpy()
        errors = real.values.error[head].numpy()
        heads.append(_head(routes, order, here, weight, slack, slip, values, errors, write, usable))
        placed, off = _placed(order, here, values, own.values.error[head].numpy())
        lost, reach = _lost(placed[usable], off[usable], seen, u)
        error += np.abs(write).T @ lost
        written += np.abs(write).T @ (reach + lost)
    width = net.n_heads * net.write.shape[1]
    tiny = smallest * (seen + width + 4) * (1 + float(net.write.abs().sum()))
    error += gamma(width + 4, u) * (written + error) + tiny
    bias = net.b_write.numpy()
    both = np.abs(stream.value.numpy()) + written + error + np.abs(bias)
    error = error + own.stream[token].error.numpy() + 3 * u * both
    rest = rest + gamma(net.n_heads + 6, 2 * U64) * both
    return Sight(net, routes, token, tuple(heads), stream.value.numpy() + bias, rest, error)


def _placed(order: Array, here: Array, *tables: Array) -> list[Array]:
    """Reorder tables from positions to the automaton's places; places that are not seen get 0."""
    reordered = []
    for table in tables:
        placed = np.zeros((len(order), *table.shape[1:]))
        placed[here] = table[order[here]]
        reordered.append(placed)
    return reordered


def _weights(tables: list[Array], usable: Array, routes: Routes, u: float) -> tuple[Array, float, float]:
    """Return attention weights by place and token, before the division by their sum.

    Also returns the relative error of their sums in exact arithmetic, and a bound on how far rounded weights can move
    the head's output, as a share of the span of its values, on any input.
    """
    score, real, own = tables
    keys = len(score)
    top = score[usable].max()
    below = np.where(usable, score - top, -np.inf)
    weight = np.where(usable, np.maximum(np.exp(below), TINIEST), 0.0)  # 0 means that a token is not seen
    with np.errstate(all="ignore"):
        relative = np.where(usable, np.expm1(real + U64 * np.abs(below)) + exp_error(U64, 1), 0.0)
        each = np.where(usable, np.expm1(own + u * np.abs(below)), 0.0) + exp_error(u, keys) + gamma(keys + 8, u)
    slack = 3 * float(relative.max()) + 4 * gamma(keys + 8, 2 * U64)
    # In every row, each visible place has one of its usable tokens.
    heaviest = np.where(usable, below, np.inf)[usable.any(1)].min(1).max()
    if not np.isfinite(slack) or slack > 0.1 or heaviest < -LIGHTEST:
        slack = 1.0
    most = float(each.max())
    if not np.isfinite(most):
        return weight, slack, float("inf")
    average = HeadTerms(routes, weight, each[None], slack)
    cells = Cells({0: np.zeros(1, dtype=np.int64)}, {})
    # Relative errors d_j of the weights p_j move the mean z of values v_j by at most sum p_j d_j |v_j - z| / (1 - d),
    # where d is the largest d_j. The sum is at most the mean of d_j times the span of the values. It is also at most d
    # times half the span, because the mean distance from a mean is at most half the span.
    off = min(float(average.box(cells)[1].max()), most / 2)
    return weight, slack, off / (1 - most) if most < 0.5 else float("inf")


def _head(
    routes: Routes, order: Array, here: Array, weight: Array, slack: float, slip: float, values: Array, errors: Array,
    write: Array, usable: Array,
) -> HeadSums:  # fmt: skip
    """Find the directions in which a head writes and the coordinates of each token's value along them."""
    (placed, off) = _placed(order, here, values @ write, errors @ np.abs(write))
    lost = gamma(write.shape[0] + 3, 2 * U64) * (np.abs(values) @ np.abs(write)).max((0, 1))
    used = placed[usable]
    middle = (used.min(0) + used.max(0)) / 2
    _, sizes, turned = np.linalg.svd(used - middle, full_matrices=False)
    directions = turned[sizes > RANK * max(sizes.max(initial=0), 1e-300)]
    coordinates = (placed - middle) @ directions.T
    back = coordinates[usable] @ directions
    remainder = np.abs(used - middle - back).max(0) * (1 + 1e-9) + off[usable].max(0) + lost
    remainder = remainder + 64 * U64 * (np.abs(used).max(0) + np.abs(middle) + np.abs(back).max(0, initial=0))
    sums = HeadTerms(routes, weight, np.ascontiguousarray(coordinates.transpose(2, 0, 1)), slack)
    moved = slip * (sums.ends[:, 1] - sums.ends[:, 0])
    return HeadSums(sums, middle, directions, remainder, np.nan_to_num(moved, nan=0.0))


def _lost(
    values: Float[Array, "tokens d_head"], off: Float[Array, "tokens d_head"], keys: int, u: float
) -> tuple[Float[Array, "d_head"], Float[Array, "d_head"]]:
    """Bound the error of a head's output that comes from its values, and the size of the output."""
    most, wrong = np.abs(values).max(0), off.max(0)
    return wrong + (gamma(keys + 3, u) + 4 * u) * (most + wrong), most
