"""Checks of batches: a bad one gets one sentence that names the task and the value.

Every batch that `sample` or `batch` of a task from outside this package returns is checked, so that measures, engines
and certificates need not check it again. Exceptions in a task's own code are passed on as they are, with their
traceback. This package's tests check its own tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import wraps
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from interp.errors import InterpError, UnsupportedError, of_type, short
from interp.tasks.batch import IGNORED, Batch, find_positions

OWN = ("interp.tasks.", "interp.families.")
RELABELED = 64
"""Number of rows that `check_labels` labels again, in reverse order and without the rest of the batch."""
ALONE = 4
"""Number of rows with different labels that `check_labels` labels one at a time."""


def refuse(task: Any, problems: Iterable[str]) -> None:
    """Raise InterpError for the first problem."""
    for problem in problems:
        raise InterpError(f"task {task.name}: {problem}")


# ---------------------------------------------------------------- what `sample` and `batch` return


def checked_sample(kind: type, sample: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap Task.sample: check the batch if the class is from outside this package."""

    @wraps(sample)
    def called(task: Any, n: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            batch = sample(task, n, *args, **kwargs)
        except NotImplementedError as error:
            raise UnsupportedError(f"task {task.name} does not implement sample({n})") from error
        if not kind.__module__.startswith(OWN):
            refuse(task, batch_problems(task, batch, f"sample({n})"))
            if not min(n, 1) <= len(batch) <= n:
                raise InterpError(f"task {task.name}: sample({n}) gives {len(batch)} rows")
        return replace(batch, task=task)

    return called


def checked_batch(kind: type, label: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap Task.batch: check the labels and rows of a class from outside this package."""

    @wraps(label)
    def called(task: Any, tokens: Tensor) -> Any:
        batch = label(task, tokens)
        if not kind.__module__.startswith(OWN):
            refuse(task, batch_problems(task, batch, "batch(tokens)"))
            if not batch.tokens.equal(tokens):
                raise InterpError(f"task {task.name}: batch(tokens) changes the tokens; it must only label them")
        return replace(batch, task=task)

    return called


LABELS = "torch.long, or of torch.bool if answers(...) gives that"
"""What labels are, for messages."""


def batch_problems(task: Any, batch: Any, what: str) -> Iterator[str]:
    """Yield the problems of the shapes, dtypes and tokens of a batch. what: the call that returned it."""
    if not isinstance(batch, Batch):
        yield f"{what} gives {of_type(batch)}; it must be an interp.Batch(tokens, lengths, labels)"
        return
    tokens, lengths, labels = batch.tokens, batch.lengths, batch.labels
    if tokens.dtype != torch.long or tokens.ndim != 2 or (len(tokens) and not tokens.shape[1]):
        yield f"{what} has tokens of {_kind(tokens)}; they must be (rows, length) of torch.long"
        return
    n, width = tokens.shape
    if lengths.dtype != torch.long or lengths.shape != (n,):
        yield f"{what} has lengths of {_kind(lengths)}; they must be ({n},) of torch.long"
    elif n and not 1 <= int(lengths.min()) <= int(lengths.max()) <= width:
        yield f"{what} has lengths from {int(lengths.min())} to {int(lengths.max())}; they must be 1 to {width}"
    expected = (n, width) if task.readout == "all" else (n,)
    if labels.dtype not in (torch.long, torch.bool) or tuple(labels.shape) != expected:
        yield (
            f"{what} has labels of {_kind(labels)}; answers are read at {task.readout!r}, so they must be {expected} "
            f"of {LABELS}"
        )
    if n and not 0 <= int(tokens.min()) <= int(tokens.max()) < task.d_vocab:
        yield f"{what} has token ids outside 0 to {task.d_vocab - 1}"
    yield from _padding_problems(task, batch)


def _kind(value: object) -> str:
    """Describe a value for an error message: a tensor's shape and dtype, or a type."""
    return f"shape {tuple(value.shape)} and {value.dtype}" if isinstance(value, Tensor) else of_type(value)


# ---------------------------------------------------------------- batches as inputs of a claim


def check_batch(task: Any, batch: Any, what: str) -> None:
    """Raise InterpError if rows, labels or classes of a batch do not fit the task or each other.

    what: the call that returned the batch, such as "inputs(4096)". A batch may be without read positions.
    """
    refuse(task, batch_problems(task, batch, what))
    if len(batch):
        refuse(task, answer_problems(task, batch, unread=True))
        task.check_input(batch.tokens)


def answer_problems(task: Any, batch: Batch, unread: bool = False) -> Iterator[str]:
    """Yield the first problem of classes(batch): invalid values, IGNORED at the readout, or other than the labels.

    unread: whether a batch may be without read positions.
    """
    classes, expected = task.classes(batch), tuple(batch.tokens.shape)
    if not isinstance(classes, Tensor) or classes.dtype != torch.long or tuple(classes.shape) != expected:
        yield (
            f"classes(batch) gives {_kind(classes)}; it must be {expected} of torch.long, with an output index at each "
            f"read position and IGNORED ({IGNORED}) elsewhere"
        )
        return
    read = classes != IGNORED
    if not bool(read.any()):
        if not unread:
            yield "classes(batch) is IGNORED everywhere: no position is read"
        return
    low, high, top = int(classes[read].min()), int(classes[read].max()), task.n_classes - 1
    if not 0 <= low <= high <= top:
        yield f"classes(batch) runs from {low} to {high}, outside 0 to {top}"
        return
    labels, indices = batch.labels, classes.masked_fill(~read, 0)
    if task.readout != "all":
        places = find_positions(task, batch.tokens, task.readout)[:, None]
        if bool((skipped := ~read.gather(1, places)[:, 0]).any()):
            row = int(skipped.int().argmax())
            yield (
                f"answers are read at {task.readout!r}, which is position {int(places[row])} of row {row}, where "
                "classes(batch) is IGNORED"
            )
            return
        indices = classes.gather(1, places)[:, 0]
    answers = task.answers(indices, batch.tokens)
    if answers.shape != labels.shape or answers.dtype != labels.dtype:
        yield (
            f"answers(...) gives {_kind(answers)}, and labels are {_kind(labels)}; both must be in the same units, "
            f"labels of {LABELS}"
        )
        return
    if task.readout == "all":
        answers, labels = answers[read], labels[read]
    if not answers.equal(labels):
        at = int((answers != labels).int().argmax())
        yield f"answers(classes(batch)) is {answers[at].item()} where the label is {labels[at].item()}"


def check_tokens(task: Any, tokens: Tensor) -> None:
    """Raise InterpError for anything but rows of the task's token ids."""
    if tokens.ndim != 2 or tokens.is_floating_point() or tokens.dtype == torch.bool:
        raise InterpError(f"tokens of shape {tuple(tokens.shape)} and {tokens.dtype} must be rows of integer ids")
    if tokens.numel() and not 0 <= int(tokens.min()) <= int(tokens.max()) < task.d_vocab:
        raise InterpError(
            f"token ids run from {int(tokens.min())} to {int(tokens.max())}; "
            f"task {task.name} has ids 0 to {task.d_vocab - 1}"
        )


def check_labels(task: Any, batch: Batch) -> None:
    """Raise InterpError if task.batch labels a row differently when it is alone or among other rows."""
    if not task.labels_tokens:
        return
    _, kinds = np.unique(batch.labels.reshape(len(batch), -1).sum(1).numpy(), return_index=True)
    alone = torch.from_numpy(kinds[:ALONE])[:, None]
    for rows in (*alone, torch.arange(len(batch) // 3, len(batch))[:RELABELED].flip(0)):
        again, before = task.batch(batch.tokens[rows]).labels, batch.labels[rows]
        if bool((other := (again != before).reshape(len(rows), -1).any(1)).any()):
            row = int(other.int().argmax())
            text = short(task.format(batch.tokens[rows[row], : int(batch.lengths[rows[row]])]))
            raise InterpError(
                f"task {task.name} labels {text!r} in two ways, {_label(before[row])} and {_label(again[row])}: a "
                "label must be a function of its row alone"
            )


def _label(label: Int[Tensor, "*length"]) -> str:
    return str(label.tolist()) if label.numel() < 10 else f"{str(label.flatten()[:9].tolist())[:-1]}, ...]"


def check_padding(task: Any, batch: Batch) -> None:
    """Raise InterpError unless rows are padded on the right, with the task's pad token."""
    refuse(task, _padding_problems(task, batch))


def check_padded_right(task: Any, tokens: Tensor) -> None:
    """Raise InterpError for a row with padding before a token."""
    refuse(task, _early_padding(task, tokens))


def _early_padding(task: Any, tokens: Tensor) -> Iterator[str]:
    pads = tokens == task.pad_id if task.pad_id is not None else torch.zeros_like(tokens, dtype=torch.bool)
    if bool((early := pads[:, :-1] & ~pads[:, 1:]).any()):
        row, place = early.nonzero()[0].tolist()
        yield f"row {row} has {task.pad!r} at position {place}, before a token: rows must be padded on the right"


def _padding_problems(task: Any, batch: Batch) -> Iterator[str]:
    yield from _early_padding(task, batch.tokens)
    unused = ~batch.attention_mask
    if task.pad_id is None and bool(unused.any()):
        yield "rows have different lengths, but it names no padding token: set pad = '...'"
    elif bool((wrong := unused & (batch.tokens != task.pad_id)).any()):
        row, place = wrong.nonzero()[0].tolist()
        token = task.vocabulary[int(batch.tokens[row, place])]
        yield (
            f"row {row} has {token!r} at position {place}, after its {int(batch.lengths[row])} tokens: rows must be "
            f"padded on the right with {task.pad!r}"
        )
