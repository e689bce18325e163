"""The interface of training engines, which train many seeds of one spec, and the base of those in torch.

`state()` returns an engine's whole state, so train.py can interrupt, save, resume and snapshot any engine in the same
way. The randomness of an epoch depends only on (spec id, seed, epoch). So generators need not be saved, and a model's
data do not depend on the models trained together with it.
"""

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from interp.errors import InterpError
from interp.models.architecture.parameters import initialize
from interp.models.spec import ModelSpec, Training
from interp.tasks import Task


@dataclass(frozen=True)
class EpochResult:
    """Per model: the mean training loss of the epoch (nats) and the accuracy after it (0 to 1)."""

    loss: Tensor
    accuracy: Tensor


class Engine(ABC):
    """Trains M models of one spec together. Engines are chosen by their capabilities, not by a task's name."""

    name: ClassVar[str]
    order: ClassVar[int]
    """The engine of lowest order that supports a spec trains it: fast ones come first."""

    def __init__(self, spec: ModelSpec, task: Task, seeds: Sequence[int], device: torch.device, dtype: torch.dtype):
        self.spec, self.task, self.seeds, self.device, self.dtype = spec, task, list(seeds), device, dtype
        self.recipe: Training = spec.training

    @classmethod
    @abstractmethod
    def refusal(cls, spec: ModelSpec, task: Task, device: torch.device) -> str | None:
        """Return the reason why this engine cannot train the spec, or None."""

    @classmethod
    def pays(cls, spec: ModelSpec, models: int) -> bool:
        """Return whether training so many models saves more time than preparing the engine takes."""
        return True

    @classmethod
    def seeds_together(cls, spec: ModelSpec, device: torch.device) -> int:
        """Return how many models of a spec are trained fastest together in one process."""
        return 1

    def prepare(self, say: Callable[[str], None]) -> None:  # noqa: B027 (most engines have nothing to do)
        """Do one-time work before the first epoch; call `say` with a message if it takes long."""

    @abstractmethod
    def run_epoch(self, epoch: int) -> EpochResult:
        """Train one epoch; epochs count from 1."""

    @abstractmethod
    def evaluate(self) -> Tensor:
        """Return the accuracy of each model, (M,), on the task's validation data, or on its test data without any."""

    @abstractmethod
    def parameters(self) -> dict[str, Tensor]:
        """Return the current parameters with a leading axis of models. They may be views, so copy them to keep them."""

    @abstractmethod
    def state(self) -> dict[str, Tensor]:
        """Return everything that the next epoch depends on, except (spec id, seed, epoch)."""

    @abstractmethod
    def load_state(self, state: dict[str, Tensor]) -> None:
        """Restore a state returned by state()."""


NEEDS_NUMBA = "the compiled loop needs numba: pip install numba"
"""The only refusal that installing a package resolves."""

E = TypeVar("E", bound=type[Engine])
ENGINES: dict[str, type[Engine]] = {}
"""The registered engines by name, from low to high order."""


def register_engine(engine: E) -> E:
    """Decorator: register an engine under its name. Raises InterpError if another engine has the name."""
    known = ENGINES.get(engine.name)
    if known is not None and (known.__module__, known.__qualname__) != (engine.__module__, engine.__qualname__):
        raise InterpError(f"an engine named {engine.name!r} is already registered by {known.__module__}")
    ENGINES[engine.name] = engine
    for name in sorted(ENGINES, key=lambda name: ENGINES[name].order):
        ENGINES[name] = ENGINES.pop(name)
    return engine


def derived_seed(spec_id: str, seed: int, *purpose: object) -> int:
    """Return a 63-bit seed, independent for every (spec, seed, purpose)."""
    text = "/".join(map(str, (spec_id, seed, *purpose)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1


def learning_rate(recipe: Training, step: int, steps_per_epoch: int) -> float:
    """Return the rate of a step (from 0): linear warm-up, then constant, or cosine or linear to the final rate."""
    warmup, total = recipe.warmup_epochs * steps_per_epoch, recipe.epochs * steps_per_epoch
    if step < warmup:
        return recipe.learning_rate * (step + 1) / warmup
    if recipe.schedule == "constant":
        return recipe.learning_rate
    progress = (step - warmup) / max(1, total - warmup)
    kept = 0.5 * (1 + math.cos(math.pi * progress)) if recipe.schedule == "cosine" else 1 - progress
    return recipe.final_learning_rate + (recipe.learning_rate - recipe.final_learning_rate) * kept


class StackedAdam:
    """Adam (or AdamW) over stacked tensors; it is elementwise, so the result equals training each model alone.

    This calls the operation behind torch.optim.Adam(fused=True) directly, because the class would import torch's
    compiler, which takes a second.
    """

    def __init__(self, leaves: dict[str, Tensor], recipe: Training) -> None:
        self.leaves, self.recipe = leaves, recipe
        self.update = {"adam": torch._fused_adam_, "adamw": torch._fused_adamw_}[recipe.optimizer]
        self.moments: dict[str, dict[str, Tensor]] = {}

    def step(self, loss: Tensor, rate: float) -> None:
        for leaf in self.leaves.values():
            leaf.grad = None
        loss.backward()
        gradients = {name: leaf.grad for name, leaf in self.leaves.items() if leaf.grad is not None}
        for name, leaf in gradients.items():
            if name not in self.moments:
                fresh = {key: torch.zeros_like(leaf) for key in ("exp_avg", "exp_avg_sq")}
                self.moments[name] = {"step": torch.zeros((), device=leaf.device), **fresh}
        steps, first, second = ([self.moments[name][key] for name in gradients] for key in MOMENTS)
        (beta1, beta2), leaves = self.recipe.betas, [self.leaves[name] for name in gradients]
        with torch.no_grad():
            torch._foreach_add_(steps, 1)
            self.update(
                leaves, list(gradients.values()), first, second, [], steps, lr=rate, beta1=beta1, beta2=beta2,
                weight_decay=self.recipe.weight_decay, eps=self.recipe.eps, amsgrad=False, maximize=False,
            )  # fmt: skip

    def epoch(self, epoch: int, n: int, losses: Callable[[slice], Tensor]) -> Float[Tensor, "*models"]:
        """Make one pass over n examples, with one step per batch; return the mean loss of each model."""
        size, total = self.recipe.batch_size, torch.zeros(())
        steps = -(-n // size)
        for step in range(steps):
            some = slice(step * size, min((step + 1) * size, n))
            batch_losses = losses(some)
            rate = learning_rate(self.recipe, (epoch - 1) * steps + step, steps)
            self.step(batch_losses.sum(), rate)  # the sum gives each model its own gradient
            total = total + batch_losses.detach().double() * (some.stop - some.start)
        return total.cpu() / n

    def state(self) -> dict[str, Tensor]:
        kept = {f"parameter/{name}": leaf.detach() for name, leaf in self.leaves.items()}
        for name, moments in self.moments.items():
            kept |= {f"{key}/{name}": value for key, value in moments.items()}
        return {name: value.clone() for name, value in kept.items()}

    def load_state(self, state: dict[str, Tensor]) -> None:
        with torch.no_grad():
            for name, leaf in self.leaves.items():
                leaf.copy_(state[f"parameter/{name}"])
                if f"step/{name}" in state:
                    self.moments[name] = {key: state[f"{key}/{name}"].clone() for key in MOMENTS}


MOMENTS = ("step", "exp_avg", "exp_avg_sq")
"""torch's names for Adam's state of each tensor."""


@dataclass
class Group:
    """Models that take each step together: parameters with an axis of models, and the optimizer of the trained ones."""

    seeds: Sequence[int]
    leaves: dict[str, Tensor]
    adam: StackedAdam


class GroupedEngine(Engine):
    """Base of the engines in torch: models with parameters in stacks, each stack with its optimizer and its state."""

    def __init__(self, spec: ModelSpec, task: Task, seeds: Sequence[int], device: torch.device, dtype: torch.dtype):
        super().__init__(spec, task, seeds, device, dtype)
        size = self.group_size()
        self.groups = [self.make_group(self.seeds[start : start + size]) for start in range(0, len(seeds), size)]

    @classmethod
    def refusal(cls, spec: ModelSpec, task: Task, device: torch.device) -> str | None:
        """Return the reason why the spec cannot be trained on samples, or None."""
        if spec.decision == "indicator":
            return "an indicator has no gradient: models with decision = 'indicator' are constructed, not trained"
        if spec.training.data == "exact":
            return "it trains on samples; data = 'exact' is for models of conditional tables"
        return None

    def group_size(self) -> int:
        return self.seeds_together(self.spec, self.device)

    def make_group(self, seeds: Sequence[int]) -> Group:
        """Return freshly initialized models."""
        fresh = [initialize(self.spec, self.task, seed, self.dtype) for seed in seeds]
        leaves = {name: torch.stack([weights[name] for weights in fresh]).to(self.device) for name in fresh[0]}
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
