"""Training curves: from the run that trained a model, or from the short version saved in its checkpoint."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from interp.architecture.task_model import TaskModel
from interp.errors import UnsupportedError
from interp.measures.subject import Model, Subject
from interp.training.results import COLUMNS


def no_curve(model: Model) -> str | None:
    """Return the reason why a model has no training curve, or None."""
    subject = Subject.of(model)
    if not isinstance(subject.model, TaskModel):
        return "the training history of an external model is not known"
    if subject.model.history is not None:
        return None
    if "curve" not in subject.model.summary:
        return "the checkpoint contains no training curve"
    if not _known(subject.model.summary["curve"]):
        return "the checkpoint's training curve has a format that this version does not know"
    return None


def _known(curve: object) -> bool:
    """Whether a curve read from a file has the expected columns, equally long, of numbers or None."""
    if not isinstance(curve, Mapping) or set(curve) != set(COLUMNS):
        return False
    columns = list(curve.values())
    if not all(isinstance(values, list) and values for values in columns) or len({len(v) for v in columns}) != 1:
        return False
    return all(value is None or type(value) in (int, float) for values in columns for value in values)


def training_curve(model: Model) -> pd.DataFrame:
    """Return columns seed, epoch, loss (nats), accuracy. Raises UnsupportedError if the history is not known."""
    subject = Subject.of(model)
    if (reason := no_curve(subject)) is not None:
        raise UnsupportedError(reason)
    ours = subject.task_model
    if ours.history is not None:
        return ours.history[list(COLUMNS)].assign(seed=ours.seed)
    known: Mapping[str, Any] = ours.summary["curve"]
    return pd.DataFrame(dict(known)).astype(float).assign(seed=ours.seed)
