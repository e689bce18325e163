"""The count-space engine: many models at once, on token counts instead of sequences (see architecture/reduced.py).

At recipe A's sizes, a step is a few small matrix products over (models x batch) rows. It is fastest if models x batch
is near 8192. With fewer, operator overhead dominates; with more, the rows leave the cache. So models train in groups of
that size.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn import functional

from interp.models.architecture import reduced
from interp.models.architecture.answers import has_answer
from interp.models.spec import ModelSpec
from interp.tasks import IGNORED, Batch, Task
from interp.training.data import epoch_order, training_set, validation_set
from interp.training.engines.engine import Group, GroupedEngine, register_engine

GROUP_ROWS = 8192


def reads_of(spec: ModelSpec, task: Task, batch: Batch) -> tuple[reduced.CountedRows, Int[Tensor, "rows reads"]]:
    """Return the rows and classes of all read positions of a data set."""
    classes = task.classes(batch)
    rows = reduced.counted_reads(spec, task.d_vocab, batch, classes)
    if rows is None:
        raise ValueError("count space was chosen for sentences with different numbers of reads")
    return rows, classes[classes != IGNORED].reshape(rows.query.shape)


@register_engine
class CountSpaceEngine(GroupedEngine):
    """Train one-layer models without positions on a task's fixed data set, in count space."""

    name = "count-space"
    order = 11

    def __init__(self, spec: ModelSpec, task: Task, seeds: Sequence[int], device: torch.device, dtype: torch.dtype):
        super().__init__(spec, task, seeds, device, dtype)
        rows, targets = reads_of(spec, task, training_set(spec, task))
        self.rows, self.targets = rows.to(device, dtype), targets.to(device)
        self.held_out_batch = validation_set(task)
        self.held_out = reads_of(spec, task, self.held_out_batch)[0].to(device, dtype)

    @classmethod
    def refusal(cls, spec: ModelSpec, task: Task, device: torch.device) -> str | None:
        if (reason := reduced.count_space_refusal(spec)) is not None:
            return reason
        if spec.readout_at == "all" or spec.training.data != "fixed" or spec.decision != "argmax":
            return "count space trains on fixed data sets, read at a few positions, with cross-entropy"
        return None

    @classmethod
    def seeds_together(cls, spec: ModelSpec, device: torch.device) -> int:
        return max(1, GROUP_ROWS // spec.training.batch_size)

    def train_group(self, group: Group, epoch: int) -> Tensor:
        n = len(self.rows.query)
        orders = torch.stack([epoch_order(self.spec, n, seed, epoch) for seed in group.seeds]).to(self.device)
        return group.adam.epoch(epoch, n, lambda some: self.losses(group, orders[:, some]))

    def losses(self, group: Group, index: Tensor) -> Tensor:
        """Return the mean cross-entropy of each model over all reads of its batch; index: (models, batch)."""
        batch, targets = self.rows[index], self.targets[index]
        flat = reduced.CountedRows(batch.query.flatten(1), batch.counts.flatten(1, 2))
        out = reduced.reduced_outputs(reduced.token_tables(self.spec, group.leaves), flat)
        each = functional.cross_entropy(out.flatten(0, 1), targets.flatten(), reduction="none")
        return each.view(len(index), -1).mean(1)

    def accuracy(self, group: Group) -> Tensor:
        """Return the accuracy at the first read position, the task's answer."""
        first = reduced.CountedRows(self.held_out.query[None, :, 0], self.held_out.counts[None, :, 0])
        right = []
        for outputs in reduced.reduced_outputs(reduced.token_tables(self.spec, group.leaves), first).cpu():
            answers = self.task.answers(outputs.argmax(-1), self.held_out_batch.tokens)
            right.append(((answers == self.held_out_batch.labels) & has_answer(outputs)).double().mean())
        return torch.stack(right)
