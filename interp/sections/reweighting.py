"""What a head could do if it looked elsewhere: attention set by hand (Zsámboki et al. 2025, section 5.4)."""

from __future__ import annotations

from functools import partial

import numpy as np

from interp.measures.interventions import reweight_attention
from interp.report import Report
from interp.report import figures as draw
from interp.sections import _shared as shared
from interp.sections.base import Study, first_reason, section

SWEEP_W01 = tuple(float(r) for r in np.logspace(-3, 3, 13))
SWEEP_W02 = tuple(float(r) for r in np.logspace(-1, 3, 9))


def needs(study: Study) -> str | None:
    """Three counted tokens, and outputs that counts decide."""
    three = None if len(study.task.counted) == 3 else f"task {study.task.name} does not declare three counted tokens"
    counts = None if study.subject.count_space else (
        "a model that is run on whole sequences takes minutes; call interp.reweight_attention for it"
    )  # fmt: skip
    return first_reason([three, shared.needs_two_answers(study), counts])


@section("reweighting", title="Interventions on attention", order=510, needs=needs)
def make(
    study: Study,
    report: Report,
    w01: tuple[float, ...] = SWEEP_W01,
    w02: tuple[float, ...] = SWEEP_W02,
    C: float = 1000.0,
) -> None:
    """s-acc of the heads against the ratio of attention to two tokens: w01 without the third token, w02 at w01 = 1.

    C: weight of errors in the separators' objective, as in head_metrics; the figures hinge on it.
    """
    counted = one, two, three = study.task.counted
    fit = partial(
        reweight_attention,
        study.subject,
        train=study.once(shared.rows, "train"),
        test=study.once(shared.rows, "test"),
        tokens=counted,
        C=C,
    )
    report.section(
        "Interventions on attention",
        f"The attention at '{study.subject.read_at}' is set by hand, everything else stays: what a head could do if it "
        "looked elsewhere. s-acc: accuracy of the best linear separator of its outputs, fitted on the training "
        f"set{shared.weighed(C)}.",
    )
    swept = {
        "w01": (fit(w01=w01), "Figure 8"),
        "w02": (fit(w02=w02), "Figure 9"),
    }
    captions = {
        "w01": f"No attention to '{three}', and the ratio between '{one}' and '{two}' varied",
        "w02": f"Equal attention to '{one}' and '{two}', and the ratio between '{one}' and '{three}' varied",
    }
    for key, (frame, figure) in swept.items():
        report.add_figure(
            f"intervention_{key}",
            draw.intervention_curve(frame.rename(columns={key: "ratio"}), x=key, tokens=counted),
            f"{captions[key]}: mean s-acc over the heads, the band is one standard deviation ({figure}).",
        )
        report.add_table(f"intervention_{key}", frame, "The same as numbers, head by head.", max_rows=8)
