"""Ratios of heads' attention to different tokens, and QK and OV circuits as tables over tokens."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from interp.architecture.reduced import TokenTables
from interp.errors import UnsupportedError
from interp.measures.subject import Model, Subject
from interp.tasks import Batch


@torch.no_grad()
def attention_ratios(
    model: Model, at: str = "=", tokens: Sequence[str] = ("0", "1", "2"), *, batch: Batch | None = None, layer: int = -1
) -> pd.DataFrame:
    """Return w01 and w02, each head's attention to the first token divided by that to the second and to the third.

    Columns head, w01, w02 (Zsámboki et al. 2025, section 5.3, Figure 5). If a token has the same score in every input,
    by its spec or to 1e-4 on a batch (default: 200 test sentences), the ratio is e^(score difference). Otherwise, for
    example with positions or in later layers, it is the ratio of the mean weights per token.
    """
    subject = Subject.of(model)
    ids = [subject.task.token_id(token) for token in tokens]
    if subject.count_space:
        logs = circuit_tables(subject).scores[0, :, subject.task.token_id(at)][:, ids]
    else:
        logs = _log_weights(subject, at, ids, batch, layer)
    ratios = (logs[:, :1] - logs).exp().numpy()
    return pd.DataFrame({"head": range(len(ratios)), "w01": ratios[:, 1], "w02": ratios[:, 2]})


def _log_weights(
    subject: Subject, at: str, ids: list[int], batch: Batch | None, layer: int
) -> Float[Tensor, "heads tokens"]:
    """Return the score of each token seen from `at` if it is constant in a head, otherwise ln(mean weight)."""
    from interp.architecture.answers import find_positions

    batch = subject.task.sample(200, subject.task.splits[-1], seed=0) if batch is None else batch
    part = f"blocks.{layer % subject.model.cfg.n_layers}.attn."
    names = [part + "hook_pattern", part + "hook_attn_scores"]
    n_heads = subject.model.blocks[layer].attn.W_O.shape[0]
    total = torch.zeros(n_heads, len(ids), dtype=torch.float64)
    number = torch.zeros(len(ids), dtype=torch.float64)
    low = torch.full((n_heads, len(ids)), torch.inf, dtype=torch.float64)
    high, largest = -low, torch.zeros(n_heads, dtype=torch.float64)
    for rows in subject.chunks(batch):
        piece = subject.trimmed(batch[rows])
        _, cache = subject.run_with_cache(piece, names_filter=names)
        position = find_positions(subject.task, piece.tokens, at)
        pattern, scores = (cache[name][torch.arange(len(piece)), :, position].double().cpu() for name in names)
        kinds = torch.stack([(piece.tokens.cpu() == token) & piece.attention_mask.cpu() for token in ids])
        total += torch.einsum("bhk,tbk->ht", pattern, kinds.double())
        number += kinds.sum((1, 2))
        # Each row's scores may have another offset, so compare them relative to the first token's mean score.
        seen = scores.isfinite() & kinds[:, :, None]
        first = seen[0].sum(-1) > 0
        mean = torch.where(seen[0], scores, 0.0).sum(-1) / seen[0].sum(-1).clamp_min(1)
        relative = scores - mean[..., None]
        usable = seen & first[None, :, :, None]
        low = low.minimum(torch.where(usable, relative, torch.inf).amin((1, 3)).T)
        high = high.maximum(torch.where(usable, relative, -torch.inf).amax((1, 3)).T)
        largest = largest.maximum(torch.where(scores.isfinite(), scores.abs(), 0.0).amax((0, 2)))
    spread = (high - low).amax(1)
    constant = (spread <= 1e-4 * largest.clamp_min(1.0)) & spread.isfinite()
    if _raw_scores(subject):
        constant[:] = False
    return torch.where(constant[:, None], (low + high) / 2, (total / number).log())


def _raw_scores(subject: Subject) -> bool:
    """Whether attention weights are raw scores, so that ratios are not e^(score difference)."""
    from interp.architecture.task_model import TaskModel

    return isinstance(subject.model, TaskModel) and any(a.normalizer == "none" for a in subject.model.spec.layers)


def circuit_tables(model: Model) -> TokenTables:
    """Return a model's token tables (leading axis 1), in float64. Raises UnsupportedError if circuits are not exact."""
    subject = Subject.of(model)
    if not subject.count_space:
        raise UnsupportedError(
            "token-by-token circuits are exact only for one attention layer without positions and with a linear "
            "readout; for this model, use model.QK and model.OV instead"
        )
    return subject.task_model.token_tables()


def qk_circuit(model: Model) -> pd.DataFrame:
    """Return the attention score of every query token for every key token; columns head, query, key, score."""
    subject = Subject.of(model)
    words = subject.task.vocabulary
    return _tidy(circuit_tables(subject).scores[0].numpy(), words, ("query", "key", "score"), words)


def ov_circuit(model: Model) -> pd.DataFrame:
    """Return each head's effect on every logit if it attends only to one token; columns head, source, token, logit."""
    subject = Subject.of(model)
    added = circuit_tables(subject).folded().values[0].numpy()
    return _tidy(added, subject.task.vocabulary, ("source", "token", "logit"), subject.task.answer_words)


def _tidy(table: np.ndarray, rows: Sequence[str], names: tuple[str, str, str], columns: Sequence[str]) -> pd.DataFrame:
    heads, first, second = (axis.ravel() for axis in np.indices(table.shape))
    named = {names[0]: np.array(rows)[first], names[1]: np.array(columns)[second]}
    return pd.DataFrame({"head": heads, **named, names[2]: table.ravel()})
