"""How a head divides its attention among token types, and its QK and OV circuits as tables of tokens."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from interp.architecture.symmetric import TokenTables, stack_one, token_tables
from interp.errors import UnsupportedError
from interp.measures.subject import Model, Subject
from interp.tasks import Batch


@torch.no_grad()
def attention_ratios(
    model: Model, at: str = "=", tokens: Sequence[str] = ("0", "1", "2"), *, batch: Batch | None = None, layer: int = -1
) -> pd.DataFrame:
    """w01 and w02: how much more attention the first token gets than the second and third (section 5.3, Figure 5).

    Columns head, w01, w02. Without positions the ratio is the same in every input, e^(score difference); a model
    with positions gets the ratio of its mean weights per token over a batch (200 test sentences by default).
    """
    subject = Subject.of(model)
    ids = [subject.task.token_id(token) for token in tokens]
    if subject.count_space:
        scores = circuit_tables(subject).scores[0, :, subject.task.token_id(at)]
        logs = scores[:, ids]
    else:
        logs = _mean_weights(subject, at, ids, batch, layer).log()
    ratios = (logs[:, :1] - logs).exp().numpy()
    return pd.DataFrame({"head": range(len(ratios)), "w01": ratios[:, 1], "w02": ratios[:, 2]})


def _mean_weights(
    subject: Subject, at: str, ids: list[int], batch: Batch | None, layer: int
) -> Float[Tensor, "heads tokens"]:
    """Mean attention from `at` to one token of each type, over all of them in a batch."""
    from interp.architecture.answers import find_positions

    batch = subject.task.sample(200, subject.task.splits[-1], seed=0) if batch is None else batch
    name = f"blocks.{layer % subject.model.cfg.n_layers}.attn.hook_pattern"
    total = torch.zeros(subject.model.cfg.n_heads, len(ids), dtype=torch.float64)
    number = torch.zeros(len(ids), dtype=torch.float64)
    for start in range(0, len(batch), 32):
        part = batch[slice(start, start + 32)]
        _, cache = subject.run_with_cache(part, names_filter=name)
        rows = torch.arange(len(part))
        pattern = cache[name][rows, :, find_positions(subject.task, part.tokens, at)].double().cpu()
        for column, token in enumerate(ids):
            here = (part.tokens == token) & part.attention_mask
            total[:, column] += (pattern * here[:, None]).sum((0, 2))
            number[column] += here.sum()
    return total / number


def circuit_tables(model: Model) -> TokenTables:
    """Token tables of one model (leading axis 1), in float64. Raises UnsupportedError where tokens alone do not do."""
    subject = Subject.of(model)
    if not subject.count_space:
        raise UnsupportedError(
            "token-by-token circuits are exact for one attention layer without positions and with a linear readout; "
            "this model is none, so look at model.QK and model.OV instead"
        )
    return token_tables(subject.task_model.spec, stack_one(subject.parameters()))


def qk_circuit(model: Model) -> pd.DataFrame:
    """Attention score of every query token for every key token; columns head, query, key, score."""
    subject = Subject.of(model)
    return _tidy(circuit_tables(subject).scores[0].numpy(), subject.task.vocabulary, ("query", "key", "score"))


def ov_circuit(model: Model) -> pd.DataFrame:
    """What each head adds to every logit when it attends to a token alone; columns head, source, token, logit."""
    subject = Subject.of(model)
    tables = circuit_tables(subject)
    added = (tables.values @ tables.readout)[0].numpy()
    return _tidy(added, subject.task.vocabulary, ("source", "token", "logit"))


def _tidy(table: np.ndarray, words: Sequence[str], names: tuple[str, str, str]) -> pd.DataFrame:
    heads, first, second = (axis.ravel() for axis in np.indices(table.shape))
    named = np.array(words)
    return pd.DataFrame({"head": heads, names[0]: named[first], names[1]: named[second], names[2]: table.ravel()})
