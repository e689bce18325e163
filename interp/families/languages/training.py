"""The encoder engine: bidirectional models read at one position, many at once, on distinct rows (forward.py).

All models take each step together. Each has its own strings, drawn as in the reference engine. A string with few
distinct (token, code) pairs is stored as those pairs.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional

from interp.families.languages.forward import DistinctRows, distinct_rows, encoder_logits, encoder_refusal
from interp.models.architecture.answers import has_answer, right_classes
from interp.models.spec import ModelSpec
from interp.tasks import Batch, Task
from interp.tasks.batch import concatenate
from interp.training.data import epoch_batch, validation_set
from interp.training.engines.engine import Group, GroupedEngine, register_engine

ROWS_AT_ONCE = 1 << 15
"""Approximate number of rows, over all models, per batch of held-out strings, so that they fit into the cache."""


@register_engine
class EncoderEngine(GroupedEngine):
    """Train bidirectional encoders with one scalar answer in stacked torch operations."""

    name = "encoder"
    order = 41

    def __init__(self, spec: ModelSpec, task: Task, seeds: Sequence[int], device: torch.device, dtype: torch.dtype):
        super().__init__(spec, task, seeds, device, dtype)
        self.held_out = held_out_strings(spec, task)
        self.held_out_rows = distinct_rows(spec, task, self.held_out).to(device, dtype)

    @classmethod
    def refusal(cls, spec: ModelSpec, task: Task, device: torch.device) -> str | None:
        if (reason := encoder_refusal(spec)) is not None:
            return reason
        if spec.decision != "sigmoid" or task.n_out != 1:
            return "the encoder engine trains one scalar by binary cross-entropy"
        if spec.positions_enter != "residual":
            return "the encoder engine needs positions that enter the residual stream"
        return None

    def group_size(self) -> int:
        return len(self.seeds)

    def train_group(self, group: Group, epoch: int) -> Tensor:
        rows, labels = epoch_strings(self.spec, self.task, group.seeds, epoch)
        rows, labels = rows.to(self.device, self.dtype), labels.to(self.device, self.dtype)

        def losses(some: slice) -> Tensor:
            """Return the mean binary cross-entropy of each model over its strings, in nats."""
            out = encoder_logits(self.spec, group.leaves, rows[some])[..., 0]
            return functional.binary_cross_entropy_with_logits(out, labels[:, some], reduction="none").mean(1)

        return group.adam.epoch(epoch, labels.shape[1], losses)

    def accuracy(self, group: Group) -> Tensor:
        rows, right = self.held_out_rows, torch.zeros(len(group.seeds), dtype=torch.float64)
        size = max(1, ROWS_AT_ONCE // (len(group.seeds) * rows.tokens.shape[-1]))
        for start in range(0, len(self.held_out), size):
            some = slice(start, start + size)
            outputs = encoder_logits(self.spec, group.leaves, rows[some]).cpu()
            right += (
                ((outputs[..., 0] > 0) == self.held_out.labels[some]).logical_and(has_answer(outputs)).double().sum(1)
            )
        return right / len(self.held_out)


def held_out_strings(spec: ModelSpec, task: Task) -> Batch:
    """Return the strings for the accuracy after each epoch, with the correct outputs (0 or 1) as labels.

    There are at most as many validation strings as an epoch has training strings, because more would cost more than
    training. The published runs tested on 100 strings after training on 100.
    """
    batch = validation_set(task)[: spec.training.samples_per_epoch]
    return replace(batch, labels=right_classes(task, batch, spec.readout_at).bool())


def epoch_strings(spec: ModelSpec, task: Task, seeds: Sequence[int], epoch: int) -> tuple[DistinctRows, Tensor]:
    """Return one epoch of every model in step order: distinct rows, and correct outputs (models, strings)."""
    parts = [epoch_batch(spec, task, seed, epoch) for seed in seeds]
    every = concatenate(parts, task.pad_id)
    shape = (len(seeds), len(parts[0]))
    return distinct_rows(spec, task, every).view(*shape), right_classes(task, every, spec.readout_at).bool().view(shape)
