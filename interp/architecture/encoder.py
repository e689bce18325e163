"""The forward pass of a bidirectional encoder on distinct rows with multiplicities, for many models at once.

Positions of equal token and equal position code have equal rows at every depth (spec.symmetry = "position_codes" or
"distinct_tokens"), so each is computed once and its key and value count as often as it occurs: softmax(s + ln c). With
the code I[i = 1] a string of any length has four rows: [CLS], its first symbol, and the two symbols elsewhere. With
i/n every position is a row of its own, and this is the plain forward pass of stacked models. In the last layer only
the row that is read asks. All tensors carry a leading axis of models; logits and gradients equal the sequence model's
to rounding. Nothing here imports transformer_lens.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from interp.architecture.formulas import position_codes
from interp.errors import InterpError
from interp.spec import Layer, ModelSpec
from interp.tasks import Batch, Task


def encoder_refusal(spec: ModelSpec) -> str | None:
    """Why this spec has no forward pass on distinct rows, or None."""
    if spec.direction != "bidirectional" or spec.readout_at == "all" or not spec.linear_readout:
        return "distinct rows are built for bidirectional models that are read at one position by a linear readout"
    if spec.positions == "learned":
        return "learned positions are no formula: every position has a code of its own that is trained"
    for layer in spec.layers:
        if layer.mixing != "dot" or layer.normalizer != "softmax" or layer.query_key != "learned":
            return "distinct rows are built for softmax attention with learned queries and keys"
        if layer.value_output != "learned":
            return "distinct rows are built for learned values"
    return None


@dataclass(frozen=True)
class DistinctRows:
    """Strings as distinct rows. The leading axis is models, or 1 where all models see the same strings.

    counts: how often a row occurs in its string; 0 where a string has fewer rows than the widest. read: which row
    the answer is read from. lengths: tokens of each string.
    """

    tokens: Int[Tensor, "models strings rows"]
    codes: Float[Tensor, "models strings rows d_model"]
    counts: Float[Tensor, "models strings rows"]
    read: Int[Tensor, "models strings"]
    lengths: Float[Tensor, "models strings"]

    def to(self, device: str | torch.device, dtype: torch.dtype) -> DistinctRows:
        return DistinctRows(
            self.tokens.to(device),
            self.codes.to(device, dtype),
            self.counts.to(device, dtype),
            self.read.to(device),
            self.lengths.to(device, dtype),
        )


def distinct_rows(spec: ModelSpec, task: Task, batch: Batch) -> DistinctRows:
    """The distinct (token, position code) pairs of each string of a batch, with a leading axis of one.

    Raises InterpError for a spec without a forward pass on distinct rows.
    """
    if (reason := encoder_refusal(spec)) is not None:
        raise InterpError(f"{spec.id}: {reason}")
    read = _read_positions(spec, task, batch)
    index, codes = _code_indices(spec, batch)
    keys = batch.tokens * len(codes) + index
    counts = torch.zeros(len(batch), task.d_vocab * len(codes), dtype=torch.float64)
    counts.scatter_add_(1, keys, batch.attention_mask.double())
    width = int((counts > 0).sum(1).max()) if len(batch) else 0
    chosen = (counts > 0).int().argsort(dim=1, descending=True, stable=True)[:, :width]
    read_key = keys.gather(1, read[:, None])
    return DistinctRows(
        tokens=(chosen // len(codes))[None],
        codes=codes[chosen % len(codes)][None],
        counts=counts.gather(1, chosen)[None],
        read=(chosen == read_key).int().argmax(1)[None],
        lengths=batch.lengths.double()[None],
    )


def _read_positions(spec: ModelSpec, task: Task, batch: Batch) -> Int[Tensor, "strings"]:
    if spec.readout_at == "last":
        return batch.lengths - 1
    here = batch.tokens == task.token_id(spec.readout_at)
    if not here.any(1).all():
        raise InterpError(f"a row has no {spec.readout_at!r}, where the answer of task {task.name} is read")
    return here.int().argmax(1)


def _code_indices(spec: ModelSpec, batch: Batch) -> tuple[Int[Tensor, "strings width"], Float[Tensor, "codes d_model"]]:
    """Which code each position has, and the table of codes of all lengths that occur."""
    index = torch.zeros_like(batch.tokens)
    if spec.positions == "none":
        return index, torch.zeros(1, spec.d_model, dtype=torch.float64)
    tables, start = [], 0
    for n in batch.lengths.unique().tolist():
        table, of = position_codes(spec.positions, n, spec.d_model)
        mine = (batch.lengths == n).nonzero()[:, 0]
        index[mine[:, None], torch.arange(n)] = of + start
        tables.append(table)
        start += len(table)
    codes, merged = torch.cat(tables).unique(dim=0, return_inverse=True)
    return merged[index], codes


def encoder_logits(
    spec: ModelSpec, tensors: Mapping[str, Tensor], rows: DistinctRows
) -> Float[Tensor, "models strings n_out"]:
    """Logits where the answer is read; every tensor has a leading axis of models."""
    models = len(tensors["embed.W_E"])
    tokens = rows.tokens.expand(models, -1, -1)
    x = torch.stack([table[ids] for table, ids in zip(tensors["embed.W_E"], tokens)]) + rows.codes
    last = len(spec.layers) - 1
    for index, layer in enumerate(spec.layers):
        part = {name.removeprefix(f"blocks.{index}."): t for name, t in tensors.items() if f"blocks.{index}." in name}
        asking = x
        if index == last:
            at = rows.read.expand(models, -1)[..., None, None].expand(-1, -1, 1, x.shape[-1])
            asking = x.gather(2, at)
        x = _block(spec, layer, part, asking, x, rows)
    out = torch.einsum("msd,mdo->mso", x[:, :, 0], tensors["unembed.W_U"])
    return out + tensors["unembed.b_U"][:, None] if "unembed.b_U" in tensors else out


def _block(
    spec: ModelSpec, layer: Layer, part: Mapping[str, Tensor], asking: Tensor, x: Tensor, rows: DistinctRows
) -> Tensor:
    """One layer, for the rows that ask."""
    pre, post = layer.norm == "pre", layer.norm == "post"

    def normed(value: Tensor, name: str) -> Tensor:
        scaled = functional.layer_norm(value, value.shape[-1:], eps=layer.norm_eps)
        return scaled * part[f"{name}.w"][:, None, None] + part[f"{name}.b"][:, None, None]

    heads = _attention(
        spec, layer, part, normed(asking, "ln1") if pre else asking, normed(x, "ln1") if pre else x, rows
    )
    stream = normed(asking + heads, "ln1") if post else asking + heads
    if layer.mlp is None:
        return stream
    inner = normed(stream, "ln2") if pre else stream
    hidden = torch.einsum("msrd,mdf->msrf", inner, part["mlp.W_in"]) + part["mlp.b_in"][:, None, None]
    hidden = hidden.relu() if layer.mlp.activation == "relu" else functional.gelu(hidden)
    written = torch.einsum("msrf,mfd->msrd", hidden, part["mlp.W_out"]) + part["mlp.b_out"][:, None, None]
    return normed(stream + written, "ln2") if post else stream + written


def _attention(
    spec: ModelSpec, layer: Layer, part: Mapping[str, Tensor], asking: Tensor, x: Tensor, rows: DistinctRows
) -> Tensor:
    def project(value: Tensor, name: str) -> Tensor:
        out = torch.einsum("msrd,mhdk->mshrk", value, part[f"attn.W_{name}"])
        return out + part[f"attn.b_{name}"][:, None, :, None] if f"attn.b_{name}" in part else out

    named = {"inv_sqrt_d_head": layer.d_head**-0.5, "inv_sqrt_d_model": spec.d_model**-0.5}
    scores = project(asking, "Q") @ project(x, "K").mT
    scores = scores * (layer.scale if isinstance(layer.scale, float) else named[layer.scale])
    if layer.log_length == "current":
        scores = scores * rows.lengths.log()[..., None, None, None]
    elif layer.log_length != "none":
        scores = scores * math.log(layer.log_length)
    pattern = (scores + rows.counts.log()[:, :, None, None]).softmax(-1)
    out = torch.einsum("mshrk,mhkd->msrd", pattern @ project(x, "V"), part["attn.W_O"])
    return out + part["attn.b_O"][:, None, None] if "attn.b_O" in part else out
