"""What heads put out where the answer is read, and how good any group of them is: l-acc, ROC AUC, s-acc.

Zsámboki et al. 2025, section 5.1. A head's output O_i is hook_z; its contribution to the logit of token t is
O_i w_{i,t} with w = W_O W_U. Learned accuracy keeps the contributions of a group and the readout's bias b_t alone: the
skip connection and the projection bias are dropped (erratum 4), or kept with `with_skip`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.architecture.symmetric import head_outputs as count_space_outputs
from interp.architecture.symmetric import rows_at, stack_one, token_tables
from interp.errors import InterpError, UnsupportedError
from interp.measures.subject import Model, Subject
from interp.tasks import IGNORED, Batch, Task

Group = tuple[int, ...]
SUCCESSFUL, FAILED = 0.98, 0.6
"""s-acc from which a head is successful (section 5.2), and up to which it is called failed, "close to a coin flip"."""


@dataclass(frozen=True)
class HeadOutputs:
    """Heads of one layer at the positions where the answer is read.

    z: outputs, (rows, heads, d_head). contributions: to each logit, (rows, heads, n_out). bias: the readout's own.
    skip: what skip connection and projection bias add to the logits, (rows, n_out). labels: right outputs.
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
        """z_{t,H}: the logits with all heads outside the group zeroed (section 5.1)."""
        out = self.contributions[:, list(group)].sum(1) + self.bias
        return out + self.skip if with_skip else out


@torch.no_grad()
def head_outputs(model: Model, batch: Batch, *, read: int = 0, layer: int = -1) -> HeadOutputs:
    """Head outputs of a batch of the model's task, in float64, at one of the positions that are read.

    read: 0 is the answer ('=' in Count01), 1 the next position that is trained (the answer token, before [EOS]).
    Computed from token counts where the spec's symmetry allows it (equal to the cached ones to rounding, and a
    thousand times faster), else from hook_z in chunks. Raises UnsupportedError where logits are not a sum over heads.
    """
    subject = Subject.of(model)
    positions, labels = read_positions(subject.task, batch, read)
    if subject.count_space:
        z = _from_counts(subject, batch, positions)
    else:
        z = from_cache(subject, batch, positions, layer)
    return decompose(subject, batch, positions, labels, z, layer)


def read_positions(task: Task, batch: Batch, read: int) -> tuple[Int[Tensor, "rows"], Int[Tensor, "rows"]]:
    """Position and right output of each row's read number `read`. Raises InterpError where a row has fewer."""
    classes = task.classes(batch)
    order = (classes != IGNORED).cumsum(1)
    here = (order == read + 1) & (classes != IGNORED)
    if not here.any(1).all():
        fewest = int(order[:, -1].min())
        raise InterpError(f"read = {read}: some rows of task {task.name} are read at {fewest} positions only")
    positions = here.int().argmax(1)
    return positions, classes.gather(1, positions[:, None])[:, 0].long()


def _from_counts(subject: Subject, batch: Batch, positions: Tensor) -> Float[Tensor, "rows heads d_head"]:
    spec, tensors = subject.task_model.spec, subject.parameters()
    rows = rows_at(spec, subject.task.d_vocab, batch.tokens, positions, batch.attention_mask)
    tables = token_tables(spec, stack_one(tensors))
    return count_space_outputs(tables, rows.stacked(torch.float64))[0]


@torch.no_grad()
def from_cache(model: Model, batch: Batch, positions: Tensor, layer: int = -1) -> Float[Tensor, "rows heads d_head"]:
    """hook_z at one position of each row, in chunks that keep the (heads, length, length) patterns under 1 GB."""
    subject = Subject.of(model)
    layer %= subject.model.cfg.n_layers
    name, length = f"blocks.{layer}.attn.hook_z", batch.tokens.shape[1]
    chunk = max(1, 2**30 // (8 * subject.model.cfg.n_heads * length * length))
    found = []
    for start in range(0, len(batch), chunk):
        part = batch[slice(start, start + chunk)]
        _, cache = subject.run_with_cache(part, names_filter=name)
        found.append(cache[name][torch.arange(len(part)), positions[start : start + chunk]])
    return torch.cat(found).double()


def decompose(
    model: Model,
    batch: Batch,
    positions: Tensor,
    labels: Tensor,
    z: Float[Tensor, "rows heads d_head"],
    layer: int = -1,
) -> HeadOutputs:
    """Split the logits at the answer into one contribution per head, the readout's bias, and the rest."""
    subject = Subject.of(model)
    if (reason := subject.no_decomposition(layer)) is not None:
        raise UnsupportedError(reason)
    part = subject.model.blocks[layer].attn
    unembed = subject.columns(subject.model.unembed.W_U.detach().double())
    bias = subject.columns(subject.model.unembed.b_U.detach().double())
    contributions = torch.einsum("bhk,hkd,dt->bht", z, part.W_O.detach().double(), unembed)
    rest = subject.residual_before(batch, positions, layer) + part.b_O.detach().double()
    return HeadOutputs(z, contributions, bias, rest @ unembed, labels)


# ---------------------------------------------------------------- groups


def select_groups(groups: str | Iterable[Iterable[int]], n_heads: int) -> list[Group]:
    """Groups by name ("singles", "pairs", "singles+pairs", "all") or as given. Raises InterpError on bad ones."""
    sizes = {"singles": (1,), "pairs": (2,), "singles+pairs": (1, 2), "all": range(1, n_heads + 1)}
    if isinstance(groups, str):
        if groups not in sizes:
            raise InterpError(f"groups = {groups!r} is neither one of {', '.join(sizes)} nor a list of tuples of heads")
        return [group for size in sizes[groups] for group in combinations(range(n_heads), size)]
    return [check_group(group, n_heads) for group in groups]


def check_group(group: Iterable[int], n_heads: int) -> Group:
    """The group as a tuple, or one sentence: empty, repeated, or a head that the model does not have."""
    heads = tuple(group)
    if not heads:
        raise InterpError("a group of heads is empty; give at least one head")
    if bad := [head for head in heads if isinstance(head, bool) or not 0 <= head < n_heads]:
        raise InterpError(f"head {bad[0]} does not exist: the model has heads 0 to {n_heads - 1}")
    if len(set(heads)) < len(heads):
        raise InterpError(f"group {heads} names a head twice")
    return heads


# ---------------------------------------------------------------- the three metrics


def learned_accuracy(outputs: HeadOutputs, group: Sequence[int], with_skip: bool = False) -> float:
    """l-acc: share of rows whose answer has the largest of all logits when only the group writes (section 5.1)."""
    return float((outputs.logits(group, with_skip).argmax(-1) == outputs.labels).double().mean())


def roc_auc(outputs: HeadOutputs, group: Sequence[int], with_skip: bool = False) -> float:
    """The largest ROC AUC over the answers' logits, each as a score for "this is the answer" (section 5.1)."""
    from sklearn.metrics import roc_auc_score

    logits, labels = outputs.logits(group, with_skip).numpy(), outputs.labels.numpy()
    answers = np.unique(labels)
    if len(answers) < 2:
        raise InterpError(f"ROC AUC needs two different answers; all {len(labels)} rows have answer {answers.tolist()}")
    return max(float(roc_auc_score(labels == answer, logits[:, answer])) for answer in answers)


def head_metrics(
    model: Model,
    groups: str | Iterable[Iterable[int]] = "singles",
    *,
    train: Batch | None = None,
    test: Batch | None = None,
    with_skip: bool = False,
    layer: int = -1,
) -> pd.DataFrame:
    """One row a group: heads, size, s_acc, l_acc, roc_auc (section 5.1, Figures 3 and 4).

    s-acc fits on the task's training set and is measured, as the others, on its test set; train and test replace
    them. Fits are optimal, with a proven gap (see measures.separation).
    """
    from interp.measures.separation import separation_accuracies
    from interp.measures.subset_logits import subset_logit_metrics

    subject = Subject.of(model)
    fitted = head_outputs(subject, subject.task.dataset("train") if train is None else train, layer=layer)
    tested = head_outputs(subject, subject.task.dataset("test") if test is None else test, layer=layer)
    chosen = select_groups(groups, tested.n_heads)
    s_acc = separation_accuracies(
        fitted.z.numpy(), fitted.labels.numpy(), tested.z.numpy(), tested.labels.numpy(), chosen
    )
    bias = tested.bias + tested.skip if with_skip else tested.bias
    answers = np.unique(tested.labels.numpy()).tolist()
    by_logits = subset_logit_metrics(
        tested.contributions.numpy(), bias.numpy(), tested.labels.numpy(), answers, subsets=chosen
    )
    table = pd.DataFrame({"heads": chosen, "size": [len(group) for group in chosen], "s_acc": np.asarray(s_acc)})
    return table.join(by_logits[["l_acc", "roc_auc"]])


def category(s_acc: float) -> str:
    """successful (s-acc of at least .98), failed (close to a coin flip), or mixed (section 5.2)."""
    return "successful" if s_acc >= SUCCESSFUL else "failed" if s_acc <= FAILED else "mixed"


def head_weights(model: Model, layer: int = -1) -> pd.DataFrame:
    """|w_{i,4} - w_{i,5}| of each head, normalized to sum to one (section 6.1); columns head, weight.

    The two outputs are the task's two answers. Raises UnsupportedError where logits are not a sum over heads.
    """
    subject = Subject.of(model)
    if (reason := subject.no_decomposition(layer)) is not None:
        raise UnsupportedError(reason)
    first, second = subject.two_answers()
    unembed = subject.columns(subject.model.unembed.W_U.detach().double())
    difference = subject.model.blocks[layer].attn.W_O.detach().double() @ (unembed[:, first] - unembed[:, second])
    lengths = difference.norm(dim=-1)
    return pd.DataFrame({"head": range(len(lengths)), "weight": (lengths / lengths.sum()).numpy()})


def end_accuracy(
    model: Model,
    groups: str | Iterable[Iterable[int]] = "singles",
    *,
    test: Batch | None = None,
    with_skip: bool = False,
) -> pd.DataFrame:
    """Learned accuracy of the token after the answer, [EOS] (section 6.2); columns heads, size, l_acc."""
    subject = Subject.of(model)
    outputs = head_outputs(subject, subject.task.dataset("test") if test is None else test, read=1)
    chosen = select_groups(groups, outputs.n_heads)
    accuracies = [learned_accuracy(outputs, group, with_skip) for group in chosen]
    return pd.DataFrame({"heads": chosen, "size": [len(group) for group in chosen], "l_acc": accuracies})


def logit_distributions(model: Model, batch: Batch | None = None) -> pd.DataFrame:
    """Logits of each head alone and of the model, by current and true next token (section 5, Figures 1 and 15).

    Columns head (int, or "model"), current, next, token (whose logit), logit. One row for each row of the batch,
    position that is read, and token that is ever the right next one.
    """
    subject = Subject.of(model)
    task = subject.task
    batch = task.sample(300, "test", seed=0) if batch is None else batch
    reads = int((task.classes(batch) != IGNORED).sum(1).min())
    frames = []
    shown = sorted({int(c) for c in task.classes(batch).unique() if c != IGNORED})
    words = np.array(task.vocabulary)
    for read in range(reads):
        outputs = head_outputs(subject, batch, read=read)
        positions, _ = read_positions(task, batch, read)
        current = words[batch.tokens.gather(1, positions[:, None])[:, 0]]
        heads: list[tuple[object, Tensor]] = [(head, outputs.logits((head,))) for head in range(outputs.n_heads)]
        heads.append(("model", outputs.logits(range(outputs.n_heads), with_skip=True)))
        for head, logits in heads:
            for token in shown:
                frames.append(
                    pd.DataFrame(
                        {"head": head, "current": current, "next": words[outputs.labels], "token": words[token],
                         "logit": logits[:, token].numpy()}
                    )
                )  # fmt: skip
    return pd.concat(frames, ignore_index=True)
