"""Accuracy: of every input where they are few, else of a sample, with the interval that a sample leaves."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

import pandas as pd
import torch

from interp.architecture.answers import losses
from interp.errors import InterpError
from interp.measures.subject import Model, Subject
from interp.tasks import Batch
from interp.tasks.domain import every_input

FEW = 100_000
"""Up to this many inputs a task's whole domain is run rather than sampled."""
_NORMAL_95 = 1.959963984540054


@dataclass(frozen=True)
class Accuracy:
    """Share of right answers, and Wilson's 95% interval for the share among all inputs.

    rows: inputs that were run, all different; answers: those that were read in them. exact: these are all inputs, and
    low = high = accuracy. Where a row has several answers, the interval is that of as many independent answers as there
    are rows: the answers of one row may go wrong together. loss: mean cross-entropy in nats, None for an indicator.
    """

    accuracy: float
    low: float
    high: float
    rows: int
    answers: int
    exact: bool
    loss: float | None = None

    @property
    def n(self) -> int:
        return self.answers

    def to_frame(self) -> pd.DataFrame:
        return pd.DataFrame([asdict(self)])


def wilson(accuracy: float, n: int) -> tuple[float, float]:
    """Wilson's 95% interval of a share among n independent answers (Wilson 1927)."""
    if n < 1:
        raise InterpError("an accuracy of no inputs has no interval; give at least one input")
    z = _NORMAL_95**2 / n
    middle = accuracy + z / 2
    half = _NORMAL_95 * math.sqrt(accuracy * (1 - accuracy) / n + z / (4 * n))
    return max(0.0, (middle - half) / (1 + z)), min(1.0, (middle + half) / (1 + z))


def accuracy(model: Model, n: int = 1000, split: str | None = None, seed: int = 0, few: int = FEW) -> Accuracy:
    """Accuracy on every input where the task lists at most `few` and no split is asked for, else on a sample.

    A sample has at most n different inputs of a split, the task's last one (the test split) by default: inputs that are
    drawn twice count once.
    """
    subject = Subject.of(model)
    task = subject.task
    if split is None and task.n_inputs is not None and task.n_inputs <= few:
        parts = every_input(task)
        exact = True
    else:
        parts = iter([distinct(task.sample(n, split or task.splits[-1], seed))])
        exact = False
    right = answers = rows = 0
    loss: float | None = 0.0
    for batch in parts:
        good, lost = _of_batch(subject, batch)
        right, answers, rows = right + int(good.sum()), answers + len(good), rows + len(batch)
        loss = None if loss is None or lost is None else loss + lost
    if not answers:
        raise InterpError(f"task {task.name} gave no answers to check: n = {n}")
    share = right / answers
    low, high = (share, share) if exact else wilson(share, rows)
    return Accuracy(share, low, high, rows, answers, exact, None if loss is None else loss / answers)


def sampled_accuracy(model: Model, n: int = 1000, split: str | None = None, seed: int = 0) -> Accuracy:
    """Accuracy on n sampled inputs; on every input where there are no more than n."""
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


def distinct(batch: Batch) -> Batch:
    """The different rows of a batch, in the order of their first occurrence."""
    _, group = torch.unique(batch.tokens, dim=0, return_inverse=True)
    first = torch.full((int(group.max()) + 1 if len(group) else 0,), len(group), dtype=torch.long)
    first = first.scatter_reduce(0, group, torch.arange(len(group)), "amin")
    return batch[first.sort().values]


def predictions(model: Model, batch: Batch) -> torch.Tensor:
    """The model's answers to a batch, in the units of its labels."""
    return Subject.of(model).answers(batch)
