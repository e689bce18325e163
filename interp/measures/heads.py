"""Outputs of heads at the read positions, their contributions to the logits, and metrics of groups of heads.

Zsámboki et al. 2025, section 5.1. A head's output O_i is hook_z; its contribution to the logit of token t is
O_i w_{i,t} with w = W_O W_U. The metrics are l-acc, ROC AUC and s-acc. Learned accuracy (l-acc) uses only the
contributions of a group and the readout's bias b_t. The skip connection and the projection bias are left out (erratum
4) unless `with_skip` is set.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pandas as pd
import torch
from einops import einsum
from jaxtyping import Float, Int
from torch import Tensor

from interp.errors import InterpError, UnsupportedError, check_one_of, refuse_if
from interp.measures.components import readout_map
from interp.measures.results import Figure, Inputs, Tabular, batch_of, draw
from interp.measures.runs import at_reads, check_answers, heads_of, numbered, reads_of
from interp.measures.seeds import Models, by_seed, mean_over_seeds, subjects_of
from interp.measures.separation import score_groups
from interp.measures.subsets import check_groups, select_groups, subset_logit_metrics
from interp.models.architecture.answers import Decision
from interp.models.architecture.reduced import CountedRows, counted_at, heads_from_counts, token_tables
from interp.models.subject import Model, Subject, final_scale, no_sum
from interp.tasks import IGNORED, Batch, Task
from interp.tasks.batch import Reads

SUCCESSFUL, FAILED = 0.98, 0.6
"""Smallest s-acc of a successful head, and largest s-acc of a failed one, "close to a coin flip" (section 5.2)."""

TOGETHER = 16
"""Models of one spec whose heads are computed in one product."""

CANCELED = 2.0**-44
"""Sums of products in float64 whose terms cancel to less than this share of their sizes are 0."""


@dataclass(frozen=True)
class HeadOutputs:
    """Outputs of heads at the read positions.

    z: hook_z of each head. contributions: of each head to each logit. bias: the readout's bias. skip: the sum of all
    other contributions to the logits (skip connection, projection bias, heads of other layers, MLPs). labels: right
    output indices.
    """

    z: Float[Tensor, "rows heads d_head"]
    contributions: Float[Tensor, "rows heads n_out"]
    bias: Float[Tensor, "n_out"]
    skip: Float[Tensor, "rows n_out"]
    labels: Int[Tensor, "rows"]

    @property
    def n_heads(self) -> int:
        return self.z.shape[1]

    def logits(self, group: Sequence[int], with_skip: bool = False) -> Float[Tensor, "rows n_out"]:
        """Compute z_{t,H}, the logits with all heads outside the group zeroed (section 5.1). The group may be empty.

        Raises InterpError for repeated or unknown heads, and for logits that are not finite.
        """
        if len(group):
            check_groups([group], self.n_heads)
        out = self.contributions[:, list(group)].sum(1) + self.bias
        out = out + self.skip if with_skip else out
        if not bool(out.isfinite().all()):
            raise InterpError(f"the logits of heads {[*group]} are not finite everywhere, so they give no answers")
        return out


@torch.no_grad()
def head_outputs(model: Model, batch: Batch, *, read: int | None = None, layer: int | None = None) -> HeadOutputs:
    """Compute head outputs on a batch of the model's task, in float64, with one row per read position.

    read: take only the read with this number in each row (in Count01, 0 is '=' and 1 the answer token before [EOS]).
    layer: the layer of the heads (default: all layers; head h of layer l has number l * n_heads + h).

    With a final norm, contributions are computed at the scale of the full run; those of earlier layers are direct
    effects (Elhage et al. 2021). A model with one output s (sigmoid) gets the logits -s/2 and s/2. If the spec's
    symmetry allows it, outputs are computed in count space, which is a thousand times faster and equal up to rounding.
    Raises UnsupportedError if logits are not a sum over heads or the largest is not the answer, and InterpError for
    outputs that are not finite.
    """
    subject = Subject.of(model)
    layer, where = _asked(subject, batch, read, layer)
    key = ("heads", layer, *where.rows.tolist(), *where.positions.tolist())
    return subject.once(lambda batch: _head_outputs([subject], batch, where, layer)[0], batch, key)


@torch.no_grad()
def outputs_of_each(subjects: Sequence[Subject], batch: Batch, *, layer: int | None = None) -> list[HeadOutputs]:
    """Compute head_outputs of several models of one spec; in count space, TOGETHER of them at once."""
    if len(subjects) == 1:
        return [head_outputs(subjects[0], batch, layer=layer)]
    layer, where = _asked(subjects[0], batch, None, layer)
    parts = [subjects[start : start + TOGETHER] for start in range(0, len(subjects), TOGETHER)]
    return [outputs for together in parts for outputs in _head_outputs(together, batch, where, layer)]


def _asked(subject: Subject, batch: Batch, read: int | None, layer: int | None) -> tuple[int | None, Reads]:
    """Check that heads have outputs of their own; return their layer, and where they are read."""
    if layer is not None:
        layer = check_layer(subject, layer)
    refuse_if(no_sum(subject.model))
    refuse_if(no_largest(subject.decision))
    if read is None:
        return layer, reads_of(subject, batch)
    return layer, Reads(torch.arange(len(batch)), *read_positions(subject.task, batch, read))


def no_largest(decision: Decision) -> str | None:
    """Return the reason why the largest of the logits that heads contribute to is not an answer, or None."""
    others = {"indicator": "|s| and a tolerance", "set": "which outputs are above 0"}
    if decision.kind not in others:
        return None
    return f"the answer depends on {others[decision.kind]}, not on the largest logit, so single heads have no answer"


def _head_outputs(subjects: Sequence[Subject], batch: Batch, where: Reads, layer: int | None) -> list[HeadOutputs]:
    if all(subject.count_space for subject in subjects) and subjects[0].read_at != "all":
        rows = counted_from(subjects[0], batch, where.positions).stacked(torch.float64)
        tensors = [{n: p.double().cpu() for n, p in subject.task_model.named_parameters()} for subject in subjects]
        stacked = {name: torch.stack([mine[name] for mine in tensors]) for name in tensors[0]}
        outputs = heads_from_counts(token_tables(subjects[0].task_model.spec, stacked), rows)
        for z in outputs:
            check_finite(z)
        by_model = [
            decompose(subject, batch, where.positions, where.classes, z) for subject, z in zip(subjects, outputs)
        ]
    else:
        by_model = [_from_hooks(subject, batch, where, layer) for subject in subjects]
    return [of_model if of_model.bias.shape[0] > 1 else _two_logits(of_model) for of_model in by_model]


def _two_logits(outputs: HeadOutputs) -> HeadOutputs:
    """One output s becomes the logits (-s/2, s/2), which give the same decision, s > 0, and the same loss."""
    names, sides = ("contributions", "bias", "skip"), torch.tensor([-0.5, 0.5], dtype=torch.float64)
    return replace(outputs, **{name: getattr(outputs, name) * sides for name in names})


def check_layer(subject: Subject, layer: int) -> int:
    """Convert a layer that may be negative to its index. Raises InterpError if it does not exist."""
    n_layers = subject.model.cfg.n_layers
    if not -n_layers <= layer < n_layers:
        raise InterpError(f"layer {layer} does not exist: the model has layers 0 to {n_layers - 1}")
    return layer % n_layers


_LARGEST = 2**30  # most bytes of one table of contributions


def _from_hooks(subject: Subject, batch: Batch, where: Reads, layer: int | None) -> HeadOutputs:
    """Compute head outputs of any model by hooks, mapped through W_O and the readout at the run's own final scale.

    The model runs in float64: two equal sums that round apart in float32 would be ranked.
    """
    subject = subject.in_format(torch.float64)
    model = subject.model
    layers = range(model.cfg.n_layers) if layer is None else [layer]
    weights = torch.cat([model.blocks[i].attn.W_O.detach().double().cpu() for i in layers])
    n_out = subject.columns(model.unembed.b_U).shape[0]
    if 8 * len(where) * len(weights) * n_out > _LARGEST:
        raise UnsupportedError(
            f"{len(where)} reads x {len(weights)} heads x {n_out} outputs do not fit in memory; use fewer inputs, "
            "or one layer"
        )
    final, norm = f"blocks.{model.cfg.n_layers - 1}.hook_resid_post", final_scale(model)
    names = [f"blocks.{i}.attn.hook_z" for i in layers]
    seen = at_reads(subject, batch, [*names, final, *norm], where)
    z = torch.cat([seen[name] for name in names], 1)
    check_finite(z)
    scale = seen[norm[0]] if norm else torch.ones(len(where), 1, dtype=torch.float64)
    columns, bias = readout_map(subject)
    written = weights @ columns
    written[written.abs() < CANCELED * (weights.abs() @ columns.abs())] = 0.0  # rounding is no contribution to rank
    contributions = einsum(z, written, "read head d_head, head d_head out -> read head out") / scale[:, None]
    skip = seen[final] @ columns / scale - contributions.sum(1)
    return HeadOutputs(z, contributions, bias, skip, where.classes)


def check_finite(z: Float[Tensor, "rows heads d_head"]) -> None:
    """Raise InterpError if a head's output is NaN or infinite, which argmax and rank would hide."""
    if bad := int((~torch.isfinite(z)).sum()):
        head = int((~torch.isfinite(z)).any(-1).any(0).int().argmax())
        raise InterpError(
            f"{bad} of {z.numel()} head outputs are not finite numbers, the first in head {head}; "
            "look for NaN in the weights"
        )


def read_positions(task: Task, batch: Batch, read: int) -> tuple[Int[Tensor, "rows"], Int[Tensor, "rows"]]:
    """Return the position and right output of read number `read` in each row, or raise InterpError if it is missing."""
    classes = task.classes(batch)
    order = (classes != IGNORED).cumsum(1)
    here = (order == read + 1) & (classes != IGNORED)
    if not here.any(1).all():
        fewest = int(order[:, -1].min())
        raise InterpError(f"read = {read}: some rows of task {task.name} are read at only {fewest} positions")
    positions = here.int().argmax(1)
    return positions, classes.gather(1, positions[:, None])[:, 0].long()


def counted_from(subject: Subject, batch: Batch, positions: Tensor) -> CountedRows:
    """Return the token counts visible from one position per row."""
    spec, d_vocab = subject.task_model.spec, subject.task.d_vocab
    return counted_at(spec, d_vocab, batch.tokens, positions, batch.attention_mask)


def decompose(
    model: Model, batch: Batch, positions: Tensor, labels: Tensor, z: Float[Tensor, "rows heads d_head"]
) -> HeadOutputs:
    """Split the logits at the answer, in count space, into contributions of heads, the readout's bias, and the rest."""
    subject = Subject.of(model)
    refuse_if(subject.no_decomposition())
    part = subject.model.blocks[0].attn
    unembed, bias = readout_map(subject)
    written = part.W_O.detach().double().cpu() @ unembed
    contributions = einsum(z, written, "row head d_head, head d_head out -> row head out")
    asked = batch.tokens[torch.arange(len(batch)), positions]
    rest = subject.model.embed.W_E.detach().double().cpu()[asked] + part.b_O.detach().double()
    return HeadOutputs(z, contributions, bias, rest @ unembed, labels)


# ---------------------------------------------------------------- the three metrics


def learned_accuracy(outputs: HeadOutputs, group: Sequence[int], with_skip: bool = False) -> float:
    """Return the share of rows whose answer has the largest logit if only this group contributes (section 5.1)."""
    return float((outputs.logits(group, with_skip).argmax(-1) == outputs.labels).double().mean())


@dataclass(frozen=True, eq=False, repr=False)
class HeadMetrics(Tabular):
    """Metrics of groups of heads; columns heads, size, s_acc, l_acc, roc_auc, relative_gap, layer."""

    title = "Separation accuracy, learned accuracy and ROC AUC of groups of heads"

    def plot(self, metric: Literal["s_acc", "l_acc", "roc_auc"] = "s_acc") -> Figure:
        """Draw single heads (bars), heads and pairs (Figure 3), or all metrics by size of the group (Figure 4).

        Of several models, the means are drawn.
        """
        from interp.support.figures.heads import METRICS

        check_one_of("metric", metric, METRICS)
        table = mean_over_seeds(self.table, ["s_acc", "l_acc", "roc_auc", "relative_gap"])
        if table["size"].max() > 2:
            return draw.metrics_by_size(table)
        if table["size"].max() == 2:
            order = list(dict.fromkeys(head for group in table["heads"] for head in group))
            return draw.heads_heatmap(table, metric, order)
        named = table.assign(head=[f"head {group[0]}" for group in table["heads"]])
        return draw.bars(named, "head", metric, y_title=METRICS[metric])


def head_metrics(
    model: Models,
    groups: str | Iterable[Iterable[int | str]] = "singles",
    *,
    train: Inputs | None = None,
    test: Inputs | None = None,
    with_skip: bool = False,
    layer: int | None = None,
    sample: int | None = None,
    C: float = 1000.0,
) -> HeadMetrics:
    """Return one row per group: heads, size, s_acc, l_acc, roc_auc, relative_gap, layer (section 5.1, Figures 3 and 4).

    l_acc: the share of answers that have the largest logit with this group alone. roc_auc: how well the logit of an
    answer ranks the inputs that have it above the others; of several answers, that of the best. A model with one output
    has one such number, below 0.5 where the group ranks the answers the wrong way round.
    Supports any number of classes and layers, and answers at one or all positions. layer: only the heads of this layer;
    the column layer is set for groups within one layer. For heads in earlier layers, only their direct contribution to
    the logits is used; a final norm has the scale of the full run. model: or a list of models of one spec; the table
    has a column seed then.

    groups: "singles", "pairs", "singles+pairs", "all", or a list of tuples of heads, by name ("0.3") or number (l *
    n_heads + h, or within `layer`); "all" with sample=500 draws 500 groups. train, test: s-acc is fitted on train
    (default: the task's training inputs), and all metrics are measured on test (default: its test inputs). Fits are
    optimal up to a proven gap (see measures.separation); with more than two classes, each is separated from the rest.
    C: weight of the errors in the objective (1000 in the paper; if its printed 1/n is taken literally, 1000 / (2 n) for
    n training rows). Source: Zsámboki et al. 2025.

    Example:

        >>> model = interp.load("count01/paper")
        >>> found = interp.head_metrics(model, "singles")
        >>> int((found["s_acc"] > 0.95).sum()), int((found["s_acc"] < 0.55).sum())  # of 16 heads
        (8, 8)
    """
    subjects = subjects_of(model)
    subject = subjects[0]
    every = heads_of(subject)
    heads = every if layer is None else [head for head in every if head.layer == check_layer(subject, layer)]
    fitted = outputs_of_each(subjects, batch_of(subject, train, "train"), layer=layer)
    tested = outputs_of_each(subjects, batch_of(subject, test), layer=layer)
    for outputs in (fitted[0], tested[0]):
        check_answers(subject, outputs.labels)
    chosen = numbered(subject, groups, heads)
    table = by_seed(model, subjects, [
        group_metrics(mine, theirs, chosen, with_skip=with_skip, sample=sample, C=C)
        for mine, theirs in zip(fitted, tested)
    ])  # fmt: skip
    layers = [{heads[head].layer for head in group} for group in table["heads"]]
    table["heads"] = [tuple(str(heads[head]).removeprefix("head ") for head in group) for group in table["heads"]]
    column = pd.array([min(group_layers) if len(group_layers) == 1 else None for group_layers in layers], dtype="Int64")
    return HeadMetrics(table.assign(layer=column))


def group_metrics(
    fitted: HeadOutputs,
    tested: HeadOutputs,
    groups: str | Iterable[Iterable[int]] = "singles",
    *,
    with_skip: bool = False,
    sample: int | None = None,
    C: float = 1000.0,
) -> pd.DataFrame:
    """Compute `head_metrics` from any model's head outputs: s-acc is fitted on `fitted`, all is measured on `tested`.

    groups, sample: as in subsets.select_groups. Columns heads, size, s_acc, l_acc, roc_auc, and relative_gap, the
    proven bound on each separator's distance from the optimum. Raises InterpError for a single class, outputs that are
    not finite, fewer rows than features, and groups that select_groups refuses.
    """
    chosen = select_groups(groups, tested.n_heads, sample)
    separated = score_groups(
        fitted.z.numpy(), fitted.labels.numpy(), tested.z.numpy(), tested.labels.numpy(), chosen, C
    )
    bias = tested.bias + tested.skip if with_skip else tested.bias
    answers = np.unique(tested.labels.numpy()).tolist()
    by_logits = subset_logit_metrics(
        tested.contributions.numpy(), bias.numpy(), tested.labels.numpy(), answers,
        subsets=separated["heads"],
    )  # fmt: skip
    table = separated[["heads", "size", "s_acc"]].join(by_logits[["l_acc", "roc_auc"]])
    return table.assign(relative_gap=separated["relative_gap"])


def category(s_acc: float) -> str:
    """Return "successful" (s-acc at least .98), "failed" (at most .6, near a coin flip) or "mixed" (section 5.2)."""
    return "successful" if s_acc >= SUCCESSFUL else "failed" if s_acc <= FAILED else "mixed"


def head_weights(model: Model) -> pd.DataFrame:
    """Return |w_{i,4} - w_{i,5}| of each head, normalized to sum to one (section 6.1); columns head, weight.

    The heads are those of the last layer, the two outputs are the task's two answers. Raises UnsupportedError if
    logits are not a sum over heads.
    """
    subject = Subject.of(model)
    refuse_if(subject.no_decomposition())
    first, second = subject.two_answers()
    unembed, _ = readout_map(subject)
    unembed = unembed if unembed.shape[1] > 1 else torch.nn.functional.pad(unembed, (1, 0))  # one output s is (0, s)
    difference = subject.model.blocks[-1].attn.W_O.detach().double().cpu() @ (unembed[:, first] - unembed[:, second])
    lengths = difference.norm(dim=-1)
    return pd.DataFrame({"head": range(len(lengths)), "weight": (lengths / lengths.sum()).numpy()})


def logit_distributions(
    model: Model, batch: Batch | None = None, outputs_by_read: Sequence[HeadOutputs] | None = None
) -> pd.DataFrame:
    """Return logits of each head alone and of the model, by current and true next token (section 5, Figures 1 and 15).

    Columns head (int, or "model"), current, next, token (of the logit), logit. One row per head, row of the batch, read
    position, and token that is the right answer at least once. outputs_by_read: the batch's head outputs at each read
    position, if already computed.
    """
    subject = Subject.of(model)
    task = subject.task
    batch = task.sample(300, "test", seed=0) if batch is None else batch
    reads = int((task.classes(batch) != IGNORED).sum(1).min())
    frames = []
    shown = sorted({int(c) for c in task.classes(batch).unique() if c != IGNORED})
    words, answers = np.array(task.vocabulary), np.array(task.answer_words)
    for read in range(reads):
        outputs = head_outputs(subject, batch, read=read) if outputs_by_read is None else outputs_by_read[read]
        positions, _ = read_positions(task, batch, read)
        current = words[batch.tokens.gather(1, positions[:, None])[:, 0]]
        heads: list[tuple[object, Tensor]] = [(head, outputs.logits((head,))) for head in range(outputs.n_heads)]
        heads.append(("model", outputs.logits(range(outputs.n_heads), with_skip=True)))
        for head, logits in heads:
            for token in shown:
                frames.append(
                    pd.DataFrame(
                        {"head": head, "current": current, "next": answers[outputs.labels], "token": answers[token],
                         "logit": logits[:, token].numpy()}
                    )
                )  # fmt: skip
    return pd.concat(frames, ignore_index=True)
