"""The forward pass of any spec on whole sequences, or on their distinct rows, as one plain function of its tensors.

The same numbers as the TaskModel, to rounding, without hooks and without transformer_lens. It is written for one model
and holds no branch on a tensor's values, so that torch.func.vmap runs it for many models at once. Where an answer is
read at a few positions, only these ask in the last layer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from interp.architecture.formulas import position_formula
from interp.spec import PLAIN_POSITIONS, Layer, ModelSpec
from interp.tasks import Task

Tensors = Mapping[str, Tensor]


def sequence_inputs(
    spec: ModelSpec, task: Task, tokens: Int[Tensor, "*models rows length"], at: Int[Tensor, "*models rows reads"]
) -> dict[str, Tensor]:
    """What `sequence_logits` takes, by name: tokens, the positions that are read, and, where they matter, seen (which
    tokens are no padding) and codes (the position codes of a formula). Leading axes are those of `tokens`.
    """
    inputs = {"tokens": tokens, "at": at}
    seen = None
    if spec.direction == "bidirectional" and task.pad_id is not None:
        found = tokens != task.pad_id
        if not found.all():
            inputs["seen"] = seen = found
    if spec.positions not in PLAIN_POSITIONS or spec.positions == "sinusoidal":
        length = tokens.shape[-1]
        i = torch.arange(length, device=tokens.device).expand(tokens.shape).double()
        n = torch.full_like(i[..., :1], length) if seen is None else seen.sum(-1, keepdim=True).clamp(min=1).double()
        flat = position_formula(spec.positions)(i.flatten(0, -2), n.flatten(0, -2), spec.d_model)
        inputs["codes"] = flat.unflatten(0, tokens.shape[:-1])
    return inputs


def sequence_logits(spec: ModelSpec, tensors: Tensors, inputs: Tensors) -> Float[Tensor, "rows reads n_out"]:
    """Logits at the positions that are read, of one model; inputs as `sequence_inputs` makes them, or with a `weight`
    and a `length` instead of `seen`: the logarithm of how often a position stands in its sequence, (rows, length), and
    how many tokens the sequence has, (rows,).
    """
    tokens, at = inputs["tokens"], inputs["at"]
    x = functional.embedding(tokens, tensors["embed.W_E"])
    if "codes" in inputs:
        x = x + inputs["codes"].to(x)
    if "pos_embed.W_pos" in tensors:
        x = x + tensors["pos_embed.W_pos"][: tokens.shape[1]]
    every = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
    last = len(spec.layers) - 1
    for index, layer in enumerate(spec.layers):
        part = {name.removeprefix(f"blocks.{index}."): t for name, t in tensors.items() if f"blocks.{index}." in name}
        source: _Stream | _Embedded = _Stream(x)
        if index == 0 and "codes" not in inputs:
            source = _Embedded(tokens, tensors["embed.W_E"], tensors.get("pos_embed.W_pos"))
        x = _block(spec, layer, part, x, source, at if index == last else every, inputs)
    if spec.final_norm != "none":
        x = _normed(x, tensors, "ln_final", spec.layers[-1].norm_eps)
    if spec.readout == "relu_mlp":
        hidden = _linear(x, tensors["unembed.W_in"], tensors["unembed.b_in"]).relu()
        return _linear(hidden, tensors["unembed.W_out"], tensors["unembed.b_out"])
    return _linear(x, tensors["unembed.W_U"], tensors.get("unembed.b_U"))


def _linear(
    x: Float[Tensor, "rows length inputs"],
    weight: Float[Tensor, "inputs outputs"],
    bias: Float[Tensor, "outputs"] | None = None,
) -> Float[Tensor, "rows length outputs"]:
    """x @ weight + bias; as a product of two matrices, which stays one operation for many models."""
    out = x.flatten(0, 1) @ weight
    return (out if bias is None else out + bias).unflatten(0, x.shape[:2])


def _normed(x: Float[Tensor, "*rows d_model"], part: Tensors, name: str, eps: float) -> Float[Tensor, "*rows d_model"]:
    return functional.layer_norm(x, x.shape[-1:], part[f"{name}.w"], part[f"{name}.b"], eps=eps)


class _Stream:
    """Where queries, keys and values come from: rows of the residual stream."""

    def __init__(self, x: Float[Tensor, "rows length d_model"]) -> None:
        self.x = x

    def at(self, at: Int[Tensor, "rows reads"]) -> _Stream:
        return _Stream(_rows_at(self.x, at))

    def times(self, weight: Float[Tensor, "d_model outputs"] | None) -> Float[Tensor, "rows length outputs"]:
        return self.x if weight is None else _linear(self.x, weight)


class _Embedded:
    """The same before the first layer, where a row is a token's embedding plus a position's: their products with a
    matrix are looked up, since there are fewer tokens and positions than rows."""

    def __init__(
        self,
        tokens: Int[Tensor, "rows length"],
        embedding: Float[Tensor, "d_vocab d_model"],
        positions: Float[Tensor, "max_length d_model"] | None,
        places: Int[Tensor, "rows length"] | None = None,
    ) -> None:
        self.tokens, self.embedding, self.positions, self.places = tokens, embedding, positions, places

    def at(self, at: Int[Tensor, "rows reads"]) -> _Embedded:
        return _Embedded(self.tokens.gather(1, at), self.embedding, self.positions, at)

    def times(self, weight: Float[Tensor, "d_model outputs"] | None) -> Float[Tensor, "rows length outputs"]:
        found = functional.embedding(self.tokens, self.embedding if weight is None else self.embedding @ weight)
        if self.positions is None:
            return found
        here = self.positions if weight is None else self.positions @ weight
        return found + (here[: self.tokens.shape[1]] if self.places is None else here[self.places])


def _rows_at(x: Float[Tensor, "rows length d"], at: Int[Tensor, "rows reads"]) -> Float[Tensor, "rows reads d"]:
    return x.gather(1, at[..., None].expand(-1, -1, x.shape[-1]))


def _block(
    spec: ModelSpec,
    layer: Layer,
    part: Tensors,
    x: Float[Tensor, "rows length d_model"],
    source: _Stream | _Embedded,
    at: Int[Tensor, "rows reads"],
    inputs: Tensors,
) -> Float[Tensor, "rows reads d_model"]:
    """One layer, for the positions that ask."""
    pre, post = layer.norm == "pre", layer.norm == "post"

    def normed(value: Tensor, name: str) -> Tensor:
        return _normed(value, part, name, layer.norm_eps)

    asking = x if at.shape[1] == x.shape[1] else _rows_at(x, at)
    if pre:
        source = _Stream(normed(x, "ln1"))
    if "attn.W_pos" in part:
        source = _Stream(source.times(None) + part["attn.W_pos"][: x.shape[1]])
    heads = _attention(spec, layer, part, source, at, inputs, x.shape[1])
    stream = normed(asking + heads, "ln1") if post else asking + heads
    if layer.mlp is None:
        return stream
    hidden = _linear(normed(stream, "ln2") if pre else stream, part["mlp.W_in"], part["mlp.b_in"])
    hidden = hidden.relu() if layer.mlp.activation == "relu" else functional.gelu(hidden)
    written = _linear(hidden, part["mlp.W_out"], part["mlp.b_out"])
    return normed(stream + written, "ln2") if post else stream + written


def _attention(
    spec: ModelSpec,
    layer: Layer,
    part: Tensors,
    source: _Stream | _Embedded,
    at: Int[Tensor, "rows reads"],
    inputs: Tensors,
    length: int,
) -> Float[Tensor, "rows reads d_model"]:
    asking, seen = source if at.shape[1] == length else source.at(at), inputs.get("seen")

    def project(rows: _Stream | _Embedded, name: str) -> Float[Tensor, "rows heads length d_head"]:
        """Without a matrix of its own a head takes the stream as it is."""
        weight, bias = part.get(f"attn.W_{name}"), part.get(f"attn.b_{name}")
        if weight is None:
            out = rows.times(None)[:, :, None].expand(-1, -1, layer.n_heads, -1)
        else:
            out = rows.times(weight.transpose(0, 1).flatten(1)).unflatten(-1, (layer.n_heads, layer.d_head))
        return (out if bias is None else out + bias).transpose(1, 2)

    if layer.mixing == "linear":
        scores = part["attn.W_mix"].transpose(0, 1)[at].transpose(1, 2)[..., :length]
    else:
        scores = project(asking, "Q") @ project(source, "K").transpose(2, 3) * layer.factor(spec.d_model)
        scores = _length_scaled(layer, scores, seen, inputs.get("length"))
    softmax = layer.normalizer == "softmax"
    keep = None if seen is None else seen[:, None, None]
    if spec.direction == "causal":
        before = torch.arange(length, device=at.device) <= at[:, None, :, None]
        keep = before if keep is None else keep & before
    if "weight" in inputs:
        scores = scores + inputs["weight"][:, None, None]
    if keep is not None:
        scores = scores.masked_fill(~keep, -torch.inf if softmax else 0.0)
    pattern = scores.softmax(-1) if softmax else scores
    mixed = (pattern @ project(source, "V")).transpose(1, 2)
    if "attn.W_O" in part:
        out = _linear(mixed.flatten(2), part["attn.W_O"].flatten(0, 1))
    else:
        out = mixed.sum(2)
    return out + part["attn.b_O"] if "attn.b_O" in part else out


def _length_scaled(
    layer: Layer, scores: Tensor, seen: Bool[Tensor, "rows length"] | None, lengths: Float[Tensor, "rows"] | None
) -> Tensor:
    """Scores times ln(n) where the layer says so; n tokens in each row, or the training length."""
    if layer.log_length == "none":
        return scores
    if layer.log_length != "current":
        return scores * math.log(layer.log_length)
    if seen is not None:
        lengths = seen.sum(-1).clamp(min=1).to(scores)
    return scores * (math.log(scores.shape[-1]) if lengths is None else lengths.log()[:, None, None, None])
