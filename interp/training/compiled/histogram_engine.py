"""The fused engine: the six histogram models, sampler to optimizer in one compiled loop, one model per core at a time.

The loop is in histogram_loop.py (numba, the optional extra `fast`); this file gives it the face of all engines.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec

import numpy as np
import torch
from torch import Tensor

from interp.architecture.parameters import initialize, outputs
from interp.spec import Bias, ModelSpec
from interp.tasks import Histogram, Task
from interp.training.data import validation_set
from interp.training.engines.base import Engine, EpochResult, derived_seed

KERNEL_DTYPES = {torch.float32: np.float32, torch.float64: np.float64}


class FusedEngine(Engine):
    """Exact training of one-head histogram models on fresh sequences."""

    name = "fused"

    def __init__(self, spec: ModelSpec, task: Task, seeds: Sequence[int], device: torch.device, dtype: torch.dtype):
        from interp.training.compiled import HistogramKernel

        super().__init__(spec, task, seeds, device, dtype)
        layer = spec.layers[0]
        assert isinstance(task, Histogram)
        self.kernels = [
            HistogramKernel(
                mixing="dot" if layer.mixing == "dot" else "lin",
                softmax=layer.normalizer == "softmax",
                bos=task.bos,
                T=task.T,
                L=task.L,
                d=spec.d_model,
                p=spec.readout_width or 0,
                n_out=outputs(spec, task),
                dtype=KERNEL_DTYPES[dtype],
                frozen_embedding=spec.embedding == "frozen",
                sampler=task.sampler,
            )
            for _ in seeds
        ]
        # Parameters and Adam's two moments of each model: flat vectors with the kernel's padding inside.
        self.flat, self.m, self.v = ([kernel.init_flat() for kernel in self.kernels] for _ in range(3))
        for kernel, flat, seed in zip(self.kernels, self.flat, seeds):
            fresh = initialize(spec, task, seed, dtype)
            for name, view in kernel.views(flat).items():
                view[...] = fresh[name].numpy()
        self.held_out = validation_set(task).tokens[:, int(task.bos) :].numpy()
        self.steps = -(-(self.recipe.samples_per_epoch or 0) // self.recipe.batch_size)

    @classmethod
    def refusal(cls, spec: ModelSpec, task: Task, device: torch.device) -> str | None:
        layer, recipe = spec.layers[0], spec.training
        if (
            spec.symmetry not in ("distinct_tokens", "slots")
            or len(spec.layers) != 1
            or not isinstance(task, Histogram)
        ):
            return "the fused loop is built for one layer without positions on the histogram task"
        plain = layer.norm == "none" and layer.mlp is None and layer.bias == Bias() and layer.log_length == "none"
        plain = plain and spec.final_norm == "none"
        scaled = layer.factor(spec.d_model) == spec.d_model**-0.5
        if not plain or not scaled or layer.n_heads != 1 or layer.d_head != spec.d_model:
            return "the fused loop has one head of d_model dimensions, scale 1/sqrt(d_model), no biases, norm or MLP"
        if layer.query_key != "learned" or layer.value_output != "identity" or spec.readout != "relu_mlp":
            return "the fused loop has learned queries and keys, identity values and a ReLU readout"
        if recipe.data != "fresh" or recipe.schedule != "constant" or recipe.warmup_epochs or recipe.weight_decay:
            return "the fused loop draws fresh data at a constant learning rate without weight decay"
        if device.type != "cpu":
            return f"the fused loop runs on the CPU, not on {device.type}"
        if find_spec("numba") is None:
            return "the fused loop needs numba: pip install 'interp[fast]'"
        return None

    def run_epoch(self, epoch: int) -> EpochResult:
        if len(self.kernels) == 1:
            return EpochResult(torch.tensor([self._epoch_of(0, epoch)], dtype=torch.float64), self.evaluate())
        # The compiled loop releases the GIL: threads are as good as processes, and share the compiled code.
        with ThreadPoolExecutor(max_workers=len(os.sched_getaffinity(0))) as pool:
            losses = list(pool.map(lambda index: self._epoch_of(index, epoch), range(len(self.kernels))))
        return EpochResult(torch.tensor(losses, dtype=torch.float64), self.evaluate())

    def _epoch_of(self, index: int, epoch: int) -> float:
        return self.kernels[index].run_epoch(
            self.flat[index],
            self.m[index],
            self.v[index],
            step=(epoch - 1) * self.steps,
            rng_seed=derived_seed(self.spec.id, self.seeds[index], "data", epoch),
            n_samples=self.recipe.samples_per_epoch or 0,
            batch=self.recipe.batch_size,
            lr=self.recipe.learning_rate,
            betas=self.recipe.betas,
            eps=self.recipe.eps,
        )

    def evaluate(self) -> Tensor:
        rights = [kernel.evaluate(flat, self.held_out) for kernel, flat in zip(self.kernels, self.flat)]
        return torch.tensor(rights, dtype=torch.float64)

    def parameters(self) -> dict[str, Tensor]:
        views = [kernel.views(flat) for kernel, flat in zip(self.kernels, self.flat)]
        return {name: torch.from_numpy(np.stack([view[name] for view in views])) for name in views[0]}

    def state(self) -> dict[str, Tensor]:
        kept = {"flat": self.flat, "m": self.m, "v": self.v}
        return {name: torch.from_numpy(np.stack(arrays)) for name, arrays in kept.items()}

    def load_state(self, state: dict[str, Tensor]) -> None:
        for name, arrays in {"flat": self.flat, "m": self.m, "v": self.v}.items():
            for array, saved in zip(arrays, state[name].numpy()):
                array[...] = saved
