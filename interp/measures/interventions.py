"""Interventions on a trained model, by hooks and never on its weights: set attention ratios, ablate heads.

Where the spec's symmetry allows it, the same intervention is computed from counts: equal to the hooked forward to
rounding (a test holds them together), and fast enough for sweeps over the whole data set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from interp.architecture.symmetric import Rows, rows_at
from interp.architecture.symmetric import head_outputs as count_space_outputs
from interp.errors import InterpError
from interp.measures.attention import circuit_tables
from interp.measures.outputs import from_cache
from interp.measures.subject import Model, Subject
from interp.tasks import Batch

# ---------------------------------------------------------------- attention ratios (section 5.4)


def token_weights(subject: Subject, w01: float, w02: float, tokens: Sequence[str]) -> Float[Tensor, "d_vocab"]:
    """Unnormalized attention per token: w01 = a0/a1, w02 = a0/a2 (inf: none to the third), zero to all others."""
    for name, ratio in (("w01", w01), ("w02", w02)):
        if not ratio > 0:
            raise InterpError(f"{name} = {ratio!r} must be a ratio above 0 (inf: no attention to the other token)")
    if w01 == float("inf") and w02 == float("inf"):
        raise InterpError("w01 and w02 cannot both be inf: at least two tokens must be attended to")
    weights = torch.zeros(subject.task.d_vocab, dtype=torch.float64)
    for token, weight in zip(tokens, (1.0, 1 / w01, 1 / w02)):
        weights[subject.task.token_id(token)] = weight
    return weights


def attention_hook(
    model: Model, batch: Batch, w01: float, w02: float, tokens: Sequence[str] = ("0", "1", "2")
) -> Callable[[Tensor, Any], Tensor]:
    """A hook for hook_pattern: at the answer position every head attends in the given ratios, and to nothing else.

    The row is normalized to sum to one; where none of the tokens occurs, it is zero.
    """
    subject = Subject.of(model)
    weights = token_weights(subject, w01, w02, tokens)[batch.tokens]
    positions = subject.answer_positions(batch.tokens)
    weights *= torch.arange(batch.tokens.shape[1]) <= positions[:, None]
    row = weights / weights.sum(1, keepdim=True).clamp_min(1e-300)

    def set_ratios(pattern: Float[Tensor, "rows heads length length"], hook: Any) -> Tensor:
        changed = pattern.clone()
        changed[torch.arange(len(row)), :, positions] = row[:, None].to(pattern)
        return changed

    return set_ratios


@torch.no_grad()
def reweighted_outputs(
    model: Model, batch: Batch, w01: float, w02: float, tokens: Sequence[str] = ("0", "1", "2"), layer: int = -1
) -> Float[Tensor, "rows heads d_head"]:
    """Head outputs at the answer under attention_hook, in float64."""
    subject = Subject.of(model)
    positions = subject.answer_positions(batch.tokens)
    if not subject.count_space:
        layer %= subject.model.cfg.n_layers
        name, found = f"blocks.{layer}.attn.hook_pattern", []
        for start in range(0, len(batch), 32):
            part = batch[slice(start, start + 32)]
            with subject.model.hooks(fwd_hooks=[(name, attention_hook(subject, part, w01, w02, tokens))]):
                found.append(from_cache(subject, part, positions[start : start + 32], layer))
        return torch.cat(found)
    return _from_rows(subject, _rows(subject, batch), token_weights(subject, w01, w02, tokens))


def _rows(subject: Subject, batch: Batch) -> Rows:
    """What the answers of a batch see."""
    positions = subject.answer_positions(batch.tokens)
    spec, d_vocab = subject.task_model.spec, subject.task.d_vocab
    return rows_at(spec, d_vocab, batch.tokens, positions, batch.attention_mask).stacked(torch.float64)


def _from_rows(subject: Subject, rows: Rows, weights: Float[Tensor, "d_vocab"]) -> Float[Tensor, "rows heads d_head"]:
    """Head outputs under attention weights per token; zero where none of the attended tokens occurs."""
    tables = circuit_tables(subject)
    scores = weights.log().expand_as(tables.scores)
    return count_space_outputs(replace(tables, scores=scores), rows)[0].nan_to_num(0.0)


def reweight_attention(
    model: Model,
    w01: float | Iterable[float] = 1.0,
    w02: float | Iterable[float] = float("inf"),
    *,
    train: Batch | None = None,
    test: Batch | None = None,
    tokens: Sequence[str] = ("0", "1", "2"),
) -> pd.DataFrame:
    """s-acc of every head when attention at the answer is set to given ratios (section 5.4, Figures 8 and 9).

    w01 or w02 may be a sweep. Columns head, w01, w02, s_acc. Figure 8 sweeps w01 at w02 = inf, Figure 9 w02 at w01 = 1.
    """
    from interp.measures.separation import separation_accuracies

    subject = Subject.of(model)
    train = subject.task.dataset("train") if train is None else train
    test = subject.task.dataset("test") if test is None else test
    counted = [_rows(subject, batch) for batch in (train, test)] if subject.count_space else None
    frames = []
    for first in _as_list(w01):
        for second in _as_list(w02):
            if counted is None:
                fitted, tested = (reweighted_outputs(subject, batch, first, second, tokens) for batch in (train, test))
            else:
                weights = token_weights(subject, first, second, tokens)
                fitted, tested = (_from_rows(subject, rows, weights) for rows in counted)
            singles = [(head,) for head in range(fitted.shape[1])]
            s_acc = separation_accuracies(
                fitted.numpy(), train.labels.numpy(), tested.numpy(), test.labels.numpy(), singles
            )
            frames.append(pd.DataFrame({"head": range(len(singles)), "w01": first, "w02": second, "s_acc": s_acc}))
    return pd.concat(frames, ignore_index=True)


def _as_list(value: float | Iterable[float]) -> list[float]:
    values = [float(value)] if isinstance(value, (int, float)) else [float(v) for v in value]
    if not values:
        raise InterpError("a sweep of attention ratios is empty; give at least one ratio")
    return values
