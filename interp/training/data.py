"""Which examples an epoch sees, in which order: shared by all engines, so that they can be compared step by step."""

from __future__ import annotations

import torch
from jaxtyping import Int
from torch import Tensor

from interp.errors import InterpError
from interp.spec import ModelSpec
from interp.tasks import Batch, Task
from interp.training.engines.base import derived_seed


def training_set(spec: ModelSpec, task: Task) -> Batch:
    """The fixed data set that every epoch passes over."""
    return task.dataset("train")


def fresh_epoch(spec: ModelSpec, task: Task, seed: int, epoch: int) -> Batch:
    """The examples of one epoch of one model, drawn anew."""
    n = spec.training.samples_per_epoch or 0
    return task.sample(n, "train", seed=derived_seed(spec.id, seed, "data", epoch) % 2**31)


def epoch_order(spec: ModelSpec, n: int, seed: int, epoch: int) -> Int[Tensor, "n"]:
    """The order in which an epoch passes over n examples."""
    generator = torch.Generator().manual_seed(derived_seed(spec.id, seed, "order", epoch))
    return torch.randperm(n, generator=generator)


def validation_set(task: Task) -> Batch:
    """What accuracy is measured on while training: the validation split's data set, else a sample of 1000 tests."""
    split = "validation" if "validation" in task.splits else "test"
    try:
        return task.dataset(split)
    except InterpError:
        return task.sample(1000, split, seed=task.data_seed)
