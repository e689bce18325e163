"""Types of heads, by where they attend and by the features that their outputs carry.

Columns of `head_types`: the attention to the keys of a kind, averaged over the query positions q that see such a key:

- self: q itself; previous_token: q - 1; first_token: position 0; same_token: other positions with the same token;
- induction: positions after an earlier occurrence of the same token (Olsson et al. 2022);
- queries: the number of query positions; previous_token_queries, same_token_queries, induction_queries: the number of
  those that see a key of the kind. A score over none is NaN;
- entropy: the entropy of the attention, in nats; uniform: the entropy of uniform attention. With an attention sink,
  both cover only the attention to tokens.

Padding counts neither as query nor as key. If the weights are raw scores, the shares are sums of scores, which need not
lie between 0 and 1, and the entropy is NaN.

How a head's output at the read positions depends on each declared feature:

- variance: the share of the variance of the head's output (hook_z) that the feature's values explain, corrected for the
  number of values (epsilon squared: on average 0 for an unrelated feature, and 1 if the output is a function of it).
- probe: held-out accuracy of a logistic regression from the output to the feature's values (probe_accuracy in
  measures.variables). chance: accuracy of always predicting the most frequent value.
- interchange: replace the head's output by that on another input. The share of pairs for which the answer becomes the
  one expected if only this feature took the other input's value, among pairs whose answer must change (see
  measures.variables).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.errors import InterpError, check_one_of
from interp.measures import variables
from interp.measures.attention import attention_rows
from interp.measures.results import Figure, Inputs, Tabular, batch_of, draw, reduced
from interp.measures.runs import Edit, Part, at_reads, heads_of, reads_of
from interp.models.subject import Model, Subject, check_finite
from interp.support.words import counted
from interp.tasks import Batch

QUERIES = 4096
"""Number of queries processed per batch."""
KINDS = ("self", "previous_token", "first_token", "same_token", "induction")
MATCHED = ("previous_token", "same_token", "induction")
"""Kinds of which some queries see no key."""


@dataclass(frozen=True, eq=False, repr=False)
class HeadTypes(Tabular):
    """One row per head; columns as in the module's docstring. inputs: their number."""

    inputs: int

    @property
    def title(self) -> str:
        return f"Types of heads: share of each head's attention on keys of a kind, {counted(self.inputs, 'input')}"

    def plot(self) -> Figure:
        """Draw the scores, one row per head."""
        heads = [f"head {layer}.{head}" for layer, head in zip(self["layer"], self["head"])]
        shares = self["entropy"].notna().any()
        return draw.heatmap(
            self.table[list(KINDS)].to_numpy(float), [kind.replace("_", " ") for kind in KINDS], heads, "key", "head",
            "share of attention" if shares else "score", square=False, show_values=len(heads) <= 16,
        )  # fmt: skip


@torch.no_grad()
def head_types(model: Model, inputs: Inputs | None = None, at: Literal["all", "read"] = "all") -> HeadTypes:
    """Score every head as a previous-token, first-token, same-token (duplicate-token) and induction head.

    One row per head. Columns: layer, head, queries (their number), entropy and uniform (in nats), and, averaged over
    the queries that see a key of the kind, the attention to: self, previous_token, first_token, same_token (elsewhere),
    and induction (after an earlier occurrence of the query's token); *_queries: the number of these queries. So a head
    that always attends behind the earlier occurrence has induction 1, however often tokens repeat. inputs: a batch,
    text or tokens (default: the test inputs). at: average over "all" query positions, or over the "read" positions.
    Source: Olsson et al. 2022; TransformerLens's head_detector, which averages over all queries.

    Example:

        >>> found = interp.head_types(interp.load("algorithmic/induction"))
        >>> found["induction"].round(2).tolist()  # of heads 0.0, 0.1, 1.0, 1.1
        [0.14, 0.16, 0.89, 0.93]
    """
    subject = Subject.of(model)
    check_finite(subject)
    batch = batch_of(subject, inputs)
    check_one_of("at", at, ("all", "read"))
    n_layers, sinks = subject.model.cfg.n_layers, getattr(subject.model.cfg, "use_attention_sinks", False)
    sums: dict[str, Tensor] = {}
    number, d_vocab = 0, subject.task.d_vocab
    for attention in attention_rows(subject, reduced(subject, batch) if at == "read" else batch, at == "read"):
        piece, rows, places = subject.trimmed(batch[attention.here]), attention.rows, attention.positions
        counts = attention.piece.counts  # if equal tokens are held once, kinds and numbers are those of whole inputs
        places = places if counts is None else subject.answer_positions(piece.tokens)
        mask = piece.attention_mask.cpu()[rows]
        number += len(rows)
        masks = key_kinds(piece.tokens.cpu()[rows], mask, places)
        kinds = {kind: where.double() for kind, where in masks.items()}
        if counts is not None:
            kinds = {kind: _by_token(where, piece, places, attention.piece, d_vocab) for kind, where in kinds.items()}
        for layer, pattern in enumerate(attention.weights):
            visible = _visible(subject, layer, mask, places)
            uniform = visible.sum(-1).clamp_min(1).double().log().sum()
            seen = {f"{kind}_queries": (masks[kind] & visible).any(-1).sum() for kind in MATCHED}
            layer_sums = {name: sum_.expand(pattern.shape[1]) for name, sum_ in {"uniform": uniform, **seen}.items()}
            rounding = max(1e-3, torch.finfo(pattern.dtype).eps)
            for block in torch.arange(len(rows)).split(QUERIES):  # to limit memory
                weights = pattern[block].double()
                for kind, where in kinds.items():
                    shares = torch.einsum("qhk,qk->h", weights, where[block])
                    layer_sums[kind] = layer_sums.get(kind, 0) + shares
                normed = weights / weights.sum(-1, keepdim=True).clamp_min(1e-300) if sinks else weights
                entropy = _entropy(normed, rounding)
                if counts is not None:
                    entropy = entropy + torch.einsum("qhk,qk->qh", normed, counts[block].clamp(min=1).double().log())
                layer_sums["entropy"] = layer_sums.get("entropy", 0) + entropy.sum(0)
            for key, value in layer_sums.items():
                part = torch.zeros(n_layers, subject.model.cfg.n_heads, dtype=torch.float64)
                part[layer, : len(value)] = value
                sums[key] = sums.get(key, 0) + part
    if not number:
        raise InterpError("no position of these inputs is read, so there is no attention to measure")
    rows_of = [(part.layer, part.head or 0) for part in heads_of(subject)]
    table = pd.DataFrame(rows_of, columns=["layer", "head"]).assign(queries=number)
    total = {key: torch.stack([value[at] for at in rows_of]) for key, value in sums.items()}
    for key in ("entropy", "uniform", *KINDS):
        table[key] = (total[key] / total.get(f"{key}_queries", number)).numpy()  # 0 / 0 is NaN
    for key in MATCHED:
        table[f"{key}_queries"] = total[f"{key}_queries"].long().numpy()
    return HeadTypes(table, len(batch))


def key_kinds(
    tokens: Int[Tensor, "queries length"], mask: Bool[Tensor, "queries length"], places: Int[Tensor, "queries"]
) -> dict[str, Bool[Tensor, "queries length"]]:
    """Return masks of the kinds of keys of each query, from the tokens of its row and its position."""
    order, at = torch.arange(tokens.shape[1]), places[:, None]
    same = (tokens == tokens.gather(1, at)) & (order != at) & mask
    after = torch.zeros_like(same)
    after[:, 1:] = same[:, :-1] & mask[:, 1:] & (order[:-1] < at)
    return {
        "self": (order == at) & mask,
        "previous_token": (order == at - 1) & mask,
        "first_token": (order == 0) & mask,
        "same_token": same,
        "induction": after,
    }


def _by_token(
    where: Float[Tensor, "rows length"], whole: Batch, places: Int[Tensor, "rows"], piece: Batch, d_vocab: int
) -> Float[Tensor, "rows kept"]:
    """Return which share of the equal tokens that are held once are keys of a kind. The query is the last one held."""
    assert piece.counts is not None
    rows = torch.arange(len(where))
    at_query, rest = where[rows, places], where.clone()
    rest[rows, places] = 0
    number = torch.zeros(len(where), d_vocab, dtype=where.dtype).scatter_add_(1, whole.tokens, rest)
    shares = number.gather(1, piece.tokens) / piece.counts.clamp(min=1)
    shares[:, -1] = at_query
    return shares


def _visible(
    subject: Subject, layer: int, mask: Bool[Tensor, "queries length"], places: Int[Tensor, "queries"]
) -> Bool[Tensor, "queries length"]:
    """Return the mask of the keys visible to each query of a layer."""
    cfg: Any = subject.model.cfg
    back = places[:, None] - torch.arange(mask.shape[1])  # distance from query back to key
    seen = back >= 0 if cfg.attention_dir == "causal" else torch.ones_like(back, dtype=torch.bool)
    if getattr(subject.model.blocks[layer].attn, "attn_type", None) == "local" and cfg.attention_dir == "causal":
        seen = seen & (back < cfg.window_size)
    return seen & mask


def _entropy(pattern: Float[Tensor, "queries heads keys"], rounding: float) -> Float[Tensor, "queries heads"]:
    """Return the entropy in nats.

    It is 0 for nonnegative rows that sum to 0, and NaN for other rows that are not probabilities up to `rounding`.
    """
    total = pattern.sum(-1)
    entropy = -torch.xlogy(pattern, pattern.clamp_min(0)).sum(-1)
    is_share = (pattern >= 0).all(-1) & (((total - 1).abs() < rounding) | (total == 0))
    return torch.where(is_share, entropy, torch.nan)


PAIRS = 200
TOKENS = 1 << 21
"""Largest number of tokens run for all interchanges, which takes a few seconds."""


@torch.no_grad()
def head_features(model: Model, batch: Batch, names: tuple[str, ...] | None = None) -> pd.DataFrame:
    """Return one row per head and feature.

    Columns layer, head, feature, values (their number), variance, probe, chance, interchange (NaN if the effect of the
    feature alone is unknown), pairs. attrs["reasons"]: why a feature has no row or no interchange. Left out are
    features with a single value, more than 128 values, fewer than 8 reads per value, or values that are not whole
    numbers. Raises InterpError for fewer than 40 inputs and for unknown features.
    """
    subject = Subject.of(model)
    inputs = variables.input_at_reads(subject, batch)
    values, reasons = variables.to_probe(variables.features_at_reads(subject, batch, names))
    heads, batch = heads_of(subject), reduced(subject, batch)
    where, seen = reads_of(subject, batch), at_reads(subject, batch, list(dict.fromkeys(head.hook for head in heads)))
    few = 2 * len(heads) * len(values) * PAIRS * batch.tokens.shape[1] <= TOKENS
    slow = f"Interchanging {len(heads)} heads takes too long on inputs of {batch.tokens.shape[1]} tokens"
    pairs = {name: variables.pairs_of(subject, batch, name, values, PAIRS, seed=0) if few else slow for name in values}
    rows: list[dict[str, object]] = []
    for name, value in values.items():
        paired = pairs[name]
        already = None
        if isinstance(paired, str):
            reasons[name] = paired
        else:
            already = variables.answered_pairs(subject, batch, paired, lambda here: [])
        often = variables.chance(value)
        for head in heads:
            x = seen[head.hook][:, head.head]
            row: dict[str, object] = {
                "layer": head.layer,
                "head": head.head,
                "feature": name,
                "values": len(value.unique()),
                "variance": explained(x, value),
                "probe": variables.probe_accuracy(x, value, inputs) if float(x.std(0).max()) > 0 else often,
                "chance": often,
                "interchange": float("nan"),
                "pairs": 0,
            }
            if not isinstance(paired, str) and already is not None:
                good = variables.answered_pairs(
                    subject, batch, paired, _swap(head, x[paired.source], where.positions[paired.base])
                )
                row |= {"interchange": float((good & ~already).double().mean()), "pairs": len(paired.base)}
            rows.append(row)
    table = pd.DataFrame(rows)
    table.attrs["reasons"] = reasons
    return table


def explained(x: Float[Tensor, "reads d"], value: Int[Tensor, "reads"]) -> float:
    """Return the share of the variance that a feature explains, corrected for what random groups would explain.

    NaN if the output does not vary (up to rounding), or if there are no more reads than values.
    """
    groups, index = value.unique(return_inverse=True)
    n, k = len(x), len(groups)
    sizes = torch.bincount(index, minlength=k).to(x)
    means = torch.zeros(k, x.shape[1], dtype=x.dtype).index_add(0, index, x) / sizes[:, None]
    total = float((x - x.mean(0)).pow(2).sum())
    if n <= k or total <= 1e-10 * float(x.pow(2).sum()) or total == 0:
        return float("nan")
    within = float((x - means[index]).pow(2).sum())
    return 1 - within / (n - k) / (total / (n - 1))


def _swap(head: Part, value: Float[Tensor, "pairs d"], at: Int[Tensor, "pairs"]) -> Callable[[slice], list[Edit]]:
    """Return a function from slices of pairs to edits that give a head the value of the source, at a position."""
    return lambda here: [Edit(head, value[here], at[here])]
