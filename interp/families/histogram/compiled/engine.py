"""The compiled engine of the six histogram models, with sampler and optimizer in one loop (kernel.py).

Models are flat vectors, each trained by one core at a time.
"""

import os
import platform
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from interp.errors import InterpError
from interp.families.histogram.compiled.layout import Layout, Sizes, TrainingData, sources, workspace
from interp.families.histogram.tasks import Histogram
from interp.models.architecture.parameters import initialize, outputs
from interp.models.spec import Bias, ModelSpec
from interp.support.resources import cores
from interp.tasks import Task
from interp.training.data import validation_set
from interp.training.engines.engine import (
    NEEDS_NUMBA,
    Engine,
    EpochResult,
    derived_seed,
    learning_rate,
    register_engine,
)

DTYPES: dict[torch.dtype, np.dtype[Any]] = {torch.float32: np.dtype(np.float32), torch.float64: np.dtype(np.float64)}

WORK_BATCH = 32
"""Least number of sequences in the work arrays; so many, or a training batch, are evaluated together."""

PATIENCE = 1.5
"""Seconds after which a message says that code is being compiled; cached code loads faster."""
COMPILE_SECONDS = 25.0
"""Approximate time for compiling on one core, once per version, dtype and machine."""
SAVED_SECONDS = 400e-6
"""Approximate seconds saved per model and step, relative to the fastest other engine with few models."""


@register_engine
class FusedEngine(Engine):
    """Train one-head histogram models on fresh sequences, in compiled code.

    The task's sampler is part of the loop, which needs as many tokens as positions. Value and output are the identity,
    so x' = x + A x, and the logits are relu(x' W_in + b_in) W_out + b_out (Behrens et al. 2024, section 3).
    """

    name = "fused"
    order = 20

    def __init__(self, spec: ModelSpec, task: Task, seeds: Sequence[int], device: torch.device, dtype: torch.dtype):
        if dtype not in DTYPES:
            raise InterpError(f"dtype {dtype}; the {self.name} engine trains in float32 or float64")
        super().__init__(spec, task, seeds, device, dtype)
        assert isinstance(task, Histogram)
        self.kind = DTYPES[dtype]
        self.sizes = sizes_of(spec, task)
        self.layout = Layout(self.sizes, self.kind)
        self.spare: list[Any] = []
        self.flat, self.m, self.v = ([self.layout.zeros() for _ in self.seeds] for _ in "pmv")
        for flat, seed in zip(self.flat, self.seeds):
            fresh = initialize(spec, task, seed, dtype)
            for name, view in self.layout.views(flat).items():
                view[...] = fresh[name].numpy()
        self.published = task.sampler == "published"
        self.held_out = np.ascontiguousarray(validation_set(task).tokens[:, int(task.bos) :].numpy())

    @classmethod
    def refusal(cls, spec: ModelSpec, task: Task, device: torch.device) -> str | None:
        layer, recipe = spec.layers[0], spec.training
        if (
            spec.symmetry not in ("distinct_tokens", "slots")
            or len(spec.layers) != 1
            or not isinstance(task, Histogram)
        ):
            return "the fused loop needs one layer without positions on the histogram task"
        plain = layer.norm == "none" and layer.mlp is None and layer.bias == Bias() and layer.log_length == "none"
        plain = plain and spec.final_norm == "none" and not spec.extras
        scaled = layer.factor(spec.d_model) == spec.d_model**-0.5
        if not plain or not scaled or layer.n_heads != 1 or layer.d_head != spec.d_model:
            return "the fused loop has one head of d_model dimensions, scale 1/sqrt(d_model), no biases, norm or MLP"
        if layer.query_key != "learned" or layer.value_output != "identity" or spec.readout != "relu_mlp":
            return "the fused loop has learned queries and keys, identity values and a ReLU readout"
        if recipe.data != "fresh" or recipe.schedule != "constant" or recipe.warmup_epochs or recipe.weight_decay:
            return "the fused loop draws fresh data at a constant learning rate without weight decay"
        if device.type != "cpu":
            return f"the compiled loop runs on the CPU, not on {device.type}"
        return NEEDS_NUMBA if find_spec("numba") is None else None

    @classmethod
    def pays(cls, spec: ModelSpec, models: int) -> bool:
        """Return whether training saves more time than compiling takes, or the compiled code is cached."""
        recipe = spec.training
        steps = recipe.epochs * -(-(recipe.samples_per_epoch or 0) // recipe.batch_size) * models
        return steps * SAVED_SECONDS > COMPILE_SECONDS or compiled_mark(spec.dtype).exists()

    @property
    def compiled(self) -> Any:
        """The module of the compiled code, imported on first use because it imports numba."""
        return import_module(f"{__package__}.kernel")

    @contextmanager
    def workspace(self) -> Iterator[Any]:
        """Return work arrays, one set per thread, reused in later epochs."""
        rows = max(WORK_BATCH, self.recipe.batch_size)
        work = self.spare.pop() if self.spare else workspace(self.sizes, rows, self.kind)
        yield work
        self.spare.append(work)

    def prepare(self, say: Callable[[str], None]) -> None:
        """Compile the code, or load it from disk."""
        told = threading.Timer(
            PATIENCE, say, (f"compiling the {self.name} engine, about {COMPILE_SECONDS:.0f} s, once",)
        )
        told.daemon = True
        told.start()
        try:
            self.touch()
        finally:
            told.cancel()
        with suppress(OSError):  # the folder may not be writable
            compiled_mark(self.kind.name).touch()

    def touch(self) -> None:
        """Call every compiled function once on empty work, so that it is compiled or loaded."""
        self._accuracy(0, self.held_out[:1])
        self._train(0, 0, 0, np.zeros(0), 0)

    def run_epoch(self, epoch: int) -> EpochResult:
        def train_and_score(index: int) -> tuple[float, float]:
            with no_subnormals():
                return self.train_one(index, epoch), self.accuracy_of(index)

        if len(self.seeds) == 1:
            results = [train_and_score(0)]
        else:
            # The compiled loop releases the GIL, so threads are as fast as processes, and they share the code.
            with ThreadPoolExecutor(max_workers=min(len(self.seeds), cores())) as pool:
                results = list(pool.map(train_and_score, range(len(self.seeds))))
        loss, accuracy = (torch.tensor(column, dtype=torch.float64) for column in zip(*results))
        return EpochResult(loss, accuracy)

    def train_one(self, index: int, epoch: int) -> float:
        """Train one model for one epoch; return its mean loss."""
        n, seed = self.recipe.samples_per_epoch or 0, derived_seed(self.spec.id, self.seeds[index], "data", epoch)
        steps = -(-n // self.recipe.batch_size)
        done = (epoch - 1) * steps
        rates = np.array([learning_rate(self.recipe, done + step, steps) for step in range(steps)])
        return self._train(index, n, seed, rates, done)

    def _train(self, index: int, n: int, seed: int, rates: np.ndarray, done: int) -> float:
        """Train one model on n sequences, with one step per rate, after `done` steps; return the mean loss."""
        flat, grad, recipe = self.flat[index], self.layout.zeros(), self.recipe
        P, G = self.layout.blocks(flat), self.layout.blocks(grad)
        data = TrainingData(n, self.held_out[:0], np.array([seed], np.uint64), self.published)
        with self.workspace() as work:
            loss: float = self.compiled.train(
                self.sizes, P, G, work, data, flat, grad, self.m[index], self.v[index],
                P.embed.size if self.spec.embedding == "frozen" else 0, done, recipe.batch_size, rates,
                *recipe.betas, recipe.eps,
            )  # fmt: skip
        return loss

    def accuracy_of(self, index: int) -> float:
        """Return the accuracy of one model on the held-out data."""
        return self._accuracy(index, self.held_out)

    def _accuracy(self, index: int, tokens: np.ndarray) -> float:
        with self.workspace() as work:
            accuracy: float = self.compiled.accuracy(self.sizes, self.layout.blocks(self.flat[index]), work, tokens)
        return accuracy

    def evaluate(self) -> Tensor:
        return torch.tensor([self.accuracy_of(index) for index in range(len(self.seeds))], dtype=torch.float64)

    def parameters(self) -> dict[str, Tensor]:
        views = [self.layout.views(flat) for flat in self.flat]
        return {name: torch.from_numpy(np.stack([view[name] for view in views])) for name in views[0]}

    def state(self) -> dict[str, Tensor]:
        kept = {"flat": self.flat, "m": self.m, "v": self.v}
        return {name: torch.from_numpy(np.stack(arrays)) for name, arrays in kept.items()}

    def load_state(self, state: dict[str, Tensor]) -> None:
        for name, arrays in {"flat": self.flat, "m": self.m, "v": self.v}.items():
            for array, saved in zip(arrays, state[name].numpy()):
                array[...] = saved


def sizes_of(spec: ModelSpec, task: Histogram) -> Sizes:
    """Return the sizes that the compiled code loops over."""
    layer, classes = spec.layers[0], outputs(spec, task)
    return Sizes(
        T=task.T, vocab=task.T + task.bos, L=task.L, d=spec.d_model, p=spec.readout_width or 0, classes=classes,
        first=task.L + 1 - classes, dot=layer.mixing == "dot", softmax=layer.normalizer == "softmax", bos=task.bos,
        frozen=spec.embedding == "frozen", scale=float(spec.d_model) ** -0.5,
    )  # fmt: skip


@contextmanager
def no_subnormals() -> Iterator[None]:
    """Treat subnormal results and arguments as 0 in this thread.

    Adam's moments of a parameter without gradient, such as those of a dead neuron, shrink until they are subnormal, and
    subnormal arithmetic takes a hundred times as long. Such small steps leave the weights unchanged to the last bit.
    """
    was_on = bool(np.float32(1e-40) * np.float32(1) == 0)  # torch cannot report this setting
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(was_on)


def compiled_mark(dtype: str) -> Path:
    """Return the path of a file that exists once this version of the engine is compiled on this machine.

    It is in the folder of numba's compiled code, so that both are deleted together.
    """
    kept = Path(os.environ.get("NUMBA_CACHE_DIR") or Path(__file__).parent / "__pycache__")
    return kept / f"interp-fused-{dtype}-{platform.node()}-{sources()[:16]}.compiled"
