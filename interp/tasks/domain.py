"""Every input of a task, as its `inputs` lists them, and looked at on the way.

What is said of every input rests on what a task says of itself: that it lists each of its inputs once, as many as
n_inputs, and that a row's label is a function of the row. All of that can be seen while the inputs pass by.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from jaxtyping import Integer
from torch import Tensor

from interp.errors import InterpError, UnsupportedError
from interp.tasks.base import Task
from interp.tasks.batch import Batch
from interp.tasks.checks import check_batch

AGAIN = 64
"""So many rows of each batch are labelled a second time, in another order and fewer together."""
ALONE = 4
"""Rows of different labels that are labelled alone."""
DRAWN = 16
"""Samples of each split that are looked for among the inputs."""
REMEMBERED = 1 << 28
"""Bytes of rows that are kept to find one that comes twice, where they are listed in no order."""


def every_input(task: Task, chunk: int = 4096) -> Iterator[Batch]:
    """Every input of a task once, in the batches in which it lists them.

    Raises InterpError, when it is seen, for a row that comes twice or is no input, for labels that do not fit, or that
    depend on the other rows of a batch or on the call, for another number of inputs than n_inputs, and where every
    split has a sample that is not listed; UnsupportedError for a task that lists none, or too many in no order.
    """
    promised, seen, once, drawn = n_inputs(task), 0, _Once(task), _Drawn(task)
    for batch in task.inputs(chunk):
        check_batch(task, batch, f"inputs({chunk})")
        if not len(batch):
            continue
        _check_labels(task, batch)
        rows = _as_array(batch)
        once.add(rows)
        drawn.look(rows)
        seen += len(batch)
        yield batch
    if seen != promised:
        raise InterpError(f"task {task.name} lists {seen:,} inputs, and says that there are {promised:,}")
    once.finish()
    drawn.finish()


def n_inputs(task: Task) -> int:
    """How many inputs a task says it lists. Raises UnsupportedError for a task that says none."""
    number = task.n_inputs
    if number is None:
        raise UnsupportedError(f"task {task.name} does not list its inputs (n_inputs and inputs(chunk) in it)")
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise InterpError(f"task {task.name}: n_inputs = {number!r} must be a positive integer, or None")
    return number


def _check_labels(task: Task, batch: Batch) -> None:
    """Labels of some rows, alone and in another company, against those that are listed."""
    if type(task).batch is Task.batch:
        return
    _, kinds = np.unique(batch.labels.reshape(len(batch), -1).sum(1).numpy(), return_index=True)
    alone = torch.from_numpy(kinds[:ALONE])[:, None]
    for rows in (*alone, torch.arange(len(batch) // 3, len(batch))[:AGAIN].flip(0)):
        again, listed = task.batch(batch.tokens[rows]).labels, batch.labels[rows]
        if again.shape != listed.shape:
            raise InterpError(
                f"task {task.name} lists labels of shape {tuple(batch.labels.shape)} for {len(batch):,} rows, and "
                f"{tuple(again.shape)} for {len(rows)} of them"
            )
        if bool((other := (again != listed).reshape(len(rows), -1).any(1)).any()):
            row = int(rows[int(other.int().argmax())])
            text = task.format(batch.tokens[row, : int(batch.lengths[row])])
            raise InterpError(
                f"task {task.name} labels {text!r} in two ways, {_short(listed[other][0])} and "
                f"{_short(again[other][0])}: a label must be a function of its row alone"
            )


def _short(label: Tensor) -> str:
    return str(label.tolist()) if label.numel() < 10 else f"{str(label.flatten()[:9].tolist())[:-1]}, ...]"


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
        """Raises UnsupportedError where the rows so far are in no order, and too many to remember."""
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
            raise InterpError(f"task {self.task.name} lists {_text(self.task, found[often > 1][0])!r} more than once")


def _rises(rows: Integer[np.ndarray, "rows columns"]) -> bool:
    """Is every row greater than the one before, in lexicographic order?"""
    step = np.diff(rows, axis=0)
    return bool((np.take_along_axis(step, (step != 0).argmax(1)[:, None], 1) > 0).all())


class _Drawn:
    """Samples of each split, looked for among the inputs that are listed."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.rows: dict[str, np.ndarray] = {}
        self.missing: dict[str, np.ndarray] = {}
        for split in task.splits:
            try:
                self.rows[split] = _as_array(task.sample(DRAWN, split, seed=0))
            except InterpError:  # some tasks have inputs and no sampler for them: see Histogram with L > T
                return
        self.missing = {split: np.ones(len(rows), dtype=bool) for split, rows in self.rows.items()}

    def look(self, rows: Integer[np.ndarray, "rows length"]) -> None:
        for split, missing in self.missing.items():
            width = max(rows.shape[1], self.rows[split].shape[1])
            wanted = _fit(self.rows[split], width)[missing]
            if len(wanted):
                missing[missing] = ~(_fit(rows, width)[:, None] == wanted).all(2).any(0)

    def finish(self) -> None:
        """Raises InterpError where every split has a sample that was not listed."""
        if self.missing and all(missing.any() for missing in self.missing.values()):
            split, missing = list(self.missing.items())[-1]
            raise InterpError(
                f"task {self.task.name} samples {_text(self.task, self.rows[split][missing][0])!r} in split {split!r}, "
                "and does not list it among its inputs"
            )


def _text(task: Task, row: Integer[np.ndarray, "length"]) -> str:
    return task.format((row[row > 0].astype(int) - 1).tolist())
