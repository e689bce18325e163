"""Exact accuracy over every input of a box of counts, by enumeration in count space.

The output of such a model depends on the counts (n0, n1, n2) alone, so a box of counts is finite: 502,500 inputs for
the Count01 test domain, 8,120,601 for the cube 0..200 (errata of the Count01 paper, "Exact symmetry").
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from jaxtyping import Int
from torch import Tensor

from interp.architecture.symmetric import Rows, count_space_refusal, logits, stack_one, token_tables
from interp.architecture.task_model import TaskModel
from interp.certificates.base import Certificate, register_method
from interp.errors import InterpError
from interp.tasks.count01 import Count01, CountBox

CHUNK = 65_536


def refusal(model: TaskModel) -> str | None:
    """Why counts do not decide this model's answers over a finite box, or None."""
    if not isinstance(model.task, Count01):
        return f"task {model.task.name} has no domain of counts"
    return count_space_refusal(model.spec)


def as_box(task: Count01, box: CountBox | str | None) -> CountBox:
    """A box from itself, a split's name, "cube" (0..200 each), or None for the test domain."""
    if isinstance(box, CountBox):
        return box
    return CountBox((0, 200), (0, 200), (0, 200)) if box == "cube" else task.domain("test" if box is None else box)


@dataclass(frozen=True)
class Sweep:
    """Every error of a walk through a box, and the margins on the way."""

    wrong: Int[np.ndarray, "errors 3"]
    wrong_between: int  # errors of the larger of '4' and '5', whatever the other tokens' logits
    worst_margin: float
    closest: Int[np.ndarray, 3]


@torch.no_grad()
def sweep(
    model: TaskModel,
    box: CountBox,
    rows: Callable[[Tensor], tuple[Tensor, Tensor, Tensor]],
    progress: Callable[[int, int], None] | None = None,
) -> Sweep:
    """Evaluate the model in float64 on rows(counts) = (query, key counts, right output) for all counts of a box."""
    named = {name: parameter.double().cpu() for name, parameter in model.named_parameters()}
    tables = token_tables(model.spec, stack_one(named))
    wrong, between, worst, closest = [], 0, torch.inf, np.zeros(3, dtype=int)
    for start in range(0, len(box), CHUNK):
        counts = box.counts(start, start + CHUNK)
        query, keys, right = rows(counts)
        out = logits(tables, Rows(query[None], keys[None].double()))[0]
        true = out.gather(1, right[:, None])[:, 0]
        margin = true - out.scatter(1, right[:, None], -torch.inf).amax(1)
        if (least := float(margin.min())) < worst:
            worst, closest = least, counts[margin.argmin()].numpy()
        wrong.append(counts[margin <= 0].numpy())
        answers = [model.task.token_id(token) for token in ("4", "5")]
        between += int((out[:, answers].amax(1) > true).sum())
        if progress is not None:
            progress(min(start + CHUNK, len(box)), len(box))
    return Sweep(np.concatenate(wrong), between, float(worst), closest)


@register_method("count box", refusal)
def certify_box(
    model: TaskModel, box: CountBox | str | None = None, progress: Callable[[int, int], None] | None = None
) -> Certificate:
    """Is the answer at '=' right on every input of a box of counts? (default: the paper's test domain)

    Evaluated in float64 on every input. tables: "errors" (difference n1 - n0, errors, inputs), "frontier" (n2,
    min_difference, max_difference of the errors), "accuracy" (answer; answer between '4' and '5' only; [EOS]).
    """
    started, task = time.perf_counter(), model.task
    if not isinstance(task, Count01):
        raise InterpError(refusal(model) or "")
    whole = as_box(task, box)
    answers = sweep(model, whole, task.answer_rows, progress)
    ends = sweep(model, whole, task.end_rows)
    n_wrong = len(answers.wrong)
    accuracies = pd.DataFrame(
        {
            "question": ["answer at '='", "4 against 5", "[EOS] after the answer"],
            "errors": [n_wrong, answers.wrong_between, len(ends.wrong)],
            "accuracy": [1 - wrong / len(whole) for wrong in (n_wrong, answers.wrong_between, len(ends.wrong))],
        }
    )
    first = None
    if n_wrong:
        n0, n1, n2 = (int(n) for n in answers.wrong[0])
        first = f"n0 = {n0}, n1 = {n1}, n2 = {n2}"
    return Certificate(
        model=model.spec.id,
        status="refuted" if n_wrong else "certified",
        accuracy=1 - n_wrong / len(whole),
        n_errors=n_wrong,
        n_inputs=len(whole),
        worst_margin=answers.worst_margin,
        counterexample=first,
        method="every input, in count space, float64",
        domain=str(whole),
        seconds=time.perf_counter() - started,
        tables={
            "errors": _by_difference(answers.wrong, whole),
            "frontier": _frontier(answers.wrong),
            "accuracy": accuracies,
        },
    )


def _by_difference(wrong: np.ndarray, box: CountBox) -> pd.DataFrame:
    """Errors and inputs by n1 - n0, for every difference that occurs in the box."""
    (low0, high0), (low1, high1), (low2, high2) = box.ranges.values()
    n0, n1 = np.arange(low0, high0 + 1), np.arange(low1, high1 + 1)
    differences, pairs = np.unique(n1[:, None] - n0[None, :], return_counts=True)
    errors = pd.Series(wrong[:, 1] - wrong[:, 0]).value_counts()
    return pd.DataFrame(
        {
            "difference": differences,
            "errors": errors.reindex(differences, fill_value=0).to_numpy(),
            "inputs": pairs * (high2 - low2 + 1),
        }
    )


def _frontier(wrong: np.ndarray) -> pd.DataFrame:
    """For each n2 with errors: the range of n1 - n0 where they lie."""
    frame = pd.DataFrame({"n2": wrong[:, 2], "difference": wrong[:, 1] - wrong[:, 0]})
    grouped = frame.groupby("n2")["difference"].agg(["min", "max"]).reset_index()
    return grouped.rename(columns={"min": "min_difference", "max": "max_difference"})
