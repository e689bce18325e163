"""Metrics of groups of heads at the read positions: l-acc, ROC AUC and s-acc (Zsámboki et al. 2025, section 5.1).

`measures.outputs` computes the heads' outputs and their contributions to the logits. Learned accuracy (l-acc) uses only
the contributions of a group and the readout's bias b_t. The skip connection and the projection bias are left out
(erratum 4) unless `with_skip` is set.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from interp.errors import InterpError, UnsupportedError, one_of
from interp.measures.outputs import HeadOutputs as HeadOutputs
from interp.measures.outputs import check_layer, read_positions
from interp.measures.outputs import head_outputs as head_outputs
from interp.measures.results import Figure, Inputs, Tabular, batch_of
from interp.measures.runs import heads_of, numbered
from interp.measures.subject import Model, Subject
from interp.measures.subsets import MAX_SUBSETS, select_groups
from interp.tasks import IGNORED, Batch

SUCCESSFUL, FAILED = 0.98, 0.6
"""Smallest s-acc of a successful head, and largest s-acc of a failed one, "close to a coin flip" (section 5.2)."""


# ---------------------------------------------------------------- the three metrics


def learned_accuracy(outputs: HeadOutputs, group: Sequence[int], with_skip: bool = False) -> float:
    """Return the share of rows whose answer has the largest logit if only this group contributes (section 5.1)."""
    return float((outputs.logits(group, with_skip).argmax(-1) == outputs.labels).double().mean())


@dataclass(frozen=True, eq=False, repr=False)
class HeadMetrics(Tabular):
    """Metrics of groups of heads; columns heads, size, s_acc, l_acc, roc_auc, relative_gap, layer."""

    @property
    def title(self) -> str:
        return "Separation accuracy, learned accuracy and ROC AUC of groups of heads"

    def plot(self, metric: Literal["s_acc", "l_acc", "roc_auc"] = "s_acc") -> Figure:
        """Draw single heads (bars), heads and pairs (Figure 3), or all metrics by size of the group (Figure 4)."""
        from interp.report import figures as draw
        from interp.report.figures_heads import METRICS

        if metric not in METRICS:
            raise InterpError(one_of("metric", metric, METRICS))
        if self["size"].max() > 2:
            return draw.metrics_by_size(self.table)
        if self["size"].max() == 2:
            order = list(dict.fromkeys(head for group in self["heads"] for head in group))
            return draw.heads_heatmap(self.table, metric, order)
        named = self.table.assign(head=[f"head {group[0]}" for group in self["heads"]])
        return draw.bars(named, "head", metric, y_title=METRICS[metric])


def head_metrics(
    model: Model,
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

    Supports any number of classes and layers, and answers at one or all positions. layer: only the heads of this layer;
    the column layer is set for groups within one layer. For heads in earlier layers, only their direct contribution to
    the logits is used; a final norm has the scale of the full run.

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
    subject = Subject.of(model)
    every = heads_of(subject)
    heads = every if layer is None else [head for head in every if head.layer == check_layer(subject, layer)]
    fitted = head_outputs(subject, batch_of(subject, train, "train"), layer=layer)
    tested = head_outputs(subject, batch_of(subject, test), layer=layer)
    table = group_metrics(fitted, tested, numbered(subject, groups, heads), with_skip=with_skip, sample=sample, C=C)
    layers = [{heads[head].layer for head in group} for group in table["heads"]]
    table["heads"] = [tuple(str(heads[head]).removeprefix("head ") for head in group) for group in table["heads"]]
    column = pd.array([min(found) if len(found) == 1 else None for found in layers], dtype="Int64")
    return HeadMetrics(table.assign(layer=column))


def group_metrics(
    fitted: HeadOutputs,
    tested: HeadOutputs,
    groups: str | Iterable[Iterable[int]] = "singles",
    *,
    with_skip: bool = False,
    sample: int | None = None,
    seed: int = 0,
    max_subsets: int = MAX_SUBSETS,
    progress: bool = False,
    C: float = 1000.0,
) -> pd.DataFrame:
    """Compute `head_metrics` from any model's head outputs: s-acc is fitted on `fitted`, all is measured on `tested`.

    sample: number of random groups to draw instead of "all", with `seed`. Columns heads, size, s_acc, l_acc, roc_auc,
    and relative_gap, the proven bound on each separator's distance from the optimum. Raises InterpError for a single
    class, outputs that are not finite, fewer rows than features, unknown or repeated heads in a group, and more than
    max_subsets groups; the message then gives their number and the estimated time.
    """
    from interp.measures.separation import score_groups
    from interp.measures.subsets import subset_logit_metrics

    chosen = None if groups == "all" else select_groups(groups, tested.n_heads)
    separated = score_groups(
        fitted.z.numpy(), fitted.labels.numpy(), tested.z.numpy(), tested.labels.numpy(),
        chosen, sample, seed, max_subsets, progress, C,
    )  # fmt: skip
    bias = tested.bias + tested.skip if with_skip else tested.bias
    answers = np.unique(tested.labels.numpy()).tolist()
    by_logits = subset_logit_metrics(
        tested.contributions.numpy(), bias.numpy(), tested.labels.numpy(), answers,
        subsets=separated["heads"], progress=progress,
    )  # fmt: skip
    table = separated[["heads", "size", "s_acc"]].join(by_logits[["l_acc", "roc_auc"]])
    return table.assign(relative_gap=separated["relative_gap"])


def category(s_acc: float) -> str:
    """Return "successful" (s-acc at least .98), "failed" (at most .6, near a coin flip) or "mixed" (section 5.2)."""
    return "successful" if s_acc >= SUCCESSFUL else "failed" if s_acc <= FAILED else "mixed"


def head_weights(model: Model, layer: int = -1) -> pd.DataFrame:
    """Return |w_{i,4} - w_{i,5}| of each head, normalized to sum to one (section 6.1); columns head, weight.

    The two outputs are the task's two answers. Raises UnsupportedError if logits are not a sum over heads.
    """
    subject = Subject.of(model)
    if (reason := subject.no_decomposition(layer)) is not None:
        raise UnsupportedError(reason)
    first, second = subject.two_answers()
    unembed = subject.columns(subject.model.unembed.W_U.detach().double())
    unembed = unembed if unembed.shape[1] > 1 else torch.nn.functional.pad(unembed, (1, 0))  # one output s is (0, s)
    difference = subject.model.blocks[layer].attn.W_O.detach().double() @ (unembed[:, first] - unembed[:, second])
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
