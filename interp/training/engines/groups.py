"""What stacked torch engines share: models of one spec as leaves with an axis of models, in groups that train well."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from interp.architecture.parameters import initialize
from interp.training.engines.base import Engine, StackedAdam


class Group(ABC):
    """Some of an engine's models: their seeds, their stacked parameters and their optimizer."""

    def __init__(self, engine: Engine, seeds: Sequence[int]) -> None:
        self.seeds = list(seeds)
        fresh = [initialize(engine.spec, engine.task, seed, engine.dtype) for seed in seeds]
        self.leaves = {name: torch.stack([f[name] for f in fresh]).to(engine.device) for name in fresh[0]}
        for name, leaf in self.leaves.items():
            leaf.requires_grad_(not (name == "embed.W_E" and engine.spec.embedding == "frozen"))
        self.adam = StackedAdam({n: leaf for n, leaf in self.leaves.items() if leaf.requires_grad}, engine.recipe)

    @abstractmethod
    def run_epoch(self, epoch: int) -> Tensor:
        """One pass; the mean loss of each model, (models,)."""


class GroupedEngine(Engine):
    """An engine whose whole state is that of its groups."""

    groups: Sequence[Group]

    def parameters(self) -> dict[str, Tensor]:
        return {
            name: torch.cat([group.leaves[name].detach() for group in self.groups]) for name in self.groups[0].leaves
        }

    def state(self) -> dict[str, Tensor]:
        return {
            f"{i}/{name}": tensor for i, group in enumerate(self.groups) for name, tensor in group.adam.state().items()
        }

    def load_state(self, state: dict[str, Tensor]) -> None:
        for i, group in enumerate(self.groups):
            prefix = f"{i}/"
            group.adam.load_state({n.removeprefix(prefix): t for n, t in state.items() if n.startswith(prefix)})
