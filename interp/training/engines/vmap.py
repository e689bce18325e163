"""The vmap engine: many seeds of any architecture side by side, by torch.func over stacked parameters.

Several layers, MLPs, norms, positions, every readout: what the reference engine trains one model after another, with
the same batches and to rounding the same numbers, at a fraction of the operations. It knows nothing of symmetries; the
engines that do are faster where they apply.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn import functional

from interp.architecture.parameters import initialize
from interp.architecture.sequence import sequence_inputs, sequence_logits
from interp.spec import ModelSpec
from interp.tasks import IGNORED, Batch, Task
from interp.training.data import epoch_order, fresh_epoch, training_set, validation_set
from interp.training.engines.base import Engine, EpochResult, StackedAdam, learning_rate

TOGETHER = {"cpu": 16, "cuda": 256}
"""Models that train side by side: on the CPU more leave the cache, on a GPU fewer leave it idle."""

SCORES_AT_ONCE = 1 << 24
"""Held-out rows are run in parts of about this many attention scores over all models."""


class VmapEngine(Engine):
    """Training of any spec that has a gradient, all models in one step."""

    name = "vmap"

    def __init__(self, spec: ModelSpec, task: Task, seeds: Sequence[int], device: torch.device, dtype: torch.dtype):
        super().__init__(spec, task, seeds, device, dtype)
        fresh = [initialize(spec, task, seed, dtype) for seed in seeds]
        self.leaves = {name: torch.stack([f[name] for f in fresh]).to(device) for name in fresh[0]}
        for name, leaf in self.leaves.items():
            leaf.requires_grad_(not (name == "embed.W_E" and spec.embedding == "frozen"))
        self.adam = StackedAdam({n: leaf for n, leaf in self.leaves.items() if leaf.requires_grad}, self.recipe)
        self.held_out = validation_set(task)
        # What has one row for every model is stacked on an axis of models; a fixed data set is placed once.
        self.fixed = _placed(spec, task, training_set(spec, task), device) if self.recipe.data == "fixed" else None

    @classmethod
    def refusal(cls, spec: ModelSpec, task: Task, device: torch.device) -> str | None:
        if spec.decision == "indicator":
            return "an indicator has no gradient: models with decision = 'indicator' are constructed, not trained"
        if spec.training.data == "exact":
            return "it trains on samples; data = 'exact' is for one-layer models of conditional tables"
        return None

    @classmethod
    def seeds_together(cls, spec: ModelSpec, device: torch.device) -> int:
        return TOGETHER.get(device.type, TOGETHER["cpu"])
