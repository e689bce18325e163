"""Minimal pairs for any task that can label tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from interp.budget import check_size
from interp.errors import InterpError
from interp.tasks.batch import Batch, Pairs
from interp.tasks.returns import TaskError

if TYPE_CHECKING:
    from interp.tasks.base import Task


def one_token_pairs(
    task: Task, batch: Batch, seed: int = 0, tries: int = 16, places: Int[Tensor, "places"] | None = None
) -> Pairs:
    """Pairs that differ in one token, for any task with `batch`: see Task.corrupt. places: where it may be."""
    check_size("seed", seed, least=0)
    generator = torch.Generator().manual_seed(seed)
    clean, tokens, mask = task.batch(batch.tokens), batch.tokens, batch.attention_mask
    changed, found = tokens.clone(), torch.zeros(len(tokens), dtype=torch.bool)
    for _ in range(tries):
        rows = (~found).nonzero()[:, 0]
        if not len(rows):
            break
        # A place of the row, and what another row has in that place: marks that all rows share stay as they are.
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
        allowed = _accepted(task, tried)
        rows, tried = rows[allowed], tried[allowed]
        if not len(rows):
            continue
        other = (task.batch(tried).labels != clean.labels[rows]).reshape(len(rows), -1).any(1)
        changed[rows[other]], found[rows[other]] = tried[other], True
    return Pairs(clean[found], task.batch(changed[found]))


def _accepted(task: Task, tokens: Int[Tensor, "rows length"]) -> Bool[Tensor, "rows"]:
    """Which rows are inputs of the task."""
    try:
        task.check_input(tokens)
    except TaskError:
        raise
    except InterpError:
        if len(tokens) == 1:
            return torch.zeros(1, dtype=torch.bool)
        half = len(tokens) // 2
        return torch.cat([_accepted(task, tokens[:half]), _accepted(task, tokens[half:])])
    return torch.ones(len(tokens), dtype=torch.bool)
