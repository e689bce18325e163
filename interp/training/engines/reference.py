"""The reference engine: train the TaskModel itself on sequences, one model at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional

from interp.models.architecture.answers import decide, has_answer
from interp.models.spec import ModelSpec
from interp.tasks import IGNORED, Batch, Task
from interp.tasks.sets import unpack_sets
from interp.training.data import epoch_batch, targets, validation_set
from interp.training.engines.engine import Group, GroupedEngine, StackedAdam, register_engine

if TYPE_CHECKING:
    from interp.models.architecture.task_model import TaskModel


@register_engine
class ReferenceEngine(GroupedEngine):
    """Train any task model in plain torch. Every faster engine must give the same results."""

    name = "reference"
    order = 70

    def __init__(self, spec: ModelSpec, task: Task, seeds: Sequence[int], device: torch.device, dtype: torch.dtype):
        self.models: dict[int, TaskModel] = {}
        super().__init__(spec, task, seeds, device, dtype)
        self.held_out = validation_set(task).to(device)

    def group_size(self) -> int:
        return 1

    def make_group(self, seeds: Sequence[int]) -> Group:
        from interp.models.architecture.task_model import TaskModel  # takes seconds; faster engines do not need it

        model = TaskModel(self.spec, self.task, seed=seeds[0], device=self.device, dtype=self.dtype)
        self.models[seeds[0]] = model
        leaves: dict[str, Tensor] = dict(model.named_parameters())
        trained = {name: leaf for name, leaf in leaves.items() if leaf.requires_grad}
        return Group(
            seeds, {name: leaf.detach()[None] for name, leaf in leaves.items()}, StackedAdam(trained, self.recipe)
        )

    def train_group(self, group: Group, epoch: int) -> Tensor:
        model, data = self.models[group.seeds[0]], epoch_batch(self.spec, self.task, group.seeds[0], epoch)
        return group.adam.epoch(epoch, len(data), lambda some: batch_loss(model, data[some].to(self.device)))[None]

    def accuracy(self, group: Group) -> Tensor:
        return torch.tensor([accuracy(self.models[group.seeds[0]], self.held_out)], dtype=torch.float64)


def batch_loss(model: TaskModel, batch: Batch) -> Tensor:
    """Return the mean loss in nats over all read positions: cross-entropy, binary for scalars and sets."""
    classes = targets(model.spec, model.task, batch)
    read = classes != IGNORED
    out = model(batch.tokens)[read]
    if model.spec.decision == "sigmoid":
        return functional.binary_cross_entropy_with_logits(out.squeeze(-1), classes[read].to(out))
    if model.spec.decision == "set":
        wanted = unpack_sets(classes[read].long(), out.shape[-1]).to(out)
        return functional.binary_cross_entropy_with_logits(out, wanted)
    return functional.cross_entropy(out, classes[read].long())


def accuracy(model: TaskModel, batch: Batch) -> float:
    """Return the share of correct answers over all read positions."""
    with torch.no_grad():
        outputs, labels = model.read(batch.tokens), batch.labels
    right = (model.task.answers(decide(outputs, model.spec), batch.tokens) == labels) & has_answer(outputs)
    counted = labels >= 0 if labels.dtype != torch.bool else torch.ones_like(labels)
    return float(right[counted].double().mean())
