"""A forward pass that carries a bound of its own rounding error: what floats may make of one string, in any order.

Every number is a pair (value, error): the value in float64, the error a bound of how far the model's own arithmetic,
of unit roundoff u, and the float64 value can both be from the exact result for the parameters as they are. Sums are
bounded for any order of evaluation (gamma_k = k u / (1 - k u), Higham 2002, section 3.1), so that fused and explicit
attention, and any batch, are covered. Sums of small whole multiples of 1/16 are exact in any order, and are known to
be. The exponential may be off by EXP_ULPS units in the last place (vector versions in use
are off by 3.5 at most), and may underflow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.architecture.task_model import TaskModel
from interp.spec import Layer

ROUNDOFF = {torch.float64: 2.0**-53, torch.float32: 2.0**-24}
"""Unit roundoff of the number formats that are certified; the half formats mix precisions inside fused kernels."""

EXP_ULPS = 8
GRID = 16.0


@dataclass(frozen=True)
class Tracked:
    """Values with bounds of their errors."""

    value: Float[Tensor, "*shape"]
    error: Float[Tensor, "*shape"]

    def __getitem__(self, index: object) -> Tracked:
        return Tracked(self.value[index], self.error[index])  # type: ignore[index]

    @property
    def size(self) -> Tensor:
        """The largest size that the number may have."""
        return self.value.abs() + self.error


def exact(value: Tensor) -> Tracked:
    return Tracked(value.double(), torch.zeros_like(value, dtype=torch.float64))


def refusal(model: TaskModel) -> str | None:
    """Why no rounding bound is built for this model, or None."""
    if model.embed.W_E.dtype not in ROUNDOFF:
        return f"rounding is bounded for float32 and float64, not {model.embed.W_E.dtype}".replace("torch.", "")
    for layer in model.spec.layers:
        if layer.mixing != "dot" or layer.normalizer != "softmax" or layer.norm != "none":
            return "rounding is bounded for softmax attention without layer norm"
        if layer.value_output != "learned" or any((layer.bias.q, layer.bias.k, layer.bias.v, layer.bias.o)):
            return "rounding is bounded for learned values without attention biases"
        if layer.mlp is not None and layer.mlp.activation != "relu":
            return "rounding is bounded for ReLU neurons"
    if model.spec.direction != "bidirectional" or not model.spec.linear_readout:
        return "rounding is bounded for bidirectional models with a linear readout"
    return None


class Arithmetic:
    """Operations on tracked numbers in a format of unit roundoff `u`, beside the float64 of this computation."""

    def __init__(self, u: float, rounded_parameters: bool = False) -> None:
        self.u = u + ROUNDOFF[torch.float64]
        limits = torch.finfo(torch.float32 if u > ROUNDOFF[torch.float64] else torch.float64)
        self.smallest, self.largest = limits.tiny, limits.max / 16
        self.whole = 0.25 / u  # whole numbers below it, and their sums, are exact
        self.rounded_parameters = rounded_parameters

    def gamma(self, k: int) -> float:
        return k * self.u / (1 - k * self.u)

    def bounded(self, error: Tensor, size: Tensor) -> Tensor:
        """The error, infinite where numbers of this size might overflow on the way, or where nothing is known."""
        return torch.where((size + error < self.largest) & ~error.isnan(), error, torch.inf)

    def _on_grid(self, x: Tensor) -> Bool[Tensor, "*shape"]:
        return (x * GRID).round() == x * GRID

    def linear(self, x: Tracked, weight: Tensor, bias: Tensor | None = None) -> Tracked:
        """x @ weight + bias."""
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
        # Nothing is rounded either where one of the two is exactly zero.
        plain |= ((x.value == 0) & (x.error == 0)) | ((y.value == 0) & (y.error == 0))
        rounded = self.bounded(error + self.u * (value.abs() + error), value.abs())
        return Tracked(value, torch.where(plain, error, rounded))

    def layer_norm(self, x: Tracked, weight: Tensor, bias: Tensor, eps: float) -> Tracked:
        """Over the last axis; infinite where the error may be as large as the scale itself."""
        d = x.value.shape[-1]
        center = x.value - x.value.mean(-1, keepdim=True)
        error = x.error + x.error.mean(-1, keepdim=True)
        error = error + self.gamma(d + 3) * (x.size + x.size.mean(-1, keepdim=True))
        variance = center.square().mean(-1, keepdim=True) + eps
        moved = (2 * center.abs() * error + error.square()).mean(-1, keepdim=True)
        moved = moved + self.gamma(d + 4) * ((center.abs() + error).square().mean(-1, keepdim=True) + eps)
        relative = torch.where(moved < variance, moved / variance, torch.inf)  # |sqrt(1 + r) - 1| <= |r|
        scale = variance.sqrt()
        spread = (error + center.abs() * relative) / scale / (1 - relative).clamp(min=0)
        normal = Tracked(center / scale, spread + 4 * self.u * (center.abs() / scale + spread))
        value = normal.value * weight.double() + bias.double()
        size = normal.size * weight.double().abs() + bias.double().abs()
        return Tracked(value, normal.error * weight.double().abs() + self.gamma(3) * size)

    def relu(self, x: Tracked) -> Tracked:
        """Certainly negative numbers become exact zeros."""
        return Tracked(x.value.relu(), torch.where(x.value + x.error <= 0, 0.0, x.error))

    def softmax(self, scores: Tracked) -> Tracked:
        """Weights with a bound of their error; scores (..., queries, keys)."""
        keys = scores.value.shape[-1]
        below = scores.value - scores.value.amax(-1, keepdim=True)
        slip = scores.error + self.u * (below.abs() + scores.error)
        # exp(0) = 1 is exact; fused kernels rescale once more for each block of 512 keys.
        moved = (below != 0) | (scores.error > 0)
        slip = slip + torch.where(moved, EXP_ULPS * self.u * (2 + keys // 512), 0.0)
        weights, grown = below.softmax(-1), torch.expm1(slip)
        total = (weights * grown).sum(-1, keepdim=True) + self.gamma(keys)
        relative = (1 + grown) * (1 + 2 * total) * (1 + 4 * self.u) - 1
        return Tracked(weights, torch.nan_to_num(weights * relative, nan=torch.inf) + self.smallest)

    def mix(self, weights: Tracked, values: Tracked) -> Tracked:
        """weights @ values."""
        keys = weights.value.shape[-1]
        reach = weights.size @ values.size
        error = weights.size @ values.error + weights.error @ values.value.abs() + self.gamma(keys + 2) * reach
        under = self.smallest * (keys + values.size.sum(-2, keepdim=True))
        error = torch.where(reach == 0, error, error + under)
        return Tracked(weights.value @ values.value, self.bounded(error, values.size.sum(-2, keepdim=True)))


def pattern(numbers: Arithmetic, model: TaskModel, index: int, x: Tracked, asking: Tracked | None = None) -> Tracked:
    """The attention pattern of a layer, (rows, heads, queries, keys), from the stream x (rows, n, d_model).

    asking: the stream of the positions that ask, (rows, queries, d_model); all of them by default.
    """
    layer, attn, u = model.spec.layers[index], model.blocks[index].attn, numbers.u
    inner, outer = x[:, None], (x if asking is None else asking)[:, None]
    q, k = numbers.linear(outer, attn.W_Q.detach()), numbers.linear(inner, attn.W_K.detach())
    factor = _factor(layer, attn.attn_scale, x.value.shape[1])
    scores, reach = q.value @ k.value.mT, q.size @ k.size.mT
    error = q.size @ k.error.mT + q.error @ k.size.mT + numbers.gamma(layer.d_head + 4) * reach
    error = (error + layer.d_head * numbers.smallest) * abs(factor) + u * reach * abs(factor) + numbers.smallest
    error = numbers.bounded(error, reach * max(1.0, abs(factor)))
    zero = (reach == 0) | (torch.tensor(factor) == 0)
    return numbers.softmax(Tracked(scores * factor, torch.where(zero, 0.0, error)))


def _factor(layer: Layer, attn_scale: float, n: int) -> float:
    """What q k is multiplied by: the scale and ln(n) where the layer has it."""
    length = {"none": None, "current": n}.get(str(layer.log_length), layer.log_length)
    return 1 / attn_scale if length is None else float(torch.tensor(float(length)).double().log()) / attn_scale


def attention(numbers: Arithmetic, model: TaskModel, index: int, x: Tracked, asking: Tracked | None = None) -> Tracked:
    """What the heads of a layer add to the stream, at the positions that ask; at one for all where all scores are 0."""
    attn: Any = model.blocks[index].attn
    if bool(((attn.W_Q == 0).all((1, 2)) | (attn.W_K == 0).all((1, 2))).all()):
        asking = x[:, :1]  # every position asks the same, and is told the same
    values = numbers.linear(x[:, None], attn.W_V.detach())
    z = numbers.mix(pattern(numbers, model, index, x, asking), values)
    joined = Tracked(z.value.transpose(1, 2).flatten(2), z.error.transpose(1, 2).flatten(2))
    return numbers.linear(joined, attn.W_O.detach().flatten(0, 1))


def neurons(numbers: Arithmetic, model: TaskModel, index: int, x: Tracked) -> Tracked:
    """The stream after the feed-forward part of a layer."""
    if model.spec.layers[index].mlp is None:
        return x
    mlp: Any = model.blocks[index].mlp
    hidden = numbers.relu(numbers.linear(x, mlp.W_in.detach(), mlp.b_in.detach()))
    return numbers.add(x, numbers.linear(hidden, mlp.W_out.detach(), mlp.b_out.detach()))


def embed(numbers: Arithmetic, model: TaskModel, tokens: Int[Tensor, "rows n"]) -> Tracked:
    """Tokens and positions, as the model rounds them."""
    parts: Any = model  # torch declares submodules as Tensor | Module
    with torch.no_grad():
        return numbers.add(exact(parts.embed.W_E.detach()[tokens]), exact(parts.pos_embed(tokens)))


@torch.no_grad()
def forward_with_bound(
    model: TaskModel, tokens: Int[Tensor, "rows n"], rounded_parameters: bool = False
) -> tuple[Float[Tensor, "rows n_out"], Float[Tensor, "rows n_out"]]:
    """Logits where the model is read (float64), and a bound of the error of the model's own; rows without padding.

    rounded_parameters: parameters that are no multiples of 1/16 stand for real numbers that were rounded to them.
    """
    numbers = Arithmetic(ROUNDOFF[model.embed.W_E.dtype], rounded_parameters)
    x, last = embed(numbers, model, tokens), len(model.spec.layers) - 1
    for index in range(last + 1):
        # In the last layer only the position that is read asks.
        asking = x if index < last else x[torch.arange(len(tokens)), model.answer_positions(tokens)][:, None]
        x = neurons(numbers, model, index, numbers.add(asking, attention(numbers, model, index, x, asking)))
    parts: Any = model
    out = numbers.linear(x[:, 0], parts.unembed.W_U.detach(), parts.unembed.b_U.detach())
    return out.value, out.error
