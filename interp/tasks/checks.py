"""What must hold of a task before it is registered: one sentence for whatever does not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor

from interp.errors import InterpError, UnsupportedError, of_type, quoted, short
from interp.tasks.base import Task, find_positions
from interp.tasks.batch import IGNORED, Batch
from interp.tasks.generation import Generates
from interp.tasks.returns import TaskError, batch_problems, class_problems, errors_named, kind_of, refuse
from interp.tasks.sets import MOST_OUTPUTS

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
    refuse(kind, _problems(kind))


def check_made(task: Task) -> None:
    """The same for a task as it was made, registered or not; tests check those of this folder."""
    if not isinstance(task, Task):
        raise InterpError(f"expected a task, got {of_type(task)}: pass a name such as 'count01', or an interp.Task")
    if not type(task).__module__.startswith(f"{__package__}."):
        refuse(task, _of_task(task))


def check_batch(task: Task, batch: Batch, what: str) -> None:
    """Raise InterpError for a batch whose rows, labels or classes do not fit the task or each other.

    what: where it is from, such as "inputs(4096)". A batch in which no position is read is left alone.
    """
    refuse(task, batch_problems(task, batch, what))
    if len(batch):
        check_padding(task, batch)
        classes = task.classes(batch)
        refuse(task, class_problems(task, "classes(batch)", classes, batch))
        if bool((classes != IGNORED).any()):
            refuse(task, _classes(task, batch))
        task.check_input(batch.tokens)


def check_tokens(task: Task, tokens: Tensor) -> None:
    """Raise InterpError for anything but rows of the task's token ids."""
    if tokens.ndim != 2 or tokens.is_floating_point() or tokens.dtype == torch.bool:
        raise InterpError(f"tokens of shape {tuple(tokens.shape)} and {tokens.dtype} must be rows of integer ids")
    if tokens.numel() and not 0 <= int(tokens.min()) <= int(tokens.max()) < task.d_vocab:
        raise InterpError(
            f"token ids run from {int(tokens.min())} to {int(tokens.max())}; "
            f"task {task.name} has ids 0 to {task.d_vocab - 1}"
        )


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
    with errors_named(task, "a declaration"):
        yield from _words(task)
    try:
        try:
            batch: Any = task.sample(ROWS, task.splits[-1], seed=0)
        except TaskError:
            raise
        except InterpError as error:
            if task.n_inputs is None and not isinstance(error, UnsupportedError):
                raise
            return  # some have no sampler: what needs one says so
        yield from batch_problems(task, batch, WHAT)
        if len(batch) != ROWS:
            yield f"{WHAT} gives {len(batch)} rows"
        yield from _classes(task, batch)
        yield from _example(task)
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
        yield f"vocabulary = {quoted(words)} must be a tuple of tokens, such as ('0', '1', '=')"
        return
    if twice := [word for word in words if words.count(word) > 1]:
        yield f"vocabulary has the token {twice[0]!r} twice"
    if odd := [word for word in words if not word or any(letter.isspace() for letter in word)]:
        yield f"the token {odd[0]!r} is empty or holds a space, so text could not be parsed: give it another name"
    yield from _tokens_named(task)
    splits = task.splits
    if not _is_words(splits) or not splits or len(set(splits)) < len(splits):
        yield f"splits = {quoted(splits)} must be a tuple of different names, such as ('train', 'test')"
    if isinstance(task.n_out, bool) or not isinstance(task.n_out, int) or task.n_out < 1:
        yield f"n_out = {quoted(task.n_out)} must be a positive integer"
    if task.decision not in (None, "set"):
        yield f"decision = {quoted(task.decision)} must be 'set', or left out"
    if task.decision == "set" and task.n_out > MOST_OUTPUTS:
        yield f"n_out = {task.n_out}: a set has at most {MOST_OUTPUTS} outputs"
    if task.generates is not None and not isinstance(task.generates, Generates):
        yield f"generates = {quoted(task.generates)} must be interp.tasks.Generates(start, stop, length), or None"
    number = task.n_inputs
    if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 1):
        yield f"n_inputs = {quoted(number)} must be a positive integer, or None"
    answers, wanted = task.answer_words, task.n_out if task.decision == "set" else max(2, task.n_out)
    if not _is_words(answers):
        yield f"answer_words = {quoted(answers)} must be a tuple of words, such as ('even', 'odd')"
    elif len(answers) != wanted:
        yield f"answer_words has {len(answers)} words for {wanted} answers"
    elif len(set(answers)) < len(answers):
        yield f"answer_words = {quoted(answers)} has a word twice"
    if (pair := task.contrast) is not None and (not _is_words(pair) or len(set(pair)) != 2 or len(pair) != 2):
        yield f"contrast = {quoted(pair)} must be a tuple of two different answer_words"
    for answer in pair or ():
        if answer not in answers:
            yield f"contrast names {answer!r}, which is not in its answer_words: {', '.join(answers)}"
    yield from _counts(task)
    for name in ("label_counts", "products"):
        if not callable(getattr(task, name, print)):
            yield f"{name} = {quoted(getattr(task, name))} must be a method"
    if not isinstance(task.describe, str):
        yield f"describe = {quoted(task.describe)} must be a sentence"


def _is_words(value: object) -> bool:
    return isinstance(value, tuple) and all(isinstance(word, str) and word for word in value)


def _tokens_named(task: Task) -> Iterator[str]:
    """Declarations that name tokens must name the task's own."""
    if not isinstance(task.readout, str):
        yield f"readout = {quoted(task.readout)} must be 'all', 'first', 'last' or a token"
    if not _is_words(task.counted):
        yield f"counted = {quoted(task.counted)} must be a tuple of tokens"
    if not isinstance(task.cyclic, Mapping) or not all(_is_words(group) and group for group in task.cyclic.values()):
        yield f"cyclic = {quoted(task.cyclic)} must be a dict from names to tuples of tokens"
    named = [("pad", task.pad)] if task.pad is not None else []
    named += [("readout", task.readout)] if task.readout not in ("all", "first", "last") else []
    named += [("counted", token) for token in task.counted]
    named += [(f"cyclic[{name!r}]", token) for name, group in task.cyclic.items() for token in group]
    for what, token in named:
        if token not in task.vocabulary:
            yield f"{what} names {token!r}, which is not a token of its vocabulary {', '.join(task.vocabulary)}"


def _counts(task: Task) -> Iterator[str]:
    """count_ranges: by split a lowest and a highest number for each counted token."""
    ranges = task.count_ranges
    if not isinstance(ranges, Mapping):
        yield f"count_ranges = {quoted(ranges)} must be a dict from splits to (lowest, highest) of each counted token"
        return
    for split, box in ranges.items():
        if split not in task.splits:
            yield f"count_ranges names the split {quoted(split)}, which is not one of {', '.join(task.splits)}"
        pairs = [*box] if isinstance(box, tuple | list) else [None]
        if len(pairs) != (len(task.counted) or len(pairs)) or not all(map(_is_range, pairs)):
            yield f"count_ranges[{split!r}] = {quoted(box)} must be (lowest, highest) for each of its counted tokens"


def _is_range(pair: object) -> bool:
    plain = isinstance(pair, tuple | list) and len(pair) == 2 and all(type(number) is int for number in pair)
    return plain and 0 <= pair[0] <= pair[1]  # type: ignore[index]


def _example(task: Task) -> Iterator[str]:
    example: Any = task.example
    if example is not None:
        yield from batch_problems(task, example, "example")
        if not len(example):
            yield "example has no row; give one short input, or None"


def _classes(task: Task, batch: Batch) -> Iterator[str]:
    classes = task.classes(batch)
    found = list(class_problems(task, "classes(batch)", classes, batch))
    if found:
        yield found[0]
        return
    read = classes != IGNORED
    if not read.any():
        yield "classes(batch) is IGNORED everywhere: no position is read"
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
        yield f"answers(...) gives {kind_of(said)}, and labels are {kind_of(right)}; both must be in the same units"
    elif not said.equal(right):
        at = (said != right).nonzero()[0].tolist()
        yield f"answers(classes(batch)) is {said[tuple(at)].item()} where the label is {right[tuple(at)].item()}"
