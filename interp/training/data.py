"""The examples of an epoch and their order, shared by all engines so that they can be compared step by step."""

import torch
from jaxtyping import Int
from torch import Tensor

from interp.errors import InterpError, UnsupportedError
from interp.models.architecture.answers import find_positions
from interp.models.spec import ModelSpec
from interp.tasks import IGNORED, Batch, Task
from interp.training.engines.engine import derived_seed


def training_set(spec: ModelSpec, task: Task) -> Batch:
    """Return the fixed data set of every epoch. Raises UnsupportedError if the task has none."""
    if type(task).dataset is Task.dataset:
        raise UnsupportedError(
            f'task {task.name} has no fixed data set: train it with data="fresh", samples_per_epoch=...'
        )
    return _fitting(spec, task, task.dataset(split_of(task, "train")))


def _fitting(spec: ModelSpec, task: Task, batch: Batch) -> Batch:
    """Return the batch. Raises InterpError if its rows are longer than a model of the spec takes."""
    limit, length = spec.max_length, batch.tokens.shape[1]
    if limit is not None and (length > limit or (length < limit and any(x.mixing == "linear" for x in spec.layers))):
        raise InterpError(f"the inputs of task {task.name} have {length} tokens; max_length is {limit}")
    return batch


def check_lengths(spec: ModelSpec, task: Task) -> None:
    """Raise InterpError, before training, if the task's inputs do not fit the spec's max_length."""
    if spec.max_length is not None:
        _fitting(spec, task, validation_set(task))


def split_of(task: Task, name: str) -> str:
    """Return the split of this name; in tasks with other names, the first split for training and the last for tests."""
    return name if name in task.splits else task.splits[0 if name == "train" else -1]


def fresh_epoch(spec: ModelSpec, task: Task, seed: int, epoch: int) -> Batch:
    """Draw new examples for one epoch of one model."""
    n = spec.training.samples_per_epoch or 0
    drawn = task.sample(n, split_of(task, "train"), seed=derived_seed(spec.id, seed, "data", epoch) % 2**31)
    return _fitting(spec, task, drawn)


def epoch_order(spec: ModelSpec, n: int, seed: int, epoch: int) -> Int[Tensor, "n"]:
    """Return the order of n examples in an epoch."""
    generator = torch.Generator().manual_seed(derived_seed(spec.id, seed, "order", epoch))
    return torch.randperm(n, generator=generator)


def epoch_batch(spec: ModelSpec, task: Task, seed: int, epoch: int) -> Batch:
    """Return the examples of one epoch of one model, in training order."""
    if spec.training.data == "fresh":
        return fresh_epoch(spec, task, seed, epoch)
    data = training_set(spec, task)
    return data[epoch_order(spec, len(data), seed, epoch)]


def validation_set(task: Task) -> Batch:
    """Return the inputs for accuracy during training: the validation split's data set, otherwise 1,000 test inputs."""
    split = "validation" if "validation" in task.splits else split_of(task, "test")
    try:
        return task.dataset(split)
    except UnsupportedError:
        return task.sample(1000, split, seed=task.data_seed)


def targets(spec: ModelSpec, task: Task, batch: Batch) -> Int[Tensor, "rows length"]:
    """Return the task's classes, moved to the spec's read position if it differs from the task's.

    Raises InterpError for a task with several answers per row, whose positions only the task knows.
    """
    classes = task.classes(batch)
    if spec.readout_at in ("all", task.readout):
        return classes
    read = classes != IGNORED
    if not (read.sum(1) == 1).all():
        raise InterpError(
            f"task {task.name} has several answers per row, or none, so {spec.id} cannot be trained to give "
            f"them at {spec.readout_at!r}"
        )
    moved = torch.full_like(classes, IGNORED)
    rows = torch.arange(len(moved), device=moved.device)
    moved[rows, find_positions(task, batch.tokens, spec.readout_at)] = classes[read]
    return moved
