"""Checks of the values that a task's methods return: batches, classes, answers and labels.

The functions yield problems, or raise the first one, as sentences that name the value and what was expected.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from interp.errors import InterpError, UnsupportedError, of_type, short
from interp.tasks.batch import IGNORED, Batch, find_positions

CPU = torch.device("cpu")
PACKAGE = str(Path(__file__).parents[1])
RELABELED = 64
"""Number of rows that `check_labels` labels again, in reverse order and without the rest of the batch."""
ALONE = 4
"""Number of rows with different labels that `check_labels` labels one at a time."""


class TaskError(InterpError):
    """A method of a task failed or returned an invalid value; never raised for a method that the task lacks."""


@contextmanager
def errors_named(task: Any, what: str) -> Iterator[None]:
    """Turn an exception in a user's code into a TaskError that names the method, the file and the line.

    NameErrors pass through, because a class may be checked before the names that it uses are defined.
    """
    try:
        yield
    except (InterpError, NameError, MemoryError):
        raise
    except NotImplementedError as error:
        raise UnsupportedError(f"task {task.name} does not implement {what}") from error
    except Exception as error:
        places = traceback.extract_tb(error.__traceback__)
        own = [place for place in places if not any(part in place.filename for part in ("site-packages", PACKAGE))]
        place = (own or places)[-1]
        message = short(" ".join(str(error).split()), 150)
        file = place.filename.replace("\\", "/").rsplit("/", 1)[-1]
        raise TaskError(
            f"task {task.name}: {what} raises {type(error).__name__}: {message} ({file}, line {place.lineno})"
        ) from error


def refuse(task: Any, problems: Iterable[str]) -> None:
    """Raise TaskError for the first problem."""
    for problem in problems:
        raise TaskError(f"task {task.name}: {problem}")


# ---------------------------------------------------------------- tensors


def kind_of(value: object) -> str:
    """Describe a value for an error message: a tensor's shape and dtype, and its device and layout if unusual."""
    if not isinstance(value, Tensor):
        return of_type(value)
    odd = "" if value.device.type == "cpu" else f" on {value.device}"
    odd += "" if value.layout == torch.strided else f" ({str(value.layout).removeprefix('torch.')})"
    return f"shape {tuple(value.shape)} and {value.dtype}{odd}"


def is_tensor(value: object, device: torch.device, *dtypes: torch.dtype) -> bool:
    """Test whether a value is a dense tensor of one of these dtypes on this device."""
    return (
        isinstance(value, Tensor)
        and value.layout == torch.strided
        and value.device.type == device.type
        and value.device.type != "meta"
        and value.dtype in dtypes
    )


def index_problems(task: Any, what: str, indices: Tensor) -> Iterator[str]:
    """Yield a problem if an output index is not a class of the task."""
    low, high, top = int(indices.min()), int(indices.max()), task.n_classes - 1
    if not 0 <= low <= high <= top:
        yield f"{what} runs from {low} to {high}, outside 0 to {top}"


# ---------------------------------------------------------------- batches


def batch_problems(task: Any, batch: Any, what: str, device: torch.device = CPU) -> Iterator[str]:
    """Yield the problems of the shapes, dtypes and tokens of a batch."""
    if not isinstance(batch, Batch):
        yield f"{what} gives {of_type(batch)}; it must be an interp.Batch(tokens, lengths, labels)"
        return
    tokens, lengths, labels = batch.tokens, batch.lengths, batch.labels
    if not is_tensor(tokens, device, torch.long) or tokens.ndim != 2 or (len(tokens) and not tokens.shape[1]):
        yield f"{what} has tokens of {kind_of(tokens)}; they must be (rows, length) of torch.long"
        return
    n, width = tokens.shape
    if not is_tensor(lengths, device, torch.long) or lengths.shape != (n,):
        yield f"{what} has lengths of {kind_of(lengths)}; they must be ({n},) of torch.long"
    elif n and not 1 <= int(lengths.min()) <= int(lengths.max()) <= width:
        yield f"{what} has lengths from {int(lengths.min())} to {int(lengths.max())}; they must be 1 to {width}"
    expected = (n, width) if task.readout == "all" else (n,)
    if not is_tensor(labels, device, torch.long, torch.bool) or tuple(labels.shape) != expected:
        yield (
            f"{what} has labels of {kind_of(labels)}; answers are read at {task.readout!r}, so they must be {expected} "
            "of torch.long or torch.bool"
        )
    if n and not 0 <= int(tokens.min()) <= int(tokens.max()) < task.d_vocab:
        yield f"{what} has token ids outside 0 to {task.d_vocab - 1}"


def class_problems(task: Any, what: str, classes: Any, batch: Batch) -> Iterator[str]:
    """Yield the problems of the shape, dtype and range of the classes of a batch."""
    expected = tuple(batch.tokens.shape)
    if not is_tensor(classes, batch.tokens.device, torch.long) or tuple(classes.shape) != expected:
        yield (
            f"{what} gives {kind_of(classes)}; it must be {expected} of torch.long, with an output index at each "
            f"read position and IGNORED ({IGNORED}) elsewhere"
        )
    elif len(read := classes[classes != IGNORED]):
        yield from index_problems(task, what, read)


def answer_problems(task: Any, batch: Batch) -> Iterator[str]:
    """Yield the first problem of classes(batch): invalid values, IGNORED at the readout, or other than the labels."""
    classes = task.classes(batch)
    for problem in class_problems(task, "classes(batch)", classes, batch):
        yield problem
        return
    read = classes != IGNORED
    if not read.any():
        yield "classes(batch) is IGNORED everywhere: no position is read"
    else:
        yield from _label_problems(task, batch, classes, read)


def _label_problems(
    task: Any, batch: Batch, classes: Int[Tensor, "rows length"], read: Bool[Tensor, "rows length"]
) -> Iterator[str]:
    if task.readout == "all":
        answers, labels = task.answers(classes.masked_fill(~read, 0), batch.tokens), batch.labels
        if answers.shape == labels.shape == read.shape:
            answers, labels = answers[read], labels[read]
    else:
        places = find_positions(task, batch.tokens, task.readout)
        unread = ~read.gather(1, places[:, None])[:, 0]
        if bool(unread.any()):
            row = int(unread.int().argmax())
            yield (
                f"answers are read at {task.readout!r}, which is position {int(places[row])} of row {row}, where "
                "classes(batch) is IGNORED"
            )
            return
        answers, labels = task.answers(classes.gather(1, places[:, None])[:, 0], batch.tokens), batch.labels
    if answers.shape != labels.shape or answers.dtype != labels.dtype:
        yield (
            f"answers(...) gives {kind_of(answers)}, and labels are {kind_of(labels)}; both must be in the same units"
        )
    elif not answers.equal(labels):
        at = tuple((answers != labels).nonzero()[0].tolist())
        yield f"answers(classes(batch)) is {answers[at].item()} where the label is {labels[at].item()}"


def check_batch(task: Any, batch: Batch, what: str) -> None:
    """Raise InterpError if rows, labels or classes of a batch do not fit the task or each other.

    what: the call that returned the batch, such as "inputs(4096)". A batch may be without read positions.
    """
    refuse(task, batch_problems(task, batch, what))
    if len(batch):
        check_padding(task, batch)
        classes = task.classes(batch)
        refuse(task, class_problems(task, "classes(batch)", classes, batch))
        if bool((read := classes != IGNORED).any()):
            refuse(task, _label_problems(task, batch, classes, read))
        task.check_input(batch.tokens)


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
        if again.shape != before.shape:
            raise InterpError(
                f"task {task.name} has labels of shape {tuple(batch.labels.shape)} for {len(batch):,} rows, and "
                f"{tuple(again.shape)} for {len(rows)} of them"
            )
        if bool((other := (again != before).reshape(len(rows), -1).any(1)).any()):
            row = int(rows[int(other.int().argmax())])
            text = task.format(batch.tokens[row, : int(batch.lengths[row])])
            raise InterpError(
                f"task {task.name} labels {short(text)!r} in two ways, {_short(before[other][0])} and "
                f"{_short(again[other][0])}: a label must be a function of its row alone"
            )


def _short(label: Tensor) -> str:
    return str(label.tolist()) if label.numel() < 10 else f"{str(label.flatten()[:9].tolist())[:-1]}, ...]"


def check_padding(task: Any, batch: Batch) -> None:
    """Raise InterpError unless rows are padded on the right, with the task's pad token."""
    pads = batch.tokens == -1 if task.pad_id is None else batch.tokens == task.pad_id
    if bool((inside := pads[:, :-1] & ~pads[:, 1:]).any()):
        row, place = inside.nonzero()[0].tolist()
        raise InterpError(
            f"row {row} of task {task.name} has {task.pad!r} at position {place}, before a token: rows must be padded "
            "on the right"
        )
    beyond = ~batch.attention_mask
    if not bool(beyond.any()):
        return
    if task.pad_id is None:
        raise InterpError(
            f"rows of task {task.name} have different lengths, but it names no padding token: set pad = '...'"
        )
    if bool((wrong := beyond & ~pads).any()):
        row, place = wrong.nonzero()[0].tolist()
        token = task.vocabulary[int(batch.tokens[row, place])]
        raise InterpError(
            f"row {row} of task {task.name} has {token!r} at position {place}, after its {int(batch.lengths[row])} "
            f"tokens: rows must be padded on the right with {task.pad!r}"
        )
