"""Memorization of a conditional table, measured exactly over the whole table (Dana 2024).

Divergence and accuracy by context, distance to the best rank-d map, contributions of heads, the rank of the attention
matrix, and the directions of the table that the unembedding has learned.
"""

from dataclasses import dataclass, field
from typing import cast

import numpy as np
import pandas as pd
from jaxtyping import Float

from interp.errors import UnsupportedError, refuse_if
from interp.families.memorization.tasks.conditional import TableTask
from interp.families.memorization.theory.attention_heads import attention_rank, memorized_associations
from interp.families.memorization.theory.kl import entropy, entropy_rows, kl_rows, log_softmax, right_rows
from interp.families.memorization.theory.optimum import rank_d_optimum
from interp.families.memorization.theory.spectrum import head_contributions, learned_directions, subspace_angles
from interp.measures.heads import HeadOutputs, head_outputs
from interp.measures.runs import at_reads
from interp.models.architecture.task_model import TaskModel
from interp.models.subject import Model, Subject
from interp.support.words import share
from interp.tasks.structure import CONDITIONAL_TABLE, lacks


@dataclass(frozen=True)
class Memorization:
    """How well a model has memorized its table; divergences and entropies in nats, weighted by the prior.

    A context is memorized if the largest logit is at a most likely next token. accuracy: prior probability of the
    memorized contexts. memorized: their number. formula: H d_h + d, the number of associations that weights of this
    size can store (None for models with an MLP or several layers, and for contexts of one token). rows: one row per
    context: context, prior, entropy, kl, most_likely (next token), p (its probability), answer, q (the model's
    probability of most_likely), right.
    """

    kl: float
    entropy: float
    accuracy: float
    memorized: int
    contexts: int
    parameters: int
    formula: int | None
    rows: pd.DataFrame = field(repr=False)

    @property
    def cross_entropy(self) -> float:
        """The loss on sequences from the table: entropy plus divergence."""
        return self.entropy + self.kl

    def __str__(self) -> str:
        return (
            f"divergence {self.kl:.4g} nats (entropy {self.entropy:.4g}), {self.memorized} of {self.contexts} "
            f"associations memorized, accuracy {share(self.accuracy)}"
        )


@dataclass(frozen=True)
class OptimumGap:
    """A model compared with the best rank-d map found, where d is the model's width; divergences in nats.

    angles: between the row spaces of both W_U.
    """

    d: int
    kl: float
    optimum: float
    kl_by_row: Float[np.ndarray, " contexts"] = field(repr=False)
    optimum_by_row: Float[np.ndarray, " contexts"] = field(repr=False)
    angles: Float[np.ndarray, " angles"] = field(repr=False)
    evidence: str = ""

    @property
    def gap(self) -> float:
        """The model's divergence minus the optimum's; negative only if the search missed the optimum."""
        return self.kl - self.optimum

    def __str__(self) -> str:
        return (
            f"divergence {self.kl:.4g} nats, {self.gap:.4g} above the best rank-{self.d} map found ({self.optimum:.4g})"
        )


@dataclass(frozen=True)
class AttentionMatrix:
    """The matrix of all heads' outputs at the last token, of shape (contexts, heads * d_head).

    rank, rank_with_residual: numerical ranks, without and with the last token's embedding. generic: the rank for random
    weights of the same sizes (erratum 5), None unless d_head = d_model. singular_values: in decreasing order.
    """

    rank: int
    rank_with_residual: int
    generic: int | None
    contexts: int
    singular_values: Float[np.ndarray, " values"] = field(repr=False)


def table_of(subject: Subject) -> TableTask:
    """Return the subject's task. Raises UnsupportedError unless it is a conditional table."""
    refuse_if(lacks(subject.task, CONDITIONAL_TABLE))
    return cast(TableTask, subject.task)


def context_logits(model: Model) -> Float[np.ndarray, "contexts outputs"]:
    """Return the model's logits after every context, in the order of the table."""
    subject = Subject.of(model)
    logits = subject.logits(table_of(subject).all_contexts(), chunk=1024)
    return logits.double().numpy()


def memorization(model: Model, logits: Float[np.ndarray, "contexts outputs"] | None = None) -> Memorization:
    """Measure how well a model has memorized its table. logits: context_logits(model), if already computed.

    Raises UnsupportedError for a model of another task.
    """
    subject = Subject.of(model)
    task, logits = table_of(subject), context_logits(subject) if logits is None else logits
    pi, best = task.conditional, task.targets.numpy()
    right, kl, at = right_rows(pi, logits), kl_rows(pi, logits), np.arange(len(pi))
    rows = pd.DataFrame(
        {
            "context": [task.format(context) for context in task.contexts],
            "prior": task.prior,
            "entropy": entropy_rows(pi),
            "kl": kl,
            "most_likely": best,
            "p": pi[at, best],
            "answer": logits.argmax(axis=1),
            "q": np.exp(log_softmax(logits))[at, best],
            "right": right,
        }
    )
    return Memorization(
        kl=float(task.prior @ kl),
        entropy=entropy(task),
        accuracy=min(1.0, float(task.prior @ right)),
        memorized=int(right.sum()),
        contexts=len(pi),
        parameters=sum(parameter.numel() for parameter in subject.model.parameters()),
        formula=_formula(subject),
        rows=rows,
    )


def _formula(subject: Subject) -> int | None:
    cfg = subject.model.cfg
    if cfg.n_layers > 1 or table_of(subject).order == 1 or subject.no_decomposition() is not None:
        return None
    return memorized_associations(cfg.n_heads, cfg.d_head, cfg.d_model)


def optimum_gap(model: Model, logits: Float[np.ndarray, "contexts outputs"] | None = None) -> OptimumGap:
    """Compare a model with the best rank-d map, where d is its width.

    A model of width d with a linear readout cannot be better, because its logits have rank d (Dana 2024, Proposition 1;
    models of one context meet its condition, erratum 2). Raises UnsupportedError for readouts that are not linear
    or have a bias.
    """
    subject = Subject.of(model)
    task, W_U = table_of(subject), unembedding(subject)
    d = len(W_U)
    best = rank_d_optimum(task, d)
    kl = kl_rows(task.conditional, context_logits(subject) if logits is None else logits)
    return OptimumGap(
        d=d,
        kl=float(task.prior @ kl),
        optimum=best.kl,
        kl_by_row=kl,
        optimum_by_row=best.kl_by_row,
        angles=subspace_angles(W_U, best.W_U),
        evidence=best.evidence,
    )


def unembedding(model: Model) -> Float[np.ndarray, "d outputs"]:
    """Return W_U in the task's order. Raises UnsupportedError unless it maps the last stream to the logits."""
    subject = Subject.of(model)
    if getattr(subject.model, "ln_final", None) is not None:
        raise UnsupportedError("after a final layer norm, the logits are not a linear map of the last stream")
    if isinstance(subject.model, TaskModel) and not subject.model.spec.linear_readout:
        raise UnsupportedError("a ReLU readout has no unembedding with a row space to compare")
    if bool((subject.model.b_U.detach() != 0).any()):
        raise UnsupportedError("with a readout bias, the logits have rank d + 1, not d")
    return subject.columns(subject.model.W_U.detach().double().cpu()).numpy()


def head_table(model: Model, outputs: HeadOutputs | None = None) -> pd.DataFrame:
    """Measure the model's loss without each head, the head's performance alone, and the size of its logits.

    Columns as in `theory.spectrum`. Raises UnsupportedError if the logits are not a sum over heads.
    """
    subject = Subject.of(model)
    outputs = context_outputs(subject) if outputs is None else outputs
    rest = outputs.skip + outputs.bias
    return head_contributions(table_of(subject), rest, outputs.contributions.transpose(0, 1))


def attention_matrix(model: Model, outputs: HeadOutputs | None = None) -> AttentionMatrix:
    """Compute the rank of the heads' outputs over all contexts. Raises UnsupportedError as in `head_table`."""
    subject = Subject.of(model)
    task, cfg = table_of(subject), subject.model.cfg
    outputs = context_outputs(subject) if outputs is None else outputs
    z = outputs.z.flatten(1).numpy()
    name = f"blocks.{cfg.n_layers - 1}.hook_resid_pre"
    embedded = at_reads(subject, task.all_contexts(), [name])[name].numpy()
    values = np.linalg.svd(z, compute_uv=False)
    rounding = float(np.finfo(str(subject.model.W_E.dtype).removeprefix("torch.")).eps) * max(z.shape)
    full = cfg.d_head == cfg.d_model
    return AttentionMatrix(
        rank=int((values > rounding * values[0]).sum()),
        rank_with_residual=int(np.linalg.matrix_rank(np.hstack([z, embedded]), rtol=rounding)),
        generic=attention_rank(task.d_vocab, task.order, cfg.d_model, cfg.n_heads) if full else None,
        contexts=len(z),
        singular_values=values,
    )


def spectrum(model: Model) -> pd.DataFrame:
    """Find the directions of the log table that the unembedding has learned (`theory.spectrum`)."""
    subject = Subject.of(model)
    return learned_directions(table_of(subject), unembedding(subject))


def context_outputs(model: Model) -> HeadOutputs:
    """Return the output of every head after every context."""
    subject = Subject.of(model)
    refuse_if(subject.no_decomposition())
    return head_outputs(subject, table_of(subject).all_contexts())
