"""Accuracy: of every input where they are few, else of a sample, with the interval that a sample leaves."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import pandas as pd
import torch

from interp.architecture.answers import losses
from interp.errors import InterpError
from interp.measures.subject import Model, Subject
from interp.populations import Population, everything, wilson
from interp.tasks import Batch

FEW = 100_000
"""Up to this many inputs a task's whole domain is run rather than sampled."""


@dataclass(frozen=True)
class Accuracy:
    """Share of right answers, and Wilson's 95% interval for the share among all inputs that the sampler may draw.

    rows: inputs that were run, in a sample with repetitions as they come; answers: those that were read in them. exact:
    these are all inputs, each once, and low = high = accuracy. Where a row has several answers, the interval is that of
    as many independent answers as there are rows: the answers of one row may go wrong together. loss: mean
    cross-entropy in nats, None for an indicator. weighted: of all inputs, each weighted by how likely the task's
    sampler draws it; None for a sample (which is weighted so by itself) and where the task does not declare that.
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
    """Accuracy on every input where the task lists at most `few` and no split is asked for, else on a sample.

    A sample has n inputs of a split, the task's last one (the test split) by default, as its sampler draws them: an
    input that is half of all samples is half of this accuracy.
    """
    subject = Subject.of(model)
    task = subject.task
    if split is None and task.n_inputs is not None and task.n_inputs <= few:
        return accuracy_on(subject, everything(task))
    drawn = task.sample(n, split or task.splits[-1], seed)  # a split that the task does not have is an error here
    return accuracy_on(subject, Population("sample", drawn, task.n_inputs, split or task.splits[-1], seed))


def accuracy_on(model: Model, population: Population) -> Accuracy:
    """Accuracy on the inputs of a population."""
    subject, batch = Subject.of(model), population.batch
    good, lost = _of_batch(subject, batch) if len(batch) else (torch.zeros(0), None)
    if not len(good):
        raise InterpError(f"task {subject.task.name} gave no answers to check: n = {len(batch)}")
    found = population.share(good)
    weighted = None
    if population.exact and population.weights is not None:
        rows = subject.read_mask(batch).cpu().nonzero()[:, 0]
        weight = population.weights[rows]
        weighted = float((good.double() * weight).sum() / weight.sum())
    loss = None if lost is None else lost / len(good)
    return Accuracy(found.value, found.low, found.high, len(batch), len(good), population.exact, loss, weighted)


def sampled_accuracy(model: Model, n: int = 1000, split: str | None = None, seed: int = 0) -> Accuracy:
    """Accuracy on n sampled inputs; on every input if there are no more than n."""
    return accuracy(model, n, split, seed, few=n)


def share(right: int, n: int) -> Accuracy:
    """right of n independent answers are right."""
    low, high = wilson(right / n if n else 0.0, n)
    return Accuracy(right / n, low, high, rows=n, answers=n, exact=False)


def _of_batch(subject: Subject, batch: Batch) -> tuple[torch.Tensor, float | None]:
    """Which answers are right, and the sum of their losses."""
    logits = subject.logits(batch)
    lost = losses(logits.double(), subject.classes(batch), subject.decision)
    return subject.right_of(logits, batch), None if lost is None else float(lost.sum())
