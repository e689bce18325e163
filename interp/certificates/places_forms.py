"""Affine arithmetic with rounding: propagate sets of vectors through the layers after attention.

A Forms contains n numbers per cell. Over a cell, each number is

    center + slopes . t + r,      t in [-1, 1]^k, |r| <= rest,

in exact arithmetic; `rest` includes the rounding of this computation. `error` bounds how far the model's own arithmetic
is from the exact value. Products and functions propagate the slopes and add the nonlinear part to `rest`, so bounds are
accurate to second order in the size of a cell (de Figueiredo and Stolfi 2004). Cells are the last axis.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float

from interp.certificates.arithmetic import EXP_ULPS, GELU_SLOPE, GELU_UNITS, ROUNDOFF, gamma, limits

U64 = ROUNDOFF[torch.float64]
Array = np.ndarray
Weights = np.ndarray | torch.Tensor


def _float64(weight: Weights) -> Array:
    """Convert weights to float64, which rounds none."""
    return np.asarray(weight, dtype=np.float64)


@dataclass(frozen=True)
class Forms:
    """center, rest, error: (n, C); slopes: (n, k, C)."""

    center: Float[Array, "n cells"]
    slopes: Float[Array, "n k cells"]
    rest: Float[Array, "n cells"]
    error: Float[Array, "n cells"]

    @property
    def radius(self) -> Float[Array, "n cells"]:
        """Largest distance from the center, in exact arithmetic."""
        return np.abs(self.slopes).sum(1) + self.rest

    @property
    def size(self) -> Float[Array, "n cells"]:
        """Largest absolute value, exact or in the model's arithmetic."""
        return np.abs(self.center) + self.radius + self.error

    def __getitem__(self, cells: Array) -> Forms:
        return Forms(self.center[:, cells], self.slopes[:, :, cells], self.rest[:, cells], self.error[:, cells])


class FormArithmetic:
    """Operations on Forms, for a model that rounds with unit roundoff u. Weights are arrays or tensors."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.u = ROUNDOFF[dtype]
        self.smallest, self.largest = limits(dtype)

    def _add_rounding(self, center: Array, slopes: Array, rest: Array, error: Array, size: Array, steps: int) -> Forms:
        """Add the float64 rounding of `steps` operations on numbers of this size; overflow makes a bound infinite."""
        rest = np.nan_to_num(rest + gamma(steps + 2, 2 * U64) * size + 1e-300, nan=np.inf, posinf=np.inf)
        error = np.where((size + error < self.largest) & np.isfinite(error), error, np.inf)
        return Forms(center, slopes, rest, error)

    def linear(self, x: Forms, weight: Weights, bias: Weights | None = None) -> Forms:
        """Return weight.T x + bias."""
        weight = _float64(weight)
        terms = len(weight) + 2
        sized = np.abs(weight).T
        real = sized @ (np.abs(x.center) + x.radius)
        error = sized @ x.error
        reach = real + error
        center = weight.T @ x.center
        flat = x.slopes.reshape(len(weight), -1)
        slopes = (weight.T @ flat).reshape(weight.shape[1], *x.slopes.shape[1:])
        if bias is not None:
            shift = _float64(bias)[:, None]
            center, reach = center + shift, reach + np.abs(shift)
        error = error + gamma(terms + 1, self.u) * reach + self.smallest * (terms + sized.sum(1))[:, None]
        return self._add_rounding(center, slopes, sized @ x.rest, error, reach, terms + x.slopes.shape[1])

    def add(self, x: Forms, y: Forms) -> Forms:
        size = x.size + y.size
        error = x.error + y.error
        error = error + self.u * (np.abs(x.center + y.center) + x.radius + y.radius + error)
        return self._add_rounding(x.center + y.center, x.slopes + y.slopes, x.rest + y.rest, error, size, 2)

    def shifted(self, x: Forms, bias: Weights) -> Forms:
        """Return x + bias, with the same bias for all cells."""
        zero = np.zeros_like(x.center)
        return self.add(x, Forms(zero + _float64(bias)[:, None], np.zeros_like(x.slopes), zero, zero))

    @np.errstate(all="ignore")
    def times(self, x: Forms, y: Forms) -> Forms:
        """Return x y, elementwise (x or y may have a single number, which is broadcast)."""
        rx, ry = x.radius, y.radius
        slopes = x.center[:, None] * y.slopes + y.center[:, None] * x.slopes
        rest = np.abs(x.center) * y.rest + np.abs(y.center) * x.rest + rx * ry
        size = x.size * y.size
        error = (np.abs(x.center) + rx) * y.error + (np.abs(y.center) + ry) * x.error + x.error * y.error
        error = error + self.u * size + self.smallest
        return self._add_rounding(x.center * y.center, slopes, rest, error, size, 6)

    @np.errstate(all="ignore")
    def norm(self, x: Forms, kind: str, weight: Weights, bias: Weights, eps: float) -> Forms:
        """Return LayerNorm or RMSNorm over all n numbers; bounds are infinite if all of them could be zero."""
        n = len(x.center)
        if kind == "layer":
            x = self._centered(x)
        scale = self._inverse_root(x, eps)
        y = self.times(x, scale)
        # The model divides by a square root: first the relative error of the root, then of the division and the gain.
        gain = np.broadcast_to(_float64(weight), (n,))[:, None]
        shift = np.broadcast_to(_float64(bias), (n,))[:, None]
        root = np.sqrt(self._least_mean(x, eps))
        moved = np.sqrt((x.error**2).mean(0)) + math.sqrt(n * self.smallest)
        most = np.sqrt((x.size**2).mean(0) + eps)
        with np.errstate(all="ignore"):
            moved = moved + gamma(n + 6, self.u) * (most + moved)
            relative = np.where(moved < root, moved / root, np.inf)
            unit = np.abs(y.center) + y.radius
            error = (x.error / root + unit * relative) / np.maximum(1 - relative, 0)
            error = np.nan_to_num(error + 4 * self.u * (unit + error) + self.smallest, nan=np.inf, posinf=np.inf)
        sized = np.abs(gain)
        reach = (unit + error) * sized + np.abs(shift)
        error = error * sized + gamma(3, self.u) * reach + self.smallest
        error = np.where((x.size**2).sum(0) < self.largest, error, np.inf)
        return self._add_rounding(y.center * gain + shift, y.slopes * gain[:, None], y.rest * sized, error, reach, 4)

    def _centered(self, x: Forms) -> Forms:
        n = len(x.center)
        size = x.size
        error = x.error + x.error.mean(0)
        error = error + gamma(n + 3, self.u) * (size + size.mean(0))
        return self._add_rounding(
            x.center - x.center.mean(0), x.slopes - x.slopes.mean(0), x.rest + x.rest.mean(0), error,
            size + size.mean(0), n + 3,
        )  # fmt: skip

    @staticmethod
    def _least_mean(x: Forms, eps: float) -> Float[Array, "cells"]:
        """Return a lower bound on mean x^2 + eps."""
        nearest = np.maximum(np.abs(x.center) - x.radius, 0)
        return ((nearest**2).mean(0) + eps) * (1 - gamma(len(nearest) + 6, 2 * U64))

    def _inverse_root(self, x: Forms, eps: float) -> Forms:
        """Return 1 / sqrt(mean x^2 + eps), one number per cell; `norm` adds its error."""
        n, radius = len(x.center), x.radius
        center = (x.center**2).mean(0) + eps
        slopes = 2 * (x.center[:, None] * x.slopes).mean(0)
        rest = (2 * np.abs(x.center) * x.rest + radius**2).mean(0) + gamma(n + 8, 2 * U64) * ((x.size**2).mean(0) + eps)
        reach = np.abs(slopes).sum(0) + rest
        low = np.maximum(center - reach, self._least_mean(x, eps))
        with np.errstate(all="ignore"):
            value = center**-0.5
            slope = -0.5 * center**-1.5
            # The Taylor remainder's factor |f''| / 2 = 3/8 s^(-5/2) is largest at the lower end.
            beyond = 0.375 * low**-2.5 * reach**2
            slope_rest = np.abs(slope) * rest + beyond
            # For large cells the plain range is tighter.
            ends = low**-0.5, np.maximum(center + reach, low) ** -0.5
            flat = (ends[0] - ends[1]) / 2
            plain = ~(2 * slope_rest < flat)
            value = np.where(plain, (ends[0] + ends[1]) / 2, value)
            slopes = np.where(plain, 0.0, slope * slopes)
            rest = np.where(plain, flat, slope_rest)
        known = (low > 0) & np.isfinite(rest)
        rest = np.where(known, rest + 8 * U64 * np.abs(value), np.inf)
        value = np.where(known, value, 0.0)
        return Forms(value[None], np.where(known, slopes, 0.0)[None], rest[None], np.zeros_like(rest)[None])

    def activation(self, x: Forms, name: str) -> Forms:
        """Return relu, gelu, gelu_new or silu of each number."""
        if name == "relu":
            return self._relu(x)
        curve = CURVES[name]
        radius = x.radius
        low, high = x.center - radius, x.center + radius
        value, slope = curve.value(x.center), curve.slope(x.center)
        nearest = np.maximum(np.abs(x.center) - radius, 0)
        with np.errstate(all="ignore"):
            rest = np.abs(slope) * x.rest + 0.5 * curve.bend(nearest) * radius**2
            ends = curve.value(low), curve.value(high)
            bottom = np.where((low < curve.lowest_at) & (high > curve.lowest_at), curve.lowest, np.minimum(*ends))
            top = np.maximum(*ends)
            flat = (top - bottom) / 2
            slopes = slope[:, None] * x.slopes
            plain = ~(2 * rest < flat)
        value = np.where(plain, (top + bottom) / 2, value)
        slopes = np.where(plain[:, None], 0.0, slopes)
        rest = np.where(plain, flat, rest) + 64 * U64 * (x.size + 1)
        error = GELU_SLOPE * x.error + GELU_UNITS * self.u * x.size + self.smallest
        if name == "silu":
            error = error + 2 * EXP_ULPS * self.u * x.size
        known = np.isfinite(rest)
        return self._add_rounding(np.where(known, value, 0.0), np.where(known[:, None], slopes, 0.0),
                          np.where(known, rest, np.inf), error, x.size, 8)  # fmt: skip

    def _relu(self, x: Forms) -> Forms:
        radius = x.radius
        low, high = x.center - radius, x.center + radius
        across = (low < 0) & (high > 0)
        with np.errstate(all="ignore"):
            slope = np.where(across, high / (high - low), np.where(low >= 0, 1.0, 0.0))
            gap = np.where(across, -slope * low / 2, 0.0)  # the line from end to end is at most 2 gap above
        known = np.isfinite(slope) & np.isfinite(gap)
        slope = np.where(known, slope, 0.0)
        # relu lies between slope (x - low) - 2 gap and slope (x - low).
        center = np.where(across, slope * (x.center - low) - gap, slope * x.center)
        rest = np.where(known, slope * x.rest + gap, np.inf)
        error = np.where(high + x.error <= 0, 0.0, x.error)
        return self._add_rounding(np.where(known, center, 0.0), slope[:, None] * x.slopes, rest, error, x.size, 6)


@dataclass(frozen=True)
class Curve:
    """A smooth activation that decreases up to lowest_at and then increases, with an even second derivative.

    bends: for each multiple of STEP, a bound on |second derivative| at and beyond it.
    """

    value: Callable[[Array], Array]
    slope: Callable[[Array], Array]
    lowest_at: float
    lowest: float
    bends: Array

    def bend(self, nearest: Array) -> Array:
        """Return a bound on the second derivative for all |x| >= nearest."""
        index = np.minimum(np.nan_to_num(nearest / STEP, nan=0.0), len(self.bends) - 1).astype(np.int64)
        return self.bends[index]


STEP, FARTHEST, STEEPEST_BEND = 1 / 256, 12.0, 4.0
"""Step and end of the table of second derivatives, and a bound on their slope."""


def _erf(x: Array) -> Array:
    return torch.erf(torch.from_numpy(np.ascontiguousarray(x))).numpy()


def _normal(x: Array) -> Array:
    return np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)


def _sigmoid(x: Array) -> Array:
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + small), small / (1 + small))


INNER = math.sqrt(2 / math.pi)


def _new_parts(x: Array) -> tuple[Array, Array, Array]:
    """Return the tanh in gelu_new, and the first two derivatives of its argument."""
    with np.errstate(all="ignore"):
        inside = INNER * (x + 0.044715 * x**3)
    return np.tanh(inside), INNER * (1 + 0.134145 * x**2), INNER * 0.26829 * x


def _gelu_new_slope(x: Array) -> Array:
    tanh, first, _ = _new_parts(x)
    with np.errstate(all="ignore"):
        return 0.5 * (1 + tanh) + np.where(np.abs(tanh) == 1, 0.0, 0.5 * x * (1 - tanh**2) * first)


def _gelu_new_bend(x: Array) -> Array:
    tanh, first, second = _new_parts(x)
    flat = 1 - tanh**2
    return flat * first + 0.5 * x * (flat * second - 2 * tanh * flat * first**2)


def _silu_bend(x: Array) -> Array:
    s = _sigmoid(x)
    return s * (1 - s) * (2 + x * (1 - 2 * s))


def _curve(value: Callable[[Array], Array], slope: Callable[[Array], Array], bend: Callable[[Array], Array]) -> Curve:
    """Find the curve's minimum and tabulate its second derivative."""
    grid = np.arange(0, FARTHEST, STEP)
    at_least = np.abs(bend(grid)) + STEEPEST_BEND * STEP
    # Beyond FARTHEST all bends are below 1e-3: x^2 exp(-x) falls there, and bounds all three.
    bends = np.maximum.accumulate(np.append(at_least, 1e-3)[::-1])[::-1]
    low, high = -3.0, 0.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(np.array([middle]))[0] < 0 else (low, middle)
    return Curve(value, slope, low, float(value(np.array([low]))[0]) - 1e-15, bends)


CURVES = {
    "gelu": _curve(
        lambda x: x * 0.5 * (1 + _erf(x / math.sqrt(2))),
        lambda x: 0.5 * (1 + _erf(x / math.sqrt(2))) + x * _normal(x),
        lambda x: _normal(x) * (2 - x * x),
    ),
    "gelu_new": _curve(lambda x: 0.5 * x * (1 + _new_parts(x)[0]), _gelu_new_slope, _gelu_new_bend),
    "silu": _curve(lambda x: x * _sigmoid(x), lambda x: _sigmoid(x) * (1 + x * (1 - _sigmoid(x))), _silu_bend),
}
