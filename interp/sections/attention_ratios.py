"""How a head divides its attention among the counted tokens (Zsámboki et al. 2025, section 5.3, Figure 5)."""

from __future__ import annotations

from interp.measures.attention import attention_ratios
from interp.report import Report
from interp.report import figures as draw
from interp.sections import _shared as shared
from interp.sections.base import Study, first_reason, section


def needs(study: Study) -> str | None:
    """Three counted tokens, and heads that separate."""
    three = None if len(study.task.counted) == 3 else f"task {study.task.name} does not declare three counted tokens"
    return first_reason([three, shared.needs_two_answers(study)])


@section("attention_ratios", title="Attention to the counted tokens", order=410, needs=needs)
def make(study: Study, report: Report) -> None:
    """A dot a head: attention to the first counted token over that to the second, and to the third."""
    subject, counted = study.subject, study.task.counted
    batch = None if subject.count_space else study.once(shared.rows, "test")
    table = study.once(shared.singles).merge(
        attention_ratios(subject, at=subject.read_at, tokens=counted, batch=batch), on="head"
    )
    one, two, three = counted
    report.section(f"Attention at '{subject.read_at}'")
    report.add_figure(
        "attention_ratios",
        draw.attention_ratios(table, counted),
        f"Each dot is a head. The paper finds successful heads where '{one}' and '{two}' get about equal attention "
        f"(w01 near 1) and '{three}' much less (w02 above 10; Figure 5). Ratios beyond 10^-12 or 10^12 are drawn at "
        "that edge.",
    )
    report.add_table("attention_ratios", table, f"w01, w02: attention to '{one}' relative to '{two}' and '{three}'.")
