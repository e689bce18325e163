"""What each head alone gives to the logits of the answers (Zsámboki et al. 2025, Figure 1)."""

from __future__ import annotations

from interp.measures.heads import logit_distributions
from interp.report import Report
from interp.report import figures as draw
from interp.sections import _shared as shared
from interp.sections.base import Study, first_reason, section

SHOWN_ROWS = 300


def needs(study: Study) -> str | None:
    """Outputs that are tokens, and heads that add up to them."""
    words = None if study.task.n_out == study.task.d_vocab else "outputs are no tokens"
    return first_reason([words, shared.needs_two_answers(study)])


@section("head_logits", title="Logits of single heads", order=330, needs=needs)
def make(study: Study, report: Report) -> None:
    """Box plots of the logits of every head and of the model, by current and true next token."""
    batch = study.once(shared.rows, "test")[slice(0, SHOWN_ROWS)]
    reads = range(study.once(shared.n_reads))
    found = [shared.first(study.once(shared.outputs, "test", *([read] if read else [])), SHOWN_ROWS) for read in reads]
    named = ", ".join(f"'{token}'" for token in study.task.contrast or ())
    report.section("Logits of single heads")
    report.add_figure(
        "logit_distributions",
        draw.logit_distributions(logit_distributions(study.subject, batch, found), study.once(shared.by_category)),
        f"What each head alone, and the whole model, gives to {named} and what follows them, by current and true next "
        "token: most heads of a trained model are biased toward one of the answers (Figure 1).",
    )
