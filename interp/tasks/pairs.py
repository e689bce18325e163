"""Minimal pairs for any task that labels given tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from interp.budget import check_size
from interp.errors import InterpError, UnsupportedError
from interp.tasks.batch import Batch, Pairs

if TYPE_CHECKING:
    from interp.tasks.base import Task

MOST_LISTED = 2**16
"""If a task lists at most this many inputs, a changed row must be one of them."""


def one_token_pairs(
    task: Task, batch: Batch, seed: int = 0, tries: int = 16, places: Int[Tensor, "places"] | None = None
) -> Pairs:
    """Make pairs that differ in one token, for any task with `batch`: see Task.corrupt. places: allowed positions.

    A changed row must pass check_input, keep any read token in place, and be a listed input if the task lists at most
    MOST_LISTED.
    """
    check_size("seed", seed, least=0)
    generator = torch.Generator().manual_seed(seed)
    clean, tokens, mask = task.batch(batch.tokens), batch.tokens, batch.attention_mask
    changed, found = tokens.clone(), torch.zeros(len(tokens), dtype=torch.bool)
    listed = _listed(task)
    for _ in range(tries):
        rows = (~found).nonzero()[:, 0]
        if not len(rows):
            break
        # Take the token of another row at the same position, so that marks shared by all rows never change.
        draw = torch.rand(len(rows), generator=generator, dtype=torch.float64)
        at = (draw * batch.lengths[rows]).long() if places is None else places[(draw * len(places)).long()]
        donor = torch.randint(len(tokens), (len(rows),), generator=generator)
        new = tokens[donor, at]
        good = mask[donor, at] & (new != tokens[rows, at])
        rows, at, new = rows[good], at[good], new[good]
        if not len(rows):
            continue
        tried = tokens[rows].clone()
        tried[torch.arange(len(rows)), at] = new
        allowed = _accepted(task, tried) & _as_before(task, tokens[rows], tried)
        if listed is not None:
            lengths = batch.lengths[rows].tolist()
            allowed &= torch.tensor([(*row[:n],) in listed for row, n in zip(tried.tolist(), lengths)])
        rows, tried = rows[allowed], tried[allowed]
        if not len(rows):
            continue
        other = (task.batch(tried).labels != clean.labels[rows]).reshape(len(rows), -1).any(1)
        changed[rows[other]], found[rows[other]] = tried[other], True
    return Pairs(clean[found], task.batch(changed[found]))


def _listed(task: Task) -> set[tuple[int, ...]] | None:
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
    task: Task, clean: Int[Tensor, "rows length"], tried: Int[Tensor, "rows length"]
) -> Bool[Tensor, "rows"]:
    """Test whether the token at which the answer is read, if any, has the same positions in both versions of a row."""
    if task.readout not in task.vocabulary:
        return torch.ones(len(tried), dtype=torch.bool)
    mark = task.token_id(task.readout)
    return ((clean == mark) == (tried == mark)).all(1)


def _accepted(task: Task, tokens: Int[Tensor, "rows length"]) -> Bool[Tensor, "rows"]:
    """Test whether check_input accepts each row."""
    try:
        task.check_input(tokens)
    except InterpError:
        if len(tokens) == 1:
            return torch.zeros(1, dtype=torch.bool)
        half = len(tokens) // 2
        return torch.cat([_accepted(task, tokens[:half]), _accepted(task, tokens[half:])])
    return torch.ones(len(tokens), dtype=torch.bool)
