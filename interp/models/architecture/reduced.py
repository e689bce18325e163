"""The forward pass of a one-layer model from tables over tokens, on rows instead of whole sequences.

A row is a query token with the count of each token. Tables suffice for three values of spec.symmetry:

counts, distinct_tokens: an output depends on the query token and on the count of each visible token. If token t occurs
c_t times, softmax attention is sum_t c_t e^(s_t) v_t / sum_t c_t e^(s_t) (errata of the Count01 paper, "Exact
symmetry"). Without a softmax, it is sum_t c_t s_t v_t.
slots: mixing is linear, so the attention weights depend only on positions. There are tables, but rows would not do:
before the readout, an output is a sum of one term per position.

All tensors have a leading axis of models. Outputs and gradients equal the sequence model's up to rounding.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int, Num
from torch import Tensor
from torch.nn import functional

from interp.errors import first_few
from interp.models.architecture.sequence import look_up
from interp.models.spec import ModelSpec
from interp.tasks import IGNORED, Batch

SAFE_SPREAD = {torch.float32: 60.0, torch.float64: 500.0}
"""Largest score difference whose exponential, times any count below 1e6, stays a normal number of the dtype."""


def _too_much(spec: ModelSpec, symmetries: tuple[str, ...]) -> str | None:
    """Return what a spec has beyond one layer with one of these symmetries, or None."""
    if len(spec.layers) != 1:
        return f"{len(spec.layers)} layers"
    return None if spec.symmetry in symmetries else f"the symmetry {spec.symmetry!r}"


def reduced_refusal(spec: ModelSpec) -> str | None:
    """Return the reason why a spec has no forward pass in this module, or None."""
    layer = spec.layers[0]
    if (excess := _too_much(spec, ("counts", "distinct_tokens", "slots"))) is not None:
        return f"rows need one layer without positions; this model has {excess}"
    if layer.mlp is not None or layer.norm == "post" or layer.log_length != "none":
        return "rows do not support an MLP block, post-layer-norm or log-length scaling"
    if spec.final_norm != "none":
        return "rows do not support a final layer norm"
    if spec.extras:
        return f"rows do not support {first_few(spec.extras)}"
    return None


def count_space_refusal(spec: ModelSpec) -> str | None:
    """Return the reason why a spec's outputs are not an affine map of softmax heads in count space, or None."""
    layer = spec.layers[0]
    if (reason := counted_refusal(spec)) is not None:
        return reason
    if layer.mlp is not None or layer.norm == "post" or not spec.linear_readout:
        return "count space needs a linear readout, without an MLP or post-layer-norm"
    return None


def counted_refusal(spec: ModelSpec) -> str | None:
    """Return the reason why equal tokens of a row cannot be held once, with the logarithm of their count, or None."""
    layer = spec.layers[0]
    if (excess := _too_much(spec, ("counts", "distinct_tokens"))) is not None:
        return f"count space needs one layer without positions; this model has {excess}"
    if layer.normalizer != "softmax":
        return "count space needs softmax attention"
    if layer.log_length != "none":
        return "count space does not support log-length scaling"
    if spec.extras:
        return f"count space does not support {first_few(spec.extras)}"
    return None


# ---------------------------------------------------------------- rows


@dataclass(frozen=True)
class CountedRows:
    """The query token, and the count of each token among the visible ones, including the query."""

    query: Int[Tensor, "*rows"]
    counts: Num[Tensor, "*rows d_vocab"]

    def __getitem__(self, index: Tensor | slice) -> CountedRows:
        return CountedRows(self.query[index], self.counts[index])

    def stacked(self, dtype: torch.dtype) -> CountedRows:
        """Add an axis for models: the same rows for every model of a stack."""
        return CountedRows(self.query[None], self.counts[None].to(dtype))

    def to(self, device: str | torch.device, dtype: torch.dtype) -> CountedRows:
        return CountedRows(self.query.to(device), self.counts.to(device, dtype))


def counted_reads(
    spec: ModelSpec, d_vocab: int, batch: Batch, classes: Int[Tensor, "rows length"]
) -> CountedRows | None:
    """Return the read positions of a batch as rows (sentences, reads), or None if their number differs by sentence."""
    read = classes != IGNORED
    per_row = read.sum(1)
    if len(batch) == 0 or (per_row != per_row[0]).any():
        return None
    one_hot = functional.one_hot(batch.tokens.long(), d_vocab) * batch.attention_mask[..., None]
    counts = one_hot.cumsum(1) if spec.direction == "causal" else one_hot.sum(1, keepdim=True).expand_as(one_hot)
    shape = (len(batch), int(per_row[0]))
    return CountedRows(batch.tokens[read].reshape(shape), counts[read].reshape(*shape, d_vocab))


def counted_at(
    spec: ModelSpec, d_vocab: int, tokens: Int[Tensor, "rows length"], positions: Int[Tensor, "rows"], mask: Tensor
) -> CountedRows:
    """Return one row per sequence: its token at a position, and the counts of the tokens visible from there."""
    seen = mask.bool()
    if spec.direction == "causal":
        seen = seen & (torch.arange(tokens.shape[1], device=tokens.device) <= positions[:, None])
    counts = tokens.new_zeros(len(tokens), d_vocab, dtype=torch.long)
    counts.scatter_add_(1, tokens.long(), seen.long())
    return CountedRows(tokens.gather(1, positions[:, None])[:, 0], counts)


# ---------------------------------------------------------------- tables over tokens


@dataclass(frozen=True)
class TokenTables:
    """Tables over tokens for M stacked models.

    scores: (M, heads, query, key), over tokens, or over positions if mixing is linear. values: (M, heads, token,
    width). readout: (M, heads, width, n), from head outputs to outputs or to the neurons of a ReLU readout; None if the
    values include it. offset: (M, query, n), added by skip connection and biases. neurons: W_out and b_out of a ReLU
    readout. softmax: whether scores are normalized. few: whether there are only a few different query tokens.
    """

    scores: Float[Tensor, "models heads asking seen"]
    values: Float[Tensor, "models heads d_vocab width"]
    readout: Float[Tensor, "models heads width n"] | None
    offset: Float[Tensor, "models d_vocab n"]
    neurons: tuple[Float[Tensor, "models n n_out"], Float[Tensor, "models n_out"]] | None = None
    softmax: bool = True
    few: bool = True

    def folded(self) -> TokenTables:
        """Include the readout in the values, which is faster if there are more rows than tokens."""
        return self if self.readout is None else replace(self, values=self.values @ self.readout, readout=None)


def stack_one(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Convert one model to a stack of one."""
    return {name: tensor.detach()[None] for name, tensor in tensors.items()}


def token_tables(spec: ModelSpec, tensors: Mapping[str, Tensor]) -> TokenTables:
    """Compute the tables of stacked models (every tensor with a leading axis of models)."""
    layer, attn, first = spec.layers[0], "blocks.0.attn.", "unembed.W_U"
    x = inner = tensors["embed.W_E"]
    if layer.norm == "pre":
        inner = functional.layer_norm(x, x.shape[-1:], eps=layer.norm_eps)
        inner = inner * tensors["blocks.0.ln1.w"][:, None] + tensors["blocks.0.ln1.b"][:, None]

    def project(name: str) -> Float[Tensor, "models heads d_vocab width"]:
        weight, bias = tensors.get(f"{attn}W_{name}"), tensors.get(f"{attn}b_{name}")
        projected = inner[:, None] if weight is None else inner[:, None] @ weight
        return projected if bias is None else projected + bias[:, :, None]

    if layer.mixing == "linear":
        scores = tensors[f"{attn}W_mix"]
    else:
        scores = project("Q") @ project("K").mT * layer.factor(spec.d_model)
    neurons, constant = None, tensors.get("unembed.b_U")
    if spec.readout == "relu_mlp":
        first, constant = "unembed.W_in", tensors["unembed.b_in"]
        neurons = tensors["unembed.W_out"], tensors["unembed.b_out"]
    values, out = project("V").expand(-1, layer.n_heads, -1, -1), tensors.get(f"{attn}W_O")
    readout = tensors[first][:, None] if out is None else out @ tensors[first][:, None]
    bias = tensors.get(f"{attn}b_O")
    offset = (x if bias is None else x + bias[:, None]) @ tensors[first]
    return TokenTables(
        scores,
        values,
        readout.expand(-1, layer.n_heads, -1, -1),
        offset if constant is None else offset + constant[:, None],
        neurons,
        softmax=layer.normalizer == "softmax",
        few=spec.readout_at != "all",
    )


# ---------------------------------------------------------------- the forward pass


def reduced_outputs(tables: TokenTables, rows: CountedRows) -> Float[Tensor, "models rows n_out"]:
    """Compute outputs for every row. They equal the sequence model's at the positions that the rows represent."""
    z = heads_from_counts(tables, rows)
    mixed = z.sum(2) if tables.readout is None else z.flatten(2) @ tables.readout.flatten(1, 2)
    hidden = mixed + look_up(tables.offset, rows.query)
    if tables.neurons is None:
        return hidden
    weight, bias = tables.neurons
    return hidden.relu() @ weight + bias[:, None]


def heads_from_counts(tables: TokenTables, rows: CountedRows) -> Float[Tensor, "models rows heads width"]:
    """Compute z per row and head (its contribution to outputs if tables are folded). The rows' model axis may be 1."""
    if tables.few and tables.softmax:
        spread = tables.scores.detach().amax(-1) - tables.scores.detach().amin(-1)
        if float(spread.max()) < SAFE_SPREAD.get(tables.scores.dtype, 0.0):
            return _by_products(tables, rows)
    return (_coefficients(tables, rows) @ tables.values).transpose(1, 2)


def _coefficients(tables: TokenTables, rows: CountedRows) -> Float[Tensor, "models heads rows d_vocab"]:
    """Compute the weight of each token's value, per head and row."""
    counts, scores = rows.counts[:, None], _scores_of(tables.scores, rows.query)
    # log 0 = -inf removes absent tokens. softmax subtracts the maximum over the others, so no exponential overflows.
    return (scores + counts.log()).softmax(-1) if tables.softmax else scores * counts


def _scores_of(
    scores: Float[Tensor, "models heads d_vocab d_vocab"], query: Int[Tensor, "models_or_1 rows"]
) -> Float[Tensor, "models heads rows d_vocab"]:
    heads = scores.shape[1]
    return look_up(scores.transpose(1, 2).flatten(2), query).unflatten(2, (heads, -1)).transpose(1, 2)


def _by_products(tables: TokenTables, rows: CountedRows) -> Float[Tensor, "models rows heads width"]:
    """Compute numerators and denominators in one matrix product over pairs (query token, key token).

    With few query tokens, this is three to five times faster than the softmax over (models, rows, heads, tokens). It is
    safe if each query's scores differ by at most SAFE_SPREAD.
    """
    models, heads, _, width = tables.values.shape
    present = rows.query.unique()
    weights = (tables.scores - tables.scores.detach().amax(-1, keepdim=True)).exp()[:, :, present]
    numerators = (weights[..., None] * tables.values[:, :, None]).permute(0, 2, 3, 1, 4).flatten(3).flatten(1, 2)
    denominators = weights.permute(0, 2, 3, 1).flatten(1, 2)
    pairs = ((rows.query[..., None] == present)[..., None] * rows.counts[..., None, :]).flatten(-2)
    table = torch.cat([numerators, denominators], -1)
    mixed = pairs @ table if pairs.shape[0] in (1, models) else pairs.expand(models, -1, -1) @ table
    top, bottom = mixed[..., : heads * width], mixed[..., heads * width :]
    return top.unflatten(-1, (heads, width)) / bottom[..., None]
