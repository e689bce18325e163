"""Inputs as people type them: text, tokens, ids, or a batch."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from interp.errors import InterpError, of_type, quoted
from interp.measures.subject import Subject
from interp.populations import usual
from interp.tasks import Batch, Task
from interp.tasks.validation import check_tokens

Inputs: TypeAlias = Batch | str | Tensor | Sequence[Any]
"""A Batch; a text such as "3 1 4 =", which the task splits; a list of its tokens or their ids; a tensor of the task's
token ids; or a list of texts, or of lists of tokens."""


def as_batch(subject: Subject, given: Inputs, labeled: bool = True) -> Batch:
    """Return inputs as a batch, padded on the right.

    A flat list of tokens or ids is one input; a flat list of other strings is one text each. labeled: whether labels
    are needed; without them, they are -1. Raises InterpError for anything that is not an input of the task, and
    UnsupportedError if labels are needed and the task cannot label given tokens.
    """
    task = subject.task
    if isinstance(given, Batch):
        return given
    rows = _rows(task, given)
    if not rows or not all(rows):
        raise InterpError("there is no input, or an input without tokens")
    lengths = torch.tensor([len(row) for row in rows])
    longest = int(lengths.max())
    if task.pad_id is None and int(lengths.min()) < longest:
        raise InterpError(f"task {task.name} has no padding token, so all inputs of one call must have one length")
    tokens = torch.tensor([row + [task.pad_id or 0] * (longest - len(row)) for row in rows])
    check_tokens(task, tokens)
    if labeled or task.labels_tokens:
        return task.batch(tokens)
    return Batch(tokens, lengths, torch.full(tokens.shape, -1))


def _rows(task: Task, given: Any) -> list[list[int]]:
    if isinstance(given, str):
        return [task.parse(given)]
    if isinstance(given, Tensor):
        given = given.tolist()
    if not isinstance(given, list | tuple):
        raise InterpError(
            f"{of_type(given)} is not an input: give a text, a list of tokens, a tensor of ids or a Batch"
        )
    words = set(task.vocabulary)
    if given and all(isinstance(one, str) and one not in words for one in given):
        return [task.parse(text) for text in given]
    if any(isinstance(one, list | tuple | Tensor) for one in given):
        return [row for one in given for row in _rows(task, one)]
    return [[_token(task, one) for one in given]]


def _token(task: Task, one: Any) -> int:
    if isinstance(one, str):
        return task.token_id(one)
    if isinstance(one, int) and not isinstance(one, bool):
        return one
    raise InterpError(f"{quoted(one)} is neither a token of task {task.name} nor its id")


def batch_of(subject: Subject, given: Inputs | None, split: str = "test", most: int | None = None) -> Batch:
    """Return the given inputs, or else the default ones of a split (see populations.usual), at most `most` of them."""
    if given is not None:
        return as_batch(subject, given)
    return usual(subject.task, split, fixed=subject.own_split).batch[slice(0, most)]
