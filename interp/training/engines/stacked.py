"""The stacked engine: one-layer models without positions, on distinct rows (see rows.py), by autograd.

If the fused engine supports the spec, it is several times faster on the CPU. This engine also supports several heads,
learned values, biases, pre-layer-norm, linear readouts, weight decay, schedules, and CUDA.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from interp.architecture.answers import answered
from interp.architecture.parameters import outputs
from interp.architecture.reduced import reduced_refusal
from interp.spec import ModelSpec
from interp.tasks import Task
from interp.training.data import epoch_batch, validation_set
from interp.training.engines.base import register_engine
from interp.training.engines.groups import Group, GroupedEngine
from interp.training.engines.rows import epoch_rows, losses, step_outputs

GROUP = {"cpu": 64, "cuda": 256}
"""Number of models trained together. More would leave the CPU's cache; fewer would leave the GPU idle."""


@register_engine
class StackedEngine(GroupedEngine):
    """Train one-layer models whose outputs depend only on tokens, counts and slots."""

    name = "stacked"
    order = 30

    def __init__(self, spec: ModelSpec, task: Task, seeds: Sequence[int], device: torch.device, dtype: torch.dtype):
        super().__init__(spec, task, seeds, device, dtype)
        self.n_out = outputs(spec, task)
        self.held_out_batch = validation_set(task)
        self.held_out = epoch_rows(spec, task, self.n_out, [self.held_out_batch], len(self.held_out_batch))
        self.held_out = self.held_out.to(device, dtype)

    @classmethod
    def refusal(cls, spec: ModelSpec, task: Task, device: torch.device) -> str | None:
        if (reason := reduced_refusal(spec)) is not None:
            return reason
        if spec.direction != "bidirectional":
            return "the stacked engine trains bidirectional layers"
        if spec.decision != "argmax":
            return "the stacked engine trains by cross-entropy"
        return None

    @classmethod
    def seeds_together(cls, spec: ModelSpec, device: torch.device) -> int:
        return GROUP.get(device.type, GROUP["cpu"])

    def train_group(self, group: Group, epoch: int) -> Tensor:
        size = self.recipe.batch_size
        batches = [epoch_batch(self.spec, self.task, seed, epoch) for seed in group.seeds]
        rows = epoch_rows(self.spec, self.task, self.n_out, batches, size).to(self.device, self.dtype)
        return group.adam.epoch(
            epoch, len(batches[0]), lambda some: losses(self.spec, group.leaves, rows[some.start // size])
        )

    def accuracy(self, group: Group) -> Tensor:
        """Return the share of read positions whose largest logit is the correct class."""
        rows, right = self.held_out[0], []
        for index in range(len(group.seeds)):
            one = {name: leaf[index : index + 1] for name, leaf in group.leaves.items()}
            outputs = step_outputs(self.spec, one, rows)
            good = rows.target.gather(2, outputs.argmax(-1, keepdim=True)) * answered(outputs)[..., None]
            right.append((good.sum().double() / rows.target.sum().double()).cpu())
        return torch.stack(right)
