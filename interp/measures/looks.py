"""Where each head looks: how spread its attention is, and how much of it goes where one would look first.

At a query position q the attention of a head is divided among what it may see. Summed over the keys of a kind and
averaged over queries:

- self: q itself; previous: q - 1; first: position 0; same: other positions with the same token;
- after_same: positions behind an earlier one with the same token (where an induction head looks, Olsson et al. 2022);
- entropy: of the attention, in nats, and its largest value where attention is uniform (`uniform`); of the part that
  goes to tokens, where the model has a sink for the rest.

Positions of padding count neither as queries nor as keys. Where the weights are raw scores, the shares are sums of
weights (they need not be between 0 and 1) and there is no entropy (NaN).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.measures.attention_rows import attention_rows
from interp.measures.runs import heads_of
from interp.measures.subject import Model, Subject
from interp.tasks import Batch

if TYPE_CHECKING:
    import pandas as pd

QUERIES = 4096
"""Queries whose weights are looked at together."""
KINDS = ("self", "previous", "first", "same", "after_same")


@torch.no_grad()
def looks(model: Model, batch: Batch, at: Literal["all", "read"] = "all") -> pd.DataFrame:
    """One row a head: layer, head, entropy, uniform, self, previous, first, same, after_same.

    Means over all query positions ("all"), or over those where answers are read ("read"). Queries to which a kind
    does not apply (no earlier same token) count with 0.
    """
    import pandas as pd

    subject = Subject.of(model)
    n_layers, sinks = subject.model.cfg.n_layers, getattr(subject.model.cfg, "use_attention_sinks", False)
    sums: dict[str, Tensor] = {}
    number = 0
    for found_at in attention_rows(subject, batch, only_reads=at == "read"):
        mask, rows, places = found_at.piece.attention_mask.cpu(), found_at.rows, found_at.positions
        number += len(rows)
        kinds = {kind: where[rows, places] for kind, where in key_kinds(found_at.piece.tokens.cpu(), mask).items()}
        for layer, pattern in enumerate(found_at.weights):
            visible = _visible(subject, layer, mask)[rows, places].sum(-1)
            found = {"uniform": visible.clamp_min(1).double().log().sum().expand(pattern.shape[1])}
            rounding = max(1e-3, torch.finfo(pattern.dtype).eps)
            for some in torch.arange(len(rows)).split(QUERIES):  # so that no copy is large
                weights = pattern[some].double()
                for kind, where in kinds.items():
                    shares = torch.einsum("qhk,qk->h", weights, where[some].double())
                    found[kind] = found.get(kind, 0) + shares
                given = weights / weights.sum(-1, keepdim=True).clamp_min(1e-300) if sinks else weights
                found["entropy"] = found.get("entropy", 0) + _entropy(given, rounding).sum(0)
            for key, value in found.items():
                part = torch.zeros(n_layers, subject.model.cfg.n_heads, dtype=torch.float64)
                part[layer, : len(value)] = value
                sums[key] = sums.get(key, 0) + part
    table = [
        {"layer": part.layer, "head": part.head}
        | {key: float(sums[key][part.layer, part.head or 0]) / number for key in ("entropy", "uniform", *KINDS)}
        for part in heads_of(subject)
    ]
    return pd.DataFrame(table)


def key_kinds(tokens: Tensor, mask: Bool[Tensor, "rows length"]) -> dict[str, Bool[Tensor, "rows length length"]]:
    """The kinds of keys for each query."""
    rows, length = tokens.shape
    order = torch.arange(length)
    real = mask[:, None, :] & mask[:, :, None]
    itself = (order[:, None] == order[None]).expand(rows, -1, -1)
    same = (tokens[:, :, None] == tokens[:, None, :]) & ~itself & real
    after = torch.zeros_like(same)
    after[:, :, 1:] = same[:, :, :-1] & real[:, :, 1:] & (order[None, :-1] < order[:, None])
    return {
        "self": itself & real,
        "previous": (order[:, None] == order[None] + 1).expand(rows, -1, -1) & real,
        "first": (order == 0).expand(rows, length, -1) & real,
        "same": same,
        "after_same": after,
    }


def _visible(subject: Subject, layer: int, mask: Bool[Tensor, "rows length"]) -> Bool[Tensor, "rows length length"]:
    """What a query of a layer may see."""
    cfg: Any = subject.model.cfg
    order = torch.arange(mask.shape[1])
    back = order[:, None] - order[None]  # so far behind the query the key is
    seen = back >= 0 if cfg.attention_dir == "causal" else torch.ones_like(back, dtype=torch.bool)
    if getattr(subject.model.blocks[layer].attn, "attn_type", None) == "local" and cfg.attention_dir == "causal":
        seen = seen & (back < cfg.window_size)
    return seen & mask[:, None, :]


def _entropy(pattern: Float[Tensor, "queries heads keys"], rounding: float) -> Float[Tensor, "queries heads"]:
    """In nats; NaN if the weights are no distribution, up to so much rounding of their sum."""
    total = pattern.sum(-1)
    entropy = -torch.xlogy(pattern, pattern.clamp_min(0)).sum(-1)
    is_share = (pattern >= 0).all(-1) & (((total - 1).abs() < rounding) | (total == 0))
    return torch.where(is_share, entropy, torch.nan)
