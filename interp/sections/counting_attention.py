"""The attention of a counting model: one pattern, and weight by relation and count (Behrens et al. 2024, Figure 3)."""

from __future__ import annotations

import pandas as pd

from interp import words
from interp.report import Report
from interp.report import figures as draw
from interp.sections import _shared as shared
from interp.sections.base import Study, section


@section("counting_attention", title="Attention by relation", order=420, needs=shared.needs_counter)
def make(study: Study, report: Report) -> None:
    """Attention to itself, the same token, other tokens and [BOS], by the position's own count."""
    counter = study.once(shared.counter)
    softmax = counter.model.spec.layers[0].normalizer == "softmax"
    task = counter.task
    run = counter.run(task.example)
    names = [f"{i}: {task.vocabulary[int(token)]}" for i, token in enumerate(run.tokens[0])]
    report.section("Attention by relation")
    report.add_figure(
        "attention_blocks",
        draw.heatmap(
            run.pattern[0].numpy(),
            names,
            names,
            "key: position and token",
            "query: position and token",
            "attention weight" if softmax else "raw score",
            center=0.0 if (run.pattern < 0).any() else None,
            ends=(0.0,) if softmax else (),
        ),
        "The attention pattern on one sequence: rows look at columns. Blocks mean that it compares tokens.",
    )
    table = study.once(shared.by_relation)
    known = {"self": "itself", "same": "the same token elsewhere", "different": "other tokens", "BOS": "[BOS]"}
    report.add_figure(
        "attention_by_relation",
        draw.lines(
            table, "count", "mean", "relation", markers=True, x_title="count of the position's token",
            y_title="attention weight" if softmax else "raw score", spread="std",
        ),
        f"Mean attention of a position to {words.listed(known[r] for r in table['relation'].unique())}, by the "
        f"position's own count; the bands are one standard deviation of single weights.{_course(table)}",
    )  # fmt: skip
    report.add_table(
        "attention_by_relation", table, "The same as numbers; total is the sum over a position's keys.", max_rows=12
    )


def _course(table: pd.DataFrame) -> str:
    """How the weight on [BOS] goes with the count, where there is a [BOS]."""
    given = table[table["relation"] == "BOS"].sort_values("count")
    if len(given) < 2:
        return ""
    first, last = given["mean"].iloc[0], given["mean"].iloc[-1]
    steps = given["mean"].diff().dropna()
    course = "falls" if (steps < 0).all() else "rises" if (steps > 0).all() else "goes up and down"
    stands = ", so it can stand for the count (Figure 3)" if course != "goes up and down" else ""
    return (
        f" The weight on [BOS] {course} from {words.number(first)} at count {given['count'].iloc[0]} to "
        f"{words.number(last)} at {given['count'].iloc[-1]}{stands}."
    )
