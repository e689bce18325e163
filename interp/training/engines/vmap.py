"""The vmap engine: many seeds of any architecture side by side, one forward pass mapped over an axis of models.

Several layers, MLPs, norms, positions, every readout: what the reference engine trains one model after another, on the
same batches and to rounding with the same numbers, in far fewer operations. It knows nothing of symmetries; the engines
that do are faster where they apply.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from interp.architecture.answers import answered, decide, find_positions
from interp.architecture.sequence import sequence_inputs, sequence_logits
from interp.spec import ModelSpec
from interp.tasks import IGNORED, Batch, Task
from interp.tasks.sets import unpack_sets
from interp.training.data import epoch_order, fresh_epoch, one_batch, targets, training_set, validation_set
from interp.training.engines.base import no_samples
from interp.training.engines.groups import Group, GroupedEngine

TOGETHER = {"cpu": 16, "cuda": 256}
"""Models that train side by side: on the CPU more leave the cache, on a GPU fewer leave it idle."""

SCORES_AT_ONCE = 1 << 22
"""Held-out rows are run in parts of about this many attention scores over all models."""


@dataclass(frozen=True)
class Targets:
    """Rows with the positions that are read, as many in each row, and the right output there (else IGNORED)."""

    tokens: Int[Tensor, "*models rows length"]
    at: Int[Tensor, "*models rows reads"]
    classes: Int[Tensor, "*models rows reads"]

    def __getitem__(self, index: slice | Tensor | tuple) -> Targets:
        return Targets(self.tokens[index], self.at[index], self.classes[index])


def targets_of(tokens: Int[Tensor, "rows length"], classes: Int[Tensor, "rows length"]) -> Targets:
    """The positions whose class is not IGNORED, padded to the row with the most; all, where most are read."""
    read, length = classes != IGNORED, tokens.shape[1]
    most = int(read.sum(1).max()) if len(tokens) else 0
    if 2 * most > length:
        at = torch.arange(length, device=tokens.device).expand_as(tokens)
    else:
        at = (~read).int().argsort(dim=1, stable=True)[:, :most]
    return Targets(tokens, at, classes.gather(1, at).long())


class _Group(Group["VmapEngine"]):
    def logits(
        self, tokens: Int[Tensor, "*models rows length"], at: Int[Tensor, "*models rows reads"]
    ) -> Float[Tensor, "models rows reads n_out"]:
        """Of every model, on rows of its own or, without an axis of models, on the same rows."""
        inputs = sequence_inputs(self.engine.spec, self.engine.task, tokens, at)
        return sequence_logits(self.engine.spec, self.leaves, inputs)

    def losses(self, reads: Targets) -> Float[Tensor, "models"]:
        """Mean loss of each model over all positions that are read, in nats."""
        out, classes = self.logits(reads.tokens, reads.at), reads.classes
        if self.engine.spec.decision == "sigmoid":
            each = functional.binary_cross_entropy_with_logits(out[..., 0], classes.to(out), reduction="none")
            each = each.masked_fill(classes == IGNORED, 0.0)
        elif self.engine.spec.decision == "set":
            wanted = unpack_sets(classes.clamp_min(0), out.shape[-1]).to(out)
            each = functional.binary_cross_entropy_with_logits(out, wanted, reduction="none").mean(-1)
            each = each.masked_fill(classes == IGNORED, 0.0)
        else:
            flat = functional.cross_entropy(out.flatten(0, -2), classes.flatten(), reduction="none")
            each = flat.view(classes.shape)  # 0 where the class is IGNORED
        return each.sum((1, 2)) / (classes != IGNORED).sum((1, 2))

    def run_epoch(self, epoch: int) -> Float[Tensor, "models"]:
        reads = self.engine.epoch_reads(self.seeds, epoch)
        return self.adam.epoch(epoch, reads.tokens.shape[1], lambda some: self.losses(reads[:, some]))

    def accuracy(self, batch: Batch) -> Float[Tensor, "models"]:
        """Share of right answers; where each position has one, over the positions that are read."""
        spec, task, length = self.engine.spec, self.engine.task, batch.tokens.shape[1]
        size = max(1, SCORES_AT_ONCE // (len(self.seeds) * spec.layers[0].n_heads * length**2))
        labels, right = batch.labels, torch.zeros(len(self.seeds), dtype=torch.float64)
        counted = labels >= 0 if labels.dtype != torch.bool else torch.ones_like(labels)
        for start in range(0, len(batch), size):
            part, use = batch[start : start + size], counted[start : start + size]
            if spec.readout_at == "all":
                at = torch.arange(length, device=part.tokens.device).expand_as(part.tokens)
            else:
                at = find_positions(task, part.tokens, spec.readout_at)[:, None]
            logits = self.logits(part.tokens, at) if spec.readout_at == "all" else self.logits(part.tokens, at)[:, :, 0]
            for index, outputs in enumerate(logits):
                good = (task.answers(decide(outputs, spec), part.tokens) == part.labels) & answered(outputs)
                right[index] += good[use].double().sum().cpu()
        return right / counted.sum().cpu()


class VmapEngine(GroupedEngine[_Group]):
    """Training of any spec that has a gradient, up to `TOGETHER` models in one step."""

    name = "vmap"
    group = _Group

    def __init__(self, spec: ModelSpec, task: Task, seeds: Sequence[int], device: torch.device, dtype: torch.dtype):
        super().__init__(spec, task, seeds, device, dtype)
        self.held_out = validation_set(task).to(device)
        self.fixed: Targets | None = None
        if self.recipe.data == "fixed":
            self.fixed = self._placed(training_set(spec, task))

    @classmethod
    def refusal(cls, spec: ModelSpec, task: Task, device: torch.device) -> str | None:
        return no_samples(spec)

    @classmethod
    def seeds_together(cls, spec: ModelSpec, device: torch.device) -> int:
        return TOGETHER.get(device.type, TOGETHER["cpu"])

    def epoch_reads(self, seeds: Sequence[int], epoch: int) -> Targets:
        """One epoch of each model in the order of its steps, the same rows as the reference engine's."""
        if self.fixed is not None:
            orders = [epoch_order(self.spec, len(self.fixed.tokens), seed, epoch) for seed in seeds]
            return self.fixed[torch.stack(orders).to(self.device)]
        batches = [fresh_epoch(self.spec, self.task, seed, epoch) for seed in seeds]
        every = self._placed(one_batch(batches, self.task.pad_id or 0))
        shape = (len(seeds), len(batches[0]))
        return Targets(*(part.unflatten(0, shape) for part in (every.tokens, every.at, every.classes)))

    def _placed(self, batch: Batch) -> Targets:
        return targets_of(batch.tokens.to(self.device), targets(self.spec, self.task, batch).to(self.device))

    @torch.no_grad()
    def evaluate(self) -> Tensor:
        return torch.cat([group.accuracy(self.held_out) for group in self.groups])
