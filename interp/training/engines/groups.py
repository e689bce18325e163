"""Shared parts of stacked torch engines: parameters with an axis of models, in one stack or in groups."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, TypeVar

import torch
from torch import Tensor

from interp.architecture.parameters import initialize
from interp.spec import ModelSpec
from interp.tasks import Task
from interp.training.engines.base import Engine, EpochResult, StackedAdam


def stack(engine: Engine, seeds: Sequence[int]) -> tuple[dict[str, Tensor], StackedAdam]:
    """Stack freshly initialized models; also return the optimizer of the trained parameters."""
    fresh = [initialize(engine.spec, engine.task, seed, engine.dtype) for seed in seeds]
    leaves = {name: torch.stack([one[name] for one in fresh]).to(engine.device) for name in fresh[0]}
    for name, leaf in leaves.items():
        leaf.requires_grad_(not (name == "embed.W_E" and engine.spec.embedding == "frozen"))
    return leaves, StackedAdam({name: leaf for name, leaf in leaves.items() if leaf.requires_grad}, engine.recipe)


class StackEngine(Engine):
    """Base of engines that train all models in one stack."""

    def __init__(self, spec: ModelSpec, task: Task, seeds: Sequence[int], device: torch.device, dtype: torch.dtype):
        super().__init__(spec, task, seeds, device, dtype)
        self.leaves, self.adam = stack(self, self.seeds)

    def parameters(self) -> dict[str, Tensor]:
        return {name: leaf.detach() for name, leaf in self.leaves.items()}

    def state(self) -> dict[str, Tensor]:
        return self.adam.state()

    def load_state(self, state: dict[str, Tensor]) -> None:
        self.adam.load_state(state)


E = TypeVar("E", bound=Engine)


class Group(ABC, Generic[E]):
    """A group of an engine's models, sized for speed."""

    def __init__(self, engine: E, seeds: Sequence[int]) -> None:
        self.engine, self.seeds = engine, list(seeds)
        self.leaves, self.adam = stack(engine, seeds)

    @abstractmethod
    def run_epoch(self, epoch: int) -> Tensor:
        """Train one epoch; return the mean loss of each model, (models,)."""


G = TypeVar("G", bound=Group)


class GroupedEngine(Engine, Generic[G]):
    """Base of engines that train models in groups of size `seeds_together`. Their state is that of the groups."""

    group: type[G]

    def __init__(self, spec: ModelSpec, task: Task, seeds: Sequence[int], device: torch.device, dtype: torch.dtype):
        super().__init__(spec, task, seeds, device, dtype)
        size = self.seeds_together(spec, device)
        parts = [self.seeds[start : start + size] for start in range(0, len(seeds), size)]
        self.groups = [self.group(self, part) for part in parts]

    def run_epoch(self, epoch: int) -> EpochResult:
        losses = torch.cat([group.run_epoch(epoch) for group in self.groups])
        return EpochResult(losses.double().cpu(), self.evaluate())

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
