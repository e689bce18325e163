"""A program that was read out of a compiled model, compared with the program that the model was compiled from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.measures.edges import edge_effects, edges_by_kind
from interp.measures.minimal_pairs import pairs_by_kind
from interp.models.architecture.task_model import TaskModel
from interp.models.subject import Subject
from interp.programs.language import Program
from interp.programs.task import ProgramTask

SAME = 1e-4
"""Weights that differ by less are equal: a model may have been read in float32."""
TRIED = 12
"""Most values that are put in the place of a variable."""
STAYS = 0.999
"""Share of answers that stay if nothing changes."""


def variable(program: Program, part: str, tokens: Int[Tensor, "rows length"]) -> Float[Tensor, "rows length d"]:
    """The weights of what other parts, and the answer, read of a part, side by side."""
    made = program.run(tokens)
    read = {name for step in (*program.steps, program.answer) if step.part != part for name in step.of}
    names = [step.name for step in program.steps if step.part == part and step.name in read]
    return torch.cat([made[name] for name in names] or [made["token"][..., :0]], -1)


def read_at(task: ProgramTask, tokens: Int[Tensor, "rows length"]) -> Bool[Tensor, "rows length"]:
    """Where answers are read."""
    if task.readout == "all":
        return task.batch(tokens).attention_mask
    return torch.zeros_like(tokens, dtype=torch.bool).scatter(1, task.program.reads(tokens)[:, None], True)


def answers(
    task: ProgramTask, tokens: Int[Tensor, "rows length"], given: dict[str, Tensor] | None = None
) -> Int[Tensor, "rows length"]:
    """The program's answers with given variables; 0 where none is read."""
    classes = task.program.answer.sums(task.program.run(tokens, given=given)).argmax(-1)
    return classes.masked_fill(~read_at(task, tokens), 0)


def kinds(task: ProgramTask, tokens: Int[Tensor, "rows length"]) -> list[Bool[Tensor, "rows length"]]:
    """The positions of content and of marks, and those that are read, if not all are."""
    there, reads = task.batch(tokens).attention_mask, read_at(task, tokens)
    content = torch.isin(tokens, torch.tensor(task.content))
    found = [there & content, there & ~content]
    return found if task.readout == "all" else [reads, *(kind & ~reads for kind in found)]


def matters(task: ProgramTask, name: str, tokens: Int[Tensor, "rows length"]) -> Bool[Tensor, "rows length"]:
    """Where another value that a variable has at positions of the same kind would change an answer of the row."""
    right, made = answers(task, tokens), task.program.run(tokens)[name]
    found = torch.zeros_like(tokens, dtype=torch.bool)
    for kind in kinds(task, tokens):
        each = labels(made[kind])
        values = [made[kind][each == one][0] for one in each.unique()]
        some = torch.randperm(len(values), generator=torch.Generator().manual_seed(0))[:TRIED]
        for place in kind.any(0).nonzero()[:, 0].tolist():
            for value in (values[at] for at in some.tolist()):
                other = made.clone()
                other[kind[:, place], place] = value
                found[:, place] |= kind[:, place] & (answers(task, tokens, {name: other}) != right).any(1)
    return found


def labels(points: Float[Tensor, "points d"]) -> Int[Tensor, "points"]:
    """A number for each point, the same for points that are equal up to SAME: along two random directions."""
    random = torch.Generator().manual_seed(0)
    found = []
    for numbers in (points.double() @ torch.randn(points.shape[1], 2, generator=random, dtype=torch.float64)).T:
        order = numbers.argsort()
        jumps = (numbers[order].diff() > SAME).long().cumsum(0)
        found.append(torch.zeros_like(order).scatter(0, order[1:], jumps))
    return torch.stack(found, 1).unique(dim=0, return_inverse=True)[1]


def known(one: Int[Tensor, "points"], other: Int[Tensor, "points"]) -> float:
    """Share of the points at which `other` has the value that it most often has at this value of `one`."""
    return sum(float(other[one == value].bincount().max()) for value in one.unique()) / max(1, len(one))


def partition(task: ProgramTask, part: str, found: Program, tokens: Int[Tensor, "rows length"]) -> str:
    """Compare the variable of a part with the true one, where that matters.

    "same": each is a function of the other. "equivalent": it is a function of the true one, and the answers stay with
    one true value in the place of all that are one in it. "coarser": a function of the true one, but answers change.
    "finer": the true one is a function of it, but not the other way round: it has what the part does not know. "other".
    """
    (step,) = (step for step in task.program.steps if step.part == part)
    where, made = matters(task, step.name, tokens), task.program.run(tokens)[step.name]
    if not where.any():  # it matters at several positions together, and at none alone
        where = task.batch(tokens).attention_mask
    truth, read = labels(made[where]), labels(variable(found, part, tokens)[where])
    of_truth, to_truth = known(truth, read) >= STAYS, known(read, truth) >= STAYS
    if to_truth:
        return "same" if of_truth else "finer"
    if not of_truth:
        return "other"
    merged, values = made.clone(), made[where]
    for value in read.unique():
        values[read == value] = made[where][truth == truth[read == value].mode().values][0]
    merged[where] = values
    return "equivalent" if stays(task, tokens, {step.name: merged}) >= STAYS else "coarser"


def stays(task: ProgramTask, tokens: Int[Tensor, "rows length"], given: dict[str, Tensor]) -> float:
    """Share of the answers that stay with given variables."""
    reads = read_at(task, tokens)
    return float((answers(task, tokens, given) == answers(task, tokens))[reads].double().mean())


def true_edges(program: Program) -> set[tuple[str, str]]:
    """The edges of a program's circuit: which part reads what which part writes."""
    parts = {"token": "embedding", "position": "embedding", **{step.name: step.part for step in program.steps}}
    return {(parts[name], step.part or "output") for step in (*program.steps, program.answer) for name in step.of}


def kind_of_edge(sender: str, receiver: str) -> str:
    """The kinds of an edge's ends: "head -> MLP"."""
    return " -> ".join(node.partition(" ")[0] for node in (sender, receiver))


def edges_scored(model: TaskModel, n: int = 64) -> dict[str, float]:
    """The area under the ROC curve of the effects of edges against the true ones.

    By kind of minimal pair; largest: of the largest effect over all kinds of pairs; and of that by kind of edge, such
    as "head -> MLP", where some edges of the kind are true and some are not.
    """
    from sklearn.metrics import roc_auc_score

    task: ProgramTask = model.task  # type: ignore[assignment]
    found = edge_effects(edges_by_kind(Subject.of(model), pairs_by_kind(model, n)))
    truth = true_edges(task.program)
    true = pd.Series([pair in truth for pair in zip(found["sender"], found["receiver"])])
    kind = pd.Series([kind_of_edge(*pair) for pair in zip(found["sender"], found["receiver"])])
    effects = found.drop(columns=["sender", "receiver"]).abs().round(6)  # rounding is no effect
    effects = effects.assign(largest=effects.max(axis=1))
    areas = {name: float(roc_auc_score(true, effects[name])) for name in effects}
    both = [one for one, some in true.groupby(kind) if some.nunique() == 2]
    return areas | {one: float(roc_auc_score(true[kind == one], effects["largest"][kind == one])) for one in both}


def removed(model: TaskModel, parts: Sequence[str], tokens: Int[Tensor, "rows length"]) -> float:
    """Share of the model's answers that stay with parts at their means over content, marks and read positions."""
    task: ProgramTask = model.task  # type: ignore[assignment]
    reads, each = read_at(task, tokens), kinds(task, tokens)

    def hook(part: str) -> tuple[str, Callable[..., Tensor]]:
        name, _, head = part.split()[1].partition(".")

        def at_mean(value: Tensor, hook: Any) -> Tensor:
            own = value[:, :, int(head)] if head else value
            for kind in each:
                own[kind] = own[kind].mean(0)
            return value

        return f"blocks.{name}.{'attn.hook_z' if head else 'hook_mlp_out'}", at_mean

    with torch.no_grad():
        right = model(tokens).argmax(-1)
        found = model.run_with_hooks(tokens, fwd_hooks=[hook(part) for part in parts]).argmax(-1)
    return float((found == right)[reads].double().mean())
