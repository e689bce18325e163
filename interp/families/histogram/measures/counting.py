"""Answers, attention and readout of histogram models (Behrens et al. 2024, Figures 3 to 9 and 15).

All functions need a task model of the histogram task with one layer, one head and a ReLU readout, and raise
UnsupportedError for other models. Counts are 1 to L; positions of [BOS] are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.errors import InterpError, UnsupportedError
from interp.families.histogram.tasks import Histogram
from interp.models.architecture.answers import decide, has_answer
from interp.models.architecture.task_model import TaskModel
from interp.models.subject import Model, Subject
from interp.tasks import Batch
from interp.tasks.structure import COUNTS_OWN_TOKEN, lacks

RELATIONS = ("self", "same", "different", "BOS")
"""Relations of a key to its query: the position itself, the same token elsewhere, another token, [BOS]."""


@dataclass(frozen=True)
class CountingModel:
    """A histogram model as x' = e_t + sum_m A_lm v_m, followed by a ReLU readout. All tensors are in float64.

    embedding: e, with [BOS], if any, as the last row. value: v = e W_V W_O. W_in, b_in, W_out, b_out: of the readout.
    """

    model: TaskModel
    task: Histogram
    embedding: Float[Tensor, "d_vocab d_model"]
    value: Float[Tensor, "d_vocab d_model"]
    W_in: Float[Tensor, "d_model p"]
    b_in: Float[Tensor, "p"]
    W_out: Float[Tensor, "p n_out"]
    b_out: Float[Tensor, "n_out"]

    @classmethod
    def of(cls, model: Model | CountingModel) -> CountingModel:
        """Convert a model. Raises UnsupportedError for other architectures, and for tasks that do not count tokens."""
        if isinstance(model, CountingModel):
            return model
        network = Subject.of(model).task_model
        spec = network.spec
        if (reason := lacks(network.task, COUNTS_OWN_TOKEN)) is not None:
            raise UnsupportedError(f"this measure is for models that count each position's own token: {reason}")
        layer = spec.layers[0]
        plain = len(spec.layers) == 1 and layer.n_heads == 1 and layer.mlp is None and layer.norm == "none"
        plain = plain and spec.final_norm == "none"
        if not plain or spec.readout != "relu_mlp" or spec.positions != "none":
            raise UnsupportedError(
                f"{spec.id} is not one layer of one head, without norm, MLP and positions, and with a ReLU readout"
            )
        attention, last = cast(Any, network.blocks[0]).attn, cast(Any, network.unembed)
        weights = (network.embed.W_E, attention.W_V[0], attention.W_O[0], last.W_in, last.b_in, last.W_out, last.b_out)
        embedding, W_V, W_O, *readout = (weight.detach().double().cpu() for weight in weights)
        return cls(network, cast(Histogram, network.task), embedding, embedding @ W_V @ W_O, *readout)

    def hidden(self, mixed: Float[Tensor, "*rows d_model"]) -> Float[Tensor, "*rows p"]:
        """Return the hidden neurons' activations after the ReLU."""
        return (mixed @ self.W_in + self.b_in).relu()

    def logits(self, mixed: Float[Tensor, "*rows d_model"]) -> Float[Tensor, "*rows n_out"]:
        return self.hidden(mixed) @ self.W_out + self.b_out

    def counts(self, mixed: Float[Tensor, "*rows d_model"]) -> Int[Tensor, "*rows"]:
        """Return the readout's count for a mixed token x'."""
        return self.count_of_class(self.logits(mixed).argmax(-1))

    def count_of_class(self, classes: Int[Tensor, "*rows"]) -> Int[Tensor, "*rows"]:
        return classes + (0 if self.task.zero_class else 1)

    def run(self, batch: Batch) -> CountingRun:
        """Run the model on a batch, and return its attention patterns and mixed tokens."""
        names = ("blocks.0.attn.hook_pattern", "unembed.hook_in")
        chunks: list[tuple[Tensor, Tensor]] = []
        with torch.no_grad():
            for part in batch.tokens.split(512):
                _, cache = self.model.run_with_cache(part.to(self.model.cfg.device), names_filter=lambda n: n in names)
                chunks.append((cache[names[0]][:, 0].double().cpu(), cache[names[1]].double().cpu()))
        pattern, mixed = (torch.cat(parts) for parts in zip(*chunks))
        return CountingRun(batch.tokens, batch.labels, pattern, mixed)


Counting: TypeAlias = Model | CountingModel
"""A model, or its CountingModel."""
Predicted: TypeAlias = tuple[Batch, Int[Tensor, "rows length"]]


@dataclass(frozen=True)
class CountingRun:
    """A batch's tokens, right counts (-1 at [BOS]), attention pattern and mixed tokens x'."""

    tokens: Int[Tensor, "rows length"]
    labels: Int[Tensor, "rows length"]
    pattern: Float[Tensor, "rows length length"]
    mixed: Float[Tensor, "rows length d_model"]

    @property
    def read(self) -> Bool[Tensor, "rows length"]:
        return self.labels > 0


def flat_sample(task: Histogram, n: int, seed: int) -> Batch:
    """Sample n sequences in which all counts 1..L have equal shares of the positions; for L > T, uniform sequences."""
    if task.L <= task.T:
        flat = Histogram(T=task.T, L=task.L, bos=task.bos, sampler="paper", zero_class=task.zero_class)
        return flat.sample(n, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    return task.of_sequences(torch.randint(task.T, (n, task.L), generator=generator))


def cell_means(
    counter: CountingModel, hidden: Float[Tensor, "positions p"], own: Int[Tensor, "positions"],
    labels: Int[Tensor, "positions"],
) -> tuple[Float[Tensor, "T L p"], Int[Tensor, "T L"]]:  # fmt: skip
    """Return the neurons' mean activations by own token and count, and the number of positions of each."""
    T, L = counter.task.T, counter.task.L
    cell = own * L + labels - 1
    sums = torch.zeros(T * L, hidden.shape[1], dtype=hidden.dtype).index_add_(0, cell, hidden)
    seen = torch.bincount(cell, minlength=T * L)
    return (sums / seen.clamp(min=1)[:, None]).view(T, L, -1), seen.view(T, L)


# ---------------------------------------------------------------- attention and embeddings


def attention_by_relation(model: Counting, n: int = 500, seed: int = 0) -> pd.DataFrame:
    """Measure attention weights by the relation of key to query and by the query's count.

    Columns: relation (RELATIONS), count, mean, std (of single weights, over n flat-sampled sequences), total (each
    query's weights summed over the keys of that relation, then averaged), keys (number of weights). Without a softmax,
    weights are raw scores. In a relation-based bos+sftm model, the weight on BOS falls with the count (Figure 3).
    """
    counter = CountingModel.of(model)
    run = counter.run(flat_sample(counter.task, n, seed))
    same = run.tokens[:, :, None] == run.tokens[:, None, :]
    itself = torch.eye(same.shape[1], dtype=torch.bool).expand_as(same)
    bos = (run.labels < 0)[:, None, :].expand_as(same)
    masks = {"self": itself, "same": same & ~itself, "different": ~same & ~bos, "BOS": bos & ~itself}
    rows = []
    for relation, mask in masks.items():
        for count in range(1, counter.task.L + 1):
            here = mask & (run.labels == count)[:, :, None]
            weights = run.pattern[here]
            if len(weights):
                per_query = (run.pattern * here).sum(-1)[run.labels == count]
                rows.append((relation, count, float(weights.mean()), float(weights.std(correction=0)),
                             float(per_query.mean()), len(weights)))  # fmt: skip
    return pd.DataFrame(rows, columns=["relation", "count", "mean", "std", "total", "keys"])


def embedding_overlaps(model: Counting) -> pd.DataFrame:
    """Compare all pairs of embeddings: columns token, other, relation (same, different, BOS), cosine and score.

    `other` may be [BOS], but `token` may not. score: the pair's attention score before any softmax (NaN for linear
    mixing, which has no scores). A zero embedding has cosine 0 with everything.
    """
    counter = CountingModel.of(model)
    task, layer = counter.task, counter.model.spec.layers[0]
    norms = counter.embedding.norm(dim=1, keepdim=True).clamp(min=torch.finfo(torch.float64).tiny)
    unit = counter.embedding / norms
    cosine = (unit[: task.T] @ unit.T).numpy()
    score = np.full_like(cosine, np.nan)
    if layer.mixing == "dot":
        score = counter.model.token_tables().scores[0, 0, : task.T].numpy()
    token, other = (index.ravel() for index in np.indices(cosine.shape))
    relation = np.where(token == other, "same", np.where(other == task.T, "BOS", "different"))
    words = np.array(task.vocabulary)
    return pd.DataFrame(
        {"token": words[token], "other": words[other], "relation": relation,
         "cosine": cosine.ravel(), "score": score.ravel()}
    )  # fmt: skip


# ---------------------------------------------------------------- answers


def predicted_counts(model: Counting, n: int = 2000, seed: int = 0) -> tuple[Batch, Int[Tensor, "rows length"]]:
    """Return a flat sample and the model's answers to it. Raises InterpError if the outputs are not finite."""
    counter = CountingModel.of(model)
    batch = flat_sample(counter.task, n, seed)
    answers, model = [], counter.model
    for part in batch.tokens.to(model.cfg.device).split(512):
        with torch.no_grad():
            outputs = model.read(part)
        if not bool(has_answer(outputs).all()):
            raise InterpError(f"{model.spec.id} has outputs that are not finite, so they cannot be counts")
        answers.append(model.task.answers(decide(outputs, model.spec), part))
    return batch, torch.cat(answers).cpu()


def confusion(model: Counting, n: int = 2000, seed: int = 0, predicted: Predicted | None = None) -> pd.DataFrame:
    """Return the share of each answer (columns) at each right count (rows), over n flat-sampled sequences.

    Columns are 0..L or 1..L, the model's classes (Figure 7, top). Rows sum to 1; those of counts that never occur are
    NaN. predicted: predicted_counts(model, n, seed), if already computed.
    """
    counter = CountingModel.of(model)
    task = counter.task
    batch, answers = predicted or predicted_counts(model, n, seed)
    read = batch.labels > 0
    first = 0 if task.zero_class else 1
    table = torch.zeros(task.L + 1, task.L + 1, dtype=torch.float64)
    table.index_put_((batch.labels[read], answers[read]), torch.ones((), dtype=torch.float64), accumulate=True)
    shares = (table / table.sum(1, keepdim=True))[1:, first:].numpy()
    return pd.DataFrame(
        shares, index=pd.RangeIndex(1, task.L + 1, name="count"), columns=pd.RangeIndex(first, task.L + 1)
    )


def accuracy_by_count(
    model: Counting, n: int = 2000, seed: int = 0, predicted: Predicted | None = None
) -> pd.DataFrame:
    """Measure accuracy by count, over n flat-sampled sequences. Columns: count, accuracy, mean_answer, positions."""
    batch, answers = predicted or predicted_counts(model, n, seed)
    return _grouped("count", batch.labels, batch, answers)


def accuracy_by_distinct(
    model: Counting, n: int = 2000, seed: int = 0, predicted: Predicted | None = None
) -> pd.DataFrame:
    """Measure accuracy by a sequence's number of distinct tokens: distinct, accuracy, mean_answer, positions."""
    batch, answers = predicted or predicted_counts(model, n, seed)
    # A token with count c has c positions, so 1/c adds up to 1 per distinct token.
    shares = torch.where(batch.labels > 0, 1 / batch.labels.clamp(min=1).double(), 0.0)
    return _grouped("distinct", shares.sum(1, keepdim=True).round().long().expand_as(batch.labels), batch, answers)


def _grouped(name: str, key: Tensor, batch: Batch, answers: Tensor) -> pd.DataFrame:
    read = batch.labels > 0
    frame = pd.DataFrame(
        {name: key[read], "right": (answers == batch.labels)[read].double(), "answer": answers[read].double()}
    )
    table = frame.groupby(name).agg(
        accuracy=("right", "mean"), mean_answer=("answer", "mean"), positions=("right", "size")
    )
    return table.reset_index()


# ---------------------------------------------------------------- artificial mixtures


def probe_two(model: Counting, own: str = "1", other: str = "2", steps: int = 101) -> pd.DataFrame:
    """Return the readout's answer to e_own + total (alpha v_key + (1 - alpha) v_other), for alpha from 0 to 1.

    Columns alpha, answer, own, key, other. key is [BOS] if the task has it (Figures 3 and 15 test whether the answer
    depends only on its share), otherwise the own token. total: see `total_attention`. Raises InterpError for tokens
    outside the alphabet or equal tokens.
    """
    counter = CountingModel.of(model)
    key = "[BOS]" if counter.task.bos else own
    ids = [_letter(counter, token) for token in (own, other)]
    _distinct(own, other)
    alpha = torch.linspace(0, 1, steps, dtype=torch.float64)
    key_value = counter.value[counter.task.token_id(key)]
    mixture = alpha[:, None] * key_value + (1 - alpha[:, None]) * counter.value[ids[1]]
    answers = counter.counts(counter.embedding[ids[0]] + total_attention(counter) * mixture)
    return pd.DataFrame({"alpha": alpha.numpy(), "answer": answers.numpy(), "own": own, "key": key, "other": other})


def probe_three(model: Counting) -> pd.DataFrame:
    """Return the readout's answer to e_1 + total (a v_1 + b v_2 + c v_3), a + b + c = 1 (Figures 4 and 5, right).

    Columns own_share (a), other_share (b), answer, on a grid with a + b <= 1. With an inventory, the answer depends on
    a, but hardly on b. Raises InterpError for an alphabet without 1, 2 and 3.
    """
    counter = CountingModel.of(model)
    ids = [_letter(counter, token) for token in ("1", "2", "3")]
    grid = torch.linspace(0, 1, 41, dtype=torch.float64)
    a, b = (axis.flatten() for axis in torch.meshgrid(grid, grid, indexing="ij"))
    inside = a + b <= 1 + 1e-9
    shares = torch.stack([a, b, 1 - a - b], 1)[inside]
    answers = counter.counts(counter.embedding[ids[0]] + total_attention(counter) * (shares @ counter.value[ids]))
    return pd.DataFrame({"own_share": shares[:, 0], "other_share": shares[:, 1], "answer": answers})


def total_attention(counter: CountingModel) -> float:
    """Return the total attention of a position: 1 with softmax; with linear mixing, the mean row sum of its matrix.

    Raises UnsupportedError for raw scores, whose sum depends on the count.
    """
    layer = counter.model.spec.layers[0]
    if layer.normalizer == "softmax":
        return 1.0
    if layer.mixing == "linear":
        mix: Any = counter.model.blocks[0].attn.W_mix
        return float(mix.detach().double().sum(-1).mean())
    raise UnsupportedError("raw scores have no fixed sum, so there are no artificial mixtures with given shares")


def _letter(counter: CountingModel, token: str) -> int:
    number = counter.task.token_id(token)
    if number >= counter.task.T:
        raise InterpError(f"{token!r} is not a token of the alphabet 0 to {counter.task.T - 1}")
    return number


def _distinct(*tokens: str) -> None:
    if len(set(tokens)) < len(tokens):
        raise InterpError(f"a mixture needs different tokens, not {', '.join(tokens)}")


# ---------------------------------------------------------------- singular values of W_in


@dataclass(frozen=True)
class Spectrum:
    """Singular values of the readout's first matrix (the paper's W1) in decreasing order, and the dip after the T-th.

    dip: s_T / s_(T+1). usual: the median of the other ratios s_i / s_(i+1). Both are NaN if there are at most T values.
    Inventories have a dip far above the usual ratio (Figure 6), but a dip does not prove an inventory.
    """

    values: Float[Tensor, "n"]
    T: int
    dip: float
    usual: float

    def to_frame(self) -> pd.DataFrame:
        """Return columns index (from 1) and value."""
        return pd.DataFrame({"index": np.arange(1, len(self.values) + 1), "value": self.values.numpy()})


def readout_spectrum(model: Counting) -> Spectrum:
    """Compute the singular values of W_in, (d_model, p)."""
    counter = CountingModel.of(model)
    values, T = torch.linalg.svdvals(counter.W_in), counter.task.T
    if len(values) <= T:
        return Spectrum(values, T, float("nan"), float("nan"))
    ratios = values[:-1] / values[1:].clamp(min=1e-300)
    usual = values[1:] > 1e-12 * values[0]  # ratios of rounding errors are meaningless
    usual[T - 1] = False
    return Spectrum(values, T, float(ratios[T - 1]), float(ratios[usual].median()) if usual.any() else float("nan"))


# ---------------------------------------------------------------- logits and hidden values by count


def logits_by_count(model: Counting, tokens: Sequence[str] = ("1", "2", "3")) -> pd.DataFrame:
    """Return logits at the first position of [t, ..., t, v, ..., v] with k copies of t, for k = 1..L (Figures 8, 9).

    v is the token before t in the alphabet. Columns token, other, count (k), answer (the count of the class), logit.
    """
    counter, frames = CountingModel.of(model), []
    task = counter.task
    for token in tokens:
        t = _letter(counter, token)
        v = (t - 1) % task.T
        if task.L > 1:
            _distinct(token, task.vocabulary[v])
        rows = torch.where(torch.arange(task.L) < torch.arange(1, task.L + 1)[:, None], t, v)
        run = counter.run(task.of_sequences(rows))
        logits = counter.logits(run.mixed[:, int(task.bos)])
        count, classes = (index.ravel() for index in np.indices(logits.shape))
        answers = classes + (0 if task.zero_class else 1)
        frames.append(
            pd.DataFrame({"token": token, "other": task.vocabulary[v], "count": count + 1, "answer": answers,
                          "logit": logits.ravel().numpy()})
        )  # fmt: skip
    return pd.concat(frames, ignore_index=True)


def hidden_by_count(model: Counting, n: int = 1000, seed: int = 0) -> pd.DataFrame:
    """Return each hidden neuron's mean activation after the ReLU, over n flat-sampled sequences.

    Columns token, count, neuron, activation; pairs of token and count that do not occur are left out.
    """
    counter = CountingModel.of(model)
    run = counter.run(flat_sample(counter.task, n, seed))
    hidden = counter.hidden(run.mixed[run.read])
    means, seen = cell_means(counter, hidden, run.tokens[run.read], run.labels[run.read])
    token, count, neuron = (index.numpy() for index in (seen[..., None] > 0).expand_as(means).nonzero().T)
    words, activation = np.array(counter.task.vocabulary), means[seen > 0].ravel().numpy()
    return pd.DataFrame({"token": words[token], "count": count + 1, "neuron": neuron, "activation": activation})
