"""Types of heads, by where they attend: previous-token, first-token, same-token and induction scores, and entropy.

Columns, for a query position q, summed over the keys of a kind and averaged over queries:

- self: q itself; previous_token: q - 1; first_token: position 0; same_token: other positions with the same token;
- induction: positions after an earlier occurrence of the same token (Olsson et al. 2022);
- entropy: the entropy of the attention, in nats; uniform: the entropy of uniform attention. With an attention sink,
  both cover only the attention to tokens.

Padding counts neither as query nor as key. If the weights are raw scores, the shares are sums of scores, which need not
lie between 0 and 1, and the entropy is NaN.
"""

from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.errors import InterpError, one_of
from interp.measures.attention import attention_rows
from interp.measures.counted import reduced
from interp.measures.inputs import Inputs, batch_of
from interp.measures.results import Figure, Tabular
from interp.measures.runs import heads_of
from interp.measures.subject import Model, Subject
from interp.tasks import Batch
from interp.words import counted

QUERIES = 4096
"""Number of queries processed per batch."""
KINDS = ("self", "previous_token", "first_token", "same_token", "induction")


@dataclass(frozen=True, eq=False, repr=False)
class HeadTypes(Tabular):
    """One row per head; columns layer, head, entropy, uniform, and the scores KINDS. inputs: their number."""

    inputs: int

    @property
    def title(self) -> str:
        return f"Types of heads: share of each head's attention on keys of a kind, {counted(self.inputs, 'input')}"

    def plot(self) -> Figure:
        """Draw the scores, one row per head."""
        from interp.report import figures as draw

        heads = [f"head {layer}.{head}" for layer, head in zip(self["layer"], self["head"])]
        shares = self["entropy"].notna().any()
        return draw.heatmap(
            self.table[list(KINDS)].to_numpy(float), [kind.replace("_", " ") for kind in KINDS], heads, "key", "head",
            "share of attention" if shares else "score", square=False, show_values=len(heads) <= 16,
        )  # fmt: skip


@torch.no_grad()
def head_types(model: Model, inputs: Inputs | None = None, at: Literal["all", "read"] = "all") -> HeadTypes:
    """Score every head as a previous-token, first-token, same-token and induction head, one row per head.

    The module's docstring defines the columns. inputs: a batch, text or tokens (default: at most 200 test inputs). at:
    average over "all" query positions, or over the "read" positions. A query without keys of a kind (such as an earlier
    occurrence of its token) counts as 0. Source: Olsson et al. 2022; TransformerLens's head_detector.

    Example:

        >>> found = interp.head_types(interp.load("algorithmic/induction"))
        >>> found["induction"].round(2).tolist()  # of heads 0.0, 0.1, 1.0, 1.1
        [0.1, 0.12, 0.68, 0.71]
    """
    subject = Subject.of(model)
    batch = batch_of(subject, inputs, most=200)
    if at not in ("all", "read"):
        raise InterpError(one_of("at", at, ("all", "read")))
    n_layers, sinks = subject.model.cfg.n_layers, getattr(subject.model.cfg, "use_attention_sinks", False)
    sums: dict[str, Tensor] = {}
    number, d_vocab = 0, subject.task.d_vocab
    for found_at in attention_rows(subject, reduced(subject, batch) if at == "read" else batch, at == "read"):
        piece, rows, places = subject.trimmed(batch[found_at.here]), found_at.rows, found_at.positions
        counts = found_at.piece.counts  # if equal tokens are held once, kinds and numbers are those of whole inputs
        places = places if counts is None else subject.answer_positions(piece.tokens)
        mask = piece.attention_mask.cpu()[rows]
        number += len(rows)
        kinds = {kind: where.double() for kind, where in key_kinds(piece.tokens.cpu()[rows], mask, places).items()}
        if counts is not None:
            kinds = {kind: _by_token(where, piece, places, found_at.piece, d_vocab) for kind, where in kinds.items()}
        for layer, pattern in enumerate(found_at.weights):
            visible = _visible(subject, layer, mask, places).sum(-1)
            found = {"uniform": visible.clamp_min(1).double().log().sum().expand(pattern.shape[1])}
            rounding = max(1e-3, torch.finfo(pattern.dtype).eps)
            for some in torch.arange(len(rows)).split(QUERIES):  # to limit memory
                weights = pattern[some].double()
                for kind, where in kinds.items():
                    shares = torch.einsum("qhk,qk->h", weights, where[some])
                    found[kind] = found.get(kind, 0) + shares
                given = weights / weights.sum(-1, keepdim=True).clamp_min(1e-300) if sinks else weights
                entropy = _entropy(given, rounding)
                if counts is not None:
                    entropy = entropy + torch.einsum("qhk,qk->qh", given, counts[some].clamp(min=1).double().log())
                found["entropy"] = found.get("entropy", 0) + entropy.sum(0)
            for key, value in found.items():
                part = torch.zeros(n_layers, subject.model.cfg.n_heads, dtype=torch.float64)
                part[layer, : len(value)] = value
                sums[key] = sums.get(key, 0) + part
    if not number:
        raise InterpError("no position of these inputs is read, so there is no attention to measure")
    table = [
        {"layer": part.layer, "head": part.head}
        | {key: float(sums[key][part.layer, part.head or 0]) / number for key in ("entropy", "uniform", *KINDS)}
        for part in heads_of(subject)
    ]
    return HeadTypes(pd.DataFrame(table), len(batch))


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
    own, rest = where[rows, places], where.clone()
    rest[rows, places] = 0
    number = torch.zeros(len(where), d_vocab, dtype=where.dtype).scatter_add_(1, whole.tokens, rest)
    found = number.gather(1, piece.tokens) / piece.counts.clamp(min=1)
    found[:, -1] = own
    return found


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
