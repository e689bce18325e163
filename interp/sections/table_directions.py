"""Which directions of a conditional table the unembedding has learned."""

from __future__ import annotations

from interp.errors import UnsupportedError
from interp.measures.memorization import spectrum, unembedding
from interp.report import Report
from interp.report import figures as draw
from interp.sections import _shared as shared
from interp.sections.base import Study, section


def needs(study: Study) -> str | None:
    """A table, and logits that are a linear map of the last stream."""
    if (reason := shared.needs_table(study)) is not None:
        return reason
    try:
        unembedding(study.subject)
    except UnsupportedError as error:
        return str(error)
    return None


@section("table_directions", title="Directions of the table", order=610, needs=needs)
def make(study: Study, report: Report) -> None:
    """Singular vectors of the log table, and how much of each the unembedding expresses."""
    table, gap = spectrum(study.subject), study.once(shared.known_optimum)
    report.section(
        "Directions of the table",
        "Singular vectors of the logarithms of the table, centered and weighted by the root of the prior. A model of "
        "width d can express d of them.",
    )
    report.add_figure(
        "singular_values",
        draw.lines(table, "direction", "singular_value", y_title="singular value", y_type="log", markers=True),
        "How much each direction of the table matters for least squares.",
    )
    report.add_figure(
        "expressed",
        draw.bars(table, "direction", "expressed", y_title="share expressed"),
        "Squared length of each singular vector in the row space of the unembedding: 1 is fully expressed.",
    )
    report.add_table(
        "spectrum", table, "The same as numbers; angle: principal angles to the d leading directions.", max_rows=12
    )
    if gap is not None and len(gap.angles):
        report.add_text(
            f"Principal angles between the unembedding and that of the best rank-{gap.d} map found: "
            + ", ".join(f"{angle:.1f}°" for angle in gap.angles)
            + "."
        )
