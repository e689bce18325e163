"""The forward pass of a model with a bound of its own rounding error: what floats may make of one string, in any order.

Every number is tracked (certificates/arithmetic.py), so that fused and explicit attention, and any batch, are covered.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.architecture.reduced import count_space_refusal
from interp.architecture.task_model import TaskModel
from interp.certificates.arithmetic import ROUNDOFF as ROUNDOFF
from interp.certificates.arithmetic import Arithmetic as Arithmetic
from interp.certificates.arithmetic import Tracked as Tracked
from interp.certificates.arithmetic import exact as exact
from interp.certificates.arithmetic import format_refusal, premise_refusal
from interp.certificates.count_rounding import logit_error
from interp.spec import Layer


def refusal(model: TaskModel) -> str | None:
    """Why no rounding bound is built for this model, or None."""
    if (reason := premise_refusal(model) or format_refusal(model)) is not None:
        return reason
    for layer in model.spec.layers:
        if layer.mixing != "dot" or layer.normalizer != "softmax":
            return "rounding is bounded for softmax attention"
    if model.spec.positions_enter != "residual":
        return "rounding is bounded for positions in the residual stream"
    if model.spec.direction != "bidirectional" or model.spec.readout == "relu_mlp":
        return "rounding is bounded for bidirectional models with a linear readout"
    return None


def pattern(numbers: Arithmetic, model: TaskModel, index: int, x: Tracked, asking: Tracked | None = None) -> Tracked:
    """The attention pattern of a layer, (rows, heads, queries, keys), from what attention reads, x (rows, n, d_model).

    asking: the same of the positions that ask, (rows, queries, d_model); all of them by default.
    """
    layer = model.spec.layers[index]
    q = _project(numbers, model, index, "Q", x if asking is None else asking)
    k = _project(numbers, model, index, "K", x)
    return numbers.softmax(numbers.scores(q, k, _factor(layer, model.spec.d_model, x.value.shape[1])))


def _project(numbers: Arithmetic, model: TaskModel, index: int, name: str, x: Tracked) -> Tracked:
    """Queries, keys or values of every head, (rows, heads, n, d_head); a bias that is not there is not added."""
    attn: Any = model.blocks[index].attn
    bias = getattr(attn, f"b_{name}").detach()[:, None]
    return numbers.linear(x[:, None], getattr(attn, f"W_{name}").detach(), bias if bool((bias != 0).any()) else None)


def _factor(layer: Layer, d_model: int, n: int) -> float:
    """What q k is multiplied by: the scale and ln(n) where the layer has it."""
    length = {"none": None, "current": n}.get(str(layer.log_length), layer.log_length)
    scale = layer.factor(d_model)
    return scale if length is None else float(torch.tensor(float(length)).double().log()) * scale


def attends_to_nothing(model: TaskModel, index: int) -> bool:
    """Are all scores of a layer zero, because no query or no key holds anything?"""
    attn: Any = model.blocks[index].attn
    silent = [(w == 0).all((1, 2)) & (b == 0).all(1) for w, b in ((attn.W_Q, attn.b_Q), (attn.W_K, attn.b_K))]
    return bool((silent[0] | silent[1]).all())


def attention(numbers: Arithmetic, model: TaskModel, index: int, x: Tracked, asking: Tracked | None = None) -> Tracked:
    """What the heads of a layer add to the stream, at the positions that ask; at one for all where all scores are 0."""
    attn: Any = model.blocks[index].attn
    if attends_to_nothing(model, index):
        asking = x[:, :1]  # every position asks the same, and is told the same
    values = _project(numbers, model, index, "V", x)
    z = numbers.mix(pattern(numbers, model, index, x, asking), values)
    joined = Tracked(z.value.transpose(1, 2).flatten(2), z.error.transpose(1, 2).flatten(2))
    bias = attn.b_O.detach()
    return numbers.linear(joined, attn.W_O.detach().flatten(0, 1), bias if bool((bias != 0).any()) else None)


def neurons(numbers: Arithmetic, model: TaskModel, index: int, x: Tracked) -> Tracked:
    """The stream after the feed-forward part of a layer."""
    layer = model.spec.layers[index]
    if layer.mlp is None:
        return x
    mlp: Any = model.blocks[index].mlp
    read = normed(numbers, model, index, "ln2", x) if layer.norm == "pre" else x
    hidden = numbers.linear(read, mlp.W_in.detach(), mlp.b_in.detach())
    hidden = numbers.relu(hidden) if layer.mlp.activation == "relu" else numbers.gelu(hidden)
    out = numbers.add(x, numbers.linear(hidden, mlp.W_out.detach(), mlp.b_out.detach()))
    return normed(numbers, model, index, "ln2", out) if layer.norm == "post" else out


def normed(numbers: Arithmetic, model: TaskModel, index: int, name: str, x: Tracked) -> Tracked:
    """The stream after a layer norm of a layer."""
    part: Any = getattr(model.blocks[index], name)
    return numbers.layer_norm(x, part.w.detach(), part.b.detach(), model.spec.layers[index].norm_eps)


def block(numbers: Arithmetic, model: TaskModel, index: int, x: Tracked, asking: Tracked) -> Tracked:
    """The stream after a layer, at the positions that ask."""
    norm = model.spec.layers[index].norm
    inner, outer = ((normed(numbers, model, index, "ln1", part) if norm == "pre" else part) for part in (x, asking))
    stream = numbers.add(asking, attention(numbers, model, index, inner, outer))
    if norm == "post":
        stream = normed(numbers, model, index, "ln1", stream)
    return neurons(numbers, model, index, stream)


def embed(numbers: Arithmetic, model: TaskModel, tokens: Int[Tensor, "rows n"]) -> Tracked:
    """Tokens and positions, as the model rounds them."""
    parts: Any = model  # torch declares submodules as Tensor | Module
    with torch.no_grad():
        return numbers.add(exact(parts.embed.W_E.detach()[tokens]), exact(parts.pos_embed(tokens)))


@torch.no_grad()
def forward_with_bound(
    model: TaskModel,
    tokens: Int[Tensor, "rows n"],
    rounded_parameters: bool = False,
    dtype: torch.dtype | None = None,
) -> tuple[Float[Tensor, "rows n_out"], Float[Tensor, "rows n_out"]]:
    """Logits where the model is read (float64), and a bound of the error of the model's own; rows without padding.

    rounded_parameters: parameters that are not multiples of 1/16 stand for real numbers that were rounded to them.
    dtype: the format whose error is bounded, by default the model's; float64 bounds that of the logits given here.
    """
    numbers = Arithmetic(ROUNDOFF[dtype or model.embed.W_E.dtype], rounded_parameters)
    x, last = embed(numbers, model, tokens), len(model.spec.layers) - 1
    for index in range(last + 1):
        # In the last layer only the position that is read asks.
        asking = x if index < last else x[torch.arange(len(tokens)), model.answer_positions(tokens)][:, None]
        x = block(numbers, model, index, x, asking)
    parts: Any = model
    x = x[:, 0]
    if model.spec.final_norm != "none":
        final = parts.ln_final
        x = numbers.layer_norm(x, final.w.detach(), final.b.detach(), model.spec.layers[-1].norm_eps)
    out = numbers.linear(x, parts.unembed.W_U.detach(), parts.unembed.b_U.detach())
    return out.value, out.error.clamp(min=_folded(model, tokens, dtype or model.embed.W_E.dtype))


def _folded(model: TaskModel, tokens: Int[Tensor, "rows n"], dtype: torch.dtype) -> float:
    """Where predict() takes counts instead of strings, it multiplies the readout by what heads write first: the bound
    of that order, too."""
    if count_space_refusal(model.spec) is not None:
        return 0.0
    asking = tokens[torch.arange(len(tokens)), model.answer_positions(tokens)].unique()
    seen, n = tokens.unique(), tokens.shape[1]
    return max(logit_error(model, int(query), seen, n, dtype) for query in asking)
