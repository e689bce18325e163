"""What each head of a model of a conditional table adds, and what is lost without it."""

from __future__ import annotations

from interp.measures.memorization import head_table
from interp.report import Report
from interp.report import figures as draw
from interp.sections import _shared as shared
from interp.sections.base import Study, section


def needs(study: Study) -> str | None:
    """A table, and logits that are a sum over heads."""
    return shared.needs_table(study) or study.subject.no_decomposition()


@section("table_heads", title="What heads add to the table", order=340, needs=needs)
def make(study: Study, report: Report) -> None:
    """The rise of the divergence without each head, and the size of what it adds."""
    table = head_table(study.subject, study.once(shared.context_outputs))
    report.section("What heads add to the table", "What each head adds to the logits at the last token.")
    named = table.assign(head=table["head"].astype(str))
    report.add_figure(
        "table_heads",
        draw.bars(named, "head", "kl_increase", y_title="rise of the divergence (nats)"),
        "By how much the divergence rises when the head alone is left out.",
    )
    report.add_table("table_heads", table, "rms: root mean square of what a head adds to the logits, centered.")
