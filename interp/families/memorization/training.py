"""The engine for conditional tables: many seeds at once, on the exact divergence or a sample.

With `data = "exact"`, an epoch is one step on the Kullback-Leibler divergence over the whole table, weighted by the
prior, without sampling. With `data = "fixed"`, it is a pass over the task's training sample in batches.
"""

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from interp.families.memorization.tasks.conditional import TableTask
from interp.families.memorization.theory.kl import entropy
from interp.models.architecture.answers import has_answer
from interp.models.architecture.sequence import sequence_inputs, sequence_logits
from interp.models.spec import ModelSpec
from interp.support.resources import one_thread
from interp.tasks import Task
from interp.training.data import epoch_order, training_set
from interp.training.engines.engine import EpochResult, Group, GroupedEngine, learning_rate, register_engine


def context_logits(
    spec: ModelSpec, task: TableTask, tensors: Mapping[str, Tensor], contexts: Int[Tensor, "models_or_1 rows k"]
) -> Float[Tensor, "models rows n_out"]:
    """Compute logits at the last token of each context; parameters have a leading axis of models."""
    last = torch.full_like(contexts[..., :1], contexts.shape[-1] - 1)
    return sequence_logits(spec, tensors, sequence_inputs(spec, task, contexts, last))[:, :, 0]


@register_engine
class ExactKLEngine(GroupedEngine):
    """Train models of conditional tables in one stack."""

    name = "exact-kl"
    order = 50

    def __init__(self, spec: ModelSpec, task: Task, seeds: Sequence[int], device: torch.device, dtype: torch.dtype):
        super().__init__(spec, task, seeds, device, dtype)
        assert isinstance(task, TableTask)
        self.table = task
        self.contexts = torch.tensor(task.contexts, device=device)
        self.conditional = torch.from_numpy(task.conditional.copy()).to(device, dtype)
        self.prior = torch.from_numpy(task.prior.copy()).to(device, dtype)
        self.modes = self.conditional == self.conditional.amax(1, keepdim=True)
        self.entropy = entropy(task)
        if self.recipe.data == "fixed":
            sample = training_set(spec, task)
            self.sampled = task.context_index(sample.tokens).to(device), sample.labels.to(device)

    @classmethod
    def refusal(cls, spec: ModelSpec, task: Task, device: torch.device) -> str | None:
        if not isinstance(task, TableTask):
            return f"task {task.name} is not a conditional table"
        if spec.training.data == "fresh":
            return "tables are trained whole (data = 'exact') or on a fixed sample"
        return None if spec.readout_at == "last" else "tables are read at the last token"

    def group_size(self) -> int:
        return len(self.seeds)

    @one_thread()  # many small operations: threads would only wait for each other
    def run_epoch(self, epoch: int) -> EpochResult:
        return super().run_epoch(epoch)

    def logits(self, group: Group, contexts: Int[Tensor, "models_or_1 rows k"]) -> Float[Tensor, "models rows n_out"]:
        return context_logits(self.spec, self.table, group.leaves, contexts)

    def train_group(self, group: Group, epoch: int) -> Float[Tensor, "models"]:
        """Step on the divergence over the table (nats), or pass over the sample, each seed in its own order."""
        if self.recipe.data == "exact":
            logs = self.logits(group, self.contexts[None]).log_softmax(-1)
            loss = -torch.einsum("n,nm,bnm->b", self.prior, self.conditional, logs)
            group.adam.step(loss.sum(), learning_rate(self.recipe, epoch - 1, 1))
            return loss.detach().double().cpu() - self.entropy
        rows, labels = self.sampled
        orders = [epoch_order(self.spec, len(rows), seed, epoch) for seed in group.seeds]
        order = torch.stack(orders).to(self.device)

        def losses(some: slice) -> Tensor:
            chosen = order[:, some]
            logits = self.logits(group, self.contexts[rows[chosen]])
            return functional.cross_entropy(logits.transpose(1, 2), labels[chosen], reduction="none").mean(1)

        return group.adam.epoch(epoch, len(rows), losses)

    def accuracy(self, group: Group) -> Tensor:
        """Return, per model, the prior probability of contexts whose largest logit is a most likely next token."""
        logits = self.logits(group, self.contexts[None])
        best = logits.masked_fill(~self.modes, -torch.inf).amax(-1)
        right = (best > logits.masked_fill(self.modes, -torch.inf).amax(-1)) & has_answer(logits)
        return (right.to(self.prior) @ self.prior).double().cpu()
