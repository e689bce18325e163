"""Attention patterns averaged over inputs, by position or by query and key token."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from interp.errors import UnsupportedError
from interp.measures.attention_rows import attention_rows
from interp.measures.runs import heads_of
from interp.measures.subject import Model, Subject
from interp.tasks import Batch

if TYPE_CHECKING:
    import pandas as pd

MAX_CELLS = 200_000
CELLS = 1 << 22
"""Largest number of values in a temporary copy of the weights."""


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
    return _averaged(subject, batch, batch.tokens.cpu(), list(subject.task.vocabulary), "all", only_reads)


@torch.no_grad()
def _averaged(
    subject: Subject, batch: Batch, ids: Tensor, names: list[str], keys: str, only_reads: bool
) -> pd.DataFrame:
    """Average the weights between ids: over all pairs (keys="each"), or over queries, summed over keys (keys="all")."""
    import pandas as pd

    heads, kinds = heads_of(subject), len(names)
    if len(heads) * kinds**2 > MAX_CELLS:
        raise UnsupportedError(
            f"{len(heads)} heads x {kinds} x {kinds} kinds of tokens or positions are too many to show"
        )
    n_layers, n_heads = subject.model.cfg.n_layers, subject.model.cfg.n_heads
    total = torch.zeros(n_layers, n_heads, kinds, kinds, dtype=torch.float64)
    number = torch.zeros(kinds, kinds if keys == "each" else 1, dtype=torch.float64)
    for found in attention_rows(subject, batch, only_reads):
        mask, rows = found.piece.attention_mask.cpu(), found.rows
        of = torch.nn.functional.one_hot(ids[found.here, : mask.shape[1]].clamp_max(kinds - 1), kinds).double()
        asked, looked_at = of * found.mask[..., None], of * mask[..., None]
        if keys == "each":
            number += torch.einsum("bqi,bkj->ij", asked, looked_at)
        else:
            number[:, 0] += asked.sum((0, 1))
        for layer, weights in enumerate(found.weights):
            n_here, length = weights.shape[1:]
            for some in torch.arange(len(rows)).split(max(1, CELLS // (length * max(n_here, kinds)))):
                given = weights[some].double() @ looked_at[rows[some]]
                of_queries = asked[rows[some], found.positions[some]]
                total[layer, :n_here] += torch.einsum("ni,nhj->hij", of_queries, given)
    mean = total / number
    frames = []
    for part in heads:
        grid = [(query, key) for query in range(kinds) for key in range(kinds)]
        frames.append(
            pd.DataFrame(
                {
                    "layer": part.layer,
                    "head": part.head,
                    "query": [names[q] for q, _ in grid],
                    "key": [names[k] for _, k in grid],
                    "value": mean[part.layer, part.head or 0].flatten().numpy(),
                }
            )
        )
    table = pd.concat(frames, ignore_index=True)
    seen_at_all = table.groupby("query", sort=False)["value"].transform(lambda column: column.notna().any())
    return table[seen_at_all].reset_index(drop=True)
