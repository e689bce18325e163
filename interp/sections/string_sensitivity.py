"""How far one changed symbol moves the output: Hahn's bound, measured (Hahn 2020)."""

from __future__ import annotations

import pandas as pd

from interp.measures import languages as measures
from interp.report import Report
from interp.report import figures as draw
from interp.sections import _shared as shared
from interp.sections.base import Study, section


@section("string_sensitivity", title="Sensitivity to one symbol", order=150, needs=shared.needs_recognizer)
def make(study: Study, report: Report) -> None:
    """Change of the logit by one symbol against the number of tokens."""
    model = study.subject.task_model
    lengths = [4, 10, 20, 40, 100, 200, 400]
    frame = measures.sensitivity(model, lengths, strings=4, places=8)
    report.section(
        "Sensitivity to one symbol",
        "How far one changed symbol moves the output. For a fixed softmax transformer it is at most of the order of "
        "1/n (Hahn 2020); layer norm with a small eps and log-length scaling are ways around the bound.",
    )
    falling = float(frame["max_change"].iloc[0]) * frame["n"].iloc[0] / frame["n"]
    bound = pd.DataFrame({"n": frame["n"], "change": falling, "what": "falling like 1/n"})
    shown = [frame.assign(change=frame[column], what=name)[["n", "change", "what"]]
             for column, name in (("max_change", "largest change"), ("mean_change", "mean change"))]  # fmt: skip
    both = pd.concat([*shown, bound], ignore_index=True)
    both = both[both["change"] > 0]
    if not both.empty:
        report.add_figure(
            "sensitivity",
            draw.lines(both, "n", "change", "what", "n (tokens)", "change of the logit", "log", "log", markers=True),
            "Change of the logit by one symbol against the number of tokens, over 4 strings and up to 8 places.",
        )
    report.add_table("sensitivity", frame, "max_change_times_n stays bounded where the bound holds.")
    report.add_fact("sensitivity_times_n", float(frame["max_change_times_n"].iloc[-1]))
