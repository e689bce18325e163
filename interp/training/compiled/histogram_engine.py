"""The compiled engine of the six histogram models, with sampler and optimizer in one loop (histogram.py, numba)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from interp.architecture.parameters import outputs
from interp.spec import Bias, ModelSpec
from interp.tasks import Histogram, Task
from interp.training.compiled.layout import Layout
from interp.training.compiled.shell import CompiledEngine
from interp.training.data import validation_set
from interp.training.engines.base import derived_seed


class FusedEngine(CompiledEngine):
    """Train one-head histogram models on fresh sequences, in compiled code."""

    name = "fused"
    saved_seconds = 400e-6

    def __init__(self, spec: ModelSpec, task: Task, seeds: Sequence[int], device: torch.device, dtype: torch.dtype):
        super().__init__(spec, task, seeds, device, dtype)
        assert isinstance(task, Histogram)
        self.kernels = [self._kernel() for _ in seeds]
        self.held_out = validation_set(task).tokens[:, int(task.bos) :].numpy()
        self.steps = -(-(self.recipe.samples_per_epoch or 0) // self.recipe.batch_size)

    def _kernel(self) -> Any:
        from interp.training.compiled import HistogramKernel

        spec, task, layer = self.spec, self.task, self.spec.layers[0]
        assert isinstance(task, Histogram)
        return HistogramKernel(
            mixing="dot" if layer.mixing == "dot" else "lin",
            softmax=layer.normalizer == "softmax",
            bos=task.bos,
            T=task.T,
            L=task.L,
            d=spec.d_model,
            p=spec.readout_width or 0,
            n_out=outputs(spec, task),
            dtype=self.kind,
            frozen_embedding=spec.embedding == "frozen",
            sampler=task.sampler,
        )

    def make_layout(self) -> Layout:
        made: Layout = self._kernel().layout
        return made

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
        return cls.cannot_run(device)

    def touch(self) -> None:
        self.kernels[0].touch()

    def train_one(self, index: int, epoch: int) -> float:
        loss: float = self.kernels[index].run_epoch(
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
        return loss

    def accuracy_of(self, index: int) -> float:
        accuracy: float = self.kernels[index].evaluate(self.flat[index], self.held_out)
        return accuracy
