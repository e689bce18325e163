"""Accuracy on a sample, with the interval that a sample leaves."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import pandas as pd
import torch

from interp.architecture.task_model import TaskModel
from interp.measures.subject import Model, Subject
from interp.tasks import Batch


@dataclass(frozen=True)
class SampledAccuracy:
    """Share of right answers in a sample, and Wilson's 95% interval for the share among all inputs."""

    accuracy: float
    low: float
    high: float
    n: int

    def to_frame(self) -> pd.DataFrame:
        return pd.DataFrame([asdict(self)])


def share(right: int, n: int) -> SampledAccuracy:
    """right of n independent answers are right."""
    from scipy.stats import binomtest

    interval = binomtest(right, n).proportion_ci(method="wilson")
    return SampledAccuracy(right / n, float(interval.low), float(interval.high), n)


@torch.no_grad()
def sampled_accuracy(model: Model, n: int = 1000, split: str | None = None, seed: int = 0) -> SampledAccuracy:
    """Accuracy on n fresh inputs of a split (the task's last one, the test split, by default).

    Where every position has an answer, a position counts as one answer; the interval then treats the positions of one
    input as independent, which they are not quite.
    """
    subject = Subject.of(model)
    batch = subject.task.sample(n, split or subject.task.splits[-1], seed)
    answers = predictions(subject, batch)
    counted = torch.ones_like(answers, dtype=torch.bool) if batch.labels.dtype == torch.bool else batch.labels >= 0
    return share(int((answers == batch.labels)[counted].sum()), int(counted.sum()))


@torch.no_grad()
def predictions(model: Model, batch: Batch, chunk: int = 64) -> torch.Tensor:
    """The model's answers to a batch, in the units of its labels."""
    subject = Subject.of(model)
    if isinstance(subject.model, TaskModel):
        return torch.cat([subject.model.predict(part) for part in batch.tokens.split(chunk)]).cpu()
    logits = subject.answer_logits(batch, chunk=chunk)
    return subject.task.answers(logits.argmax(-1), batch.tokens)
