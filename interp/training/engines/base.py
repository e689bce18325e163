"""The one interface behind which training engines differ: many seeds of one spec, an epoch at a time.

An engine holds its whole state in `state()`, so that any engine's run can be interrupted, saved, resumed and
snapshotted by the same few lines in train.py. Randomness of an epoch depends on (spec id, seed, epoch) alone: no
generator has to be saved, and a model's data do not depend on which models train beside it.
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from interp.spec import ModelSpec, Training
from interp.tasks import Task


@dataclass(frozen=True)
class EpochResult:
    """Of each model: the mean training loss of the epoch (nats) and the accuracy after it (0 to 1)."""

    loss: Tensor
    accuracy: Tensor


class Engine(ABC):
    """Trains M models of one spec at once. Engines are chosen by what they can do, never by a task's name."""

    name: ClassVar[str]

    def __init__(self, spec: ModelSpec, task: Task, seeds: Sequence[int], device: torch.device, dtype: torch.dtype):
        self.spec, self.task, self.seeds, self.device, self.dtype = spec, task, list(seeds), device, dtype
        self.recipe: Training = spec.training

    @classmethod
    @abstractmethod
    def refusal(cls, spec: ModelSpec, task: Task, device: torch.device) -> str | None:
        """Why this engine cannot train the spec, or None."""

    @classmethod
    def seeds_together(cls, spec: ModelSpec, device: torch.device) -> int:
        """How many models of a spec train fastest side by side in one process."""
        return 1

    def prepare(self, say: Callable[[str], None]) -> None:  # noqa: B027 (most engines have nothing to do)
        """Whatever has to be done once before the first epoch; `say` is called where it takes long."""

    @abstractmethod
    def run_epoch(self, epoch: int) -> EpochResult:
        """One pass; epochs count from 1."""

    @abstractmethod
    def evaluate(self) -> Tensor:
        """Accuracy of each model, (M,), on the task's validation (else test) data."""

    @abstractmethod
    def parameters(self) -> dict[str, Tensor]:
        """Current parameters with a leading axis of models; views, to be copied by who keeps them."""

    @abstractmethod
    def state(self) -> dict[str, Tensor]:
        """Everything that the next epoch depends on, besides (spec id, seed, epoch)."""

    @abstractmethod
    def load_state(self, state: dict[str, Tensor]) -> None:
        """Continue from a state()."""


def no_samples(spec: ModelSpec) -> str | None:
    """Why a loss on samples does not train the spec, or None."""
    if spec.decision == "indicator":
        return "an indicator has no gradient: models with decision = 'indicator' are constructed, not trained"
    if spec.training.data == "exact":
        return "it trains on samples; data = 'exact' is for one-layer models of conditional tables"
    return None


def derived_seed(spec_id: str, seed: int, *purpose: object) -> int:
    """A 63-bit seed for one purpose: fresh and independent for every (spec, seed, purpose)."""
    text = "/".join(map(str, (spec_id, seed, *purpose)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1


def learning_rate(recipe: Training, step: int, steps_per_epoch: int) -> float:
    """Rate of step number `step` (from 0): linear warm-up, then constant, or cosine or linear to the final rate."""
    warmup, total = recipe.warmup_epochs * steps_per_epoch, recipe.epochs * steps_per_epoch
    if step < warmup:
        return recipe.learning_rate * (step + 1) / warmup
    if recipe.schedule == "constant":
        return recipe.learning_rate
    progress = (step - warmup) / max(1, total - warmup)
    kept = 0.5 * (1 + math.cos(math.pi * progress)) if recipe.schedule == "cosine" else 1 - progress
    return recipe.final_learning_rate + (recipe.learning_rate - recipe.final_learning_rate) * kept


class StackedAdam:
    """torch's Adam (or AdamW) over stacked leaf tensors: elementwise, so a stack is exactly as many single models."""

    def __init__(self, leaves: dict[str, Tensor], recipe: Training) -> None:
        self.leaves = leaves
        self.optimizer = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[recipe.optimizer](
            list(leaves.values()), lr=recipe.learning_rate, betas=recipe.betas, eps=recipe.eps,
            weight_decay=recipe.weight_decay, fused=True,
        )  # fmt: skip

    def step(self, loss: Tensor, rate: float) -> None:
        self.optimizer.param_groups[0]["lr"] = rate
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()

    def state(self) -> dict[str, Tensor]:
        kept = {f"parameter/{name}": leaf.detach() for name, leaf in self.leaves.items()}
        for name, leaf in self.leaves.items():
            kept |= {f"{key}/{name}": value for key, value in self.optimizer.state.get(leaf, {}).items()}
        return {name: value.clone() for name, value in kept.items()}

    def load_state(self, state: dict[str, Tensor]) -> None:
        with torch.no_grad():
            for name, leaf in self.leaves.items():
                leaf.copy_(state[f"parameter/{name}"])
                moments = {key: state[f"{key}/{name}"].clone() for key in ("step", "exp_avg", "exp_avg_sq")
                           if f"{key}/{name}" in state}  # fmt: skip
                if moments:
                    self.optimizer.state[leaf] = moments
