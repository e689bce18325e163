"""What must hold of a task before it is registered: one sentence for whatever does not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor

from interp.errors import InterpError, UnsupportedError, of_type, short
from interp.tasks.base import Task, find_positions
from interp.tasks.batch import IGNORED, Batch

ROWS = 3
"""Inputs that are sampled for the checks."""
WHAT = f"sample({ROWS})"
AGAIN = 64
"""So many rows of a batch are labelled a second time, in another order and fewer together."""
ALONE = 4
"""Rows of different labels that are labelled alone."""


def check_task(kind: type[Task]) -> None:
    """Raise InterpError, one sentence, for members that are missing and for answers that do not fit.

    A task that cannot be made from its defaults alone (it needs tables) is checked as far as its class goes.
    """
    for problem in _problems(kind):
        raise InterpError(f"task {kind.name}: {problem}")


def check_made(task: Task) -> None:
    """The same for a task that nobody registered, as it was made."""
    if not isinstance(task, Task):
        raise InterpError(f"{of_type(task)} is no task; give a name such as 'count01', or an interp.Task")
    for problem in _of_task(task):
        raise InterpError(f"task {task.name}: {problem}")


def check_batch(task: Task, batch: Batch, what: str) -> None:
    """Raise InterpError for a batch whose rows, labels or classes do not fit the task or each other.

    what: where it is from, such as "inputs(4096)". A batch in which no position is read is left alone.
    """
    problems = list(_batch(batch, what, None))
    if not problems and len(batch):
        check_padding(task, batch)
        problems = list(_tokens(task, batch, what))
        if not problems and bool((task.classes(batch) != IGNORED).any()):
            problems = list(_classes(task, batch))
    for problem in problems:
        raise InterpError(f"task {task.name}: {problem}")
    if len(batch):
        task.check_input(batch.tokens)


def check_labels(task: Task, batch: Batch) -> None:
    """Raise InterpError unless `batch` gives some rows, alone and in other company, the labels that they have here."""
    if type(task).batch is Task.batch:
        return
    _, kinds = np.unique(batch.labels.reshape(len(batch), -1).sum(1).numpy(), return_index=True)
    alone = torch.from_numpy(kinds[:ALONE])[:, None]
    for rows in (*alone, torch.arange(len(batch) // 3, len(batch))[:AGAIN].flip(0)):
        again, listed = task.batch(batch.tokens[rows]).labels, batch.labels[rows]
        if again.shape != listed.shape:
            raise InterpError(
                f"task {task.name} has labels of shape {tuple(batch.labels.shape)} for {len(batch):,} rows, and "
                f"{tuple(again.shape)} for {len(rows)} of them"
            )
        if bool((other := (again != listed).reshape(len(rows), -1).any(1)).any()):
            row = int(rows[int(other.int().argmax())])
            text = task.format(batch.tokens[row, : int(batch.lengths[row])])
            raise InterpError(
                f"task {task.name} labels {short(text)!r} in two ways, {_short(listed[other][0])} and "
                f"{_short(again[other][0])}: a label must be a function of its row alone"
            )


def _short(label: Tensor) -> str:
    return str(label.tolist()) if label.numel() < 10 else f"{str(label.flatten()[:9].tolist())[:-1]}, ...]"


def check_padding(task: Task, batch: Batch) -> None:
    """Raise InterpError unless rows are filled up on the right, with the task's pad: masks and places rest on it."""
    if task.pad_id is not None and bool((inside := _then_a_token(batch.tokens == task.pad_id)).any()):
        row, place = inside.nonzero()[0].tolist()
        raise InterpError(
            f"row {row} of task {task.name} has {task.pad!r} at position {place}, before a token: rows are filled up "
            "on the right"
        )
    beyond = ~batch.attention_mask
    if not bool(beyond.any()):
        return
    if task.pad_id is None:
        raise InterpError(
            f"rows of task {task.name} have different lengths, but it names no token that fills them up: pad = '...'"
        )
    wrong = beyond & (batch.tokens != task.pad_id)
    if bool(wrong.any()):
        row, place = wrong.nonzero()[0].tolist()
        token = task.vocabulary[int(batch.tokens[row, place])]
        raise InterpError(
            f"row {row} of task {task.name} has {token!r} at position {place}, beyond its {int(batch.lengths[row])} "
            f"tokens: rows are filled up on the right, with {task.pad!r}"
        )


def _then_a_token(pads: Bool[Tensor, "rows length"]) -> Bool[Tensor, "rows shorter"]:
    """Where something else follows padding."""
    return pads[:, :-1] & ~pads[:, 1:]


def _problems(kind: type[Task]) -> Iterator[str]:
    if missing := sorted(getattr(kind, "__abstractmethods__", ())):
        yield f"define {', '.join(missing)}; help(interp.Task) says what each is"
        return
    if kind.needs_tables:
        return
    task = _made(kind)
    if isinstance(task, str):
        yield task
        return
    yield from _of_task(task)


def _of_task(task: Task) -> Iterator[str]:
    yield from _words(task)
    try:
        batch: Any = task.sample(ROWS, task.splits[-1], seed=0)
        yield from _batch(batch, WHAT, ROWS)
        yield from _tokens(task, batch, WHAT)
        yield from _classes(task, batch)
        again = task.sample(ROWS, task.splits[-1], seed=0)
        if not again.tokens.equal(batch.tokens) or not again.labels.equal(batch.labels):
            yield f"sample({ROWS}, seed=0) gives another batch each time; draw from a generator made from the seed"
        try:
            check_labels(task, batch)
        except UnsupportedError:  # it labels no given tokens
            return
    except NameError as error:
        yield f"its methods use a name that does not exist yet ({error}); define it above the class"


def _made(kind: type[Task]) -> Task | str:
    try:
        return kind()
    except (TypeError, AttributeError) as error:
        return f"{kind.__name__}() cannot be made from its defaults: {error}"


def _words(task: Task) -> Iterator[str]:
    words = getattr(task, "vocabulary", None)
    if not isinstance(words, tuple) or not words or not all(isinstance(word, str) for word in words):
        yield f"vocabulary = {words!r} must be a tuple of tokens, such as ('0', '1', '=')"
        return
    if twice := [word for word in words if words.count(word) > 1]:
        yield f"vocabulary has the token {twice[0]!r} twice"
    if odd := [word for word in words if not word or any(letter.isspace() for letter in word)]:
        yield f"the token {odd[0]!r} is empty or holds a space; text could not be parsed into tokens"
    named = [("pad", task.pad)] if task.pad is not None else []
    named += [("readout", task.readout)] if task.readout not in ("all", "first", "last") else []
    named += [("counted", token) for token in task.counted]
    named += [(f"cyclic[{name!r}]", token) for name, group in task.cyclic.items() for token in group]
    for what, token in named:
        if token not in words:
            yield f"{what} names {token!r}, which is no token of its vocabulary {', '.join(words)}"
    if not task.splits:
        yield "splits is empty; name at least one"
    if isinstance(task.n_out, bool) or not isinstance(task.n_out, int) or task.n_out < 1:
        yield f"n_out = {task.n_out!r} must be a positive integer"
        return
    answers = task.answer_words
    if len(answers) != max(2, task.n_out):
        yield f"answer_words has {len(answers)} words for {max(2, task.n_out)} answers"
    for answer in task.contrast or ():
        if answer not in answers:
            yield f"contrast names {answer!r}, which is none of its answer_words {', '.join(answers)}"


def _batch(batch: Any, what: str, rows: int | None) -> Iterator[str]:
    """What is wrong with the shapes and kinds of a batch, of so many rows if that is asked."""
    if not isinstance(batch, Batch):
        yield f"{what} gives {of_type(batch)}; it must be an interp.Batch(tokens, lengths, labels)"
        return
    tokens, lengths, labels = batch.tokens, batch.lengths, batch.labels
    n = len(tokens) if rows is None else rows
    if tokens.ndim != 2 or len(tokens) != n or tokens.dtype != torch.long:
        wanted = "rows" if rows is None else n
        yield f"{what} has tokens of {_kind(tokens)}; they must be ({wanted}, length) of torch.long"
        return
    if lengths.shape != (n,) or lengths.dtype != torch.long or (n and int(lengths.max()) > tokens.shape[1]):
        yield f"{what} has lengths of {_kind(lengths)}; they must be ({n},) of torch.long, up to the width"
    if labels.shape not in ((n,), tuple(tokens.shape)) or labels.dtype not in (torch.long, torch.bool):
        yield (
            f"{what} has labels of {_kind(labels)}; they must be ({n},), or {tuple(tokens.shape)} for an "
            "answer at each position, of torch.long or torch.bool"
        )


def _tokens(task: Task, batch: Batch, what: str) -> Iterator[str]:
    if not 0 <= int(batch.tokens.min()) <= int(batch.tokens.max()) < task.d_vocab:
        yield f"{what} has token ids outside 0 to {task.d_vocab - 1}"


def _classes(task: Task, batch: Batch) -> Iterator[str]:
    classes = task.classes(batch)
    if not isinstance(classes, torch.Tensor) or classes.shape != batch.tokens.shape:
        shape = tuple(classes.shape) if isinstance(classes, torch.Tensor) else type(classes).__name__
        yield (
            f"classes(batch) gives {shape}; it must be {tuple(batch.tokens.shape)}, an output index at each position "
            f"that is read and IGNORED ({IGNORED}) elsewhere"
        )
        return
    read = classes != IGNORED
    top = max(2, task.n_out)
    if not read.any():
        yield "classes(batch) is IGNORED everywhere: no position is read"
    elif not 0 <= int(classes[read].min()) <= int(classes[read].max()) < top:
        low, high = int(classes[read].min()), int(classes[read].max())
        yield f"classes(batch) runs from {low} to {high}, outside 0 to {top - 1}"
    else:
        yield from _answers(task, batch, classes, read)


def _answers(task: Task, batch: Batch, classes: torch.Tensor, read: torch.Tensor) -> Iterator[str]:
    """The right classes must stand where the task is read, and must be turned into the labels."""
    if task.readout != "all":
        places = find_positions(task, batch.tokens, task.readout)
        unread = ~read.gather(1, places[:, None])[:, 0]
        if bool(unread.any()):
            row = int(unread.int().argmax())
            yield (
                f"answers are read at {task.readout!r}, which is position {int(places[row])} of row {row}, where "
                "classes(batch) is IGNORED"
            )
            return
    if task.readout == "all":
        said, right = task.answers(classes.masked_fill(~read, 0), batch.tokens), batch.labels
        if said.shape == right.shape == read.shape:
            said, right = said[read], right[read]
    else:
        said, right = task.answers(classes.gather(1, places[:, None])[:, 0], batch.tokens), batch.labels
    if said.shape != right.shape or said.dtype != right.dtype:
        yield f"answers(...) gives {_kind(said)}, and labels are {_kind(right)}; both must be in the same units"
    elif not said.equal(right):
        at = (said != right).nonzero()[0].tolist()
        yield f"answers(classes(batch)) is {said[tuple(at)].item()} where the label is {right[tuple(at)].item()}"


def _kind(tensor: torch.Tensor) -> str:
    return f"shape {tuple(tensor.shape)} and {tensor.dtype}"
