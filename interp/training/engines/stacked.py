"""The stacked engine: one-layer models without positions, on distinct rows (architecture/reduced.py), by autograd.

If the fused engine supports the spec, it is several times faster on the CPU. This engine also supports several heads,
learned values, biases, pre-layer-norm, linear readouts, weight decay, schedules, and CUDA.

Without positions, equal tokens of a sequence have equal outputs (spec.symmetry = "distinct_tokens"), so one row per
distinct token of a sequence is enough. With linear mixing ("slots"), a row is a position. All tensors have a leading
axis of models. Losses and gradients equal the sequence model's up to rounding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.models.architecture.answers import has_answer
from interp.models.architecture.parameters import outputs
from interp.models.architecture.reduced import CountedRows, SlotRows, reduced_outputs, reduced_refusal, token_tables
from interp.models.spec import ModelSpec
from interp.tasks import IGNORED, Batch, Task
from interp.training.data import epoch_batch, validation_set
from interp.training.engines.engine import Group, GroupedEngine, register_engine

GROUP = {"cpu": 64, "cuda": 256}
"""Number of models trained together. More would leave the CPU's cache; fewer would leave the GPU idle."""


@register_engine
class StackedEngine(GroupedEngine):
    """Train one-layer models whose outputs depend only on tokens, counts and slots."""

    name = "stacked"
    order = 30

    def __init__(self, spec: ModelSpec, task: Task, seeds: Sequence[int], device: torch.device, dtype: torch.dtype):
        super().__init__(spec, task, seeds, device, dtype)
        self.n_out = outputs(spec, task)
        self.held_out_batch = validation_set(task)
        self.held_out = epoch_rows(spec, task, self.n_out, [self.held_out_batch], len(self.held_out_batch))
        self.held_out = self.held_out.to(device, dtype)

    @classmethod
    def refusal(cls, spec: ModelSpec, task: Task, device: torch.device) -> str | None:
        if (reason := reduced_refusal(spec)) is not None:
            return reason
        if spec.direction != "bidirectional":
            return "the stacked engine trains bidirectional layers"
        if spec.decision != "argmax":
            return "the stacked engine trains by cross-entropy"
        return None

    @classmethod
    def seeds_together(cls, spec: ModelSpec, device: torch.device) -> int:
        return GROUP.get(device.type, GROUP["cpu"])

    def train_group(self, group: Group, epoch: int) -> Tensor:
        size = self.recipe.batch_size
        batches = [epoch_batch(self.spec, self.task, seed, epoch) for seed in group.seeds]
        rows = epoch_rows(self.spec, self.task, self.n_out, batches, size).to(self.device, self.dtype)
        return group.adam.epoch(
            epoch, len(batches[0]), lambda some: losses(self.spec, group.leaves, rows[some.start // size])
        )

    def accuracy(self, group: Group) -> Tensor:
        """Return the share of read positions whose largest logit is the correct class."""
        rows, right = self.held_out[0], []
        for index in range(len(group.seeds)):
            one = {name: leaf[index : index + 1] for name, leaf in group.leaves.items()}
            outputs = step_outputs(self.spec, one, rows)
            good = rows.target.gather(2, outputs.argmax(-1, keepdim=True)) * has_answer(outputs)[..., None]
            right.append((good.sum().double() / rows.target.sum().double()).cpu())
        return torch.stack(right)


@dataclass(frozen=True)
class EpochRows:
    """The rows of an epoch, step by step, padded to the widest step; padding has no weight. rows[step] is one step.

    tokens: the sequences, padded with sequences of token 0. mask: true tokens are 1, padding 0. query, sequence: a
    row's own token and the index of its sequence in the step. position: the row's position (used for slots only).
    target: number of the row's positions per class.
    """

    tokens: Int[Tensor, "*steps models batch length"]
    mask: Float[Tensor, "*steps models batch length"]
    query: Int[Tensor, "*steps models rows"]
    sequence: Int[Tensor, "*steps models rows"]
    position: Int[Tensor, "*steps models rows"]
    target: Float[Tensor, "*steps models rows n_out"]

    def __getitem__(self, step: int) -> EpochRows:
        return EpochRows(*(getattr(self, name)[step] for name in self.__dataclass_fields__))

    def to(self, device: torch.device, dtype: torch.dtype) -> EpochRows:
        fields = {name: getattr(self, name).to(device) for name in self.__dataclass_fields__}
        return EpochRows(**{name: t.to(dtype) if t.is_floating_point() else t for name, t in fields.items()})

    def reduced(self, spec: ModelSpec, d_vocab: int) -> CountedRows | SlotRows:
        """Convert one step to the format of the forward pass."""
        if spec.symmetry == "slots":
            return SlotRows(self.query, self.position, self.sequence, self.tokens)
        counts = self.mask.new_zeros(*self.tokens.shape[:2], d_vocab).scatter_add_(2, self.tokens, self.mask)
        return CountedRows(self.query, counts.gather(1, self.sequence[..., None].expand(-1, -1, d_vocab)))


def step_outputs(spec: ModelSpec, tensors: Mapping[str, Tensor], rows: EpochRows) -> Float[Tensor, "models rows n_out"]:
    """Return the outputs at every row of one step."""
    tables = token_tables(spec, tensors).folded()
    return reduced_outputs(tables, rows.reduced(spec, tables.values.shape[2]))


def losses(spec: ModelSpec, tensors: Mapping[str, Tensor], rows: EpochRows) -> Float[Tensor, "models"]:
    """Return the mean cross-entropy of each model over the read positions in one step (nats)."""
    log_probabilities = step_outputs(spec, tensors, rows).log_softmax(-1)
    return -(rows.target * log_probabilities).sum((1, 2)) / rows.target.sum((1, 2))


def epoch_rows(spec: ModelSpec, task: Task, n_out: int, batches: Sequence[Batch], batch_size: int) -> EpochRows:
    """Make the rows of an epoch for each model; every batch has one model's sequences in training order."""
    n, steps = len(batches[0]), -(-len(batches[0]) // batch_size)
    parts = [_of_one(spec, task, n_out, batch, batch_size) for batch in batches]
    width = max(int(part["width"]) for part in parts)

    def by_step(values: Tensor) -> Tensor:
        """Reshape (sequences, ...) to (steps, batch, ...), with zeros after the last sequence."""
        filled = values.new_zeros(steps * batch_size, *values.shape[1:])
        filled[:n] = values
        return filled.unflatten(0, (steps, batch_size))

    def padded(part: Mapping[str, Tensor], name: str) -> Tensor:
        """Reshape (all rows, ...) to (steps, width, ...), with zeros after each step's last row."""
        values = part[name]
        filled = values.new_zeros(steps, width, *values.shape[1:])
        filled[part["step"], part["place"]] = values
        return filled

    by_row = ("query", "sequence", "position", "target")
    return EpochRows(
        tokens=torch.stack([by_step(batch.tokens) for batch in batches], 1),
        mask=torch.stack([by_step(batch.attention_mask.float()) for batch in batches], 1),
        **{name: torch.stack([padded(part, name) for part in parts], 1) for name in by_row},
    )


def _of_one(spec: ModelSpec, task: Task, n_out: int, batch: Batch, batch_size: int) -> dict[str, Tensor]:
    """Make all rows of one model's epoch, in the order of their sequences, with each row's step and index in it."""
    classes = task.classes(batch).long()
    sequence, position = (classes != IGNORED).nonzero(as_tuple=True)
    token, kind = batch.tokens[sequence, position], classes[sequence, position]
    # A row's key combines its sequence with its token, or with its position.
    length = batch.tokens.shape[1]
    key = sequence * length + position if spec.symmetry == "slots" else sequence * task.d_vocab + token
    keys, row = key.unique(return_inverse=True)
    target = torch.zeros(len(keys), n_out)
    target.index_put_((row, kind), torch.ones(len(row)), accumulate=True)
    of_row = torch.empty(len(keys), dtype=torch.long)
    of_row[row] = torch.arange(len(row))  # one position per row
    step = sequence[of_row] // batch_size
    sizes = torch.bincount(step)
    place = torch.arange(len(keys)) - (sizes.cumsum(0) - sizes)[step]
    return {
        "width": sizes.max(), "step": step, "place": place, "query": token[of_row],
        "sequence": sequence[of_row] % batch_size, "position": position[of_row], "target": target,
    }  # fmt: skip
