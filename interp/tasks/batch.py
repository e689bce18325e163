"""Batches of labeled inputs, and minimal pairs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from interp.errors import InterpError, of_type
from interp.views import view

IGNORED = -100
"""The class of a position whose output is not read (the ignore_index of torch's cross_entropy)."""


@dataclass(frozen=True)
class Batch:
    """Inputs with their labels: tokens padded on the right to one length.

    labels: one answer per row, or one per position (-1 where there is no answer), in the task's own units.

    Example:

        >>> task = interp.build("languages/parity").task
        >>> batch = task.batch(task.encode(["101", "1"]).tokens)
        >>> batch.lengths.tolist(), batch.labels.tolist()  # an odd number of ones?
        ([4, 2], [False, True])
    """

    tokens: Int[Tensor, "rows length"]
    lengths: Int[Tensor, "rows"]
    labels: Int[Tensor, "rows *length"] | Bool[Tensor, "rows"]

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not isinstance(value, Tensor):
                raise InterpError(
                    f"{name} of a Batch must be a tensor, not {of_type(value)}; task.batch(tokens) makes a Batch"
                )

    @property
    def attention_mask(self) -> Bool[Tensor, "rows length"]:
        """True at tokens, False at padding."""
        return torch.arange(self.tokens.shape[1], device=self.tokens.device) < self.lengths[:, None]

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, rows: slice | Tensor) -> Batch:
        return Batch(self.tokens[rows], self.lengths[rows], self.labels[rows])

    def to(self, device: str | torch.device) -> Batch:
        return replace(
            self, tokens=self.tokens.to(device), lengths=self.lengths.to(device), labels=self.labels.to(device)
        )

    def _repr_html_(self) -> str:
        """Show the first rows as token ids; `task.format` writes them as text."""
        first = self[:8]
        rows = [
            (
                " ".join(map(str, tokens[:length])),
                length,
                label if isinstance(label, bool | int) else " ".join(map(str, label)),
            )
            for tokens, length, label in zip(first.tokens.tolist(), first.lengths.tolist(), first.labels.tolist())
        ]
        more = f", the first {len(first)} shown" if len(self) > len(first) else ""
        return view(f"Batch of {len(self):,} rows{more}", rows, ("token ids", "length", "label"))


@dataclass(frozen=True)
class Pairs:
    """Minimal pairs: row i of `corrupted` is row i of `clean` with a small change that changes the answer.

    Example:

        >>> task = interp.build("languages/parity").task
        >>> pairs = task.corrupt(task.sample(4, seed=0))
        >>> bool((pairs.clean.labels != pairs.corrupted.labels).all())
        True
    """

    clean: Batch
    corrupted: Batch

    def __len__(self) -> int:
        return len(self.clean)

    def __getitem__(self, rows: slice | Tensor) -> Pairs:
        return Pairs(self.clean[rows], self.corrupted[rows])


def digits_of(index: Int[Tensor, "rows"], base: int, length: int) -> Int[Tensor, "rows length"]:
    """Return the rows of digits below `base` that have these indices in lexicographic order."""
    powers = [min(base**place, 2**62) for place in reversed(range(length))]  # an int64 index divided by more is 0
    return index[:, None] // torch.tensor(powers) % base


def find_first(tokens: Int[Tensor, "rows length"], token: int) -> Int[Tensor, "rows"]:
    """Return the position of a token's first occurrence in each row; -1 if it does not occur."""
    here = tokens == token
    return torch.where(here.any(1), here.int().argmax(1), -1)


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
