"""Minimal pairs: two inputs that differ in little and have different answers, for any task that labels given tokens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from interp.errors import InterpError, UnsupportedError, check_one_of
from interp.tasks.batch import Batch, concatenate

MOST_LISTED = 2**16
"""If a task lists at most this many inputs, a changed row must be one of them."""

TRIES = 16
"""Changes that are drawn for a row before it is left out."""
MANY = 100
"""Number of rows from which one try that finds no pair shows that the task has none of the kind."""

KINDS = ("changed", "swapped", "longer", "shorter")
"""What differs in a minimal pair: one token, the places of two, or one token more or less."""


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


@runtime_checkable
class Labels(Protocol):
    """What minimal pairs need of a task: see interp.Task."""

    @property
    def readout(self) -> str: ...
    @property
    def vocabulary(self) -> tuple[str, ...]: ...
    @property
    def pad_id(self) -> int | None: ...
    @property
    def n_inputs(self) -> int | None: ...
    @property
    def splits(self) -> tuple[str, ...]: ...
    def token_id(self, token: str) -> int: ...
    def sample(self, n: int, split: str = ..., seed: int = ...) -> Batch: ...
    def inputs(self) -> Iterator[Batch]: ...
    def batch(self, tokens: Int[Tensor, "rows length"]) -> Batch: ...
    def check_input(self, tokens: Int[Tensor, "rows length"]) -> None: ...


def minimal_pairs(
    task: Labels,
    batch: Batch,
    seed: int = 0,
    kind: str = "changed",
    places: Int[Tensor, "places"] | None = None,
) -> Pairs:
    """Make pairs of one of KINDS, for any task with `batch`: see Task.corrupt. places: positions that may change.

    Rows without such a pair are left out. A changed row must be labeled by the task, keep any read token in place (at
    the end, if its length changes), and be a listed input if the task lists at most MOST_LISTED. Marks, such as [BOS],
    stay. Raises InterpError for another kind.
    """
    check_one_of("kind of pairs", kind, KINDS)
    generator = torch.Generator().manual_seed(seed)
    clean, tokens = task.batch(batch.tokens), batch.tokens
    changed, paired = tokens.clone(), torch.zeros(len(tokens), dtype=torch.bool)
    listed, pool, free = _listed(task), batch, _changeable(batch)
    for attempt in range(TRIES + MANY * (len(tokens) < TRIES)):
        rows = (~paired).nonzero()[:, 0]
        if not len(rows) or (attempt and len(rows) == len(tokens) >= MANY):
            break
        if attempt == TRIES:
            pool = _with_sample(task, batch, seed)
            free = _changeable(pool)
        rows, tried = _edited(task, pool, rows, kind, places, free, generator)
        lengths = batch.lengths[rows] + {"longer": 1, "shorter": -1}.get(kind, 0)
        if not len(rows):
            continue
        kept = _as_before(task, tokens[rows], tried, kind)
        rows, tried, lengths = rows[kept], tried[kept], lengths[kept]
        allowed = _accepted(task, tried)
        if listed is not None:
            within = [(*row[:n],) in listed for row, n in zip(tried.tolist(), lengths.tolist())]
            allowed &= torch.tensor(within, dtype=torch.bool)
        rows, tried = rows[allowed], tried[allowed]
        if not len(rows):
            continue
        labels, before = task.batch(tried).labels, clean.labels[rows]
        other = (labels != before).reshape(len(rows), -1).any(1)
        changed[rows[other]], paired[rows[other]] = tried[other], True
    if not bool(paired.any()):  # a task need not label no rows
        return Pairs(clean[paired], clean[paired])
    return Pairs(clean[paired], task.batch(changed[paired]))


def _with_sample(task: Labels, batch: Batch, seed: int) -> Batch:
    """Put samples of no greater length behind a few rows, which hold few tokens that others may change to."""
    more, width = task.sample(MANY, task.splits[-1], seed), batch.tokens.shape[1]
    more = more[more.lengths <= width]
    if not len(more) or (task.pad_id is None and more.tokens.shape[1] != width):
        return batch
    return concatenate([batch, task.batch(more.tokens[:, :width])], task.pad_id)


def _edited(
    task: Labels, batch: Batch, rows: Tensor, kind: str, places: Tensor | None, free: Tensor, generator: torch.Generator
) -> tuple[Int[Tensor, "some"], Int[Tensor, "some length"]]:
    """Draw a change of some rows, those where one was found, and the changed rows."""
    tokens, mask = batch.tokens, batch.attention_mask

    def places_of(rows: Tensor) -> Tensor:
        draw = torch.rand(len(rows), generator=generator, dtype=torch.float64)
        return (draw * batch.lengths[rows]).long() if places is None else places[(draw * len(places)).long()]

    at = places_of(rows)
    donor = torch.randint(len(tokens), (len(rows),), generator=generator)
    order = torch.arange(tokens.shape[1])[None]
    if kind == "changed":
        # Take the token of another row at the same position, so that marks shared by all rows never change.
        new = tokens[donor, at]
        good = mask[donor, at] & (new != tokens[rows, at])
        return rows[good], torch.where(order == at[good, None], new[good, None], tokens[rows[good]])
    good = free[rows, at]
    if kind == "shorter":
        good &= batch.lengths[rows] > 1
    if kind == "swapped":
        to = places_of(rows)
        good &= free[rows, to] & (tokens[rows, at] != tokens[rows, to])
        rows, at, to = rows[good], at[good, None], to[good, None]
        from_ = torch.where(order == at, to, torch.where(order == to, at, order))
        return rows, tokens[rows].gather(1, from_)
    if task.pad_id is None:
        good &= False
    if kind == "longer":
        source = (torch.rand(len(rows), generator=generator, dtype=torch.float64) * batch.lengths[donor]).long()
        good &= (batch.lengths[rows] < tokens.shape[1]) & free[donor, source]
        rows, at, new = rows[good], at[good, None], tokens[donor, source][good, None]
        moved = tokens[rows].gather(1, (order - (order > at).long()).expand(len(rows), -1))
        return rows, torch.where(order == at, new, moved)
    rows, at = rows[good], at[good, None]
    moved = tokens[rows].gather(1, (order + (order >= at).long()).clamp(max=tokens.shape[1] - 1))
    return rows, moved.masked_fill(order >= batch.lengths[rows, None] - 1, task.pad_id or 0)


def _changeable(batch: Batch) -> Bool[Tensor, "rows length"]:
    """The positions of tokens that are no marks: a mark is at the same place from the start or the end in all rows."""
    rows, free = torch.arange(len(batch)), batch.attention_mask.clone()
    for place in (torch.zeros_like(batch.lengths), batch.lengths - 1):
        there = batch.tokens[rows, place]
        if len(batch) > 1 and bool((there == there[0]).all()):
            free[rows, place] = False
    return free


def _listed(task: Labels) -> set[tuple[int, ...]] | None:
    """Return all inputs, without padding, if the task lists at most MOST_LISTED; otherwise None."""
    try:
        if task.n_inputs is None or task.n_inputs > MOST_LISTED:
            return None
        return {
            (*row[:length],)
            for part in task.inputs()
            for row, length in zip(part.tokens.tolist(), part.lengths.tolist())
        }
    except UnsupportedError:
        return None


def _as_before(
    task: Labels, clean: Int[Tensor, "rows length"], tried: Int[Tensor, "rows length"], kind: str
) -> Bool[Tensor, "rows"]:
    """Whether the token at which the answer is read, if any, is where it was, or is as often if the length changes."""
    if task.readout not in task.vocabulary:
        return torch.ones(len(tried), dtype=torch.bool)
    before, after = (rows == task.token_id(task.readout) for rows in (clean, tried))
    return (before == after).all(1) if kind in ("changed", "swapped") else before.sum(1) == after.sum(1)


def _accepted(task: Labels, tokens: Int[Tensor, "rows length"]) -> Bool[Tensor, "rows"]:
    """Test whether the task accepts and labels each row."""
    try:
        task.check_input(tokens)
        task.batch(tokens)
    except InterpError:
        if len(tokens) == 1:
            return torch.zeros(1, dtype=torch.bool)
        half = len(tokens) // 2
        return torch.cat([_accepted(task, tokens[:half]), _accepted(task, tokens[half:])])
    return torch.ones(len(tokens), dtype=torch.bool)
