"""Every input of a task, as its `inputs` lists them, and looked at on the way.

What is said of every input rests on what a task says of itself: that it lists each of its inputs once, as many as
n_inputs, and that a row's label is a function of the row. All of that can be seen while the inputs pass by.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import torch
from jaxtyping import Bool, Integer
from torch import Tensor

from interp.errors import InterpError, UnsupportedError, short
from interp.tasks.base import Task
from interp.tasks.batch import Batch
from interp.tasks.problems import TaskError, check_batch, check_labels

DRAWN = 16
"""Samples of each split that are looked for among the inputs."""
FEW = 1 << 15
"""A task of someone else's with at most so many inputs is looked at whole before anything is certified of it."""
SAMPLED = 256
REMEMBERED = 1 << 28
"""Bytes of rows that are kept to find one that comes twice, where they are listed in no order."""


def every_input(task: Task, chunk: int = 4096) -> Iterator[Batch]:
    """Every input of a task once, in the batches in which it lists them.

    Raises InterpError, when seen, for a row that comes twice or is not an input, for labels that do not fit, or that
    depend on the other rows of a batch or on the call, for another number of inputs than n_inputs, and where every
    split has a sample that is not listed; UnsupportedError for a task that lists none, or too many in no order.
    """
    promised, seen, once, drawn = n_inputs(task), 0, _Once(task), Drawn(task)
    for batch in task.inputs(chunk):
        check_batch(task, batch, f"inputs({chunk})")
        if not len(batch):
            continue
        check_labels(task, batch)
        rows = _as_array(batch)
        once.add(rows)
        drawn.drop(partial(_among, rows))
        if (seen := seen + len(batch)) > promised:
            break  # it may never end
        yield batch
    if seen != promised:
        raise InterpError(f"task {task.name} lists {seen:,} inputs, and says that there are {promised:,}")
    once.finish()
    drawn.finish()


def check_entry(task: Task) -> None:
    """Look at what a task of someone else's gives before a claim rests on it: all inputs, or samples of many.

    Raises InterpError for what does not fit: see every_input.
    """
    if type(task).__module__.startswith(f"{__package__}."):
        return  # tests look at our own
    if task.n_inputs is not None and n_inputs(task) <= FEW and type(task).inputs is not Task.inputs:
        for _ in every_input(task):
            pass
        return
    for split in task.splits:
        try:
            batch = task.sample(SAMPLED, split, seed=0)
            check_batch(task, batch, f"sample({SAMPLED}, {split!r})")
            check_labels(task, batch)
        except UnsupportedError:  # it has no such sampler, or labels no given tokens
            continue


def n_inputs(task: Task) -> int:
    """How many inputs a task says it lists. Raises UnsupportedError for a task that says none."""
    number = task.n_inputs
    if number is None:
        raise UnsupportedError(f"task {task.name} does not list its inputs (n_inputs and inputs(chunk) in it)")
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise InterpError(f"task {task.name}: n_inputs = {number!r} must be a positive integer, or None")
    return number


def _as_array(batch: Batch) -> Integer[np.ndarray, "rows length"]:
    """Rows of tokens, 0 beyond their length and one more than a token's id within it."""
    return (batch.tokens + 1).masked_fill(~batch.attention_mask, 0).cpu().numpy()


def _fit(rows: Integer[np.ndarray, "rows length"], width: int) -> Integer[np.ndarray, "rows width"]:
    return np.pad(rows, ((0, 0), (0, width - rows.shape[1])))


class _Once:
    """Is every row another one? Seen at once where they come in one order, read from the left or from the right; rows
    in no order are remembered, and compared at the end."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.orders = {1, -1}
        self.last: Integer[np.ndarray, "row length"] = np.zeros((0, 0), dtype=int)
        self.kept: list[np.ndarray] | None = []
        self.bytes = 0

    def add(self, rows: Integer[np.ndarray, "rows length"]) -> None:
        """Raises UnsupportedError if the rows so far are in no order, and too many to remember."""
        width = max(rows.shape[1], self.last.shape[1])
        chain = np.concatenate([_fit(self.last, width), _fit(rows, width)])
        lengths = (chain > 0).sum(1, keepdims=True)  # of two rows the shorter comes first
        self.orders = {step for step in self.orders if _rises(np.concatenate([lengths, chain[:, ::step]], 1))}
        self.last = chain[-1:]
        if self.kept is not None:
            self.kept.append(rows.astype(np.min_scalar_type(self.task.d_vocab)))
            self.bytes += self.kept[-1].nbytes
            if self.bytes > REMEMBERED:
                self.kept = None
        if self.kept is None and not self.orders:
            raise UnsupportedError(
                f"task {self.task.name} lists its inputs in no order, and too many to see if one comes twice: list "
                "them in lexicographic order"
            )

    def finish(self) -> None:
        """Raises InterpError for a row that came twice."""
        if self.orders or self.kept is None:
            return
        width = max(rows.shape[1] for rows in self.kept)
        found, often = np.unique(np.concatenate([_fit(rows, width) for rows in self.kept]), axis=0, return_counts=True)
        if (often > 1).any():
            raise InterpError(
                f"task {self.task.name} lists {short(_text(self.task, found[often > 1][0]))!r} more than once"
            )


def _rises(rows: Integer[np.ndarray, "rows columns"]) -> bool:
    """Is every row greater than the one before, in lexicographic order?"""
    step = np.diff(rows, axis=0)
    return bool((np.take_along_axis(step, (step != 0).argmax(1)[:, None], 1) > 0).all())


class Drawn:
    """Samples of each split, which are looked for among the inputs."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.missing: dict[str, Batch] = {}
        try:
            self.missing = {split: task.sample(DRAWN, split, seed=0) for split in task.splits}
        except TaskError:
            raise
        except InterpError:  # some tasks have inputs and no sampler for them: see Histogram with L > T
            return

    def drop(self, found: Callable[[Batch], Bool[Tensor, "rows"]]) -> None:
        """Leave out the samples that are found."""
        self.missing = {split: batch[~found(batch)] if len(batch) else batch for split, batch in self.missing.items()}

    def finish(self) -> None:
        """Raises InterpError if every split has a sample that was not found."""
        if self.missing and all(map(len, self.missing.values())):
            split, batch = list(self.missing.items())[-1]
            text = short(_text(self.task, _as_array(batch)[0]))
            raise InterpError(
                f"task {self.task.name} samples {text!r} in split {split!r}, and does not list it among its inputs"
            )


def _among(rows: Integer[np.ndarray, "rows length"], batch: Batch) -> Bool[Tensor, "samples"]:
    """Which rows of a batch are among these rows?"""
    wanted = _as_array(batch)
    width = max(rows.shape[1], wanted.shape[1])
    return torch.from_numpy((_fit(rows, width)[:, None] == _fit(wanted, width)).all(2).any(0))


def _text(task: Task, row: Integer[np.ndarray, "length"]) -> str:
    return task.format((row[row > 0].astype(int) - 1).tolist())
