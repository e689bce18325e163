"""The training curve of a model: from the run that trained it, or the short version that its checkpoint keeps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.errors import refuse_if

if TYPE_CHECKING:
    import pandas as pd

    from interp.models.subject import Model

COLUMNS = ("epoch", "loss", "accuracy")
MOST_POINTS = 100


def compact(history: pd.DataFrame) -> dict[str, list[float | None]]:
    """Keep at most 100 epochs including the first and the last, denser at the start, with 5 digits per number."""
    n = len(history)
    chosen = np.unique(np.geomspace(1, n, min(n, MOST_POINTS)).round().astype(int)) - 1
    # There is no loss before the first epoch, and JSON has no NaN.
    return {
        name: [None if value != value else float(f"{value:.5g}") for value in history[name].iloc[chosen]]
        for name in COLUMNS
    }


def no_curve(model: Model) -> str | None:
    """Return the reason why a model has no training curve, or None."""
    from interp.models.architecture.task_model import TaskModel  # imports transformer_lens, which takes seconds
    from interp.models.subject import Subject

    ours = Subject.of(model).model
    if not isinstance(ours, TaskModel):
        return "the training history of an external model is not known"
    if ours.history is not None:
        return None
    if "curve" not in ours.summary:
        return "the checkpoint contains no training curve"
    if not _is_curve(ours.summary["curve"]):
        return "the checkpoint's training curve has a format that this version does not know"
    return None


def _is_curve(curve: object) -> bool:
    """Test whether a value from a file has the columns of a curve, equally long, of numbers or None."""
    if not isinstance(curve, Mapping) or set(curve) != set(COLUMNS):
        return False
    columns = list(curve.values())
    if not all(isinstance(values, list) and values for values in columns) or len({len(v) for v in columns}) != 1:
        return False
    return all(value is None or type(value) in (int, float) for values in columns for value in values)


def training_curve(model: Model) -> pd.DataFrame:
    """Return columns seed, epoch, loss (nats), accuracy. Raises UnsupportedError if the history is not known."""
    import pandas as pd

    from interp.models.subject import Subject

    refuse_if(no_curve(model))
    ours = Subject.of(model).task_model
    if ours.history is not None:
        return ours.history[list(COLUMNS)].assign(seed=ours.seed)
    known: Mapping[str, Any] = ours.summary["curve"]
    return pd.DataFrame(dict(known)).astype(float).assign(seed=ours.seed)
