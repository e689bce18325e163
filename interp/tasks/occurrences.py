"""Tasks whose answer at each position depends on how often the token there occurs, such as the histogram task.

Such a task declares readout = "all" and its alphabet, `counted`. Its inputs are all rows of one length over that
alphabet, possibly after one mark such as [BOS]. The right output at a token depends on the token's count in its row, as
in the histogram task (Behrens et al. 2024, section 4) or in "which letters of this word occur once?".

The declaration is compared with the task's own labels, on every row if there are at most LISTED rows. Otherwise a
sample is compared, and `unchecked` reports the assumption about the other rows. A task may instead define label_counts,
from a token's count to the right output index.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from interp.errors import InterpError, UnsupportedError
from interp.tasks.base import Task
from interp.tasks.batch import IGNORED, Batch
from interp.tasks.domain import Drawn
from interp.tasks.roles import defines_labels

CHECKED = 2048
"""Approximate number of rows in the sample."""
LISTED = 1 << 17
ROWS_AT_ONCE = 1 << 13


@dataclass(frozen=True)
class Occurrences:
    """The token ids and output indices of a task whose answers depend on the count of each token.

    tokens: the alphabet. marks: at most one token at the start of every row, which is neither counted nor read. length:
    number of alphabet tokens in a row. classes: the right outputs for tokens that occur 1, 2, ..., length times.
    """

    tokens: tuple[int, ...]
    marks: tuple[int, ...]
    length: int
    classes: tuple[int, ...]

    @property
    def n_inputs(self) -> int:
        return int(len(self.tokens) ** self.length)

    def rows(self, sequences: Int[Tensor, "rows length"]) -> Int[Tensor, "rows marked_length"]:
        """Make rows, as a model reads them, from sequences of indices into the alphabet."""
        body = torch.tensor(self.tokens)[sequences]
        return torch.cat([torch.tensor(self.marks, dtype=torch.long).expand(len(body), -1), body], 1)

    def holds(self, batch: Batch) -> Bool[Tensor, "rows"]:
        """Return a mask of the rows of a batch that have this shape."""
        body = batch.tokens[:, len(self.marks) : len(self.marks) + self.length]
        if body.shape[1] < self.length:
            return torch.zeros(len(batch), dtype=torch.bool)
        marked = (batch.tokens[:, : len(self.marks)] == torch.tensor(self.marks, dtype=torch.long)).all(1)
        inside = torch.isin(body, torch.tensor(self.tokens)).all(1)
        return marked & inside & (batch.lengths == len(self.marks) + self.length)

    def batch(self, task: Task, sequences: Int[Tensor, "rows length"]) -> Batch:
        return task.batch(self.rows(sequences))


def undeclared(task: Task) -> str | None:
    """Return a sentence that names the missing declarations, or None if a task has them all."""
    if task.counted and task.readout == "all":
        return None
    return f"task {task.name} does not declare an alphabet to count at every position (counted, readout = 'all')"


def occurrences_of(task: Task) -> Occurrences:
    """Return the shape that a task declares. Its classes come from a sample of labels; labels_differ compares them all.

    Raises UnsupportedError, with the reason, if a task declares no such shape or its inputs do not have it, and
    InterpError if every split has a sample without this shape.
    """
    if (reason := undeclared(task)) is not None:
        raise UnsupportedError(reason)
    tokens = tuple(task.token_id(token) for token in task.counted)
    marks, length = _frame(task, tokens)
    found = Occurrences(tokens, marks, length, ())
    if task.n_inputs not in (None, found.n_inputs):
        raise UnsupportedError(
            f"task {task.name} has {task.n_inputs:,} inputs, not all {len(tokens)}^{length} rows of its counted tokens"
        )
    drawn = Drawn(task)
    drawn.drop(found.holds)
    drawn.finish()
    sequences = _probe_sequences(len(tokens), length)
    said = _own_classes(task, found, sequences)
    right = torch.full((length + 1,), -1)
    right[_counts(sequences).flatten()] = said.flatten()  # _differs then compares them all
    if (label := getattr(task, "label_counts", None)) is not None:
        right[1:] = label(torch.arange(1, length + 1))
    right = torch.where(right < 0, right.max(), right)  # counts that cannot occur if the alphabet has one token
    found = replace(found, classes=tuple(right[1:].tolist()))
    if (reason := _differs(task, found, sequences, said)) is not None:
        raise UnsupportedError(reason)
    return found


def labels_differ(task: Task, shape: Occurrences) -> str | None:
    """Compare the labels of all rows with the shape; return a sentence about the first difference, or None.

    Returns None, without a comparison, if there are more than LISTED rows.
    """
    if shape.n_inputs > LISTED:
        return None
    places = len(shape.tokens) ** torch.arange(shape.length)
    for index in torch.arange(shape.n_inputs).split(ROWS_AT_ONCE):
        sequences = index[:, None] // places % len(shape.tokens)
        try:
            said = _own_classes(task, shape, sequences)
        except UnsupportedError as error:
            return str(error)
        if (reason := _differs(task, shape, sequences, said)) is not None:
            return reason
    return None


def unchecked(task: Task, shape: Occurrences) -> tuple[str, ...]:
    """Return the unchecked assumptions about labels; empty if label_counts defines them or all were compared."""
    if shape.n_inputs <= LISTED or defines_labels(task):
        return ()
    return (
        f"labels: compared on {len(_probe_sequences(len(shape.tokens), shape.length)):,} rows; unchecked assumption: a "
        f"token's count determines the other labels of task {task.name} (label_counts would define them)",
    )


def _own_classes(task: Task, shape: Occurrences, sequences: Int[Tensor, "rows length"]) -> Int[Tensor, "rows length"]:
    """Return the task's own classes at each counted token. Raises UnsupportedError if it cannot label the rows."""
    try:
        task.check_input(shape.rows(sequences))
        classes = task.classes(shape.batch(task, sequences))
    except InterpError as error:
        raise UnsupportedError(f"task {task.name} does not label all rows of its counted tokens: {error}") from None
    if shape.marks and bool((classes[:, 0] != IGNORED).any()):
        raise UnsupportedError(f"task {task.name} is also read at {task.vocabulary[shape.marks[0]]!r}")
    return classes[:, len(shape.marks) :]


def _counts(sequences: Int[Tensor, "rows length"]) -> Int[Tensor, "rows length"]:
    """Return the count of each token in its row."""
    return (sequences[:, :, None] == sequences[:, None, :]).sum(-1)


def _differs(
    task: Task, shape: Occurrences, sequences: Int[Tensor, "rows length"], said: Int[Tensor, "rows length"]
) -> str | None:
    """Return a sentence about the first label that differs from the shape, or None."""
    counts = _counts(sequences)
    wrong = (said != torch.tensor(shape.classes)[counts - 1]) | (said < 0)
    if not bool(wrong.any()):
        return None
    row, at = wrong.nonzero()[0].tolist()
    text = task.format(shape.rows(sequences[row : row + 1])[0])
    return (
        f"task {task.name} labels position {at + len(shape.marks)} of {text!r} differently from other tokens that "
        f"occur {int(counts[row, at])} times"
    )


def _frame(task: Task, tokens: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
    """Return the mark of the task's example, if any, and its number of counted tokens.

    If n_inputs is unknown, samples must have the same ones.
    """
    example = task.example
    if example is None:
        raise UnsupportedError(f"task {task.name} gives no example, so the length of its rows is unknown")
    batches = [example]
    if task.n_inputs is None:
        batches += [task.sample(64, split, seed=0) for split in task.splits]
    frames = set()
    for batch in batches:
        for row, n in zip(batch.tokens.tolist(), batch.lengths.tolist()):
            marks = tuple(token for token in row[:n] if token not in tokens)
            if len(marks) > 1 or tuple(row[: len(marks)]) != marks:
                raise UnsupportedError(
                    f"rows of task {task.name} must be its counted tokens, after one mark at most: "
                    f"{task.format(row[:n])!r}"
                )
            frames.add((marks, n - len(marks)))
    if len(frames) > 1:
        raise UnsupportedError(f"rows of task {task.name} have several lengths, or several marks before them")
    return frames.pop()


def _probe_sequences(letters: int, length: int) -> Int[Tensor, "rows length"]:
    """Return rows with every count of (up to CHECKED / length) tokens among random others, and rows of few tokens."""
    generator = torch.Generator().manual_seed(0)
    each = max(1, min(letters, CHECKED // length))
    chosen = torch.randperm(letters, generator=generator)[:each]
    own = chosen.repeat_interleave(length)[:, None]
    often = torch.arange(1, length + 1).repeat(each)[:, None]
    others = torch.randint(max(1, letters - 1), (len(own), length), generator=generator)
    others = (others + (others >= own).long()).clamp(max=letters - 1)
    rows = torch.where(torch.arange(length) < often, own, others)
    few = torch.randint(letters, (256, length), generator=generator) % torch.arange(1, 257)[:, None].clamp(max=letters)
    rows = torch.cat([rows, few])
    return rows.gather(1, torch.rand(rows.shape, generator=generator).argsort(1))
