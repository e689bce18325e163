"""The vmap engine: many seeds of any architecture at once, with one forward pass mapped over an axis of models.

It trains everything that the reference engine trains (several layers, MLPs, norms, positions, every readout) on the
same batches and with the same results up to rounding, in far fewer operations. Engines that use symmetries are faster
for the specs that they support.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from interp.models.architecture.answers import decide, find_positions, has_answer
from interp.models.architecture.sequence import sequence_inputs, sequence_logits
from interp.models.spec import ModelSpec
from interp.tasks import IGNORED, Batch, Task
from interp.tasks.batch import concatenate
from interp.tasks.sets import unpack_sets
from interp.training.data import epoch_order, fresh_epoch, targets, training_set, validation_set
from interp.training.engines.engine import Group, GroupedEngine, register_engine

TOGETHER = {"cpu": 16, "cuda": 256}
"""Number of models trained together. More would leave the CPU's cache; fewer would leave the GPU idle."""

SCORES_AT_ONCE = 1 << 22
"""Approximate number of attention scores, over all models, per batch of held-out rows."""


@dataclass(frozen=True)
class Targets:
    """Rows, their read positions (padded to the same number per row) and the correct outputs (IGNORED in padding)."""

    tokens: Int[Tensor, "*models rows length"]
    at: Int[Tensor, "*models rows reads"]
    classes: Int[Tensor, "*models rows reads"]

    def __getitem__(self, index: slice | Tensor | tuple) -> Targets:
        return Targets(self.tokens[index], self.at[index], self.classes[index])


def targets_of(tokens: Int[Tensor, "rows length"], classes: Int[Tensor, "rows length"]) -> Targets:
    """Select the positions whose class is not IGNORED, padded to the row with most; all positions if most are read."""
    read, length = classes != IGNORED, tokens.shape[1]
    most = int(read.sum(1).max()) if len(tokens) else 0
    if 2 * most > length:
        at = torch.arange(length, device=tokens.device).expand_as(tokens)
    else:
        at = (~read).int().argsort(dim=1, stable=True)[:, :most]
    return Targets(tokens, at, classes.gather(1, at).long())


@register_engine
class VmapEngine(GroupedEngine):
    """Train any differentiable spec, up to `TOGETHER` models per step."""

    name = "vmap"
    order = 60

    def __init__(self, spec: ModelSpec, task: Task, seeds: Sequence[int], device: torch.device, dtype: torch.dtype):
        super().__init__(spec, task, seeds, device, dtype)
        self.held_out = validation_set(task).to(device)
        self.fixed: Targets | None = None
        if self.recipe.data == "fixed":
            self.fixed = self._placed(training_set(spec, task))

    @classmethod
    def seeds_together(cls, spec: ModelSpec, device: torch.device) -> int:
        return TOGETHER.get(device.type, TOGETHER["cpu"])

    def epoch_reads(self, seeds: Sequence[int], epoch: int) -> Targets:
        """Return one epoch of each model in step order, with the reference engine's rows."""
        if self.fixed is not None:
            orders = [epoch_order(self.spec, len(self.fixed.tokens), seed, epoch) for seed in seeds]
            return self.fixed[torch.stack(orders).to(self.device)]
        batches = [fresh_epoch(self.spec, self.task, seed, epoch) for seed in seeds]
        every = self._placed(concatenate(batches, self.task.pad_id))
        shape = (len(seeds), len(batches[0]))
        return Targets(*(part.unflatten(0, shape) for part in (every.tokens, every.at, every.classes)))

    def _placed(self, batch: Batch) -> Targets:
        return targets_of(batch.tokens.to(self.device), targets(self.spec, self.task, batch).to(self.device))

    def logits(
        self, group: Group, tokens: Int[Tensor, "*models rows length"], at: Int[Tensor, "*models rows reads"]
    ) -> Float[Tensor, "models rows reads n_out"]:
        """Return every model's outputs: on its own rows, or on shared rows if `tokens` has no axis of models."""
        return sequence_logits(self.spec, group.leaves, sequence_inputs(self.spec, self.task, tokens, at))

    def losses(self, group: Group, reads: Targets) -> Float[Tensor, "models"]:
        """Return the mean loss of each model over all read positions, in nats."""
        out, classes = self.logits(group, reads.tokens, reads.at), reads.classes
        if self.spec.decision == "argmax":
            flat = functional.cross_entropy(out.flatten(0, -2), classes.flatten(), reduction="none")
            each = flat.view(classes.shape)  # 0 where the class is IGNORED
        elif self.spec.decision == "set":
            wanted = unpack_sets(classes.clamp_min(0), out.shape[-1]).to(out)
            each = functional.binary_cross_entropy_with_logits(out, wanted, reduction="none").mean(-1)
        else:
            each = functional.binary_cross_entropy_with_logits(out[..., 0], classes.to(out), reduction="none")
        each = each.masked_fill(classes == IGNORED, 0.0)
        return each.sum((1, 2)) / (classes != IGNORED).sum((1, 2))

    def train_group(self, group: Group, epoch: int) -> Float[Tensor, "models"]:
        reads = self.epoch_reads(group.seeds, epoch)
        return group.adam.epoch(epoch, reads.tokens.shape[1], lambda some: self.losses(group, reads[:, some]))

    def accuracy(self, group: Group) -> Float[Tensor, "models"]:
        """Return the share of correct answers over all read positions."""
        spec, task, batch = self.spec, self.task, self.held_out
        length, labels, right = batch.tokens.shape[1], batch.labels, torch.zeros(len(group.seeds), dtype=torch.float64)
        size = max(1, SCORES_AT_ONCE // (len(group.seeds) * spec.layers[0].n_heads * length**2))
        counted = labels >= 0 if labels.dtype != torch.bool else torch.ones_like(labels)
        for start in range(0, len(batch), size):
            part, use = batch[start : start + size], counted[start : start + size]
            if spec.readout_at == "all":
                at = torch.arange(length, device=part.tokens.device).expand_as(part.tokens)
            else:
                at = find_positions(task, part.tokens, spec.readout_at)[:, None]
            logits = self.logits(group, part.tokens, at)
            for index, outputs in enumerate(logits if spec.readout_at == "all" else logits[:, :, 0]):
                good = (task.answers(decide(outputs, spec), part.tokens) == part.labels) & has_answer(outputs)
                right[index] += good[use].double().sum().cpu()
        return right / counted.sum().cpu()
