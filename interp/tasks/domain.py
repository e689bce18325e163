"""Iterate over all inputs of a task and check its declarations on the way.

Claims about all inputs rely on the task: `inputs` must list each input once, their number must be n_inputs, and a label
must be a function of its row. All of this is checked while the inputs are listed.
"""

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import torch
from jaxtyping import Bool, Integer
from torch import Tensor

from interp.errors import InterpError, UnsupportedError, short
from interp.tasks.batch import Batch
from interp.tasks.batch_checks import OWN, check_batch, check_labels
from interp.tasks.task import Task

DRAWN = 16
"""Number of samples per split that must occur among the inputs."""
FEW = 1 << 15
"""External tasks with at most this many inputs are checked completely before a certificate."""
COUNTED = 1 << 15
"""Most inputs that are counted for a task that lists its inputs and does not state their number."""
SAMPLED = 256
REMEMBERED = 1 << 28
"""Most bytes of rows that are stored to find repeated ones, if rows are not listed in order."""


def every_input(task: Task, chunk: int = 4096) -> Iterator[Batch]:
    """Yield every input of a task once, in the task's own batches.

    Raises InterpError if a row is repeated or not an input, if labels are invalid or depend on the other rows of a
    batch or on the call, if the number of inputs is not n_inputs, or if every split has a sample that is not listed.
    Raises UnsupportedError if the task does not list its inputs, or lists too many that are not in order.
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
            break  # the iterator may be infinite
        yield batch
    if seen != promised:
        raise InterpError(f"task {task.name} lists {seen:,} inputs, but its n_inputs is {promised:,}")
    once.finish()
    drawn.finish()


def check_entry(task: Task) -> None:
    """Check an external task before a certificate: all inputs if they are few, otherwise samples.

    Raises InterpError as every_input does.
    """
    if type(task).__module__.startswith(OWN):
        return  # this package's tests check its own tasks
    if task.n_inputs is not None and n_inputs(task) <= FEW and type(task).inputs is not Task.inputs:
        for _ in every_input(task):
            pass
        return
    for split in task.splits:
        try:
            batch = task.sample(SAMPLED, split, seed=0)
            check_batch(task, batch, f"sample({SAMPLED}, {split!r})")
            check_labels(task, batch)
        except UnsupportedError:  # no sampler for this split, or no labels for given tokens
            continue


def n_inputs(task: Task) -> int:
    """Return the task's n_inputs or, if it is None, the number of inputs that it lists, counted up to COUNTED.

    Raises UnsupportedError if the task lists none, or more.
    """
    if task.n_inputs is not None:
        return task.n_inputs
    number = 0
    if type(task).inputs is not Task.inputs:
        for batch in task.inputs(4096):
            if (number := number + len(batch)) > COUNTED:
                break
    if not 0 < number <= COUNTED:
        raise UnsupportedError(f"task {task.name} does not list its inputs; define n_inputs and inputs(chunk) in it")
    return number


def _as_array(batch: Batch) -> Integer[np.ndarray, "rows length"]:
    """Return rows of token ids plus one, with 0 as padding."""
    return (batch.tokens + 1).masked_fill(~batch.attention_mask, 0).cpu().numpy()


def _fit(rows: Integer[np.ndarray, "rows length"], width: int) -> Integer[np.ndarray, "rows width"]:
    return np.pad(rows, ((0, 0), (0, width - rows.shape[1])))


class _Once:
    """Check that no row is repeated.

    Rows in lexicographic order, from the left or from the right, are checked immediately. Other rows are stored and
    compared at the end.
    """

    def __init__(self, task: Task) -> None:
        self.task = task
        self.orders = {1, -1}
        self.last: Integer[np.ndarray, "row length"] = np.zeros((0, 0), dtype=int)
        self.kept: list[np.ndarray] | None = []
        self.bytes = 0

    def add(self, rows: Integer[np.ndarray, "rows length"]) -> None:
        """Add rows. Raises UnsupportedError if they are not in order and too many to store."""
        width = max(rows.shape[1], self.last.shape[1])
        chain = np.concatenate([_fit(self.last, width), _fit(rows, width)])
        lengths = (chain > 0).sum(1, keepdims=True)  # shorter rows come first
        self.orders = {step for step in self.orders if _rises(np.concatenate([lengths, chain[:, ::step]], 1))}
        self.last = chain[-1:]
        if self.kept is not None:
            self.kept.append(rows.astype(np.min_scalar_type(self.task.d_vocab)))
            self.bytes += self.kept[-1].nbytes
            if self.bytes > REMEMBERED:
                self.kept = None
        if self.kept is None and not self.orders:
            raise UnsupportedError(
                f"task {self.task.name} lists too many inputs to check for repeated ones: list them in lexicographic "
                "order"
            )

    def finish(self) -> None:
        """Raise InterpError if a row was repeated."""
        if self.orders or self.kept is None:
            return
        width = max(rows.shape[1] for rows in self.kept)
        distinct, often = np.unique(
            np.concatenate([_fit(rows, width) for rows in self.kept]), axis=0, return_counts=True
        )
        if (often > 1).any():
            raise InterpError(
                f"task {self.task.name} lists {short(_text(self.task, distinct[often > 1][0]))!r} more than once"
            )


def _rises(rows: Integer[np.ndarray, "rows columns"]) -> bool:
    """Whether the rows are strictly increasing in lexicographic order."""
    step = np.diff(rows, axis=0)
    return bool((np.take_along_axis(step, (step != 0).argmax(1)[:, None], 1) > 0).all())


class Drawn:
    """Samples of each split that must occur among the inputs."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.missing: dict[str, Batch] = {}
        try:
            self.missing = {split: task.sample(DRAWN, split, seed=0) for split in task.splits}
        except UnsupportedError:  # some tasks have no sampler for their inputs, such as Histogram with L > T
            return

    def drop(self, found: Callable[[Batch], Bool[Tensor, "rows"]]) -> None:
        """Remove the samples that were found."""
        self.missing = {split: batch[~found(batch)] if len(batch) else batch for split, batch in self.missing.items()}

    def finish(self) -> None:
        """Raise InterpError if every split has a sample that was not found."""
        if self.missing and all(map(len, self.missing.values())):
            split, batch = list(self.missing.items())[-1]
            text = short(_text(self.task, _as_array(batch)[0]))
            raise InterpError(
                f"task {self.task.name} samples {text!r} in split {split!r}, but does not list it among its inputs"
            )


def _among(rows: Integer[np.ndarray, "rows length"], batch: Batch) -> Bool[Tensor, "samples"]:
    """Return a mask of the rows of a batch that are among these rows."""
    wanted = _as_array(batch)
    width = max(rows.shape[1], wanted.shape[1])
    return torch.from_numpy((_fit(rows, width)[:, None] == _fit(wanted, width)).all(2).any(0))


def _text(task: Task, row: Integer[np.ndarray, "length"]) -> str:
    return task.format((row[row > 0].astype(int) - 1).tolist())
