"""What each part adds to the logit of the right answer over its best rival (direct logit attribution)."""

from __future__ import annotations

from interp.measures.components import Components, components, not_additive
from interp.measures.runs import data, within
from interp.measures.subject import Subject
from interp.report import Report
from interp.report import figures as draw
from interp.sections.base import Study, section
from interp.words import counted, either, number

SHOWN, ROUNDING = 40, 1e-13


def needs(study: Study) -> str | None:
    """Outputs that are a sum over parts."""
    return not_additive(study.subject)


def measured(subject: Subject) -> Components:
    """On test inputs, as many as seconds allow."""
    return components(subject, within(subject, data(subject, "test"), 2))


@section("components", title="What each part adds", order=200, needs=needs)
def make(study: Study, report: Report) -> None:
    """The right output minus the best wrong one, divided among embedding, positions, heads, MLPs and biases."""
    found = study.measure(measured)
    table = found.to_frame()
    table["effect"] = table["effect"].where(table["effect"].abs() > ROUNDING * table["effect"].abs().max(), 0.0)
    by_size = table.reindex(table["effect"].abs().sort_values(ascending=False).index)
    first = by_size.iloc[0]
    most = either(table["component"][table["effect"] == first["effect"]])
    mean = float(found.difference.mean())
    report.section(
        "What each part adds",
        "The logit of the right answer minus that of its best rival is a sum of what every part writes into the "
        "residual "
        "stream, at the scale that the run itself gives to a final norm (direct logit attribution). What a part does "
        "through later parts is not in its share.\n\n"
        f"On average over {counted(len(found.difference), 'answer')} the difference is {number(mean)}; most of all, "
        f"{most} adds {number(first['effect'])}.",
    )
    shown = table.loc[sorted(by_size.index[:SHOWN])]
    more = f" The {SHOWN} largest of {len(table)}." if len(table) > SHOWN else ""
    report.add_figure(
        "components",
        draw.bars(shown, "component", "effect", "kind", x_title="part", y_title="logits", error="spread"),
        f"Mean over the answers; whiskers are one standard deviation.{more}",
    )
    report.add_table(
        "components",
        table.drop(columns=["layer", "head"]),
        "effect: mean share of the difference, in logits. spread: its standard deviation. negative: share of the "
        "answers "
        "for which it speaks for the rival.",
    )
    words = study.task.answer_words
    if 2 <= len(found.classes.unique()) <= 12 and len(table) <= SHOWN:
        by_answer = found.by_answer(words)
        matrix = by_answer.pivot(index="component", columns="answer", values="effect").loc[table["component"]]
        matrix = matrix[list(dict.fromkeys(by_answer["answer"]))]  # in the order of the task's outputs
        report.add_figure(
            "components_by_answer",
            draw.heatmap(
                matrix.to_numpy(), list(matrix.columns), list(matrix.index), "right answer", "part", "logits", 0.0,
                square=False,
            ),
            "The same for each right answer: mean share of the difference to its best rival.",
        )  # fmt: skip
    report.add_fact("largest_component", str(first["component"]))
    report.add_fact("mean_difference", mean)
