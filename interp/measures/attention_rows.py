"""Attention weights of selected query positions, computed for one piece of a batch at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.architecture.task_model import TaskModel, hooked
from interp.measures.runs import activations, pieces, reads_of
from interp.measures.subject import Subject
from interp.tasks import Batch


@dataclass(frozen=True)
class AttentionRows:
    """Attention weights of some queries: weights[layer] is (queries, heads, keys), in the model's number format.

    here: the slice of the batch that `piece` is. rows, positions: of the queries, in the piece.
    """

    here: slice
    piece: Batch
    rows: Int[Tensor, "queries"]
    positions: Int[Tensor, "queries"]
    weights: list[Float[Tensor, "queries heads keys"]]

    @property
    def mask(self) -> Bool[Tensor, "rows length"]:
        """Mask of the query positions."""
        found = torch.zeros(self.piece.tokens.shape, dtype=torch.bool)
        found[self.rows, self.positions] = True
        return found


@torch.no_grad()
def attention_rows(subject: Subject, batch: Batch, only_reads: bool) -> Iterator[AttentionRows]:
    """Iterate over the attention weights of all queries except padding, or only of those at read positions.

    With only_reads, a task model that is read at one position per row computes its pattern only there.
    """
    model, n_layers = subject.model, subject.model.cfg.n_layers
    alone = only_reads and subject.read_at != "all" and isinstance(model, TaskModel) and not hooked(model)
    points = ("hook_q", "hook_k") if alone else ("hook_pattern",)
    names = [[f"blocks.{layer}.attn.{point}" for point in points] for layer in range(n_layers)]
    for here, piece in pieces(subject, batch, n_layers * model.cfg.n_heads * batch.tokens.shape[1]):
        _, seen = activations(subject, piece, [name for of_layer in names for name in of_layer])
        mask = piece.attention_mask.cpu()
        queries = mask & reads_of(subject, piece).mask(piece) if only_reads else mask
        rows, positions = queries.nonzero(as_tuple=True)
        if alone:
            at, real = positions.to(model.cfg.device), mask.to(model.cfg.device)
            attentions: list[Any] = [block.attn for block in model.blocks]
            weights = [one.pattern_at(seen[q], seen[k], at, real).cpu() for one, (q, k) in zip(attentions, names)]
        else:
            weights = [seen[name].cpu()[rows, :, positions] for (name,) in names]
        yield AttentionRows(here, piece, rows, positions, weights)
