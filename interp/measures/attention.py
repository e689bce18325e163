"""Attention weights: the patterns of given inputs, weights at chosen queries piece by piece, and means over inputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch
from einops import einsum
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.errors import InterpError, UnsupportedError, check_one_of
from interp.measures.results import Figure, Inputs, Result, as_batch, batch_of, draw, reduced, tidy
from interp.measures.runs import activations, heads_of, pieces, reads_of
from interp.models.architecture.task_model import TaskModel, hooked
from interp.models.subject import Model, Subject, check_finite
from interp.support.words import counted
from interp.tasks import Batch

MOST_CELLS = 4_000_000
"""Largest number of weights of attention_patterns."""
MAX_CELLS = 200_000
SHARES = 1e-2
"""Weights of a query that sum to at most this more than 1 are shares, up to the rounding of half precision."""
CELLS = 1 << 22
"""Largest number of values in a temporary copy of the weights."""


# ---------------------------------------------------------------- the patterns of given inputs


@dataclass(frozen=True, eq=False, repr=False)
class AttentionPatterns(Result):
    """weights[row, layer, head, query, key]: attention weights; those of padding are left out of table and figure.

    words: the tokens of each row, without padding.
    """

    weights: Float[Tensor, "rows layers heads length length"]
    words: tuple[tuple[str, ...], ...]

    @property
    def title(self) -> str:
        n = self.weights.shape[1] * self.weights.shape[2]
        return f"Attention patterns: {counted(n, 'head')} on {counted(len(self.words), 'input')}"

    def to_frame(self) -> pd.DataFrame:
        """Return one row per weight: row, layer, head, query, key (positions), query_token, key_token, weight."""
        _, layers, heads, *_ = self.weights.shape
        frames = []
        for row, words in enumerate(self.words):
            n = len(words)
            weights = self.weights[row, :, :, :n, :n]
            table = tidy(weights, "weight", layer=range(layers), head=range(heads), query=range(n), key=range(n))
            table["query_token"], table["key_token"] = ([words[i] for i in table[name]] for name in ("query", "key"))
            frames.append(table.assign(row=row))
        columns = ["row", "layer", "head", "query", "key", "query_token", "key_token", "weight"]
        return pd.concat(frames, ignore_index=True)[columns]

    def plot(self, row: int = 0, heads: Sequence[str] = ()) -> Figure:
        """Draw heads on one input, with a label for each token; few heads are drawn large.

        Hovering over a cell names the head, both tokens with their positions, the weight, and the row's largest ones.

        row: which of the inputs. heads: names such as "1.0" (default: all heads of all layers). Raises InterpError for
        an unknown row or head.
        """
        if not 0 <= row < len(self.words):
            raise InterpError(f"row {row} does not exist: there are rows 0 to {len(self.words) - 1}")
        cells = self.to_frame().query("row == @row")
        labels = {i: f"{word} ({i})" for i, word in enumerate(self.words[row])}
        named = cells.assign(
            head=cells["layer"].astype(str) + "." + cells["head"].astype(str),
            query=cells["query"].map(labels), key=cells["key"].map(labels), value=cells["weight"],
        )  # fmt: skip
        for head in heads:
            check_one_of("head", head, named["head"].unique())
        named = named[named["head"].isin(heads)] if heads else named
        shares = bool((self.weights >= 0).all()) and bool((self.weights.sum(-1) < 1 + SHARES).all())
        title = "attention weight" if shares else "raw score"
        return draw.circuit(named, color_title=title, n_across=4 if len(labels) <= 12 else 2, shares=shares)


@torch.no_grad()
def attention_patterns(model: Model, inputs: Inputs | None = None) -> AttentionPatterns:
    """Return the attention weights of all heads of all layers on given inputs.

    For any model with softmax or raw scores, and inputs of different lengths. inputs: text, tokens or a batch (default:
    the first test input). Weights are in the model's number format, (rows, layers, heads, length, length).

    Example:

        >>> model = interp.load("algorithmic/max-of-k")
        >>> found = interp.attention_patterns(model, "3 1 4 1 =")
        >>> tuple(found.weights.shape), found.words[0]
        ((1, 1, 1, 5, 5), ('3', '1', '4', '1', '='))
        >>> figure = found.plot()
    """
    subject = Subject.of(model)
    check_finite(subject)
    batch = batch_of(subject, None)[slice(0, 1)] if inputs is None else as_batch(subject, inputs, labeled=False)
    n_layers, length = subject.model.cfg.n_layers, batch.tokens.shape[1]
    if (n := len(batch) * n_layers * subject.model.cfg.n_heads * length**2) > MOST_CELLS:
        raise InterpError(f"these inputs have {n:,} attention weights, more than {MOST_CELLS:,}: give fewer inputs")
    names = [f"blocks.{layer}.attn.hook_pattern" for layer in range(n_layers)]
    weights = torch.zeros(len(batch), n_layers, subject.model.cfg.n_heads, length, length)
    for here, piece in pieces(subject, batch, n_layers * subject.model.cfg.n_heads * length):
        _, seen = activations(subject, piece, names)
        for layer, name in enumerate(names):
            width, heads = seen[name].shape[-1], seen[name].shape[1]
            weights[here, layer, :heads, :width, :width] = seen[name].float().cpu()
    return AttentionPatterns(weights, subject.words(batch))


# ---------------------------------------------------------------- weights at chosen queries


@dataclass(frozen=True)
class AttentionRows:
    """Attention weights of some queries: weights[layer] is (queries, heads, keys), in the model's number format.

    here: the slice of the batch that `piece` is. rows, positions: of the queries, in the piece.
    """

    here: slice
    piece: Batch
    rows: Int[Tensor, "queries"]
    positions: Int[Tensor, "queries"]
    weights: list[Float[Tensor, "queries heads keys"]]

    @property
    def mask(self) -> Bool[Tensor, "rows length"]:
        """Mask of the query positions."""
        queries = torch.zeros(self.piece.tokens.shape, dtype=torch.bool)
        queries[self.rows, self.positions] = True
        return queries


@torch.no_grad()
def attention_rows(subject: Subject, batch: Batch, only_reads: bool) -> Iterator[AttentionRows]:
    """Iterate over the attention weights of all queries except padding, or only of those at read positions.

    With only_reads, a task model that is read at one position per row computes its pattern only there. The weights of
    equal tokens that a batch holds once are summed.
    """
    model, n_layers = subject.model, subject.model.cfg.n_layers
    alone = only_reads and subject.read_at != "all" and isinstance(model, TaskModel) and not hooked(model)
    points = ("hook_q", "hook_k") if alone else ("hook_pattern",)
    names = [[f"blocks.{layer}.attn.{point}" for point in points] for layer in range(n_layers)]
    for here, piece in pieces(subject, batch, n_layers * model.cfg.n_heads * batch.tokens.shape[1]):
        _, seen = activations(subject, piece, [name for of_layer in names for name in of_layer])
        mask = piece.attention_mask.cpu()
        queries = mask & reads_of(subject, piece).mask(piece) if only_reads else mask
        rows, positions = queries.nonzero(as_tuple=True)
        if alone:
            at, real = positions.to(model.cfg.device), mask.to(model.cfg.device)
            attentions: list[Any] = [block.attn for block in model.blocks]
            more = piece.log_counts
            weights = [
                attention.pattern_at(seen[q], seen[k], at, real, more).cpu()
                for attention, (q, k) in zip(attentions, names)
            ]
        else:
            weights = [seen[name].cpu()[rows, :, positions] for (name,) in names]
        yield AttentionRows(here, piece, rows, positions, weights)


# ---------------------------------------------------------------- means over inputs


def attention_by_position(model: Model, batch: Batch) -> pd.DataFrame:
    """Return the mean weight from each position to each position; columns layer, head, query, key, value.

    Padding counts neither as query nor as key, so each cell is the mean over the rows that have both positions. Raises
    UnsupportedError for more than 200,000 cells.
    """
    subject = Subject.of(model)
    length = int(batch.lengths.max())
    ids = torch.arange(length).expand(len(batch), -1)
    names = [str(i) for i in range(length)]
    return _averaged(subject, batch, ids, names, "each", only_reads=False)


def attention_by_token(model: Model, batch: Batch, only_reads: bool = False) -> pd.DataFrame:
    """Return the mean total weight of each query token on each key token; columns layer, head, query, key, value.

    The values of a query token add up to the mean row sum of the pattern (1 after a softmax). only_reads: use only
    queries at read positions. Raises UnsupportedError for more than 200,000 cells.
    """
    subject = Subject.of(model)
    batch = reduced(subject, batch) if only_reads else batch
    return _averaged(subject, batch, batch.tokens.cpu(), list(subject.task.vocabulary), "all", only_reads)


@torch.no_grad()
def _averaged(
    subject: Subject, batch: Batch, ids: Tensor, names: list[str], keys: str, only_reads: bool
) -> pd.DataFrame:
    """Average the weights between ids: over all pairs (keys="each"), or over queries, summed over keys (keys="all")."""
    heads, kinds = heads_of(subject), len(names)
    if len(heads) * kinds**2 > MAX_CELLS:
        raise UnsupportedError(
            f"{len(heads)} heads x {kinds} x {kinds} kinds of tokens or positions are too many to show"
        )
    n_layers, n_heads = subject.model.cfg.n_layers, subject.model.cfg.n_heads
    total = torch.zeros(n_layers, n_heads, kinds, kinds, dtype=torch.float64)
    number = torch.zeros(kinds, kinds if keys == "each" else 1, dtype=torch.float64)
    for attention in attention_rows(subject, batch, only_reads):
        mask, rows = attention.piece.attention_mask.cpu(), attention.rows
        of = torch.nn.functional.one_hot(ids[attention.here, : mask.shape[1]].clamp_max(kinds - 1), kinds).double()
        asked, looked_at = of * attention.mask[..., None], of * mask[..., None]
        if keys == "each":
            number += einsum(asked, looked_at, "row query asking, row key looked_at -> asking looked_at")
        else:
            number[:, 0] += asked.sum((0, 1))
        for layer, weights in enumerate(attention.weights):
            n_here, length = weights.shape[1:]
            for block in torch.arange(len(rows)).split(max(1, CELLS // (length * max(n_here, kinds)))):
                to_ids = weights[block].double() @ looked_at[rows[block]]
                of_queries = asked[rows[block], attention.positions[block]]
                axes = "query asking, query head looked_at -> head asking looked_at"
                total[layer, :n_here] += einsum(of_queries, to_ids, axes)
    mean = total / number
    frames = [
        tidy(mean[part.layer, part.head], "value", layer=[part.layer], head=[part.head], query=names, key=names)
        for part in heads
    ]
    table = pd.concat(frames, ignore_index=True)
    seen_at_all = table.groupby("query", sort=False)["value"].transform(lambda column: column.notna().any())
    return table[seen_at_all].reset_index(drop=True)
