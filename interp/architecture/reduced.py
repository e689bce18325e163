"""The forward pass of a one-layer model without positions, on the rows that differ instead of on sequences.

Three symmetries (spec.symmetry) leave little of a sequence that an output can depend on:

counts, distinct_tokens: a token that asks, and how often it sees each token. Softmax attention over a set in which
token t occurs c_t times is sum_t c_t e^(s_t) v_t / sum_t c_t e^(s_t): nothing else matters (errata of the Count01
paper, "Exact symmetry"); without a softmax it is sum_t c_t s_t v_t.
slots: a position, and which token stands at each: mixing is linear.

Either way a head mixes values of tokens, and all that depends on tokens alone is a table. predict, measures,
certificates and training run this one function. All tensors carry a leading axis of models; outputs and gradients
equal the sequence model's to rounding.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int, Num
from torch import Tensor
from torch.nn import functional

from interp.errors import first_few
from interp.spec import ModelSpec
from interp.tasks import IGNORED, Batch

SAFE_SPREAD = {torch.float32: 60.0, torch.float64: 500.0}
"""Score differences whose exponentials, times any count below 1e6, stay normal numbers of the type."""


def reduced_refusal(spec: ModelSpec) -> str | None:
    """Why this spec has no forward pass on rows that differ, or None."""
    layer = spec.layers[0]
    if spec.symmetry not in ("counts", "distinct_tokens", "slots") or len(spec.layers) != 1:
        return f"rows need one layer without positions, not {len(spec.layers)} of symmetry {spec.symmetry!r}"
    if layer.mlp is not None or layer.norm == "post" or layer.log_length != "none":
        return "rows are built without MLP block, post-layer-norm and log-length scaling"
    if spec.final_norm != "none":
        return "rows are built without a final layer norm"
    if spec.extras:
        return f"rows are built without {first_few(spec.extras)}"
    return None


def count_space_refusal(spec: ModelSpec) -> str | None:
    """Why this spec's outputs are no affine map of what softmax heads make of token counts, or None."""
    layer = spec.layers[0]
    if spec.symmetry not in ("counts", "distinct_tokens") or len(spec.layers) != 1:
        return f"count space needs one layer without positions, not {len(spec.layers)} of symmetry {spec.symmetry!r}"
    if layer.normalizer != "softmax" or layer.mlp is not None or layer.norm == "post" or not spec.linear_readout:
        return "count space is built for softmax attention without MLP or post-layer-norm, and a linear readout"
    if layer.log_length != "none":
        return "count space is built without log-length scaling"
    if spec.extras:
        return f"count space is built without {first_few(spec.extras)}"
    return None


# ---------------------------------------------------------------- rows


@dataclass(frozen=True)
class CountedRows:
    """The token that asks and how often each token occurs among those that it sees, itself included."""

    query: Int[Tensor, "*rows"]
    counts: Num[Tensor, "*rows d_vocab"]

    def __getitem__(self, index: Tensor | slice) -> CountedRows:
        return CountedRows(self.query[index], self.counts[index])

    def stacked(self, dtype: torch.dtype) -> CountedRows:
        """The same rows for every model of a stack."""
        return CountedRows(self.query[None], self.counts[None].to(dtype))

    def to(self, device: str | torch.device, dtype: torch.dtype) -> CountedRows:
        return CountedRows(self.query.to(device), self.counts.to(device, dtype))


@dataclass(frozen=True)
class SlotRows:
    """The token that asks, its position and its sequence, one of `tokens`."""

    query: Int[Tensor, "models rows"]
    position: Int[Tensor, "models rows"]
    sequence: Int[Tensor, "models rows"]
    tokens: Int[Tensor, "models sequences length"]


def counted_reads(
    spec: ModelSpec, d_vocab: int, batch: Batch, classes: Int[Tensor, "rows length"]
) -> CountedRows | None:
    """What is read (class not IGNORED) of a batch, as (sentences, reads) where each sentence has as many, else None."""
    read = classes != IGNORED
    per_row = read.sum(1)
    if len(batch) == 0 or (per_row != per_row[0]).any():
        return None
    one_hot = functional.one_hot(batch.tokens.long(), d_vocab) * batch.attention_mask[..., None]
    counts = one_hot.cumsum(1) if spec.direction == "causal" else one_hot.sum(1, keepdim=True).expand_as(one_hot)
    shape = (len(batch), int(per_row[0]))
    return CountedRows(batch.tokens[read].reshape(shape), counts[read].reshape(*shape, d_vocab))


def counted_at(
    spec: ModelSpec,
    d_vocab: int,
    tokens: Int[Tensor, "rows length"],
    positions: Int[Tensor, "rows"],
    mask: Tensor,
) -> CountedRows:
    """One row for each sequence: its token at a position, and what this position sees."""
    seen = mask.bool()
    if spec.direction == "causal":
        seen = seen & (torch.arange(tokens.shape[1], device=tokens.device) <= positions[:, None])
    counts = torch.stack([((tokens == token) & seen).sum(1) for token in range(d_vocab)], 1)
    return CountedRows(tokens.gather(1, positions[:, None])[:, 0], counts)


# ---------------------------------------------------------------- what depends on tokens alone


@dataclass(frozen=True)
class TokenTables:
    """All that depends on tokens alone, for M stacked models: every score, every value, every offset.

    scores: (M, heads, query, key), tokens, or positions where mixing is linear. values: (M, heads, token, width).
    readout: head outputs to outputs, or to the neurons of a ReLU readout, (M, heads, width, n); None if the values
    are in these units already. offset: (M, query, n), what skip connection and biases add to that. neurons: W_out and
    b_out of a ReLU readout. softmax: are scores normalized? few: only few different tokens ask.
    """

    scores: Float[Tensor, "models heads asking seen"]
    values: Float[Tensor, "models heads d_vocab width"]
    readout: Float[Tensor, "models heads width n"] | None
    offset: Float[Tensor, "models d_vocab n"]
    neurons: tuple[Float[Tensor, "models n n_out"], Float[Tensor, "models n_out"]] | None = None
    softmax: bool = True
    few: bool = True

    def folded(self) -> TokenTables:
        """The same with values that are multiplied by the readout: less work wherever rows outnumber tokens."""
        return self if self.readout is None else replace(self, values=self.values @ self.readout, readout=None)


def stack_one(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """One model as a stack of one."""
    return {name: tensor.detach()[None] for name, tensor in tensors.items()}


def token_tables(spec: ModelSpec, tensors: Mapping[str, Tensor]) -> TokenTables:
    """Tables of stacked models (every tensor with a leading axis of models)."""
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


def reduced_outputs(tables: TokenTables, rows: CountedRows | SlotRows) -> Float[Tensor, "models rows n_out"]:
    """Outputs at every row; equal to the sequence model's at the positions that the rows stand for."""
    z = heads_from_counts(tables, rows)
    mixed = z.sum(2) if tables.readout is None else z.flatten(2) @ tables.readout.flatten(1, 2)
    hidden = mixed + _looked_up(tables.offset, rows.query)
    if tables.neurons is None:
        return hidden
    weight, bias = tables.neurons
    return hidden.relu() @ weight + bias[:, None]


def heads_from_counts(tables: TokenTables, rows: CountedRows | SlotRows) -> Float[Tensor, "models rows heads width"]:
    """z of every head at every row, or what it adds where the tables are folded; rows with an axis of models, or 1."""
    if isinstance(rows, CountedRows) and tables.few and tables.softmax:
        spread = tables.scores.detach().amax(-1) - tables.scores.detach().amin(-1)
        if float(spread.max()) < SAFE_SPREAD.get(tables.scores.dtype, 0.0):
            return _by_products(tables, rows)
    return (_coefficients(tables, rows) @ tables.values).transpose(1, 2)


def _coefficients(tables: TokenTables, rows: CountedRows | SlotRows) -> Float[Tensor, "models heads rows d_vocab"]:
    """How much of each token's value each head mixes into each row."""
    if isinstance(rows, SlotRows):
        pattern = tables.scores.softmax(-1) if tables.softmax else tables.scores
        present = functional.one_hot(rows.tokens, tables.values.shape[2]).to(pattern)
        mixed = pattern[:, None] @ present[:, :, None]  # (models, sequences, heads, position, d_vocab)
        models = torch.arange(len(mixed), device=mixed.device)[:, None]
        return mixed[models, rows.sequence, :, rows.position].transpose(1, 2)
    counts, scores = rows.counts[:, None], _scores_of(tables.scores, rows.query)
    # The maximum is subtracted over the tokens that are present in each row: right whatever the scores.
    return (scores + counts.log()).softmax(-1) if tables.softmax else scores * counts


def _looked_up(
    table: Float[Tensor, "models d_vocab n"], query: Int[Tensor, "models_or_1 rows"]
) -> Float[Tensor, "models rows n"]:
    """Each model's own rows: one index into all tables laid one below the other."""
    first = torch.arange(len(table), device=query.device)[:, None] * table.shape[1]
    return functional.embedding(query + first, table.flatten(0, 1))


def _scores_of(
    scores: Float[Tensor, "models heads d_vocab d_vocab"], query: Int[Tensor, "models_or_1 rows"]
) -> Float[Tensor, "models heads rows d_vocab"]:
    heads = scores.shape[1]
    return _looked_up(scores.transpose(1, 2).flatten(2), query).unflatten(2, (heads, -1)).transpose(1, 2)


def _by_products(tables: TokenTables, rows: CountedRows) -> Float[Tensor, "models rows heads width"]:
    """Numerator and denominator as one matrix product each, over pairs (query token, key token).

    Where few tokens ask, three to five times faster than the softmax over (models, rows, heads, tokens), and safe while
    no score lies further below the largest one of its query than SAFE_SPREAD.
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
