"""Generated answers compared with teacher-forced ones: whole answers, and single tokens by place."""

import numpy as np
import pandas as pd

from interp import words
from interp.measures.generation import generate, not_generated
from interp.report import Report
from interp.report import figures as draw
from interp.sections.base import Study, section


def needs(study: Study) -> str | None:
    """Require answers that are sequences of tokens."""
    return not_generated(study.subject, study.data()[slice(0, 20)])


@section("generation", title="Generated answers", order=25, needs=needs)
def make(study: Study, report: Report) -> None:
    """Show how often generated answers match exactly, and the share of right tokens by place."""
    answers = generate(study.subject, study.data()[slice(0, 20)]).asked.shape[1]
    drawn = study.population("generation", answers + 1, whole=True)
    found = generate(study.subject, drawn.batch)
    forced = float(found.teacher_forced[found.asked].double().mean())
    report.heading("Generated answers", sentence(str(drawn.share(found.exact)), forced, drawn.on))
    table = found.by_place()
    long = pd.concat(
        [
            pd.DataFrame({"place": table["place"].astype(str), "right": table[name], "tokens before it": said})
            for name, said in (("teacher_forced", "the right ones"), ("generated", "the model's own"))
        ]
    )
    report.add_figure(
        "generation",
        draw.bars(
            long, "place", "right", "tokens before it", x_title="place in the answer", y_title="share of right tokens"
        ),
        f"Share of right tokens at each place of the answer, {drawn.on}: if the tokens before it are the right ones, "
        "and if they are the model's own.",
    )
    report.add_table("generation", table, "Shares of right tokens per place; rows: answers that reach this place.")
    report.add_fact("exact_match", float(np.round(float(found.exact.double().mean()), 6)))


def sentence(exact: str, forced: float, on: str) -> str:
    """Return a sentence on exact match and on single tokens."""
    return (
        f"The share of answers that the model generates without any error is {exact} {on}. If the tokens before it "
        f"are right, the share of single tokens that are right is {words.share(forced)} on the same inputs."
    )
