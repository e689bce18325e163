"""The attention of a counting model: one pattern, and weight by relation and count (Behrens et al. 2024, Figure 3)."""

from __future__ import annotations

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
    words = [f"{i}: {task.vocabulary[int(token)]}" for i, token in enumerate(run.tokens[0])]
    report.section("Attention")
    report.add_figure(
        "attention_blocks",
        draw.heatmap(
            run.pattern[0].numpy(),
            words,
            words,
            "key: position and token",
            "query: position and token",
            "attention weight" if softmax else "raw score",
            center=0.0,
        ),
        "The attention pattern on one sequence: rows look at columns. Blocks mean that it compares tokens.",
    )
    table = study.once(shared.by_relation)
    report.add_figure(
        "attention_by_relation",
        draw.lines(
            table, "count", "mean", "relation", markers=True, x_title="count of the position's token",
            y_title="attention weight" if softmax else "raw score",
        ),
        "Mean attention of a position to itself, to the same token elsewhere, to other tokens and to [BOS], by the "
        "position's own count. Where the weight on [BOS] falls with the count, it stands for the count (Figure 3).",
    )  # fmt: skip
    report.add_table(
        "attention_by_relation", table, "The same as numbers; total is the sum over a position's keys.", max_rows=12
    )
