"""The model of a conditional table beside what its width allows (Dana 2024, section 4)."""

from __future__ import annotations

import pandas as pd

from interp.measures.memorization import table_of
from interp.report import Report
from interp.sections import _shared as shared
from interp.sections.base import Study, section
from interp.theory.closed_forms import least_squares, weighted_least_squares


@section("table_optimum", title="Distance to the best map of this width", order=115, needs=shared.needs_table)
def make(study: Study, report: Report) -> None:
    """Divergences of the model, of the best map found, and of the closed forms."""
    task, gap = table_of(study.subject), study.once(shared.optimum_gap)
    report.section("Distance to the best map of this width")
    report.add_text(
        f"All logits of a model of width d are a map of rank d; its best divergence is a matter of the table alone. "
        f"Search: {gap.evidence}."
    )
    rows = [("the model", gap.kl), (f"best rank-{gap.d} map found", gap.optimum)]
    if gap.d < min(task.conditional.shape):
        rows += [("least squares f_ls", least_squares(task, gap.d).kl)]
        rows += [("weighted least squares f_wls", weighted_least_squares(task, gap.d).kl)]
    table = pd.DataFrame(rows, columns=["map", "divergence (nats)"])
    report.add_table(
        "optimum",
        table,
        "The model beside the best map of its rank, and the closed forms on the logarithms of the table (section 4).",
    )
