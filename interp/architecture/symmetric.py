"""The forward pass of a one-layer model without positions, on token counts instead of sequences.

Softmax attention over a set of tokens, of which token t occurs c_t times, is sum_t c_t e^(s_t) v_t / sum_t c_t e^(s_t):
nothing else of the sequence matters (errata of the Count01 paper, "Exact symmetry"). A row here is a query token and
the multiplicities c of the keys it sees, itself included. All tensors carry a leading axis of models, so that many
models run at once; logits and gradients equal the sequence model's to rounding.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int, Num
from torch import Tensor
from torch.nn import functional

from interp.spec import ModelSpec
from interp.tasks import IGNORED, Batch

SAFE_SPREAD = {torch.float32: 60.0, torch.float64: 500.0}
"""Score differences whose exponentials, times any count below 1e6, stay normal numbers of the type."""


def count_space_refusal(spec: ModelSpec) -> str | None:
    """Why this spec has no count-space forward, or None."""
    layer = spec.layers[0]
    if spec.symmetry not in ("counts", "distinct_tokens") or len(spec.layers) != 1:
        return f"count space needs one layer without positions, not {len(spec.layers)} of symmetry {spec.symmetry!r}"
    if layer.normalizer != "softmax" or layer.mlp is not None or layer.norm == "post" or not spec.linear_readout:
        return "count space is built for softmax attention without MLP or post-layer-norm, and a linear readout"
    if layer.log_length != "none":
        return "count space is built without log-length scaling"
    return None


@dataclass(frozen=True)
class Rows:
    """What an output depends on: the query token and how often each token occurs among the keys it sees."""

    query: Int[Tensor, "*rows"]
    counts: Num[Tensor, "*rows d_vocab"]

    def __getitem__(self, index: Tensor | slice) -> Rows:
        return Rows(self.query[index], self.counts[index])

    def stacked(self, dtype: torch.dtype) -> Rows:
        """The same rows for every model of a stack."""
        return Rows(self.query[None], self.counts[None].to(dtype))

    def to(self, device: str | torch.device, dtype: torch.dtype) -> Rows:
        return Rows(self.query.to(device), self.counts.to(device, dtype))


def rows_of(spec: ModelSpec, d_vocab: int, batch: Batch, classes: Int[Tensor, "rows length"]) -> Rows | None:
    """The rows that are read (class not IGNORED) of a batch, as (sentences, reads) when each sentence has as many.

    Returns None when sentences differ in their number of reads.
    """
    read = classes != IGNORED
    per_row = read.sum(1)
    if len(batch) == 0 or (per_row != per_row[0]).any():
        return None
    one_hot = functional.one_hot(batch.tokens.long(), d_vocab) * batch.attention_mask[..., None]
    counts = one_hot.cumsum(1) if spec.direction == "causal" else one_hot.sum(1, keepdim=True).expand_as(one_hot)
    shape = (len(batch), int(per_row[0]))
    return Rows(batch.tokens[read].reshape(shape), counts[read].reshape(*shape, d_vocab))


@dataclass(frozen=True)
class TokenTables:
    """All that depends on tokens alone, for M stacked models: every score, every value, every logit offset.

    scores: (M, heads, query, key). values: (M, heads, key, d_head). readout: head outputs to logits,
    (M, heads, d_head, n_out). offset: (M, query, n_out), what skip connection and biases add to the logits.
    """

    scores: Float[Tensor, "models heads d_vocab d_vocab"]
    values: Float[Tensor, "models heads d_vocab d_head"]
    readout: Float[Tensor, "models heads d_head n_out"]
    offset: Float[Tensor, "models d_vocab n_out"]


def token_tables(spec: ModelSpec, tensors: Mapping[str, Tensor]) -> TokenTables:
    """Tables of stacked models (every tensor with a leading axis of models)."""
    layer, attn = spec.layers[0], "blocks.0.attn."
    x = tensors["embed.W_E"]
    inner = x
    if layer.norm == "pre":
        inner = functional.layer_norm(x, x.shape[-1:], eps=layer.norm_eps)
        inner = inner * tensors["blocks.0.ln1.w"][:, None] + tensors["blocks.0.ln1.b"][:, None]

    def project(name: str) -> Tensor:
        weight, bias = tensors.get(f"{attn}W_{name}"), tensors.get(f"{attn}b_{name}")
        projected = inner[:, None] if weight is None else inner[:, None] @ weight
        return projected if bias is None else projected + bias[:, :, None]

    scores = project("Q") @ project("K").mT * layer.factor(spec.d_model)
    values = project("V").expand(-1, layer.n_heads, -1, -1)
    unembed = tensors["unembed.W_U"]
    out = tensors.get(f"{attn}W_O")
    readout = (unembed[:, None] if out is None else out @ unembed[:, None]).expand(-1, layer.n_heads, -1, -1)
    bias = tensors.get(f"{attn}b_O")
    offset = (x if bias is None else x + bias[:, None]) @ unembed
    if "unembed.b_U" in tensors:
        offset = offset + tensors["unembed.b_U"][:, None]
    return TokenTables(scores, values, readout, offset)


def head_outputs(tables: TokenTables, rows: Rows) -> Float[Tensor, "models rows heads d_head"]:
    """z of every head at every row; rows.query (models or 1, rows), rows.counts (models or 1, rows, d_vocab)."""
    spread = tables.scores.detach().amax(-1) - tables.scores.detach().amin(-1)
    if float(spread.max()) < SAFE_SPREAD.get(tables.scores.dtype, 0.0):
        return _by_products(tables, rows)
    return _by_softmax(tables, rows)


def _by_softmax(tables: TokenTables, rows: Rows) -> Float[Tensor, "models rows heads d_head"]:
    """The maximum is subtracted over the tokens that are present in each row: right whatever the scores."""
    models, heads, d_vocab, _ = tables.scores.shape
    query = rows.query.expand(models, -1)
    index = query[:, None, :, None].expand(-1, heads, -1, d_vocab)
    log_weights = tables.scores.gather(2, index) + rows.counts.log()[:, None]
    return (log_weights.softmax(-1) @ tables.values).transpose(1, 2)


def _by_products(tables: TokenTables, rows: Rows) -> Float[Tensor, "models rows heads d_head"]:
    """Numerator and denominator as one matrix product each, over pairs (query token, key token).

    Three to five times faster than the softmax over (models, rows, heads, tokens), and safe while no score lies
    further below the largest one of its query than SAFE_SPREAD.
    """
    models, heads, _, d_head = tables.values.shape
    present = rows.query.unique()
    weights = (tables.scores - tables.scores.detach().amax(-1, keepdim=True)).exp()[:, :, present]
    numerators = (weights[..., None] * tables.values[:, :, None]).permute(0, 2, 3, 1, 4).flatten(3).flatten(1, 2)
    denominators = weights.permute(0, 2, 3, 1).flatten(1, 2)
    pairs = ((rows.query[..., None] == present)[..., None] * rows.counts[..., None, :]).flatten(-2)
    table = torch.cat([numerators, denominators], -1)
    mixed = pairs @ table if pairs.shape[0] in (1, models) else pairs.expand(models, -1, -1) @ table
    top, bottom = mixed[..., : heads * d_head], mixed[..., heads * d_head :]
    return top.unflatten(-1, (heads, d_head)) / bottom[..., None]


def logits(tables: TokenTables, rows: Rows) -> Float[Tensor, "models rows n_out"]:
    """Logits at every row; equal to the sequence model's at the positions that the rows stand for."""
    z = head_outputs(tables, rows)
    models, n_out = len(z), tables.offset.shape[-1]
    query = rows.query.expand(models, -1)[..., None].expand(-1, -1, n_out)
    return z.flatten(2) @ tables.readout.flatten(1, 2) + tables.offset.gather(1, query)


def stack_one(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """One model as a stack of one."""
    return {name: tensor.detach()[None] for name, tensor in tensors.items()}


def rows_at(
    spec: ModelSpec,
    d_vocab: int,
    tokens: Int[Tensor, "rows length"],
    positions: Int[Tensor, "rows"],
    mask: Tensor,
) -> Rows:
    """One row for each sequence: its token at a position, and the keys that this position sees."""
    seen = mask.bool()
    if spec.direction == "causal":
        seen = seen & (torch.arange(tokens.shape[1], device=tokens.device) <= positions[:, None])
    counts = torch.stack([((tokens == token) & seen).sum(1) for token in range(d_vocab)], 1)
    return Rows(tokens.gather(1, positions[:, None])[:, 0], counts)
