"""How a counting model answers, by the right count and by the number of distinct tokens (Behrens et al. 2024)."""

from __future__ import annotations

import pandas as pd
import torch
from jaxtyping import Int
from torch import Tensor

from interp import words
from interp.measures import counting
from interp.report import Report
from interp.report import figures as draw
from interp.report.aim import inputs, tokens
from interp.sections import _shared as shared
from interp.sections.base import Study, section
from interp.tasks import Batch


@section("counting_answers", title="Answers by count", order=130, needs=shared.needs_counter)
def make(study: Study, report: Report) -> None:
    """Confusion of counts, and accuracy by count and by distinct tokens."""
    counter = study.once(shared.counter)
    predicted = counting.predicted_counts(counter)
    task = counter.task
    report.section("Answers by count", f"Measured on {drawn(task.T, task.L, getattr(task, 'sampler', ''))}")
    table = counting.confusion(counter, predicted=predicted)
    by_cell, worst = examples(*predicted)
    report.add_figure(
        "confusion",
        inputs(
            draw.heatmap(
                table.to_numpy(), list(table.columns), list(table.index), "answer", "count", "share", ends=(0.0, 1.0)
            ),
            "tokens",
            [[by_cell.get((count, answer), "") for answer in table.columns] for count in table.index],
        ),
        "How often each count (row) is answered as each count (column); rows add up to 1 (Figure 7, top). A click on a "
        "cell loads one of its sequences.",
    )
    by_count, by_distinct = (
        counting.accuracy_by_count(counter, predicted=predicted),
        counting.accuracy_by_distinct(counter, predicted=predicted),
    )
    report.add_figure(
        "accuracy_by_count",
        draw.bars(by_count.assign(input=by_count["count"].map(worst)), "count", "accuracy", tokens="input"),
        "Accuracy of the positions of each count.",
    )
    report.say(sentence(by_count.set_index("count")["accuracy"]), "what", ["confusion"])
    report.add_table("accuracy_by_count", by_count, "The same as numbers, with the mean answer.")
    report.add_figure(
        "accuracy_by_distinct",
        draw.bars(by_distinct, "distinct", "accuracy", x_title="distinct tokens in the sequence"),
        "Accuracy by the number of distinct tokens in the sequence.",
    )


def drawn(T: int, L: int, sampler: str) -> str:
    """The sequences behind the numbers: see measures.counting.flat_sample."""
    if L > T:
        return "sequences of uniform tokens."
    text = f"sequences in which every count from 1 to {L} is equally frequent, those of a single token included."
    if sampler == "published":
        text += " (The published sampler, by which this task draws its own sequences, never draws those.)"
    return text


def sentence(accuracy: pd.Series) -> str:
    """Which counts are answered rightly, from the accuracy by count; "" where all of them always are."""
    perfect = accuracy[accuracy == 1]
    if len(perfect) == len(accuracy):
        return ""
    low, high = float(accuracy.min()), float(accuracy.max())
    if low == high:
        return f"In a sample it answers every count equally often rightly ({words.share(low, 3)})."
    least = f"{which(accuracy, low)} the least often ({words.share(low, 3)})"
    if perfect.empty:
        most = f"{which(accuracy, high)} rightly the most often ({words.share(high, 3)})"
        return f"In a sample it answers {most}, {least}."
    return f"In a sample it always answers {which(accuracy, 1.0)} rightly, {least}."


def which(accuracy: pd.Series, value: float) -> str:
    """The counts of this accuracy: "count 3", "counts 1 and 2"."""
    counts = accuracy.index[accuracy == value]
    return f"count{'s' * (len(counts) > 1)} {words.listed(map(str, counts))}"


def examples(batch: Batch, answers: Int[Tensor, "rows length"]) -> tuple[dict[tuple[int, int], str], dict[int, str]]:
    """A sequence for each pair of a count and its answer, and for each count one that is answered wrongly if any is."""
    by_cell: dict[tuple[int, int], str] = {}
    worst: dict[int, str] = {}
    read, right = batch.labels > 0, answers == batch.labels
    labels, said = batch.labels.tolist(), answers.tolist()
    for chosen in (read & ~right, read & right):
        for row, place in torch.nonzero(chosen).tolist():
            cell = labels[row][place], said[row][place]
            if cell not in by_cell:
                by_cell[cell] = f"{tokens(batch.tokens[row].tolist())};at:{place}"
                worst.setdefault(cell[0], by_cell[cell])
    return by_cell, worst
