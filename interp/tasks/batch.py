"""Batches of labeled inputs, and where a token stands in their rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.errors import InterpError, of_type, short
from interp.support.views import view

IGNORED = -100
"""The class of a position whose output is not read (the ignore_index of torch's cross_entropy)."""

ABSENT = -1e4
"""Instead of ln 0: a score so low that the weight is 0 in every number format."""


@dataclass(frozen=True)
class Batch:
    """Inputs with their labels: tokens padded on the right to one length.

    labels: one answer per row, or one per position (-1 where there is no answer), in the task's own units. task: the
    task whose `sample` or `batch` made it, in whose words it is shown. counts: how many equal tokens each one stands
    for, if they are held once (see measures.results); None: itself.

    Example:

        >>> task = interp.build("languages/parity").task
        >>> batch = task.batch(task.encode(["101", "1"]).tokens)
        >>> batch.lengths.tolist(), batch.labels.tolist()  # an odd number of ones?
        ([4, 2], [False, True])
        >>> batch
        Batch of 2 inputs of task parity: '[CLS]101' -> not a member, '[CLS]1' -> a member
    """

    tokens: Int[Tensor, "rows length"]
    lengths: Int[Tensor, "rows"]
    labels: Int[Tensor, "rows *length"] | Bool[Tensor, "rows"]
    task: Any = field(default=None, repr=False, compare=False)
    counts: Int[Tensor, "rows length"] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for name in ("tokens", "lengths", "labels"):
            if not isinstance(value := getattr(self, name), Tensor):
                raise InterpError(
                    f"{name} of a Batch must be a tensor, not {of_type(value)}; task.batch(tokens) makes a Batch"
                )

    @property
    def attention_mask(self) -> Bool[Tensor, "rows length"]:
        """True at tokens, False at padding."""
        return torch.arange(self.tokens.shape[1], device=self.tokens.device) < self.lengths[:, None]

    @property
    def log_counts(self) -> Float[Tensor, "rows length"] | None:
        """The logarithms of the counts; ABSENT for a token that only fills its row. None without counts."""
        if self.counts is None:
            return None
        return torch.where(self.counts > 0, self.counts.clamp(min=1).double().log(), ABSENT)

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, rows: int | slice | Tensor) -> Batch:
        """Return some of the inputs; of one number, this input as a batch of one."""
        if isinstance(rows, int):
            rows = torch.tensor([range(len(self))[rows]])  # an IndexError if there is none, which ends a loop
        counts = None if self.counts is None else self.counts[rows]
        return Batch(self.tokens[rows], self.lengths[rows], self.labels[rows], self.task, counts)

    def to(self, device: str | torch.device) -> Batch:
        return replace(
            self, tokens=self.tokens.to(device), lengths=self.lengths.to(device), labels=self.labels.to(device)
        )

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"task": None}  # a task of one's own may not be picklable

    def __repr__(self) -> str:
        rows = [f"{text!r} -> {answer}" for text, answer in self._words(3)]
        return f"{self._title}: {', '.join(rows)}{', ...' if len(self) > len(rows) else ''}"

    def _repr_html_(self) -> str:
        """Show the first rows in the task's words, or as token ids if the task is unknown."""
        shown = self._words(8)
        more = f", the first {len(shown)} shown" if len(self) > len(shown) else ""
        return view(self._title + more, shown, ("input", "answer"))

    @property
    def _title(self) -> str:
        of = "" if self.task is None else f" of task {self.task.name}"
        return f"Batch of {len(self):,} input{'s' * (len(self) != 1)}{of}"

    def _words(self, n: int) -> list[tuple[str, str]]:
        """Return the first inputs and their answers as text."""
        first, task = self[:n], self.task
        rows = [tokens[: int(length)].tolist() for tokens, length in zip(first.tokens, first.lengths)]
        try:
            classes = task.classes(first)
            if task.readout != "all":
                classes = classes.gather(1, find_positions(task, first.tokens, task.readout)[:, None])
            answers = [[task.word(c) for c in row if c != IGNORED] for row in classes.tolist()]
            return [(short(task.format(row)), short(" ".join(answer))) for row, answer in zip(rows, answers)]
        except (AttributeError, InterpError, LookupError):  # no task, or no longer its inputs
            return [(" ".join(map(str, row)), str(label)) for row, label in zip(rows, first.labels.tolist())]


def concatenate(batches: Sequence[Batch], pad: int | None) -> Batch:
    """Concatenate batches, with shorter ones padded on the right."""
    width = max(batch.tokens.shape[1] for batch in batches)

    def wide(rows: Tensor, fill: int) -> Tensor:
        return torch.nn.functional.pad(rows, (0, width - rows.shape[1]), value=fill) if rows.ndim == 2 else rows

    return replace(
        batches[0],
        tokens=torch.cat([wide(batch.tokens, pad or 0) for batch in batches]),
        lengths=torch.cat([batch.lengths for batch in batches]),
        labels=torch.cat([wide(batch.labels, -1) for batch in batches]),
    )


def digits_of(index: Int[Tensor, "rows"], base: int, length: int) -> Int[Tensor, "rows length"]:
    """Return the rows of digits below `base` that have these indices in lexicographic order."""
    powers = [min(base**place, 2**62) for place in reversed(range(length))]  # an int64 index divided by more is 0
    return index[:, None] // torch.tensor(powers) % base


def find_first(tokens: Int[Tensor, "rows length"], token: int) -> Int[Tensor, "rows"]:
    """Return the position of a token's first occurrence in each row; -1 if it does not occur."""
    here = tokens == token
    at = here.int().argmax(1)
    return torch.where(here.gather(1, at[:, None])[:, 0], at, -1)  # faster than here.any(1)


def find_positions(task: Any, tokens: Int[Tensor, "rows length"], token: str) -> Int[Tensor, "rows"]:
    """Return the first position of `token` in each row; "first" and "last" mean the first and last non-pad position.

    task: an interp.Task. Raises InterpError if a row does not contain the token.
    """
    if token == "first":
        return torch.zeros(len(tokens), dtype=torch.long, device=tokens.device)
    if token == "last":
        if task.pad_id is None:
            return torch.full((len(tokens),), tokens.shape[1] - 1, device=tokens.device)
        return (tokens != task.pad_id).sum(1) - 1
    at = find_first(tokens, task.token_id(token))
    if (at < 0).any():
        row = int((at < 0).int().argmax())
        raise InterpError(f"row {row} has no {token!r}, at which the answer of task {task.name} is read")
    return at


@dataclass(frozen=True)
class Reads:
    """The reads of a batch: row, position, and right output index."""

    rows: Int[Tensor, "reads"]
    positions: Int[Tensor, "reads"]
    classes: Int[Tensor, "reads"]

    def __len__(self) -> int:
        return len(self.rows)

    def pick(self, activation: Tensor) -> Tensor:
        """Select an activation (rows, length, ...) at the reads: (reads, ...)."""
        if not activation.is_contiguous() or activation.device.type != "cpu":
            return activation[self.rows.to(activation.device), self.positions.to(activation.device)]
        return activation.flatten(0, 1).index_select(0, self.rows * activation.shape[1] + self.positions)  # faster

    def mask(self, batch: Batch) -> Bool[Tensor, "rows length"]:
        """Return the mask of the read positions."""
        mask = torch.zeros(batch.tokens.shape, dtype=torch.bool)
        mask[self.rows, self.positions] = True
        return mask
