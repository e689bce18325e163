"""Engines in torch: models with parameters in stacks, each stack with its optimizer."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from interp.architecture.parameters import initialize
from interp.spec import ModelSpec
from interp.tasks import Task
from interp.training.engines.base import Engine, EpochResult, StackedAdam


@dataclass
class Group:
    """Models that take each step together: parameters with an axis of models, and the optimizer of the trained ones."""

    seeds: Sequence[int]
    leaves: dict[str, Tensor]
    adam: StackedAdam


class GroupedEngine(Engine):
    """Base of the engines in torch. Their state is that of the groups."""

    def __init__(self, spec: ModelSpec, task: Task, seeds: Sequence[int], device: torch.device, dtype: torch.dtype):
        super().__init__(spec, task, seeds, device, dtype)
        size = self.group_size()
        self.groups = [self.make_group(self.seeds[start : start + size]) for start in range(0, len(seeds), size)]

    def group_size(self) -> int:
        return self.seeds_together(self.spec, self.device)

    def make_group(self, seeds: Sequence[int]) -> Group:
        """Return freshly initialized models."""
        fresh = [initialize(self.spec, self.task, seed, self.dtype) for seed in seeds]
        leaves = {name: torch.stack([one[name] for one in fresh]).to(self.device) for name in fresh[0]}
        for name, leaf in leaves.items():
            leaf.requires_grad_(not (name == "embed.W_E" and self.spec.embedding == "frozen"))
        trained = {name: leaf for name, leaf in leaves.items() if leaf.requires_grad}
        return Group(seeds, leaves, StackedAdam(trained, self.recipe))

    @abstractmethod
    def train_group(self, group: Group, epoch: int) -> Tensor:
        """Train one epoch; return the mean loss of each model, (models,)."""

    @abstractmethod
    def accuracy(self, group: Group) -> Tensor:
        """Return the accuracy of each model on the held-out data, (models,)."""

    def run_epoch(self, epoch: int) -> EpochResult:
        losses = torch.cat([self.train_group(group, epoch) for group in self.groups])
        return EpochResult(losses.double().cpu(), self.evaluate())

    @torch.no_grad()
    def evaluate(self) -> Tensor:
        return torch.cat([self.accuracy(group) for group in self.groups])

    def parameters(self) -> dict[str, Tensor]:
        names = self.groups[0].leaves
        return {name: torch.cat([group.leaves[name].detach() for group in self.groups]) for name in names}

    def state(self) -> dict[str, Tensor]:
        return {
            f"{i}/{name}": tensor for i, group in enumerate(self.groups) for name, tensor in group.adam.state().items()
        }

    def load_state(self, state: dict[str, Tensor]) -> None:
        for i, group in enumerate(self.groups):
            prefix = f"{i}/"
            group.adam.load_state({n.removeprefix(prefix): t for n, t in state.items() if n.startswith(prefix)})
