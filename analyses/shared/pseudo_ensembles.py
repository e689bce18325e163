"""Are the heads of a model a pseudo-ensemble, which all solve the task, or do they solve it only together? Zsámboki et
al. (2025, section 6.1) say an ensemble: heads separate the answers alone, pairs rarely separate them better, and the
mean s-acc of the heads, with the readout's weights, tells the accuracy. Here the same is asked of many seeds."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd
from scipy.stats import pearsonr

import interp
from interp.families.count01.sections.separation import GAIN, pair_gains
from interp.measures.heads import SUCCESSFUL, head_weights
from interp.tasks.scores import wilson

RIGHT = 0.95
"""Accuracy from which on a model counts as right."""


def heads_alone(names: Iterable[str]) -> pd.DataFrame:
    """Of each model, how many heads are successful (s-acc of at least 0.98), the share of pairs that separate the
    answers better than their better head by more than a point, and the mean s-acc of heads with the readout's
    weights."""
    rows = []
    for model in map(interp.load, names):
        table = interp.head_metrics(model, "singles+pairs").to_frame()
        one = table[table["size"] == 1]
        gains = pair_gains(table, [head for (head,) in one["heads"]])[np.triu_indices(len(one), 1)]
        successful = int((one["s_acc"] >= SUCCESSFUL).sum())
        rows.append((successful, (gains > GAIN).mean(), one["s_acc"] @ head_weights(model)["weight"]))
    return pd.DataFrame(rows, columns=["successful", "better pairs", "weighted s_acc"])


def pseudo_ensembles(models: pd.DataFrame) -> pd.DataFrame:
    """By number of heads: models with two successful heads or more, the mean share of such heads and of better pairs,
    and Pearson's r, over models, of the weighted s-acc and the accuracy; with 95% intervals. r of those that are right
    (an accuracy of RIGHT) leaves out models that learned nothing or little, which alone can make an r."""
    rows = []
    for size, part in models.groupby("heads", sort=False):
        good, n = int((part["successful"] >= 2).sum()), len(part)
        right = part[part["accuracy"] >= RIGHT]
        rows.append((size, n, good, good / n, *wilson(good / n, n), part["successful"].mean() / size,
                     part["better pairs"].mean(), *correlated(part), len(right), *correlated(right)))  # fmt: skip
    columns = ["heads", "models", "pseudo-ensembles", "share", "low", "high", "successful", "better pairs", "r",
               "r_low", "r_high", "right", "r of right", "right_low", "right_high"]  # fmt: skip
    return pd.DataFrame(rows, columns=columns)


def correlated(models: pd.DataFrame) -> tuple[float, float, float]:
    """Pearson's r, over models, of the weighted s-acc and the accuracy, with its 95% interval; nan of too few."""
    if len(models) <= 3:
        return float("nan"), float("nan"), float("nan")
    fit = pearsonr(models["weighted s_acc"], models["accuracy"])
    return float(fit.statistic), *map(float, fit.confidence_interval())
