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
from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from interp.architecture.formulas import Formula, position_codes, position_formula
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

    codes: which of the rows of `table` a row's position code is. counts: how often a row occurs in its string; 0 where
    a string has fewer rows than the widest. read: which row the answer is read from. lengths: tokens of each string.
    """

    tokens: Int[Tensor, "models strings rows"]
    codes: Int[Tensor, "models strings rows"]
    counts: Float[Tensor, "models strings rows"]
    read: Int[Tensor, "models strings"]
    lengths: Float[Tensor, "models strings"]
    table: Float[Tensor, "codes d_model"]

    def to(self, device: str | torch.device, dtype: torch.dtype) -> DistinctRows:
        numbers = {name: getattr(self, name).to(device, dtype) for name in ("counts", "lengths", "table")}
        return replace(
            self, tokens=self.tokens.to(device), codes=self.codes.to(device), read=self.read.to(device), **numbers
        )

    def view(self, *shape: int) -> DistinctRows:
        """The same strings with other leading axes, such as (models, strings of each)."""
        wide = {name: getattr(self, name).view(*shape, -1) for name in ("tokens", "codes", "counts")}
        return replace(self, read=self.read.view(shape), lengths=self.lengths.view(shape), **wide)

    def __getitem__(self, strings: slice) -> DistinctRows:
        """Some of every model's strings, as wide as the one with the most rows: absent rows stand behind the others."""
        counts = self.counts[:, strings]
        width = int((counts > 0).sum(-1).max()) if counts.numel() else 0
        return replace(
            self,
            tokens=self.tokens[:, strings, :width],
            codes=self.codes[:, strings, :width],
            counts=counts[..., :width],
            read=self.read[:, strings],
            lengths=self.lengths[:, strings],
        )


def distinct_rows(spec: ModelSpec, task: Task, batch: Batch) -> DistinctRows:
    """The distinct (token, position code) pairs of each string of a batch, with a leading axis of one.

    Raises InterpError for a spec without a forward pass on distinct rows.
    """
    if (reason := encoder_refusal(spec)) is not None:
        raise InterpError(f"{spec.id}: {reason}")
    read = _read_positions(spec, task, batch)
    index, table, repeats = _code_indices(spec, batch)
    lengths, mask = batch.lengths.double()[None], batch.attention_mask
    if not repeats:  # every position is a row of its own
        return DistinctRows(batch.tokens[None], index[None], mask.double()[None], read[None], lengths, table)
    keys = batch.tokens * len(table) + index
    counts = torch.zeros(len(batch), task.d_vocab * len(table), dtype=torch.float64)
    counts.scatter_add_(1, keys, mask.double())
    width = int((counts > 0).sum(1).max()) if len(batch) else 0
    chosen = (counts > 0).int().argsort(dim=1, descending=True, stable=True)[:, :width]
    return DistinctRows(
        tokens=(chosen // len(table))[None],
        codes=(chosen % len(table))[None],
        counts=counts.gather(1, chosen)[None],
        read=(chosen == keys.gather(1, read[:, None])).int().argmax(1)[None],
        lengths=lengths,
        table=table,
    )


def _read_positions(spec: ModelSpec, task: Task, batch: Batch) -> Int[Tensor, "strings"]:
    if spec.readout_at == "last":
        return batch.lengths - 1
    if spec.readout_at == "first":
        return torch.zeros_like(batch.lengths)
    here = batch.tokens == task.token_id(spec.readout_at)
    if not here.any(1).all():
        raise InterpError(f"a row has no {spec.readout_at!r}, where the answer of task {task.name} is read")
    return here.int().argmax(1)


def _code_indices(
    spec: ModelSpec, batch: Batch
) -> tuple[Int[Tensor, "strings width"], Float[Tensor, "codes d_model"], bool]:
    """Which code each position has, the table of codes of all lengths that occur, and does any row have one twice?"""
    index = torch.zeros_like(batch.tokens)
    if spec.positions == "none":
        return index, torch.zeros(1, spec.d_model, dtype=torch.float64), True
    tables, start, repeats = [], 0, False
    for n in batch.lengths.unique().tolist():
        table, of = _position_codes(position_formula(spec.positions), spec.positions, n, spec.d_model)
        mine = (batch.lengths == n).nonzero()[:, 0]
        index[mine[:, None], torch.arange(n)] = of + start
        tables.append(table)
        start += len(table)
        repeats = repeats or len(table) < n
    codes = torch.cat(tables)
    if not repeats:
        return index, codes, False
    codes, merged = codes.unique(dim=0, return_inverse=True)
    return merged[index], codes, True


@lru_cache(maxsize=4096)
def _position_codes(formula: Formula, name: str, n: int, d_model: int) -> tuple[Tensor, Tensor]:
    """position_codes, remembered for as long as the name stands for this formula."""
    return position_codes(name, n, d_model)


def encoder_logits(
    spec: ModelSpec, tensors: Mapping[str, Tensor], rows: DistinctRows
) -> Float[Tensor, "models strings n_out"]:
    """Logits where the answer is read; every tensor has a leading axis of models."""
    models = len(tensors["embed.W_E"])
    tokens = rows.tokens.expand(models, -1, -1)
    x = _looked_up(tensors["embed.W_E"], tokens) + rows.table[rows.codes]
    last = len(spec.layers) - 1
    for index, layer in enumerate(spec.layers):
        part = {name.removeprefix(f"blocks.{index}."): t for name, t in tensors.items() if f"blocks.{index}." in name}
        asking = x
        if index == last:
            at = rows.read.expand(models, -1)[..., None, None].expand(-1, -1, 1, x.shape[-1])
            asking = x.gather(2, at)
        x = _block(spec, layer, part, asking, x, rows)
    return _linear(x, tensors["unembed.W_U"], tensors.get("unembed.b_U"))[:, :, 0]


def _linear(
    x: Float[Tensor, "models strings rows inputs"],
    weight: Float[Tensor, "models inputs outputs"],
    bias: Float[Tensor, "models outputs"] | None = None,
) -> Float[Tensor, "models strings rows outputs"]:
    """x @ weight + bias of each model, in one operation."""
    flat = x.flatten(1, 2)
    out = flat @ weight if bias is None else torch.baddbmm(bias[:, None], flat, weight)
    return out.unflatten(1, x.shape[1:3])


def _looked_up(
    table: Float[Tensor, "models tokens d_model"], ids: Int[Tensor, "models strings rows"]
) -> Float[Tensor, "models strings rows d_model"]:
    """Each model's own rows: one index into all tables laid one below the other."""
    first = torch.arange(len(table), device=ids.device)[:, None, None] * table.shape[1]
    return functional.embedding(ids + first, table.flatten(0, 1))


def _block(
    spec: ModelSpec, layer: Layer, part: Mapping[str, Tensor], asking: Tensor, x: Tensor, rows: DistinctRows
) -> Tensor:
    """One layer, for the rows that ask."""
    pre, post = layer.norm == "pre", layer.norm == "post"

    def normed(value: Tensor, name: str) -> Tensor:
        scaled = functional.layer_norm(value, value.shape[-1:], eps=layer.norm_eps)
        return torch.addcmul(part[f"{name}.b"][:, None, None], scaled, part[f"{name}.w"][:, None, None])

    heads = _attention(
        spec, layer, part, normed(asking, "ln1") if pre else asking, normed(x, "ln1") if pre else x, rows
    )
    stream = normed(asking + heads, "ln1") if post else asking + heads
    if layer.mlp is None:
        return stream
    inner = normed(stream, "ln2") if pre else stream
    hidden = _linear(inner, part["mlp.W_in"], part["mlp.b_in"])
    hidden = hidden.relu() if layer.mlp.activation == "relu" else functional.gelu(hidden)
    written = _linear(hidden, part["mlp.W_out"], part["mlp.b_out"])
    return normed(stream + written, "ln2") if post else stream + written


def _attention(
    spec: ModelSpec, layer: Layer, part: Mapping[str, Tensor], asking: Tensor, x: Tensor, rows: DistinctRows
) -> Tensor:
    def project(value: Tensor, name: str) -> Tensor:
        """(models, strings, heads, rows, d_head)"""
        weight, bias = part[f"attn.W_{name}"], part.get(f"attn.b_{name}")
        out = _linear(value, weight.transpose(1, 2).flatten(2), None if bias is None else bias.flatten(1))
        return out.unflatten(-1, (layer.n_heads, layer.d_head)).transpose(2, 3)

    scores = project(asking, "Q") @ project(x, "K").mT
    scores = scores * layer.factor(spec.d_model)
    if layer.log_length == "current":
        scores = scores * rows.lengths.log()[..., None, None, None]
    elif layer.log_length != "none":
        scores = scores * math.log(layer.log_length)
    pattern = (scores + rows.counts.log()[:, :, None, None]).softmax(-1)
    mixed = (pattern @ project(x, "V")).transpose(2, 3).flatten(3)
    return _linear(mixed, part["attn.W_O"].flatten(1, 2), part.get("attn.b_O"))
