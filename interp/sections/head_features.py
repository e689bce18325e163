"""How much each head's output tells about each feature of the task."""

import pandas as pd

from interp import words
from interp.measures.head_features import head_features
from interp.measures.runs import heads_of
from interp.report import Report
from interp.report import figures as draw
from interp.sections._shared import reasons
from interp.sections.base import Study, section

MOST_HEADS, MOST_FEATURES, INPUTS = 48, 12, 1000
ROUNDING = 1e-6
"""Rounding error of a share of the variance, in float32."""


def needs(study: Study) -> str | None:
    """Require few enough heads."""
    heads = study.model.cfg.n_layers * study.model.cfg.n_heads
    return f"{heads} heads are too many to probe" if heads > MOST_HEADS else None


@section("head_features", title="Heads by feature", order=345, block="where", needs=needs)
def make(study: Study, report: Report) -> None:
    """Show variance, probe and interchange of each feature, by head."""
    features = tuple(study.task.features(study.data()[slice(0, 2)]))[:MOST_FEATURES]
    fits = max(1, len(features)) * len(heads_of(study.subject))
    inputs = study.population("head_features", fits=fits, most=INPUTS)
    table = head_features(study.subject, inputs.batch, features)
    unknown = reasons(table.attrs["reasons"])
    if table.empty:
        report.heading("Heads by feature", f"No feature of the task can be measured.{unknown}")
        return
    report.heading("Heads by feature", f"Measured {inputs.measured}. {sentence(table)}{unknown}")
    shown = table.assign(name=[f"head {row.layer}.{row.head}" for row in table.itertuples()])
    for quantity, title, caption in (
        ("variance", "share of variance", "Share of the variance of each head's output that a feature explains."),
        ("interchange", "interchange accuracy", "Interchange: replace the head's output by that for another input. "
            "Among pairs of inputs whose answer should then change, the share that gets the expected answer."),
    ):  # fmt: skip
        frame = shown.dropna(subset=[quantity])
        if frame.empty:
            continue
        grid = frame.pivot(index="feature", columns="name", values=quantity)
        grid = grid.loc[list(dict.fromkeys(frame["feature"])), list(dict.fromkeys(frame["name"]))]
        report.add_figure(
            f"head_features_{quantity}",
            draw.heatmap(grid.to_numpy(), list(grid.columns), list(grid.index), "head", "feature", title,
                         ends=(0.0, 1.0), square=False, show_values=grid.size <= 80),
            caption,
        )  # fmt: skip
    report.add_table(
        "head_features",
        table,
        "variance: corrected for the number of values. probe: accuracy of a logistic regression on held-out inputs; "
        "chance: share of the most frequent value. interchange: among pairs whose answer should change.",
        max_rows=60,
    )


def sentence(table: pd.DataFrame) -> str:
    """Return a sentence with the head that each feature explains best, if it explains at least half of the head."""
    found = []
    for name, mine in table.groupby("feature", sort=False):
        known = mine.dropna(subset=["variance"])
        if known.empty:
            continue
        best = known.loc[known["variance"].idxmax()]
        if best["variance"] >= 0.5:
            share = words.share(float(best["variance"]), 2, ROUNDING)
            found.append(f"{name} ({share} of head {best['layer']}.{best['head']})")
    if not found:
        return "No feature explains half of the variance of a head's output."
    return f"Features that explain at least half of the variance of a head's output: {'; '.join(found)}."
