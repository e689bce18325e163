"""The forward pass of any spec for many models at once, on sequences or on their distinct rows.

It equals TaskModel's forward pass up to rounding, without hooks and without transformer_lens. Every tensor has a
leading axis of models. (torch.func.vmap would give the same numbers, but PyTorch has no batching rule for fused
attention on the CPU, which takes half the time.) If answers are read at a few positions, the last layer computes
queries only there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from interp.models.architecture.formulas import position_formula
from interp.models.relative_positions import alibi_bias, rotated
from interp.models.spec import MLP, PLAIN_POSITIONS, Layer, ModelSpec
from interp.tasks import Task

Tensors = Mapping[str, Tensor]
Mask = Float[Tensor, "runs 1 _ length"] | None
"""Added to scores: 0 or -inf, or the logarithm of a key's count; "runs" are the rows of all models, or 1."""

SHORT = 8
"""Number of keys up to which plain products are faster than fused attention if there is only one query."""


def sequence_inputs(
    spec: ModelSpec, task: Task, tokens: Int[Tensor, "*models rows length"], at: Int[Tensor, "*models rows reads"]
) -> dict[str, Tensor]:
    """Build the inputs of `sequence_logits`, by name.

    They are tokens and at (read positions) and, if needed, seen (mask of tokens that are not padding), codes (position
    codes of a formula) and later (mask of keys after a read position). Leading axes are those of `tokens`. Without an
    axis of models, all models get the same rows.
    """
    inputs, length = {"tokens": tokens, "at": at}, tokens.shape[-1]
    seen = None
    if spec.direction == "bidirectional" and task.pad_id is not None:
        mask = tokens != task.pad_id
        if not mask.all():
            inputs["seen"] = seen = mask
    if spec.positions not in PLAIN_POSITIONS or spec.positions == "sinusoidal":
        i = torch.arange(length, device=tokens.device).expand(tokens.shape).double()
        n = torch.full_like(i[..., :1], length) if seen is None else seen.sum(-1, keepdim=True).clamp(min=1).double()
        flat = position_formula(spec.positions)(i.flatten(0, -2), n.flatten(0, -2), spec.d_model)
        inputs["codes"] = flat.unflatten(0, tokens.shape[:-1])
    if spec.direction == "causal" and at.shape[-1] < length and not (at == length - 1).all():
        inputs["later"] = torch.arange(length, device=at.device) > at[..., None]
    return inputs


def sequence_logits(spec: ModelSpec, tensors: Tensors, inputs: Tensors) -> Float[Tensor, "models rows reads n_out"]:
    """Compute logits at the read positions.

    tensors: parameters, each with a leading axis of models. inputs: from `sequence_inputs`; instead of `seen`, they may
    have `weight`, the logarithm of the number of times that a row's position occurs, (*models, rows, length), and
    `length`, the number of tokens in the sequence, (*models, rows).
    """
    embedding = tensors["embed.W_E"]
    tokens, at = (inputs[name].expand(len(embedding), *inputs[name].shape[-2:]) for name in ("tokens", "at"))
    source: _Stream | _Embedded = _Embedded(tokens, embedding)
    if "pos_embed.W_pos" in tensors:
        source = source.placed(tensors["pos_embed.W_pos"])
    if "codes" in inputs:
        source = _Stream(source.times(None) + inputs["codes"].to(embedding))
    for index, layer in enumerate(spec.layers):
        part = {name.removeprefix(f"blocks.{index}."): t for name, t in tensors.items() if f"blocks.{index}." in name}
        few = index == len(spec.layers) - 1 and at.shape[2] < max(tokens.shape[2], 2)
        mask = _mask(spec, embedding, tokens.shape, inputs, few)
        source = _Stream(_block(spec, layer, part, source, at if few else None, inputs, mask))
    x = source.times(None)
    if spec.final_norm != "none":
        x = _normed(x, tensors, "ln_final", spec.layers[-1].norm_eps, spec.final_norm == "rms_norm")
    if spec.readout == "relu_mlp":
        hidden = _linear(x, tensors["unembed.W_in"], tensors["unembed.b_in"]).relu()
        return _linear(hidden, tensors["unembed.W_out"], tensors["unembed.b_out"])
    unembedding = tensors["embed.W_E"].mT if spec.tied_embeddings else tensors["unembed.W_U"]
    return _linear(x, unembedding, tensors.get("unembed.b_U"))


def _linear(
    x: Float[Tensor, "models rows length inputs"],
    weight: Float[Tensor, "models inputs outputs"],
    bias: Float[Tensor, "models outputs"] | None = None,
) -> Float[Tensor, "models rows length outputs"]:
    """Compute x @ weight + bias for each model."""
    flat = x.flatten(1, 2)
    out = torch.bmm(flat, weight) if bias is None else torch.baddbmm(bias[:, None], flat, weight)
    return out.unflatten(1, x.shape[1:3])


def _normed(
    x: Float[Tensor, "models *rows d_model"], part: Tensors, name: str, eps: float, rms: bool
) -> Float[Tensor, "models *rows d_model"]:
    """Apply layer norm or, with rms, RMS norm, with each model's gain (and bias)."""
    gain = part[f"{name}.w"].view(len(x), *[1] * (x.ndim - 2), -1)
    if rms:
        return x * (x.square().mean(-1, keepdim=True) + eps).rsqrt() * gain
    offset = part[f"{name}.b"].view_as(gain)
    return torch.addcmul(offset, functional.layer_norm(x, x.shape[-1:], eps=eps), gain)


def neurons(
    mlp: MLP, part: Tensors, x: Float[Tensor, "models rows length d_model"]
) -> Float[Tensor, "models rows length d_mlp"]:
    """Compute the activations of an MLP's neurons."""
    if not mlp.gated:
        return ACTIVATIONS[mlp.activation](_linear(x, part["mlp.W_in"], part.get("mlp.b_in")))
    gated = ACTIVATIONS[mlp.activation](_linear(x, part["mlp.W_gate"])) * _linear(x, part["mlp.W_in"])
    return gated + part["mlp.b_in"][:, None, None] if "mlp.b_in" in part else gated


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": functional.relu,
    "gelu": functional.gelu,
    "gelu_new": partial(functional.gelu, approximate="tanh"),
    "silu": functional.silu,
}


class _Stream:
    """Rows of the residual stream, from which queries, keys and values are computed."""

    def __init__(self, x: Float[Tensor, "models rows length d_model"]) -> None:
        self.x = x

    def at(self, at: Int[Tensor, "models rows reads"]) -> _Stream:
        return _Stream(self.x.gather(2, at[..., None].expand(-1, -1, -1, self.x.shape[-1])))

    def placed(self, positions: Float[Tensor, "models max_length d_model"]) -> _Stream:
        return _Stream(self.x + positions[:, None, : self.x.shape[2]])

    def times(
        self, weight: Float[Tensor, "models d_model outputs"] | None
    ) -> Float[Tensor, "models rows length outputs"]:
        return self.x if weight is None else _linear(self.x, weight)


class _Embedded:
    """Rows of a table: the stream before the first layer, of few tokens or few pairs of a token and its position.

    Products with a matrix are computed once for each entry of the table.
    """

    def __init__(
        self, index: Int[Tensor, "models rows length"], table: Float[Tensor, "models entries d_model"]
    ) -> None:
        self.index, self.table = index, table

    def at(self, at: Int[Tensor, "models rows reads"]) -> _Embedded:
        return _Embedded(self.index.gather(2, at), self.table)

    def placed(self, positions: Float[Tensor, "models max_length d_model"]) -> _Stream | _Embedded:
        (rows, length), entries = self.index.shape[1:], self.table.shape[1]
        if rows < entries:
            return _Stream(self.times(None)).placed(positions)
        pairs = (positions[:, :length, None] + self.table[:, None]).flatten(1, 2)
        return _Embedded(self.index + entries * torch.arange(length, device=self.index.device), pairs)

    def times(
        self, weight: Float[Tensor, "models d_model outputs"] | None
    ) -> Float[Tensor, "models rows length outputs"]:
        return look_up(self.table if weight is None else self.table @ weight, self.index)


def look_up(
    tables: Float[Tensor, "models entries d"], index: Int[Tensor, "models_or_1 *rows"]
) -> Float[Tensor, "models *rows d"]:
    """Look up entries in each model's table, with one index into the concatenated tables."""
    starts = torch.arange(len(tables), device=index.device) * tables.shape[1]
    at = index + starts.view(-1, *[1] * (index.ndim - 1))
    return tables.flatten(0, 1).index_select(0, at.flatten()).view(*at.shape, tables.shape[2])


def _mask(spec: ModelSpec, x: Tensor, shape: torch.Size, inputs: Tensors, few: bool) -> Mask:
    """Return the mask of a layer, as numbers like x. With `few`, only the read positions are queries.

    shape: models, rows, length.
    """
    models, rows, length = shape
    if spec.direction == "bidirectional":
        if "weight" in inputs:
            added: Tensor | None = inputs["weight"].to(x)[..., None, :]
        else:
            added = _hiding(x, ~inputs["seen"][..., None, :]) if "seen" in inputs else None
    elif few:
        added = _hiding(x, inputs["later"]) if "later" in inputs else None
    else:
        return _hiding(x, torch.ones(1, 1, length, length, dtype=torch.bool, device=x.device).triu(1))
    return None if added is None else added.expand(models, rows, *added.shape[-2:]).flatten(0, 1)[:, None]


def _hiding(x: Tensor, hidden: Bool[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    return x.new_zeros(hidden.shape).masked_fill_(hidden, -torch.inf)


def _block(
    spec: ModelSpec,
    layer: Layer,
    part: Tensors,
    source: _Stream | _Embedded,
    at: Int[Tensor, "models rows reads"] | None,
    inputs: Tensors,
    mask: Mask,
) -> Float[Tensor, "models rows asking d_model"]:
    """Apply one layer; the queries are the positions `at`, or all."""
    pre, post = layer.norm == "pre", layer.norm == "post"

    def normed(value: Tensor, name: str) -> Tensor:
        return _normed(value, part, name, layer.norm_eps, layer.norm_kind == "rms")

    inner = _Stream(normed(source.times(None), "ln1")) if pre else source
    if "attn.W_pos" in part:
        inner = inner.placed(part["attn.W_pos"])
    skip = source if at is None else source.at(at)
    stream = skip.times(None) + _attention(spec, layer, part, inner, at, inputs, mask)
    stream = normed(stream, "ln1") if post else stream
    if layer.mlp is None:
        return stream
    hidden = neurons(layer.mlp, part, normed(stream, "ln2") if pre else stream)
    written = _linear(hidden, part["mlp.W_out"], part.get("mlp.b_out"))
    return normed(stream + written, "ln2") if post else stream + written


def _attention(
    spec: ModelSpec,
    layer: Layer,
    part: Tensors,
    source: _Stream | _Embedded,
    at: Int[Tensor, "models rows reads"] | None,
    inputs: Tensors,
    mask: Mask,
) -> Float[Tensor, "models rows asking d_model"]:
    """Compute the output of a layer's heads at the query positions."""
    if layer.mixing == "linear":
        value = _for_heads(_projected(part, source, "V")[0], layer.n_heads)
        mixed = _weighted(layer, _mixing_scores(part["attn.W_mix"], value, at), _runs(value), mask)
    else:
        if at is None:
            query, key, value = _projected(part, source, "QKV")
        else:
            (query,), (key, value) = _projected(part, source.at(at), "Q"), _projected(part, source, "KV")
        if layer.query_key_norm:
            query = _normed(query, part, "attn.q_norm", layer.norm_eps, rms=True)
            key = _normed(key, part, "attn.k_norm", layer.norm_eps, rms=True)
        if spec.positions == "rotary":
            query, key = _rotated(spec, layer, query, at), _rotated(spec, layer, key, None)
        if spec.positions == "alibi":
            mask = _sloped(layer, query, key.shape[2], at, mask)
        query, factor = _length_scaled(layer, query, key.shape[2], inputs), layer.factor(spec.d_model)
        if layer.normalizer == "softmax" and query.shape[2] == 1 and key.shape[2] <= SHORT and mask is None:
            mixed = _mixed_for_one(query[:, :, 0] * factor, key, value)
            return _written(part, mixed[:, :, None])
        q, k, v = (_runs(_for_heads(x, layer.n_heads)) for x in (query, key, value))
        if layer.normalizer == "softmax":
            causal = spec.direction == "causal" and at is None and spec.positions != "alibi"
            mixed = functional.scaled_dot_product_attention(
                q, k, v, attn_mask=None if causal else mask, is_causal=causal, scale=factor
            )
        else:
            mixed = _weighted(layer, q @ k.transpose(2, 3) * factor, v, mask)
    return _written(part, mixed.transpose(1, 2).unflatten(0, value.shape[:2]))


def _written(
    part: Tensors, mixed: Float[Tensor, "models rows asking heads d_head"]
) -> Float[Tensor, "models rows asking d_model"]:
    """Compute what the heads add to the stream."""
    out = _linear(mixed.flatten(3), part["attn.W_O"].flatten(1, 2)) if "attn.W_O" in part else mixed.sum(3)
    return out + part["attn.b_O"][:, None, None] if "attn.b_O" in part else out


def _mixed_for_one(
    query: Float[Tensor, "models rows heads d_head"],
    key: Float[Tensor, "models rows length _ d_head"],
    value: Float[Tensor, "models rows length _ width"],
) -> Float[Tensor, "models rows heads width"]:
    """Mix the values of a few keys by softmax for one query. Keys or values that all heads share have one head."""
    heads = query.shape[2]
    if key.shape[3] == 1 < heads:
        scores = key[:, :, :, 0] @ query.mT
    else:
        scores = (query[:, :, None] * _for_heads(key, heads)).sum(-1)
    pattern = scores.softmax(2)  # (models, rows, length, heads): softmax is slow over a short last axis
    if value.shape[3] == 1 < heads:
        return pattern.mT @ value[:, :, :, 0]
    return (pattern[..., None] * _for_heads(value, heads)).sum(2)


def _for_heads(
    x: Float[Tensor, "models rows length _ d_head"], heads: int
) -> Float[Tensor, "models rows length heads d_head"]:
    """Give each head its keys or values; heads of a group share them."""
    if x.shape[3] == 1:
        return x.expand(-1, -1, -1, heads, -1)
    return x if x.shape[3] == heads else x.repeat_interleave(heads // x.shape[3], 3)


def _runs(x: Float[Tensor, "models rows length heads d_head"]) -> Float[Tensor, "runs heads length d_head"]:
    return x.flatten(0, 1).transpose(1, 2)


def _projected(
    part: Tensors, source: _Stream | _Embedded, names: str
) -> list[Float[Tensor, "models rows length heads d_head"]]:
    """Compute queries, keys or values of all heads, in one product.

    Without a weight matrix, heads share the stream. Grouped keys and values have fewer heads than queries.
    """

    def held(name: str) -> Tensor | None:
        return part.get(f"attn.{name}", part.get(f"attn._{name}"))

    weights = {name: weight for name in names if (weight := held(f"W_{name}")) is not None}
    flat = [weight.transpose(1, 2).flatten(2) for weight in weights.values()]
    products = iter(source.times(torch.cat(flat, 2)).split([w.shape[2] for w in flat], 3) if flat else ())
    projections = []
    for name in names:
        if name in weights:
            out = next(products).unflatten(3, (weights[name].shape[1], -1))
        else:
            out = source.times(None)[:, :, :, None]
        bias = held(f"b_{name}")
        projections.append(out if bias is None else out + bias[:, None, None])
    return projections


def _rotated(
    spec: ModelSpec,
    layer: Layer,
    x: Float[Tensor, "models rows length heads d_head"],
    at: Int[Tensor, "models rows reads"] | None,
) -> Float[Tensor, "models rows length heads d_head"]:
    """Rotate queries or keys by their positions: `at`, or 0, 1, 2, ..."""
    where = torch.arange(x.shape[2], device=x.device) if at is None else at
    dim = spec.rotary_dim or layer.d_head
    return rotated(x, where, spec.rotary_base, dim, spec.rotary_pairs == "adjacent")


def _sloped(
    layer: Layer,
    query: Float[Tensor, "models rows asking heads d_head"],
    length: int,
    at: Int[Tensor, "models rows reads"] | None,
    mask: Mask,
) -> Float[Tensor, "runs heads asking length"]:
    """Add ALiBi's bias to the mask."""
    where = torch.arange(query.shape[2], device=query.device) if at is None else at.flatten(0, 1)[:, None]
    bias = alibi_bias(where, length, layer.n_heads).to(query)
    return bias if mask is None else bias + mask


def _weighted(
    layer: Layer,
    scores: Float[Tensor, "runs heads asking length"],
    v: Float[Tensor, "runs heads length d_head"],
    mask: Mask,
) -> Float[Tensor, "runs heads asking d_head"]:
    """Mix values with weights: the scores, or their softmax."""
    if layer.normalizer == "softmax":
        return (scores if mask is None else scores + mask).softmax(-1) @ v
    return (scores if mask is None else scores.masked_fill(mask < 0, 0.0)) @ v


def _mixing_scores(
    table: Float[Tensor, "models heads max_length max_length"],
    value: Float[Tensor, "models rows length heads d_head"],
    at: Int[Tensor, "models rows reads"] | None,
) -> Float[Tensor, "runs heads asking length"]:
    """Look up the scores of linear mixing, which depend only on positions."""
    rows, length = value.shape[1:3]
    if at is None:
        here = table[:, None, :, :length, :length].expand(-1, rows, -1, -1, -1)
    else:
        here = look_up(table.transpose(1, 2).flatten(2), at).unflatten(3, (table.shape[1], -1))[..., :length]
        here = here.transpose(2, 3)
    return here.flatten(0, 1)


def _length_scaled(
    layer: Layer, query: Float[Tensor, "models rows asking heads d_head"], length: int, inputs: Tensors
) -> Float[Tensor, "models rows asking heads d_head"]:
    """Multiply queries by ln(n) if the layer has log_length; n is the row's length, or the training length."""
    if layer.log_length == "none":
        return query
    if layer.log_length != "current":
        return query * math.log(layer.log_length)
    if "seen" not in inputs and "length" not in inputs:
        return query * math.log(length)
    n = inputs["length"] if "length" in inputs else inputs["seen"].sum(-1).clamp(min=1)
    return query * n.to(query).log()[..., None, None, None]
