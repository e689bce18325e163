"""The arithmetic of all certificates: assumptions about floating point, and numbers with error bounds.

The assumptions, for torch on a CPU (its own kernels, MKL and oneDNN, any threads and batch shapes) and numba:

sums and products  IEEE 754 with rounding to nearest, in any order, fused or not. The error of a sum of k products is at
                   most gamma_k = k u / (1 - k u) times the sum of their absolute values, with the unit roundoff u
                   (Higham 2002, section 3.1), plus `smallest`, the smallest normal number, per number that underflows:
                   subnormal results and operands may be kept or flushed to zero.
exp                Error of at most EXP_ULPS units in the last place, of 2 u each, or `smallest`. torch documents 1 for
                   its exp (SLEEF, expf_u10) and 20 for the one in fused attention (exp_u20, fexp_u20 in
                   aten/src/ATen/cpu/vec); numba uses the C library's or SVML's, with 1 to 4.
softmax            The largest score is subtracted first. Fused attention processes the keys in blocks and rescales its
                   sums by one more exponential per block: 512 keys in aten's FlashAttentionKernel.cpp; here one
                   rescaling per KEYS_PER_RESCALING keys is allowed.
GELU               Error of at most GELU_UNITS u |x| (erf with 1 unit in the last place, and a few roundings).
position codes     Sines and logarithms in float64: error of at most 256 u per component. Proofs here use the computed
                   codes; the checker, whose claims are about the formula, allows for this error.
division, square root   Correctly rounded.

tests/certificates/test_arithmetic.py measures each of these on the machine at hand and fails if one is violated.
Reduced float32 precision (set_float32_matmul_precision) and devices other than a CPU are refused.

All methods get their bounds on scores, softmax, averages and sums from `Arithmetic`.

Numbers are pairs (value, error). The value is in float64. The error bounds the distance of both the float64 value and
the model's own result from the exact result for the given parameters. Sums of small integer multiples of 1/16 are
recognized as exact in any order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from interp.models.subject import autocast

ROUNDOFF = {torch.float64: 2.0**-53, torch.float32: 2.0**-24}
"""Unit roundoff of the supported number formats. In half formats, fused kernels mix precisions: not supported."""

EXP_ULPS = 32
KEYS_PER_RESCALING = 128
GELU_UNITS = 32
GELU_SLOPE = 1.13
"""Bound on the slope of GELU: |Phi(x) + x phi(x)| <= 1.129 (at x = sqrt 2)."""
GRID = 16.0


@dataclass(frozen=True)
class Tracked:
    """Values with error bounds."""

    value: Float[Tensor, "*shape"]
    error: Float[Tensor, "*shape"]

    def __getitem__(self, index: object) -> Tracked:
        return Tracked(self.value[index], self.error[index])  # type: ignore[index]

    @property
    def size(self) -> Tensor:
        """Bound on the absolute value."""
        return self.value.abs() + self.error


def exact(value: Tensor) -> Tracked:
    return Tracked(value.double(), torch.zeros_like(value, dtype=torch.float64))


def gamma(k: float, u: float) -> float:
    """Return the relative error of a sum of k products; infinite if k is too large for a bound."""
    return k * u / (1 - k * u) if k * u < 0.5 else float("inf")


def exp_error(u: float, keys: int) -> float:
    """Return the relative error of an attention weight before the division by the sum: exponential and rescalings."""
    return 2 * EXP_ULPS * u * (2 + keys // KEYS_PER_RESCALING)


def limits(dtype: torch.dtype) -> tuple[float, float]:
    """Return the largest loss by underflow, and the largest allowed intermediate number, for a number format."""
    return torch.finfo(dtype).tiny, torch.finfo(dtype).max / 16


def format_refusal(model: nn.Module) -> str | None:
    """Return the reason why the assumptions do not cover the model's number format, or None."""
    for parameter in model.parameters():
        if parameter.dtype not in ROUNDOFF:
            return f"rounding is bounded for float32 and float64, not {parameter.dtype}".replace("torch.", "")
    return None


def premise_refusal(model: nn.Module) -> str | None:
    """Return the reason why the assumptions do not cover the model's device or torch's settings, or None."""
    for parameter in model.parameters():
        if parameter.device.type != "cpu":
            return f"rounding is bounded on a CPU, not on {parameter.device.type}: move the model"
    return lowered() or autocast()


def lowered() -> str | None:
    """Return a sentence if torch is set to multiply float32 with reduced precision, or None."""
    if (asked := torch.get_float32_matmul_precision()) != "highest":
        return f"torch multiplies float32 in {asked!r} precision here; set_float32_matmul_precision('highest') first"
    onednn = getattr(torch.backends, "mkldnn", None)
    for name, place in (("backends", torch.backends), ("backends.mkldnn", onednn),
                        ("backends.mkldnn.matmul", getattr(onednn, "matmul", None))):  # fmt: skip
        if (asked := getattr(place, "fp32_precision", "none")) not in ("none", "ieee"):
            return f"torch multiplies float32 in {asked!r} precision; set torch.{name}.fp32_precision = 'ieee' first"
    return None


class Arithmetic:
    """Operations on tracked numbers in a format of unit roundoff `u`, evaluated in float64."""

    def __init__(self, u: float, rounded_parameters: bool = False) -> None:
        self.u = u + ROUNDOFF[torch.float64]
        self.smallest, self.largest = limits(torch.float32 if u > ROUNDOFF[torch.float64] else torch.float64)
        self.whole = 0.25 / u  # whole numbers below it, and their sums, are exact
        self.rounded_parameters = rounded_parameters

    def gamma(self, k: int) -> float:
        return gamma(k, self.u)

    def bounded(self, error: Tensor, size: Tensor) -> Tensor:
        """Return the error, or infinity if numbers of this size might overflow or are not bounded."""
        return torch.where((size + error < self.largest) & ~error.isnan(), error, torch.inf)

    def _under(self, x: Tracked) -> Tensor:
        """Return the loss if a subnormal number is flushed to zero; 0 if it is surely 0 or normal."""
        certain = ((x.value == 0) & (x.error == 0)) | (x.value.abs() - x.error >= self.smallest)
        return torch.where(certain, 0.0, self.smallest)

    def _on_grid(self, x: Tensor) -> Bool[Tensor, "*shape"]:
        return (x * GRID).round() == x * GRID

    def linear(self, x: Tracked, weight: Tensor, bias: Tensor | None = None) -> Tracked:
        """Return x @ weight + bias."""
        weight = weight.double()
        size, terms = weight.abs(), weight.shape[-2] + 2
        value, reach = x.value @ weight, x.size @ size
        error = x.error @ size + self.gamma(terms) * reach
        error = error + self.smallest * (terms + size.sum(-2, keepdim=True) + x.size.sum(-1, keepdim=True))  # underflow
        if self.rounded_parameters:
            error = error + x.size @ (size * ~self._on_grid(weight)) * self.u
        loose = ~self._on_grid(x.value) | (x.error > 0)
        spoiled = loose.double() @ (weight != 0).double() + (x.value != 0).double() @ (~self._on_grid(weight)).double()
        error = torch.where((spoiled == 0) & (reach * GRID * GRID < self.whole), 0.0, self.bounded(error, reach))
        return Tracked(value, error) if bias is None else self.add(Tracked(value, error), exact(bias))

    def add(self, x: Tracked, y: Tracked) -> Tracked:
        value, error = x.value + y.value, x.error + y.error
        plain = (error == 0) & self._on_grid(x.value) & self._on_grid(y.value) & (value.abs() * GRID < self.whole)
        # Adding an exact zero does not round.
        plain |= ((x.value == 0) & (x.error == 0)) | ((y.value == 0) & (y.error == 0))
        rounded = self.bounded(error + self.u * (value.abs() + error), value.abs())
        total = Tracked(value, torch.where(plain, error, rounded))
        return Tracked(value, total.error + self._under(x) + self._under(y) + self._under(total))

    def product(self, x: Tracked, y: Tracked, more: int = 2) -> Tracked:
        """Return x @ y, with `more` further roundings of each term."""
        terms, reach = x.value.shape[-1], x.size @ y.size
        error = x.size @ y.error + x.error @ y.size + self.gamma(terms + more) * reach
        under = self.smallest * (2 * terms + x.size.sum(-1, keepdim=True) + y.size.sum(-2, keepdim=True))
        return Tracked(x.value @ y.value, torch.where(reach == 0, 0.0, self.bounded(error + under, reach)))

    def total(self, parts: Sequence[Tracked]) -> Tracked:
        """Sum a few numbers, in any order."""
        size = torch.stack([part.size for part in parts]).sum(0)
        error = torch.stack([part.error + self._under(part) for part in parts]).sum(0) + self.gamma(len(parts)) * size
        return Tracked(torch.stack([part.value for part in parts]).sum(0), self.bounded(error, size))

    def norm(self, x: Tracked, kind: str, weight: Tensor, bias: Tensor, eps: float) -> Tracked:
        """Return LayerNorm or RMSNorm ("layer", "rms") over the last axis.

        The error is infinite if the scale's error could reach the scale.
        """
        if kind == "rms":
            return self._scaled(x, x, weight, bias, eps, 1)
        center = x.value - x.value.mean(-1, keepdim=True)
        error = x.error + x.error.mean(-1, keepdim=True) + 4 * self.smallest
        error = error + self.gamma(x.value.shape[-1] + 3) * (x.size + x.size.mean(-1, keepdim=True))
        return self._scaled(x, Tracked(center, error), weight, bias, eps, 2)

    def _scaled(self, x: Tracked, center: Tracked, weight: Tensor, bias: Tensor, eps: float, under: int) -> Tracked:
        """Divide x, centered, by its root mean square; apply weight and bias. under: subnormal losses per number."""
        d = x.value.shape[-1]
        scale = (center.value.square().mean(-1, keepdim=True) + eps).sqrt()
        # A root mean square changes by at most the root mean square of the changes of its terms.
        moved = center.error.square().mean(-1, keepdim=True).sqrt() + under * (d * self.smallest) ** 0.5
        moved = moved + self.gamma(d + 6) * (scale + moved)
        relative = torch.where(moved < scale, moved / scale, torch.inf)
        spread = (center.error + center.value.abs() * relative) / scale / (1 - relative).clamp(min=0)
        rounding = 4 * self.u * (center.value.abs() / scale + spread) + under * self.smallest
        normal = Tracked(center.value / scale, (spread + rounding).nan_to_num(nan=torch.inf))
        value = normal.value * weight.double() + bias.double()
        size = normal.size * weight.double().abs() + bias.double().abs()
        error = normal.error * weight.double().abs() + self.gamma(3) * size + self.smallest * (4 + normal.size)
        return Tracked(value, self.bounded(error, torch.maximum(size, x.size.square().sum(-1, keepdim=True))))

    def activation(self, x: Tracked, name: str) -> Tracked:
        """Return relu or gelu of each number."""
        return {"relu": self.relu, "gelu": self.gelu}[name](x)

    def relu(self, x: Tracked) -> Tracked:
        """Return the ReLU; numbers that are surely negative become exact zeros."""
        return Tracked(x.value.relu(), torch.where(x.value + x.error <= 0, 0.0, x.error))

    def gelu(self, x: Tracked) -> Tracked:
        """Return GELU, x Phi(x), with slopes of at most GELU_SLOPE."""
        value = nn.functional.gelu(x.value)
        rounding = GELU_UNITS * self.u * (x.value.abs() + x.error) + 4 * self.smallest
        return Tracked(value, GELU_SLOPE * x.error + rounding)

    def scores(self, q: Tracked, k: Tracked, factor: float, more: int = 8) -> Tracked:
        """Return queries (..., queries, d_head) times keys (..., keys, d_head), times a factor.

        Each term is rounded once, the sum d_head times. The factor is a quotient or product of two rounded numbers. It
        may be applied to the sum, or its square root to queries and keys. This adds at most eight roundings (`more`),
        and at most five if the factor has no logarithm of the length.
        """
        products, reach = self.product(q, Tracked(k.value.mT, k.error.mT), more), q.size @ k.size.mT
        size = abs(factor)
        under = self.smallest * (1 + size) * (2 + q.size.sum(-1, keepdim=True) + k.size.sum(-1)[..., None, :])
        error = self.bounded(products.error * size + under, reach * max(1.0, size))
        nothing = (reach == 0) | (torch.tensor(size) == 0)
        return Tracked(products.value * factor, torch.where(nothing, 0.0, error))

    def weight_error(self, slip: Tensor, spread: Tensor, keys: int) -> Tensor:
        """Return the relative error of softmax weights over at most `keys` keys: exponential, sum and quotient.

        spread: largest difference between scores. slip: error of each score.
        """
        moved = slip + self.u * (spread + 2 * slip) + exp_error(self.u, keys)
        return torch.expm1(2 * moved + self.gamma(2 * keys + 8))

    def average(self, values: Tracked, weight_error: Tensor, lost: Tensor, keys: int) -> Tracked:
        """Return the size and error of weighted means of at most `keys` of the values (..., keys, d), as (..., 1, d).

        weight_error: relative error of the weights. lost: total loss of weights by underflow.
        """
        size = values.size.amax(-2, keepdim=True)
        error = weight_error * size + (1 + weight_error) * (
            values.error.amax(-2, keepdim=True) + self.gamma(keys + 2) * size
        )
        under = (lost + 2 * keys * self.smallest) * (1 + size)
        return Tracked(size, self.bounded(error + under, keys * size))

    def softmax(self, scores: Tracked) -> Tracked:
        """Return the softmax of scores (..., queries, keys)."""
        keys = scores.value.shape[-1]
        below = scores.value - scores.value.amax(-1, keepdim=True)
        slip = scores.error + self.u * (below.abs() + scores.error)
        moved = (below != 0) | (scores.error > 0)  # exp(0) = 1 is exact
        slip = slip + torch.where(moved, exp_error(self.u, keys), 0.0)
        weights, grown = below.softmax(-1), torch.expm1(slip)
        total = (weights * grown).sum(-1, keepdim=True) + self.gamma(keys)
        relative = (1 + grown) / (1 - total).clamp(min=0) * (1 + 4 * self.u) - 1
        return Tracked(weights, torch.nan_to_num(weights * relative, nan=torch.inf) + self.smallest)

    def mix(self, weights: Tracked, values: Tracked) -> Tracked:
        """Return weights @ values."""
        mixed = self.product(weights, values)
        return Tracked(mixed.value, self.bounded(mixed.error, values.size.sum(-2, keepdim=True)))
