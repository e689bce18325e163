"""The compiled engine of encoders with the published architecture, string after string (kernel.py, numba)."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from interp.errors import first_few
from interp.families.languages.compiled.layout import ABSENT, Sizes, StringRows, layout, workspace
from interp.families.languages.forward import DistinctRows, distinct_rows
from interp.families.languages.training import EncoderEngine, epoch_strings, held_out_strings
from interp.models.spec import Bias, ModelSpec
from interp.tasks import Task
from interp.training.compiled.layout import Layout, padded
from interp.training.compiled.shell import CompiledEngine
from interp.training.engines.engine import EpochResult, register_engine


@register_engine
class FusedEncoderEngine(CompiledEngine):
    """Train post-layer-norm encoders with one scalar answer, string by string, in compiled code."""

    name = "encoder-fused"
    order = 40
    saved_seconds = 500e-6
    loop = f"{__package__}.kernel"

    def __init__(self, spec: ModelSpec, task: Task, seeds: Sequence[int], device: torch.device, dtype: torch.dtype):
        super().__init__(spec, task, seeds, device, dtype)
        self.held_out = held_out_strings(spec, task)
        self.held_out_strings = strings_of(spec, distinct_rows(spec, task, self.held_out), self.kind)

    def make_layout(self) -> Layout:
        self.sizes = sizes_of(self.spec)
        return layout(self.sizes, self.task.d_vocab, self.kind)

    def make_workspace(self, rows: int) -> Any:
        return workspace(self.sizes, rows, self.kind)

    @classmethod
    def refusal(cls, spec: ModelSpec, task: Task, device: torch.device) -> str | None:
        if (reason := EncoderEngine.refusal(spec, task, device)) is not None:
            return reason
        first, every = spec.layers[0], Bias(q=True, k=True, v=True, o=True)
        if first.norm != "post" or first.mlp is None or first.mlp.activation != "relu" or first.bias != every:
            return "the compiled encoder has post-layer-norm, ReLU neurons and all biases"
        if spec.extras:
            return f"the compiled encoder is built without {first_few(spec.extras)}"
        if any(layer != first for layer in spec.layers) or not spec.readout_bias or spec.training.weight_decay:
            return "the compiled encoder has layers all alike, a bias of the readout and no weight decay"
        return cls.cannot_run(device)

    def touch(self) -> None:
        every = self.held_out_strings._asdict().items()
        nothing = self.held_out_strings._replace(**{name: part[:0] for name, part in every if name != "table"})
        self._answers(0, nothing)
        self._train(0, nothing, 1, np.zeros(0), 0)

    def run_epoch(self, epoch: int) -> EpochResult:
        self.strings = epoch_strings(self.spec, self.task, self.seeds, epoch)
        return super().run_epoch(epoch)

    def train_one(self, index: int, epoch: int) -> float:
        rows, labels = self.strings
        strings = strings_of(self.spec, rows, self.kind, index, labels[index])
        return self._train(index, strings, strings.tokens.shape[1], *self.rates(epoch, labels.shape[1]))

    def accuracy_of(self, index: int) -> float:
        out = self._answers(index, self.held_out_strings)
        return float((((out > 0) == self.held_out.labels.numpy()) & np.isfinite(out)).mean())

    def _answers(self, index: int, strings: StringRows) -> np.ndarray:
        out = np.empty(len(strings.rows), self.kind)
        with self.workspace(strings.tokens.shape[1]) as work:
            self.compiled.answers(self.sizes, self.layout.blocks(self.flat[index]), work, strings, out)
        return out


def sizes_of(spec: ModelSpec) -> Sizes:
    """Return the sizes that the compiled code loops over."""
    layer = spec.layers[0]
    neurons = layer.mlp.d_mlp if layer.mlp else 0
    return Sizes(len(spec.layers), layer.n_heads, spec.d_model, layer.d_head, neurons, layer.norm_eps)


def strings_of(
    spec: ModelSpec, rows: DistinctRows, dtype: Any, model: int = 0, labels: Tensor | None = None
) -> StringRows:
    """Return one model's strings in the compiled loop's format: the read row first, widths padded."""
    tokens, codes, counts, read = (getattr(rows, name)[model] for name in ("tokens", "codes", "counts", "read"))
    swap = torch.arange(tokens.shape[1]).repeat(len(tokens), 1)
    swap[:, 0] = read
    swap.scatter_(1, read[:, None], 0)
    tokens, codes, counts = (table.gather(1, swap) for table in (tokens, codes, counts))
    log_counts = np.full((len(tokens), padded(tokens.shape[1], dtype)), ABSENT, dtype)
    log_counts[:, : tokens.shape[1]] = np.where(counts > 0, counts.clamp(min=1).log(), ABSENT)
    table = np.zeros((len(rows.table), padded(rows.table.shape[1], dtype)), dtype)
    table[:, : rows.table.shape[1]] = rows.table
    return StringRows(
        np.ascontiguousarray(tokens.numpy()),
        np.ascontiguousarray(codes.numpy()),
        log_counts,
        (counts > 0).sum(1).numpy(),
        factors(spec, rows.lengths[model].numpy()),
        np.zeros(len(tokens)) if labels is None else labels.double().numpy(),
        table,
    )


def factors(spec: ModelSpec, lengths: np.ndarray) -> np.ndarray:
    """Return the factor of each string's attention scores."""
    layer = spec.layers[0]
    scale = layer.factor(spec.d_model)
    if layer.log_length == "none":
        return np.full(len(lengths), scale)
    return scale * np.log(lengths if layer.log_length == "current" else np.full(len(lengths), layer.log_length))
