"""The reference engine: train the TaskModel itself on sequences, one model at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional

from interp.architecture.answers import answered, decide
from interp.spec import ModelSpec
from interp.tasks import IGNORED, Batch, Task
from interp.tasks.sets import unpack_sets
from interp.training.data import epoch_batch, targets, validation_set
from interp.training.engines.base import Engine, EpochResult, StackedAdam, no_samples

if TYPE_CHECKING:
    from interp.architecture.task_model import TaskModel


class ReferenceEngine(Engine):
    """Train any task model in plain torch. Every faster engine must give the same results."""

    name = "reference"

    def __init__(self, spec: ModelSpec, task: Task, seeds: Sequence[int], device: torch.device, dtype: torch.dtype):
        from interp.architecture.task_model import TaskModel  # takes seconds; faster engines do not need it

        super().__init__(spec, task, seeds, device, dtype)
        self.models = [TaskModel(spec, task, seed=seed, device=device, dtype=dtype) for seed in seeds]
        self.adams = [
            StackedAdam({n: p for n, p in model.named_parameters() if p.requires_grad}, self.recipe)
            for model in self.models
        ]
        self.held_out = validation_set(task).to(device)

    @classmethod
    def refusal(cls, spec: ModelSpec, task: Task, device: torch.device) -> str | None:
        return no_samples(spec)

    def run_epoch(self, epoch: int) -> EpochResult:
        losses = [self._epoch_of(index, epoch) for index in range(len(self.models))]
        return EpochResult(torch.tensor(losses, dtype=torch.float64), self.evaluate())

    def _epoch_of(self, index: int, epoch: int) -> float:
        model, data = self.models[index], epoch_batch(self.spec, self.task, self.seeds[index], epoch)
        loss = self.adams[index].epoch(epoch, len(data), lambda some: batch_loss(model, data[some].to(self.device)))
        return float(loss)

    def evaluate(self) -> Tensor:
        batch = self.held_out
        return torch.tensor([accuracy(model, batch) for model in self.models], dtype=torch.float64)

    def parameters(self) -> dict[str, Tensor]:
        named = [dict(model.named_parameters()) for model in self.models]
        return {name: torch.stack([parameters[name].detach() for parameters in named]) for name in named[0]}

    def state(self) -> dict[str, Tensor]:
        return {f"{i}/{name}": tensor for i, adam in enumerate(self.adams) for name, tensor in adam.state().items()}

    def load_state(self, state: dict[str, Tensor]) -> None:
        for i, adam in enumerate(self.adams):
            prefix = f"{i}/"
            adam.load_state({n.removeprefix(prefix): t for n, t in state.items() if n.startswith(prefix)})


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
    right = (model.task.answers(decide(outputs, model.spec), batch.tokens) == labels) & answered(outputs)
    counted = labels >= 0 if labels.dtype != torch.bool else torch.ones_like(labels)
    return float(right[counted].double().mean())
