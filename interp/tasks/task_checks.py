"""Checks of tasks: a bad declaration gets one sentence that names the task and the value.

A task is checked when it is registered or used in a model, on its declarations and on a small sample.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from interp.errors import InterpError, UnsupportedError, of_type, quoted
from interp.tasks.batch_checks import OWN, answer_problems, batch_problems, check_labels, refuse
from interp.tasks.sets import MOST_OUTPUTS
from interp.tasks.task import Task

ROWS = 3
"""Number of inputs that check_made samples."""


def check_task(kind: type[Task]) -> None:
    """Raise InterpError for the first member of a task class that is missing or invalid.

    If the task needs tables, it has no default instance, so only the class itself is checked.
    """
    if missing := sorted(getattr(kind, "__abstractmethods__", ())):
        refuse(kind, [f"define {', '.join(missing)}; help(interp.Task) describes each member"])
    if not kind.needs_tables:
        try:
            task = kind()
        except (TypeError, AttributeError) as error:
            raise InterpError(
                f"task {kind.name}: {kind.__name__}() cannot be made from its defaults: {error}"
            ) from error
        refuse(task, _task_problems(task))


def check_made(task: Task) -> None:
    """Raise InterpError for the first problem of a task object. This package's own tasks are checked by its tests."""
    if not hasattr(task, "vocabulary") or not hasattr(task, "sample"):
        raise InterpError(f"expected a task, got {of_type(task)}: pass a name such as 'count01', or an interp.Task")
    if not type(task).__module__.startswith(OWN):
        refuse(task, _task_problems(task))


def _task_problems(task: Task) -> Iterator[str]:
    yield from _declaration_problems(task)
    try:
        batch = task.sample(ROWS, task.splits[-1], seed=0)
        again = task.sample(ROWS, task.splits[-1], seed=0)
    except UnsupportedError:
        return  # a task without a sampler; code that needs one raises its own error
    except NameError as error:
        yield f"its methods use a name that does not exist yet ({error}); define it above the class"
        return
    refuse(task, batch_problems(task, batch, f"sample({ROWS})"))
    if len(batch) != ROWS:
        yield f"sample({ROWS}) gives {len(batch)} rows"
    yield from answer_problems(task, batch)
    if task.example is not None:
        yield from batch_problems(task, task.example, "example")
    if not again.tokens.equal(batch.tokens) or not again.labels.equal(batch.labels):
        yield f"sample({ROWS}, seed=0) gives another batch each time; draw from a generator made from the seed"
    check_labels(task, batch)


def _declaration_problems(task: Task) -> Iterator[str]:
    for name in ("n_out", "n_inputs"):
        number = getattr(task, name)
        if (type(number) is not int or number < 1) and not (name == "n_inputs" and number is None):
            yield f"{name} = {quoted(number)} must be a positive integer{', or None' if name == 'n_inputs' else ''}"
    for name in ("vocabulary", "splits", "answer_words", "counted", "contrast"):
        words = getattr(task, name)
        if words is None and name == "contrast":
            continue
        if not isinstance(words, tuple) or not all(isinstance(word, str) and word for word in words):
            yield f"{name} = {quoted(words)} must be a tuple of words, such as ('0', '1')"
        elif twice := [word for word in words if words.count(word) > 1]:
            yield f"{name} has {twice[0]!r} twice"
        elif not words and name != "counted":
            yield f"{name} is empty"
    if odd := [word for word in task.vocabulary if any(letter.isspace() for letter in word)]:
        yield f"the token {odd[0]!r} contains a space, so text could not be parsed: rename it"
    if task.decision not in (None, "set"):
        yield f"decision = {quoted(task.decision)} must be 'set', or left out"
    if task.decision == "set" and task.n_out > MOST_OUTPUTS:
        yield f"n_out = {task.n_out}: tasks with decision = 'set' have at most {MOST_OUTPUTS} outputs"
    answers, expected = task.answer_words, task.n_out if task.decision == "set" else max(2, task.n_out)
    if len(answers) != expected:
        yield f"answer_words has {len(answers)} words for {expected} answers"
    if task.contrast is not None and (len(task.contrast) != 2 or not {*task.contrast} <= {*answers}):
        yield f"contrast = {task.contrast} must be two of its answer_words: {', '.join(answers)}"
    named = [("pad", task.pad)] if task.pad is not None else []
    named += [("readout", task.readout)] if task.readout not in ("all", "first", "last") else []
    named += [("counted", token) for token in task.counted]
    if not isinstance(task.cyclic, Mapping):
        yield f"cyclic = {quoted(task.cyclic)} must be a dict from names to tuples of tokens"
    named += [(f"cyclic[{name!r}]", token) for name, group in task.cyclic.items() for token in group]
    for what, token in named:
        if token not in task.vocabulary:
            yield f"{what} names {token!r}, which is not a token of its vocabulary {', '.join(task.vocabulary)}"
    for split, box in dict(task.count_ranges).items():
        if split not in task.splits:
            yield f"count_ranges names the split {quoted(split)}, which is not one of {', '.join(task.splits)}"
        good = [isinstance(pair, tuple | list) and len(pair) == 2 and 0 <= pair[0] <= pair[1] for pair in box]
        if len(good) != (len(task.counted) or len(good)) or not all(good):
            yield f"count_ranges[{split!r}] = {quoted(box)} must be (lowest, highest) for each of its counted tokens"
