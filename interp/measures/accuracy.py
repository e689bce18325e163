"""Accuracy: on all inputs if a task has few, otherwise on a sample, with a 95% interval.

And training curves: from the run that trained a model, or from the short version saved in its checkpoint.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd
import torch

from interp.architecture.answers import losses
from interp.architecture.task_model import TaskModel
from interp.errors import InterpError, UnsupportedError
from interp.measures.subject import Model, Subject
from interp.populations import Population, everything, wilson
from interp.tasks import Batch
from interp.training.results import COLUMNS

FEW = 100_000
"""A task with at most this many inputs is run on all of them instead of a sample."""


@dataclass(frozen=True)
class Accuracy:
    """Share of right answers, and Wilson's 95% interval for the share among all inputs that the sampler may draw.

    rows: number of inputs run (a sample may repeat inputs). answers: number of answers read in them. exact: whether
    these are all inputs, each once; then low = high = accuracy. Errors within a row may be correlated, so the interval
    is that of one independent answer per row. loss: mean cross-entropy in nats; None for an indicator. weighted: the
    accuracy with each input weighted by its probability under the task's sampler; None for a sample, whose draws
    already follow these probabilities, and if the task does not declare them.
    """

    accuracy: float
    low: float
    high: float
    rows: int
    answers: int
    exact: bool
    loss: float | None = None
    weighted: float | None = None

    @property
    def n(self) -> int:
        return self.answers

    def to_frame(self) -> pd.DataFrame:
        return pd.DataFrame([{key: value for key, value in asdict(self).items() if value is not None}])


def accuracy(model: Model, n: int = 1000, split: str | None = None, seed: int = 0, few: int = FEW) -> Accuracy:
    """Measure accuracy on every input if the task has at most `few` and no split is given, otherwise on a sample.

    A sample has n inputs of a split (default: the task's last, the test split), drawn by the task's sampler: an input
    with probability 1/2 counts for half of this accuracy.
    """
    subject = Subject.of(model)
    task = subject.task
    if split is None and task.n_inputs is not None and task.n_inputs <= few:
        return accuracy_on(subject, everything(task))
    drawn = task.sample(n, split or task.splits[-1], seed)  # raises InterpError for an unknown split
    return accuracy_on(subject, Population("sample", drawn, task.n_inputs, split or task.splits[-1], seed))


def accuracy_on(model: Model, population: Population) -> Accuracy:
    """Measure accuracy on the inputs of a population."""
    subject, batch = Subject.of(model), population.batch
    good, lost = _of_batch(subject, batch) if len(batch) else (torch.zeros(0), None)
    if not len(good):
        raise InterpError(f"task {subject.task.name} has no answers to check in a batch of {len(batch)} inputs")
    found = population.share(good)
    weighted = None
    if population.exact and population.weights is not None:
        rows = subject.read_mask(batch).cpu().nonzero()[:, 0]
        weight = population.weights[rows]
        weighted = float((good.double() * weight).sum() / weight.sum())
    loss = None if lost is None else lost / len(good)
    return Accuracy(found.value, found.low, found.high, len(batch), len(good), population.exact, loss, weighted)


def sampled_accuracy(model: Model, n: int = 1000, split: str | None = None, seed: int = 0) -> Accuracy:
    """Measure accuracy on n sampled inputs, or on every input if there are at most n."""
    return accuracy(model, n, split, seed, few=n)


def share(right: int, n: int) -> Accuracy:
    """Return the accuracy, with its interval, if `right` of n independent answers are right."""
    low, high = wilson(right / n if n else 0.0, n)
    return Accuracy(right / n, low, high, rows=n, answers=n, exact=False)


def _of_batch(subject: Subject, batch: Batch) -> tuple[torch.Tensor, float | None]:
    """Return which answers are right, and the sum of all losses."""
    logits = subject.logits(batch)
    lost = losses(logits.double(), subject.classes(batch), subject.decision)
    return subject.right_of(logits, batch), None if lost is None else float(lost.sum())


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
