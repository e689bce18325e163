"""The engine for conditional tables: many seeds of a one-layer model at once, on the exact divergence or on a sample.

With `data = "exact"` an epoch is one step on the Kullback-Leibler divergence over the whole table, weighted by the
prior: nothing is sampled. With `data = "fixed"` it passes over the task's training sample in batches. A context holds k
tokens and is read at its last one, so queries, keys and values are computed once for each token and position, and only
the last token asks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from interp.spec import Bias, ModelSpec
from interp.tasks import Task
from interp.tasks.memorization import TableTask
from interp.theory.kl import entropy
from interp.threads import one_thread
from interp.training.data import epoch_order, training_set
from interp.training.engines.base import EpochResult, learning_rate
from interp.training.engines.groups import StackEngine


def table_refusal(spec: ModelSpec) -> str | None:
    """Why this spec has no stacked forward pass over contexts, or None."""
    if len(spec.layers) != 1 or spec.readout_at != "last" or spec.readout != "linear":
        return "contexts are run for one layer, read at the last token by a linear readout"
    layer = spec.layers[0]
    if layer.mixing != "dot" or layer.normalizer != "softmax" or layer.norm != "none" or layer.log_length != "none":
        return "contexts are run for softmax attention without layer norm or length scaling"
    if spec.final_norm != "none":
        return "contexts are run without a final layer norm"
    if layer.bias != Bias():
        return "contexts are run for attention without biases"
    if spec.positions not in ("none", "learned"):
        return f"contexts are run without positions or with learned ones, not {spec.positions!r}"
    return None


def table_logits(
    spec: ModelSpec, tensors: Mapping[str, Tensor], contexts: Int[Tensor, "models_or_1 rows k"]
) -> Float[Tensor, "models rows n_out"]:
    """Logits at the last token of each context; every tensor has a leading axis of models.

    contexts (1, rows, k): the same for all models; (models, rows, k): each its own.
    """
    layer, k = spec.layers[0], contexts.shape[2]
    W = {name.removeprefix("blocks.0."): tensor for name, tensor in tensors.items()}
    embedding = W["embed.W_E"]
    models, n_tokens, d = embedding.shape
    shift = torch.arange(models, device=contexts.device)[:, None, None]
    index = contexts + n_tokens * torch.arange(k, device=contexts.device) + k * n_tokens * shift

    # Every token at every position of a context, as attention sees it.
    positions = W.get("attn.W_pos", W.get("pos_embed.W_pos", embedding.new_zeros(models, k, d)))
    placed = embedding[:, None] + positions[:, :k, None]
    entering = placed if spec.positions_enter == "residual" else embedding[:, None].expand_as(placed)

    def look_up(features: Float[Tensor, "models places features"], at: Tensor) -> Float[Tensor, "*at features"]:
        return features.flatten(0, 1).index_select(0, at.flatten()).view(*at.shape, -1)

    def project(name: str, x: Tensor) -> Float[Tensor, "models places features"]:
        """All heads' queries, keys or values, side by side."""
        return x @ W[f"attn.{name}"].transpose(1, 2).flatten(2)

    by_place, last = placed.flatten(1, 2), index[:, :, -1]
    seen = look_up(by_place, index)  # (models, rows, k, d)
    asked = project("W_Q", placed[:, -1]) * layer.factor(spec.d_model)
    query = look_up(asked, last - (k - 1) * n_tokens * (shift[:, 0] + 1)).unflatten(2, (layer.n_heads, -1))
    if "attn.W_K" in W:
        keys = look_up(project("W_K", by_place), index).unflatten(3, (layer.n_heads, -1))
        scores = (query[:, :, None] * keys).sum(-1)
    else:
        scores = seen @ query.mT
    pattern = scores.softmax(2)  # (models, rows, k, heads): softmax is slow over a short last axis
    if "attn.W_V" in W:
        values = look_up(project("W_V", by_place), index).unflatten(3, (layer.n_heads, -1))
        z = (pattern[..., None] * values).sum(2)
    else:
        z = pattern.mT @ seen
    written = z.flatten(2) @ W["attn.W_O"].flatten(1, 2) if "attn.W_O" in W else z.sum(2)
    stream = look_up(entering.flatten(1, 2), last) + written
    if layer.mlp is not None:
        hidden = stream @ W["mlp.W_in"] + W["mlp.b_in"][:, None]
        hidden = hidden.relu() if layer.mlp.activation == "relu" else functional.gelu(hidden)
        stream = stream + hidden @ W["mlp.W_out"] + W["mlp.b_out"][:, None]
    out = stream @ W["unembed.W_U"]
    return out + W["unembed.b_U"][:, None] if "unembed.b_U" in W else out


class ExactKLEngine(StackEngine):
    """Stacked training of one-layer models of conditional tables."""

    name = "exact-kl"

    def __init__(self, spec: ModelSpec, task: Task, seeds: Sequence[int], device: torch.device, dtype: torch.dtype):
        super().__init__(spec, task, seeds, device, dtype)
        assert isinstance(task, TableTask)
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
            return f"task {task.name} is no conditional table"
        if spec.training.data == "fresh":
            return "tables are trained whole (data = 'exact') or on a fixed sample"
        return table_refusal(spec)

    @one_thread()  # many small operations: threads would wait on each other
    def run_epoch(self, epoch: int) -> EpochResult:
        loss = self._exact_step(epoch) if self.recipe.data == "exact" else self._pass_over_sample(epoch)
        return EpochResult(loss, self.evaluate())

    def _exact_step(self, epoch: int) -> Float[Tensor, "models"]:
        """One step on the divergence over the table, in nats."""
        logs = table_logits(self.spec, self.leaves, self.contexts[None]).log_softmax(-1)
        loss = -torch.einsum("n,nm,bnm->b", self.prior, self.conditional, logs)
        self.adam.step(loss.sum(), learning_rate(self.recipe, epoch - 1, 1))
        return loss.detach().double().cpu() - self.entropy

    def _pass_over_sample(self, epoch: int) -> Float[Tensor, "models"]:
        """Cross-entropy of the labels of the sample, in nats; each seed has its own order."""
        rows, labels = self.sampled
        size, n = self.recipe.batch_size, len(rows)
        steps = -(-n // size)
        order = torch.stack([epoch_order(self.spec, n, seed, epoch) for seed in self.seeds]).to(self.device)
        total = torch.zeros(len(self.seeds), dtype=torch.float64)
        for step in range(steps):
            chosen = order[:, step * size : (step + 1) * size]
            logits = table_logits(self.spec, self.leaves, self.contexts[rows[chosen]])
            loss = functional.cross_entropy(logits.transpose(1, 2), labels[chosen], reduction="none").mean(1)
            self.adam.step(loss.sum(), learning_rate(self.recipe, (epoch - 1) * steps + step, steps))
            total += loss.detach().double().cpu() * chosen.shape[1]
        return total / n

    @torch.no_grad()
    def evaluate(self) -> Tensor:
        """Prior probability of the contexts with the largest logit at a most likely next token, of each model."""
        logits = table_logits(self.spec, self.leaves, self.contexts[None])
        best = logits.masked_fill(~self.modes, -torch.inf).amax(-1)
        right = best > logits.masked_fill(self.modes, -torch.inf).amax(-1)
        return (right.to(self.prior) @ self.prior).double().cpu()
