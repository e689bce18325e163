"""All strings of a string task: its letters, the marks around them in a row, and the answers to all strings.

A task may declare its letters (`alphabet` and `of_symbols`). Otherwise they are inferred from samples: tokens that are
always and only at the same place at an end of a row are marks; all others are letters. A task that lists its inputs and
does not say of other rows whether they are inputs (`check_input`) is asked for strings only if these are all listed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from interp.errors import InterpError, UnsupportedError, first_few
from interp.models.architecture.answers import decide, has_answer
from interp.models.architecture.task_model import TaskModel
from interp.models.subject import Subject
from interp.programs.explanations.lstar import NOT_ASKED, UNKNOWN
from interp.tasks import Batch, Task
from interp.tasks.batch import digits_of
from interp.tasks.structure import LISTED_STRINGS, lacks

SAMPLED = 200
"""Number of samples per split from which letters and marks are inferred."""
ROWS_AT_ONCE = 1 << 14
LONGEST = 100
"""Largest number of symbols, for languages of one letter."""
ASKED = 64
"""Number of random strings tried as inputs of a task whose inputs all have one length."""


@dataclass(frozen=True)
class Strings:
    """The strings of a task.

    letters: token ids, in order. rows: a function from symbols (indices into letters) of one length to a batch. marks:
    number of marks in a row. before: number of marks at its start. fixed: the number of symbols in every input, if it
    is always the same and every symbol has an answer.
    """

    task: Task
    letters: tuple[int, ...]
    rows: Callable[[Int[Tensor, "rows length"]], Batch]
    marks: int
    before: int
    fixed: int | None = None
    most: int | None = None

    @classmethod
    def of(cls, subject: Subject) -> Strings:
        """Return the strings of a model's task. Raises UnsupportedError if not every string is an input."""
        task = subject.task
        if lacks(task, LISTED_STRINGS) is not None:
            return _seen(subject)
        known: Any = task

        def rows(symbols: Tensor) -> Batch:
            return known.of_symbols(symbols, torch.full((len(symbols),), symbols.shape[1]))

        return cls(task, tuple(map(task.token_id, known.alphabet)), rows, known.n_marks, 1)

    @property
    def declared(self) -> bool:
        """Whether the task declares its letters, so that every string of them is an input."""
        return lacks(self.task, LISTED_STRINGS) is None

    @property
    def alphabet(self) -> tuple[str, ...]:
        return tuple(self.task.vocabulary[token] for token in self.letters)

    def all(self, length: int) -> Iterator[Batch]:
        """Yield all strings of a length, in lexicographic order."""
        base = len(self.letters)
        for start in range(0, base**length, ROWS_AT_ONCE):
            index = torch.arange(start, min(start + ROWS_AT_ONCE, base**length))
            yield self.rows(digits_of(index, base, length))

    def longest(self, subject: Subject, most: int, listed: bool = True) -> int:
        """Return the greatest length that fits the model's positions and has at most `most` strings.

        listed: no longer than the inputs of a task that lists them.
        """
        base, length = len(self.letters), 1
        while base ** (length + 1) <= most and length < LONGEST:
            length += 1
        inputs = self.fixed or (self.most if listed and self.most is not None else length)
        return max(0, min(length, _positions(subject) - self.marks, inputs))


def _positions(subject: Subject) -> int:
    if isinstance(subject.model, TaskModel):
        return subject.model.spec.max_length or 1 << 30
    return int(subject.model.cfg.n_ctx)


def _seen(subject: Subject) -> Strings:
    """Infer letters and marks from samples."""
    task, rows = subject.task, []
    for split in task.splits:
        batch = task.sample(SAMPLED, split, seed=0)
        rows += [tokens[:length] for tokens, length in zip(batch.tokens.tolist(), batch.lengths.tolist())]
    lengths, prefixes = {len(row) for row in rows}, subject.read_at == "all"
    if len(lengths) < 2 and not prefixes:
        raise UnsupportedError(f"all inputs of task {task.name} have one length; automata need strings of all lengths")
    before, after = _marks(rows), _marks([row[::-1] for row in rows])
    inner = [row[len(before) : len(row) - len(after)] for row in rows]
    letters = tuple(sorted({token for row in inner for token in row}))
    if not letters:
        raise UnsupportedError(f"the inputs of task {task.name} are made of marks alone")
    front, back, ids = torch.tensor(before), torch.tensor(after[::-1]), torch.tensor(letters)
    marks = len(before) + len(after)
    most = max(lengths) - marks
    fixed = most if len(lengths) == 1 else None
    whole = min(fixed or 0, _positions(subject) - marks)
    listed = task.n_inputs is not None and type(task).check_input is Task.check_input
    if listed:
        strings = sum(len(letters) ** n for n in ((most,) if fixed else range(1, most + 1)))
        if strings != task.n_inputs:
            raise UnsupportedError(
                f"task {task.name} lists {task.n_inputs:,} inputs, which are not all strings of "
                f"{fixed or f'1 to {most}'} symbols ({first_few(task.vocabulary[letter] for letter in letters)})"
            )

    def wrapped(symbols: Tensor) -> Batch:
        n, length = symbols.shape
        if length < whole:  # an input is longer: any letters after these will do
            more = torch.randint(len(letters), (n, whole - length), generator=torch.Generator().manual_seed(0))
            symbols = torch.cat([symbols, more], 1)
        parts = [front.expand(n, -1), ids[symbols], back.expand(n, -1)]
        rows = torch.cat([part.long() for part in parts], 1)
        try:
            task.check_input(rows)
            return task.batch(rows)
        except InterpError:
            raise
        except Exception as error:  # no task is bound to take rows that its sampler never draws
            raise UnsupportedError(f"task {task.name} does not label every string of its letters: {error}") from error

    inferred = Strings(task, letters, wrapped, marks, len(before), fixed, most if listed else None)
    for length in range(1, min(2, most) + 1) if fixed is None else (fixed,):
        refusal = f"task {task.name} does not take every string of {length} of its letters"
        drawn = torch.randint(len(letters), (ASKED, length), generator=torch.Generator().manual_seed(0))
        try:
            batches = [*inferred.all(length)] if fixed is None else [inferred.rows(drawn)]
        except InterpError:
            raise UnsupportedError(refusal) from None
        wide = any(bool((batch.lengths != length + inferred.marks).any()) for batch in batches)
        if wide or sum(map(len, batches)) != (len(letters) ** length if fixed is None else ASKED):
            raise UnsupportedError(refusal)
    return inferred


def _marks(rows: list[list[int]]) -> list[int]:
    """Return the tokens that are at the start of every row and nowhere else."""
    marks: list[int] = []
    while all(len(row) > len(marks) for row in rows):
        here = {row[len(marks)] for row in rows}
        if len(here) != 1 or any(row.count(next(iter(here))) != 1 for row in rows):
            break
        marks += here
    return marks


@dataclass(frozen=True)
class Answers:
    """The output indices of a model and of its task for all strings, by length from 0 (see explanations.lstar)."""

    model: list[Int[np.ndarray, "_"]]
    task: list[Int[np.ndarray, "_"]]

    @property
    def strings(self) -> int:
        """Number of strings that are inputs."""
        return sum(int((part != NOT_ASKED).sum()) for part in self.task[1:])

    @property
    def others(self) -> bool:
        """Whether some strings are not inputs."""
        return self.strings < sum(map(len, self.task[1:]))


@torch.no_grad()
def answers(
    subject: Subject, strings: Strings, longest: int, progress: Callable[[int, int], None] | None = None
) -> Answers:
    """Run the model on all strings of 1 to `longest` symbols and return the answers.

    If a causal model is read at every position, the answer to a string is the one at its last symbol, so only the
    longest strings are run. A string is not asked (NOT_ASKED) if the task says so, or if its right answer depends on
    later symbols. Raises UnsupportedError for a bidirectional model that is read at every position, and for a
    task without an answer at each symbol.
    """
    none = np.array([UNKNOWN])
    if subject.read_at == "all":
        if subject.model.cfg.attention_dir != "causal":
            raise UnsupportedError("if each position has an answer, the model must be causal")
        return _of_prefixes(subject, strings, longest)
    model, task = [none], [none]
    total, done = sum(len(strings.letters) ** n for n in range(1, longest + 1)), 0
    for length in range(1, longest + 1):
        parts: list[tuple[Tensor, Tensor]] = []
        for batch in strings.all(length):
            logits = subject.logits(batch)
            parts.append((decided(subject, logits), subject.classes(batch)))
            done += len(batch)
            if progress is not None:
                progress(done, total)
        model.append(torch.cat([answer for answer, _ in parts]).numpy())
        task.append(torch.cat([right for _, right in parts]).numpy())
    return Answers(model, task)


def decided(subject: Subject, logits: Tensor) -> Int[Tensor, "rows"]:
    """Return output indices; -1 where outputs are not finite."""
    return torch.where(has_answer(logits), decide(logits, subject.decision), -1)


def _of_prefixes(subject: Subject, strings: Strings, longest: int) -> Answers:
    base = len(strings.letters)
    answered, right = [], []
    for batch in strings.all(longest):
        where = subject.read_mask(batch)
        symbols = torch.zeros_like(where)
        symbols[:, strings.before : strings.before + longest] = True
        if bool((symbols & ~where).any()):
            raise UnsupportedError(f"task {subject.task.name} has no answer at some symbols of a string")
        kept = symbols[where]
        answered.append(decided(subject, subject.logits(batch))[kept].view(len(batch), longest))
        asked = subject.task.asked(batch)[where]
        right.append(subject.classes(batch).where(asked, NOT_ASKED)[kept].view(len(batch), longest))
    model, task = [np.array([UNKNOWN])], [np.array([UNKNOWN])]
    for k in range(1, longest + 1):
        labels = torch.cat(right)[:, k - 1].view(base**k, -1)  # one row per string of k symbols
        known = (labels == labels[:, :1]).all(1) & (labels[:, 0] != NOT_ASKED)
        first = torch.cat(answered)[:: base ** (longest - k), k - 1]
        model.append(first.where(known, NOT_ASKED).numpy())
        task.append(labels[:, 0].where(known, NOT_ASKED).numpy())
    return Answers(model, task)


def check_letters(strings: Strings, tokens: object) -> list[int]:
    """Convert text, a list of tokens, or token ids to indices into the alphabet. Raises InterpError for others."""
    words = list(strings.alphabet)
    if isinstance(tokens, Tensor):
        tokens = tokens.tolist()
    if not isinstance(tokens, str | list | tuple):
        raise InterpError(f"{tokens!r} is not a string: give text, a list of tokens, or their ids")
    letters = []
    for token in tokens:
        if isinstance(token, str) and token in words:
            letters.append(words.index(token))
        elif isinstance(token, int) and token in strings.letters:
            letters.append(strings.letters.index(token))
        else:
            raise InterpError(f"{token!r} is not a letter: {', '.join(words)}")
    return letters
