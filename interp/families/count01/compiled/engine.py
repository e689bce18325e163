"""The compiled engine of count space: one layer without positions on a fixed data set (kernel.py, numba)."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from interp.families.count01.compiled.layout import Sizes, TrainingData, layout, workspace
from interp.families.count01.training import CountSpaceEngine, reads_of
from interp.models.architecture.answers import answered
from interp.models.architecture.parameters import outputs
from interp.models.architecture.reduced import SAFE_SPREAD
from interp.models.spec import ModelSpec
from interp.tasks import Batch, Task
from interp.training.compiled.layout import Layout
from interp.training.compiled.shell import CompiledEngine
from interp.training.data import epoch_order, training_set, validation_set
from interp.training.engines.base import register_engine


@register_engine
class FusedCountSpaceEngine(CompiledEngine):
    """Train the models of the count-space engine, on the same batches, in compiled code."""

    name = "count-space-fused"
    order = 10
    saved_seconds = 500e-6
    loop = f"{__package__}.kernel"

    def __init__(self, spec: ModelSpec, task: Task, seeds: Sequence[int], device: torch.device, dtype: torch.dtype):
        super().__init__(spec, task, seeds, device, dtype)
        self.data = data_of(spec, task, training_set(spec, task), self.kind)
        self.held_out_batch = validation_set(task)
        self.held_out = first_reads(data_of(spec, task, self.held_out_batch, self.kind))

    def make_layout(self) -> Layout:
        self.sizes = sizes_of(self.spec, self.task, self.dtype)
        return layout(self.sizes, self.kind)

    def make_workspace(self, rows: int) -> Any:
        return workspace(self.sizes, rows, self.kind)

    @classmethod
    def refusal(cls, spec: ModelSpec, task: Task, device: torch.device) -> str | None:
        if (reason := CountSpaceEngine.refusal(spec, task, device)) is not None:
            return reason
        layer = spec.layers[0]
        if layer.query_key != "learned" or layer.value_output != "learned" or spec.readout != "linear":
            return "compiled count space needs query_key = 'learned', value_output = 'learned' and readout = 'linear'"
        if spec.training.weight_decay:
            return "the compiled count space trains without weight decay"
        return cls.cannot_run(device)

    @classmethod
    def seeds_together(cls, spec: ModelSpec, device: torch.device) -> int:
        """Models train one by one but share the data set's rows, because counting these takes longer than training."""
        return CountSpaceEngine.seeds_together(spec, device)

    def touch(self) -> None:
        nothing = self.data._replace(order=np.arange(0))
        logits_of(self.sizes, self.flat[0], nothing)
        self._train(0, nothing, self.data.reads, np.zeros(0), 0)

    def train_one(self, index: int, epoch: int) -> float:
        n, rows = len(self.data.order), self.recipe.batch_size * self.data.reads
        order = epoch_order(self.spec, n, self.seeds[index], epoch).numpy()
        return self._train(index, self.data._replace(order=order), rows, *self.rates(epoch, n))

    def accuracy_of(self, index: int) -> float:
        """Return the accuracy at the first read position, the task's answer."""
        outputs = torch.from_numpy(logits_of(self.sizes, self.flat[index], self.held_out))
        answers = self.task.answers(outputs.argmax(-1), self.held_out_batch.tokens)
        return float(((answers == self.held_out_batch.labels) & answered(outputs)).double().mean())


def sizes_of(spec: ModelSpec, task: Task, dtype: torch.dtype) -> Sizes:
    """Return the sizes that the compiled code loops over."""
    layer = spec.layers[0]
    return Sizes(
        T=task.d_vocab, d=spec.d_model, heads=layer.n_heads, d_head=layer.d_head, width=layer.n_heads * layer.d_head,
        classes=outputs(spec, task), norm=layer.norm == "pre", b_q=layer.bias.q, b_k=layer.bias.k, b_v=layer.bias.v,
        b_o=layer.bias.o, b_u=spec.readout_bias, scale=float(layer.factor(spec.d_model)), eps=float(layer.norm_eps),
        safe=SAFE_SPREAD[dtype],
    )  # fmt: skip


def data_of(spec: ModelSpec, task: Task, batch: Batch, dtype: Any) -> TrainingData:
    """Return one row per read position of a data set, sentence by sentence."""
    rows, classes = reads_of(spec, task, batch)
    query, target = rows.query.flatten().long().numpy(), classes.flatten().long().numpy()
    counts = rows.counts.flatten(0, 1).numpy().astype(dtype)
    return TrainingData(query, counts, target, reads=rows.query.shape[1], order=np.arange(len(rows.query)))


def first_reads(data: TrainingData) -> TrainingData:
    """Return only the first row of each sentence, the task's answer."""
    query, counts, target = (np.ascontiguousarray(column[:: data.reads]) for column in data[:3])
    return TrainingData(query, counts, target, 1, data.order)


def logits_of(sizes: Sizes, flat: np.ndarray, data: TrainingData, rows: int = 256) -> np.ndarray:
    """Return the logits of all rows, (rows, n_out), computed about `rows` at a time."""
    from interp.families.count01.compiled.kernel import logits

    out = np.empty((len(data.query), sizes.classes), flat.dtype)
    work = workspace(sizes, max(rows, data.reads), flat.dtype)
    logits(sizes, layout(sizes, flat.dtype).blocks(flat), work, data, out)
    return out
