"""Checks of a task's declarations, made when the task is registered or used in a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from interp.errors import InterpError, UnsupportedError, of_type, quoted
from interp.tasks.base import Task
from interp.tasks.generation import Generates
from interp.tasks.problems import TaskError, answer_problems, batch_problems, check_labels, errors_named, refuse
from interp.tasks.sets import MOST_OUTPUTS

ROWS = 3
"""Number of inputs that the checks sample."""
WHAT = f"sample({ROWS})"


def check_task(kind: type[Task]) -> None:
    """Raise InterpError for the first member of a task class that is missing or invalid.

    If the task needs tables, it has no default instance, so only the class itself is checked.
    """
    refuse(kind, _class_problems(kind))


def check_made(task: Task) -> None:
    """Raise InterpError for the first problem of a task object. This package's own tasks are checked by its tests."""
    if not isinstance(task, Task):
        raise InterpError(f"expected a task, got {of_type(task)}: pass a name such as 'count01', or an interp.Task")
    if not type(task).__module__.startswith(f"{__package__}."):
        refuse(task, _task_problems(task))


def _class_problems(kind: type[Task]) -> Iterator[str]:
    if missing := sorted(getattr(kind, "__abstractmethods__", ())):
        yield f"define {', '.join(missing)}; help(interp.Task) describes each member"
    elif not kind.needs_tables:
        try:
            task = kind()
        except (TypeError, AttributeError) as error:
            yield f"{kind.__name__}() cannot be made from its defaults: {error}"
        else:
            yield from _task_problems(task)


def _task_problems(task: Task) -> Iterator[str]:
    with errors_named(task, "a declaration"):
        yield from _declaration_problems(task)
    try:
        try:
            batch: Any = task.sample(ROWS, task.splits[-1], seed=0)
        except TaskError:
            raise
        except InterpError as error:
            if task.n_inputs is None and not isinstance(error, UnsupportedError):
                raise
            return  # a task without a sampler; code that needs one raises its own error
        yield from batch_problems(task, batch, WHAT)
        if len(batch) != ROWS:
            yield f"{WHAT} gives {len(batch)} rows"
        yield from answer_problems(task, batch)
        if task.example is not None:
            yield from batch_problems(task, task.example, "example")
            if not len(task.example):
                yield "example has no row; it must be one short input, or None"
        again = task.sample(ROWS, task.splits[-1], seed=0)
        if not again.tokens.equal(batch.tokens) or not again.labels.equal(batch.labels):
            yield f"sample({ROWS}, seed=0) gives another batch each time; draw from a generator made from the seed"
        try:
            check_labels(task, batch)
        except UnsupportedError:  # it cannot label given tokens
            return
    except NameError as error:
        yield f"its methods use a name that does not exist yet ({error}); define it above the class"


def _declaration_problems(task: Task) -> Iterator[str]:
    words = getattr(task, "vocabulary", None)
    if not isinstance(words, tuple) or not words or not all(isinstance(word, str) for word in words):
        yield f"vocabulary = {quoted(words)} must be a tuple of tokens, such as ('0', '1', '=')"
        return
    if twice := [word for word in words if words.count(word) > 1]:
        yield f"vocabulary has the token {twice[0]!r} twice"
    if odd := [word for word in words if not word or any(letter.isspace() for letter in word)]:
        yield f"the token {odd[0]!r} is empty or contains a space, so text could not be parsed: rename it"
    yield from _token_problems(task)
    splits = task.splits
    if not _is_words(splits) or not splits or len(set(splits)) < len(splits):
        yield f"splits = {quoted(splits)} must be a tuple of different names, such as ('train', 'test')"
    if isinstance(task.n_out, bool) or not isinstance(task.n_out, int) or task.n_out < 1:
        yield f"n_out = {quoted(task.n_out)} must be a positive integer"
    if task.decision not in (None, "set"):
        yield f"decision = {quoted(task.decision)} must be 'set', or left out"
    if task.decision == "set" and task.n_out > MOST_OUTPUTS:
        yield f"n_out = {task.n_out}: tasks with decision = 'set' have at most {MOST_OUTPUTS} outputs"
    if task.generates is not None and not isinstance(task.generates, Generates):
        yield f"generates = {quoted(task.generates)} must be interp.tasks.Generates(start, stop, length), or None"
    number = task.n_inputs
    if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 1):
        yield f"n_inputs = {quoted(number)} must be a positive integer, or None"
    answers, expected = task.answer_words, task.n_out if task.decision == "set" else max(2, task.n_out)
    if not _is_words(answers):
        yield f"answer_words = {quoted(answers)} must be a tuple of words, such as ('even', 'odd')"
    elif len(answers) != expected:
        yield f"answer_words has {len(answers)} words for {expected} answers"
    elif len(set(answers)) < len(answers):
        yield f"answer_words = {quoted(answers)} has a word twice"
    if (pair := task.contrast) is not None and (not _is_words(pair) or len(set(pair)) != 2 or len(pair) != 2):
        yield f"contrast = {quoted(pair)} must be a tuple of two different answer_words"
    for answer in pair or ():
        if answer not in answers:
            yield f"contrast names {answer!r}, which is not in its answer_words: {', '.join(answers)}"
    yield from _range_problems(task)
    for name in ("label_counts", "products"):
        if not callable(getattr(task, name, print)):
            yield f"{name} = {quoted(getattr(task, name))} must be a method"
    if not isinstance(task.describe, str):
        yield f"describe = {quoted(task.describe)} must be a sentence"


def _is_words(value: object) -> bool:
    return isinstance(value, tuple) and all(isinstance(word, str) and word for word in value)


def _token_problems(task: Task) -> Iterator[str]:
    """Yield the problems of declarations that name tokens: each token must be in the vocabulary."""
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


def _range_problems(task: Task) -> Iterator[str]:
    """Yield the problems of count_ranges: for each split, the lowest and highest count of each counted token."""
    ranges = task.count_ranges
    if not isinstance(ranges, Mapping):
        yield f"count_ranges = {quoted(ranges)} must be a dict from splits to (lowest, highest) for each counted token"
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
