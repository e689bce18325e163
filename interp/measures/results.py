"""What a public measure takes and returns: inputs as people type them, and a table with the figure of a report.

Inputs run as rows with counts where that gives the same: each distinct token once, with how often it occurs. In one
layer of softmax attention without positions, equal tokens have equal scores and values. So what a head gives at the
read position stays the same if a token that occurs c times is held once, with ln c added to its score (see
architecture.reduced). Inputs of 500 tokens then run as six, with all hooks at their places, and edits of positions mean
what they mean in whole inputs: positions that an edit tells apart are held apart, and so is the read position.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import pandas as pd
import torch
from torch import Tensor

from interp.errors import InterpError, of_type, quoted
from interp.models.architecture.reduced import counted_refusal
from interp.models.architecture.task_model import TaskModel, hooked
from interp.models.subject import Subject
from interp.support.views import view
from interp.tasks import Batch, Task
from interp.tasks.batch_checks import batch_problems, check_tokens, refuse
from interp.tasks.pairs import Pairs
from interp.tasks.populations import usual

if TYPE_CHECKING:
    from plotly.graph_objects import Figure as Figure

    from interp.support import figures as draw
else:
    Figure = Any  # plotly takes a second to load

    class _Figures:
        """interp.support.figures, imported when the first figure is drawn."""

        def __getattr__(self, name: str) -> Any:
            from interp.support import figures

            return getattr(figures, name)

    draw = _Figures()

SHOWN = 8
"""Number of rows that a notebook or a terminal shows."""


class Result:
    """A measure's result: a table (`to_frame`), its figure (`plot`), and a title: what the rows are, or __str__."""

    @property
    def title(self) -> str:
        return str(self)

    def to_frame(self) -> pd.DataFrame:
        raise NotImplementedError

    def plot(self) -> Figure:
        raise NotImplementedError

    def __getitem__(self, column: str) -> pd.Series:
        """Return a column of the table."""
        return self.to_frame()[column]

    def __len__(self) -> int:
        return len(self.to_frame())

    def __repr__(self) -> str:
        frame = self.to_frame().head(SHOWN)
        return f"{self.title}\n{frame.to_string(index=False)}{self._more}" if len(frame) else self.title

    def _repr_html_(self) -> str:
        from interp.support.figures.cells import cells

        frame = self.to_frame().head(SHOWN)
        return view(self.title + self._more, cells(frame), list(frame.columns))

    @property
    def _more(self) -> str:
        n = len(self)
        return f"\n({SHOWN} of {n} rows; to_frame() has all, plot() draws them)" if n > SHOWN else ""


@dataclass(frozen=True, eq=False, repr=False)
class Tabular(Result):
    """A result that is one table."""

    table: pd.DataFrame

    def to_frame(self) -> pd.DataFrame:
        return self.table.copy()


def tidy(values: Tensor, name: str, **axes: Sequence[Any]) -> pd.DataFrame:
    """Return one row per value: a column for each axis of the tensor, with these labels, and the value's, `name`."""
    index = pd.MultiIndex.from_product(axes.values(), names=list(axes))
    return index.to_frame(index=False).assign(**{name: values.flatten().numpy()})


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
        if given.task is None and given.counts is None:  # made by hand
            refuse(task, batch_problems(task, given, "the batch given"))
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
    task.check_input(tokens)
    if labeled or task.labels_tokens:
        return task.batch(tokens)
    return Batch(tokens, lengths, torch.full(tokens.shape, -1))


def _rows(task: Task, inputs: Any) -> list[list[int]]:
    if isinstance(inputs, str):
        return [task.parse(inputs)]
    if isinstance(inputs, Tensor):
        if inputs.ndim not in (1, 2):
            raise InterpError(f"inputs of shape {tuple(inputs.shape)}: give one row of ids, or (rows, length)")
        inputs = inputs.tolist()
    if not isinstance(inputs, list | tuple):
        raise InterpError(
            f"{of_type(inputs)} is not an input: give a text, a list of tokens, a tensor of ids or a Batch"
        )
    words = set(task.vocabulary)
    if inputs and all(isinstance(entry, str) and entry not in words for entry in inputs):
        return [task.parse(text) for text in inputs]
    if any(isinstance(entry, list | tuple | Tensor) for entry in inputs):
        return [row for entry in inputs for row in _rows(task, entry)]
    return [[_token(task, entry) for entry in inputs]]


def _token(task: Task, entry: Any) -> int:
    if isinstance(entry, str):
        return task.token_id(entry)
    if isinstance(entry, int) and not isinstance(entry, bool):
        return entry
    raise InterpError(f"{quoted(entry)} is neither a token of task {task.name} nor its id")


def batch_of(subject: Subject, given: Inputs | None, split: str = "test", most: int | None = None) -> Batch:
    """Return the given inputs, or else the default ones of a split (see populations.usual), at most `most` of them."""
    if given is not None:
        return as_batch(subject, given)
    return usual(subject.task, split, fixed=subject.own_split, most=most).batch


KINDS = 4096
"""Largest number of kinds of positions to count."""


def reduces(subject: Subject) -> bool:
    """Test whether inputs may be run as distinct tokens with counts: what is read depends on the counts alone."""
    if not isinstance(subject.model, TaskModel) or counted_refusal(subject.model.spec) is not None:
        return False
    return subject.read_at not in ("all", "first") and not hooked(subject.model)


def reduced(subject: Subject, batch: Batch) -> Batch:
    """Return the inputs with each distinct token once, or as they are if outputs depend on more or nothing is gained.

    The read position is held apart. In a study, the last results are kept.
    """
    if not reduces(subject):
        return batch
    return subject.once(lambda batch: _reduced(subject, batch)[0], batch, "reduced")


def reduced_pairs(subject: Subject, pairs: Pairs) -> Pairs:
    """Return pairs with each pair of tokens (clean, corrupted) at one position once, at the same place in both inputs.

    Pairs stay as they are if outputs depend on more than counts, or if the two are read at different positions.
    """
    if not reduces(subject):
        return pairs
    return Pairs(*_reduced(subject, pairs.clean, pairs.corrupted))


def _reduced(subject: Subject, *batches: Batch) -> tuple[Batch, ...]:
    first, kinds = batches[0], subject.task.d_vocab ** len(batches)
    read = [subject.answer_positions(batch.tokens) for batch in batches]
    # A token to fill rows with: neither padding nor the one at which answers are read.
    marks = (subject.task.pad, subject.read_at)
    filler = next((i for i, word in enumerate(subject.task.vocabulary) if word not in marks), None)
    alike = all(
        torch.equal(at, read[0]) and batch.tokens.shape == first.tokens.shape for at, batch in zip(read, batches)
    )
    single = all(batch.labels.ndim == 1 and batch.counts is None for batch in batches)
    if not alike or not single or filler is None or not len(first) or kinds > KINDS:
        return batches
    code = torch.zeros_like(first.tokens)
    for batch in batches:
        code = code * subject.task.d_vocab + batch.tokens
    seen = torch.stack([batch.attention_mask for batch in batches]).all(0)
    if subject.model.cfg.attention_dir == "causal":
        seen = seen & (torch.arange(code.shape[1]) <= read[0][:, None])
    elif not all(torch.equal(batch.lengths, first.lengths) for batch in batches):
        return batches
    rows = torch.arange(len(code))
    asked = code[rows, read[0]]
    counts = torch.zeros(len(code), kinds, dtype=torch.long).scatter_add_(1, code, seen.long())
    counts[rows, asked] -= 1
    present = counts.sum(0).nonzero()[:, 0]  # kinds that occur at all
    counts = counts[:, present]
    width = int((counts > 0).sum(1).max()) + 1
    if width >= code.shape[1]:
        return batches
    # Present kinds go to the right, in order; the read position is the last.
    order = (counts > 0).byte().argsort(dim=1, stable=True)[:, counts.shape[1] - width + 1 :]
    held = counts.gather(1, order)
    kind = torch.cat([present[order], asked[:, None]], 1)
    often = torch.cat([held, torch.ones(len(code), 1, dtype=torch.long)], 1)
    shortened = []
    for place, batch in enumerate(batches):
        tokens = kind // subject.task.d_vocab ** (len(batches) - 1 - place) % subject.task.d_vocab
        tokens = torch.where(often > 0, tokens, filler)
        lengths = torch.full_like(batch.lengths, width)
        shortened.append(replace(batch, tokens=tokens, lengths=lengths, counts=often))
    same = all(
        bool((subject.answer_positions(short.tokens) == width - 1).all())
        and torch.equal(subject.classes(short), subject.classes(batch))
        for short, batch in zip(shortened, batches)
    )
    return tuple(shortened) if same else batches  # a task may find its answers in tokens that are left out
