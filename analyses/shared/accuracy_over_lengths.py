"""Many trained recognizers at once: accuracy and loss against length, seed by seed.

Models of one spec are stacked and run on distinct rows (families/languages/forward.py): strings of 1000 symbols cost
four rows where the position code allows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import log

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from interp.errors import InterpError
from interp.families.languages.forward import DistinctRows, distinct_rows, encoder_logits
from interp.families.languages.measures import language_of
from interp.models.architecture.task_model import TaskModel
from interp.tasks import Batch

ROWS_AT_ONCE = 1 << 16
PAIRS_AT_ONCE = 1 << 22
"""Bounds of rows, and of pairs of rows that attend to each other, over all models of one run."""


def stacked_parameters(models: Sequence[TaskModel]) -> dict[str, Tensor]:
    """Parameters of models of one spec with a leading axis of models. Raises InterpError if the specs differ."""
    if not models:
        raise InterpError("models is empty: give at least one")
    if len({model.spec.id for model in models}) > 1:
        raise InterpError(f"models of one spec are wanted; these have {len({m.spec.id for m in models})}")
    named = [dict(model.named_parameters()) for model in models]
    return {name: torch.stack([parameters[name].detach() for parameters in named]) for name in named[0]}


@torch.no_grad()
def stacked_logits(models: Sequence[TaskModel], batch: Batch) -> Float[Tensor, "models strings"]:
    """The scalar output of every model for every string, in the first model's number format.

    Raises InterpError for models without a forward pass on distinct rows, and UnsupportedError for no recognizers.
    """
    tensors = stacked_parameters(models)
    task, spec = language_of(models[0]), models[0].spec
    first = tensors["embed.W_E"]
    rows = distinct_rows(spec, task, batch).to(first.device, first.dtype)
    return torch.cat([encoder_logits(spec, tensors, part)[..., 0] for part in _parts(rows, len(models))], 1).cpu()


def _parts(rows: DistinctRows, models: int) -> Iterable[DistinctRows]:
    width, strings = rows.tokens.shape[-1], rows.tokens.shape[1]
    size = max(1, min(ROWS_AT_ONCE // (models * width), PAIRS_AT_ONCE // (models * width**2)))
    return (rows[start : start + size] for start in range(0, strings, size))


def accuracy_by_length(
    models: Sequence[TaskModel], lengths: Iterable[int], n: int = 1000, seed: int = 0
) -> pd.DataFrame:
    """Accuracy of models of one spec on n strings of each length (the same strings for all of them).

    Columns: seed, length, n, accuracy, cross_entropy_bits, false_accepts and false_rejects (numbers), and baseline, the
    accuracy of whoever always gives the more frequent answer.
    """
    if not models:
        raise InterpError("models is empty: give at least one")
    task, rows = language_of(models[0]), []
    for length in lengths:
        batch = task.strings(n, length, seed=seed)
        logits, labels = stacked_logits(models, batch).double(), batch.labels
        accepts = logits > 0
        losses = torch.nn.functional.softplus(torch.where(labels, -logits, logits)).mean(1) / log(2)
        share = float(labels.double().mean())
        for index, model in enumerate(models):
            wrong = accepts[index] != labels
            rows.append(
                {
                    "seed": model.seed,
                    "length": length,
                    "n": n,
                    "accuracy": 1 - float(wrong.double().mean()),
                    "cross_entropy_bits": float(losses[index]),
                    "false_accepts": int((wrong & ~labels).sum()),
                    "false_rejects": int((wrong & labels).sum()),
                    "baseline": max(share, 1 - share),
                }
            )
    return pd.DataFrame(rows)


def over_seeds(frame: pd.DataFrame, by: Sequence[str], value: str = "accuracy") -> pd.DataFrame:
    """Mean, standard deviation (n - 1), minimum and maximum of a column over seeds, and how many seeds reach 0.999."""
    grouped = frame.groupby(list(by), sort=False)[value]
    return grouped.agg(
        seeds="count", mean="mean", std="std", min="min", max="max", perfect=lambda values: int((values >= 0.999).sum())
    ).reset_index()
