"""Each context of a conditional table: how far the model's distribution is from the table's."""

from __future__ import annotations

import numpy as np

from interp.measures.memorization import memorization, table_of
from interp.report import Report
from interp.report import figures as draw
from interp.report.aim import tokens
from interp.sections import _shared as shared
from interp.sections.base import Study, section


@section("table_contexts", title="Context by context", order=120, needs=shared.needs_table)
def make(study: Study, report: Report) -> None:
    """Divergence of each context, beside that of the best map where it is known."""
    found = memorization(study.subject, study.once(shared.context_logits))
    gap = study.once(shared.known_optimum)
    report.section("Context by context")
    rows = found.rows.assign(
        memorized=np.where(found.rows["right"], "memorized", "not memorized"),
        input=[tokens(context) for context in table_of(study.subject).contexts],
    )
    if gap is not None:
        rows = rows.assign(optimum=gap.optimum_by_row)
    rows = rows.sort_values("memorized", kind="stable")  # so that the colors are the same in every report
    even = float(np.ptp(rows["prior"])) < 1e-12
    x, title = ("entropy", "entropy of the context (nats)") if even else ("prior", "prior probability")
    report.add_figure(
        "kl_by_row",
        draw.scatter(
            rows, x, "kl", "memorized", "context", x_title=title, y_title="divergence (nats)",
            x_type="linear" if even else "log", tokens="input",
        ),
        "Each dot is a context: how far the model's distribution is from the table's.",
    )  # fmt: skip
    if gap is not None and gap.optimum > 1e-9:
        report.add_figure(
            "kl_beside_optimum",
            draw.scatter(rows, "optimum", "kl", "memorized", "context", diagonal=True,
                         x_title=f"divergence of the best rank-{gap.d} map (nats)", y_title="divergence (nats)",
                         tokens="input"),
            "The same beside the best map of this rank: which contexts the model gives up, and the best map does not.",
        )  # fmt: skip
    worst = found.rows.assign(loss=found.rows["prior"] * found.rows["kl"]).sort_values("loss", ascending=False)
    report.add_table(
        "rows",
        worst.drop(columns="loss").reset_index(drop=True),
        "Contexts by what they add to the divergence, the largest first. p and q: what the table and the model give "
        "the most likely next token.",
        max_rows=12,
    )
