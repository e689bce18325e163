"""Tasks whose answer at each position depends on how often the token there occurs, such as the histogram task.

Such a task declares readout = "all" and its alphabet, `counted`. Its inputs are all rows of one length over that
alphabet, possibly after one mark such as [BOS]. The right output at a token depends on the token's count in its row, as
in the histogram task (Behrens et al. 2024, section 4) or in "which letters of this word occur once?". It may be defined
by label_counts, from a token's count to the right output index; otherwise it is learned from labels.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from interp.errors import InterpError, UnsupportedError, refuse_if
from interp.tasks.batch import IGNORED, Batch
from interp.tasks.structure import Structure, difference
from interp.tasks.task import Task

CHECKED = 2048
"""Approximate number of rows in the sample."""
ROWS_AT_ONCE = 1 << 13


@dataclass(frozen=True)
class Occurrences(Structure):
    """The token ids and output indices of a task whose answers depend on the count of each token.

    tokens: the alphabet. marks: at most one token at the start of every row, which is neither counted nor read. length:
    number of alphabet tokens in a row. classes: the right outputs for tokens that occur 1, 2, ..., length times.
    """

    tokens: tuple[int, ...]
    marks: tuple[int, ...]
    length: int
    classes: tuple[int, ...]
    what = "its counted tokens"
    listed = 1 << 17

    @property
    def n_inputs(self) -> int:
        return int(len(self.tokens) ** self.length)

    def rows(self, sequences: Int[Tensor, "rows length"]) -> Int[Tensor, "rows marked_length"]:
        """Make rows, as a model reads them, from sequences of indices into the alphabet."""
        body = torch.tensor(self.tokens)[sequences]
        return torch.cat([torch.tensor(self.marks, dtype=torch.long).expand(len(body), -1), body], 1)

    def every(self) -> Iterator[Int[Tensor, "rows length"]]:
        places = len(self.tokens) ** torch.arange(self.length)
        for index in torch.arange(self.n_inputs).split(ROWS_AT_ONCE):
            yield self.rows(index[:, None] // places % len(self.tokens))

    def some(self) -> Int[Tensor, "rows length"]:
        return self.rows(_probe_sequences(len(self.tokens), self.length))

    def answers(self, task: Task, rows: Int[Tensor, "rows length"]) -> Int[Tensor, "rows length"]:
        right = torch.tensor(self.classes)[_counts(rows[:, len(self.marks) :]) - 1]
        return torch.nn.functional.pad(right, (len(self.marks), 0), value=IGNORED)

    def holds(self, batch: Batch) -> Bool[Tensor, "rows"]:
        body = batch.tokens[:, len(self.marks) : len(self.marks) + self.length]
        if body.shape[1] < self.length:
            return torch.zeros(len(batch), dtype=torch.bool)
        marked = (batch.tokens[:, : len(self.marks)] == torch.tensor(self.marks, dtype=torch.long)).all(1)
        inside = torch.isin(body, torch.tensor(self.tokens)).all(1)
        return marked & inside & (batch.lengths == len(self.marks) + self.length)

    def assumption(self, task: Task) -> str:
        return f"a token's count determines the other labels of task {task.name} (label_counts would define them)"


def undeclared(task: Task) -> str | None:
    """Return a sentence that names the missing declarations, or None if a task has them all."""
    if task.counted and task.readout == "all":
        return None
    return f"task {task.name} does not declare an alphabet to count at every position (counted, readout = 'all')"


def declared(task: Task) -> Occurrences:
    """Return the shape that a task declares, with classes from a sample of its labels or from label_counts.

    Raises UnsupportedError, with the reason, if it declares no such shape or labels the sample otherwise.
    """
    refuse_if(undeclared(task))
    tokens = tuple(task.token_id(token) for token in task.counted)
    marks, length = _frame(task, tokens)
    shape = Occurrences(tokens, marks, length, ())
    rows = shape.some()
    right = torch.full((length + 1,), -1)
    if (label := getattr(task, "label_counts", None)) is not None:
        right[1:] = label(torch.arange(1, length + 1))
    else:
        try:
            labels = task.classes(task.batch(rows))[:, len(marks) :]
        except InterpError as error:
            raise UnsupportedError(f"task {task.name} does not label rows of its counted tokens: {error}") from None
        right[_counts(rows[:, len(marks) :]).flatten()] = labels.flatten()  # `difference` compares them all
    right = torch.where(right < 0, right.max(), right)  # counts that cannot occur if the alphabet has one token
    shape = replace(shape, classes=tuple(right[1:].tolist()))
    refuse_if(difference(task, shape, rows))
    return shape


def _counts(body: Int[Tensor, "rows length"]) -> Int[Tensor, "rows length"]:
    """Return the count of each token in its row."""
    return (body[:, :, None] == body[:, None, :]).sum(-1)


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
