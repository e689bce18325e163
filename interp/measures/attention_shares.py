"""Shares of each head's attention, from the read position, on each type of token."""

from __future__ import annotations

import pandas as pd
import torch

from interp.architecture.reduced import counted_at
from interp.measures.attention import circuit_tables
from interp.measures.attention_tables import attention_by_token
from interp.measures.subject import Model, Subject
from interp.tasks import Batch


@torch.no_grad()
def attention_shares(model: Model, batch: Batch) -> pd.DataFrame:
    """Return the share of each head's attention on each type of token; columns layer, head, token, share, least.

    If counts determine the weights, they are computed exactly: share is the mean over the rows and least the minimum,
    for tokens that occur up to the read position. Otherwise the rows are run: share is the mean over the types of query
    token at read positions, and least is NaN.
    """
    subject = Subject.of(model)
    words = list(subject.task.vocabulary)
    if not subject.count_space:
        table = attention_by_token(subject, batch, only_reads=True)
        table = table.groupby(["layer", "head", "key"], as_index=False, sort=False)["value"].mean()
        return table.rename(columns={"key": "token", "value": "share"}).assign(least=float("nan"))
    tokens, mask = batch.tokens, batch.attention_mask
    rows = counted_at(subject.task_model.spec, len(words), tokens, subject.answer_positions(tokens), mask)
    counts = rows.counts.double()
    scores = circuit_tables(subject).scores[0][:, rows.query]  # heads rows tokens
    weights = (scores + counts.log()).softmax(-1)
    seen = counts.sum(0) > 0
    heads = range(len(weights))
    found = [
        (0, head, words[token], float(weights[head, :, token].mean()), float(weights[head, :, token].min()))
        for head in heads
        for token in seen.nonzero()[:, 0].tolist()
    ]
    return pd.DataFrame(found, columns=["layer", "head", "token", "share", "least"])
