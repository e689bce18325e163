"""The compiled engine of the six histogram models, with sampler and optimizer in one loop (kernel.py)."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from interp.families.histogram.compiled.layout import Sizes, TrainingData, layout, workspace
from interp.families.histogram.tasks import Histogram
from interp.models.architecture.parameters import outputs
from interp.models.spec import Bias, ModelSpec
from interp.tasks import Task
from interp.training.compiled.layout import Layout
from interp.training.compiled.shell import CompiledEngine
from interp.training.data import validation_set
from interp.training.engines.engine import derived_seed, register_engine

WORK_BATCH = 32
"""Number of sequences whose accuracy is computed together."""


@register_engine
class FusedEngine(CompiledEngine):
    """Train one-head histogram models on fresh sequences, in compiled code.

    The task's sampler is part of the loop, which needs as many tokens as positions. Value and output are the identity,
    so x' = x + A x, and the logits are relu(x' W_in + b_in) W_out + b_out (Behrens et al. 2024, section 3).
    """

    name = "fused"
    order = 20
    saved_seconds = 400e-6
    loop = f"{__package__}.kernel"

    def __init__(self, spec: ModelSpec, task: Task, seeds: Sequence[int], device: torch.device, dtype: torch.dtype):
        super().__init__(spec, task, seeds, device, dtype)
        assert isinstance(task, Histogram)
        self.published = task.sampler == "published"
        self.held_out = np.ascontiguousarray(validation_set(task).tokens[:, int(task.bos) :].numpy())

    def make_layout(self) -> Layout:
        assert isinstance(self.task, Histogram)
        self.sizes = sizes_of(self.spec, self.task)
        return layout(self.sizes, self.kind)

    def make_workspace(self, rows: int) -> Any:
        return workspace(self.sizes, rows, self.kind)

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
        self._accuracy(0, self.held_out[:1])
        self._train(0, self._data(0, 0), 1, np.zeros(0), 0)

    def _data(self, n: int, seed: int) -> TrainingData:
        return TrainingData(n, self.held_out[:0], np.array([seed], np.uint64), self.published)

    def train_one(self, index: int, epoch: int) -> float:
        n, seed = self.recipe.samples_per_epoch or 0, derived_seed(self.spec.id, self.seeds[index], "data", epoch)
        return self._train(index, self._data(n, seed), self.recipe.batch_size, *self.rates(epoch, n))

    def accuracy_of(self, index: int) -> float:
        return self._accuracy(index, self.held_out)

    def _accuracy(self, index: int, tokens: np.ndarray) -> float:
        with self.workspace(WORK_BATCH) as work:
            found: float = self.compiled.accuracy(self.sizes, self.layout.blocks(self.flat[index]), work, tokens)
        return found


def sizes_of(spec: ModelSpec, task: Histogram) -> Sizes:
    """Return the sizes that the compiled code loops over."""
    layer, classes = spec.layers[0], outputs(spec, task)
    return Sizes(
        T=task.T, vocab=task.T + task.bos, L=task.L, d=spec.d_model, p=spec.readout_width or 0, classes=classes,
        first=task.L + 1 - classes, dot=layer.mixing == "dot", softmax=layer.normalizer == "softmax", bos=task.bos,
        frozen=spec.embedding == "frozen", scale=float(spec.d_model) ** -0.5,
    )  # fmt: skip
