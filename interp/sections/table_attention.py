"""The rank of what attention can tell apart (Dana 2024, Theorem 1)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from interp.measures.memorization import attention_matrix, table_of
from interp.report import Report
from interp.report import figures as draw
from interp.sections import _shared as shared
from interp.sections.base import Study, section
from interp.theory.attention_heads import heads_needed


def needs(study: Study) -> str | None:
    """A table, and logits that are a sum over heads."""
    return shared.needs_table(study) or study.subject.no_decomposition()


@section("table_attention", title="The attention matrix", order=440, needs=needs)
def make(study: Study, report: Report) -> None:
    """Ranks and singular values of the outputs of all heads, a row for each context."""
    subject, task = study.subject, table_of(study.subject)
    found = attention_matrix(subject, study.once(shared.context_outputs))
    report.section(
        "The attention matrix",
        "The outputs of all heads at the last token, a row for each context. Where its rank, with the embedding of the "
        "last token, is the number of contexts, attention can compute any map of the contexts (Theorem 1).",
    )
    if task.order == 1:
        report.add_text(
            "Contexts of one token: every head sees that token alone, so the heads only repeat what the embedding "
            "could say (erratum 4)."
        )
    numbers: dict[str, Any] = {
        "contexts": found.contexts,
        "rank": found.rank,
        "rank with the embedding": found.rank_with_residual,
        "heads": subject.model.cfg.n_heads,
    }
    if found.generic is not None:
        numbers["rank of random weights"] = found.generic
        numbers["heads that Theorem 1 needs"] = heads_needed(
            task.d_vocab, task.order, subject.model.cfg.d_model, n_contexts=found.contexts, spare=0.0
        )
    report.add_table("attention_matrix", pd.DataFrame([numbers]), "Ranks to the precision of the number format.")
    values = pd.DataFrame({"number": np.arange(1, len(found.singular_values) + 1), "value": found.singular_values})
    positive = values[values["value"] > 0]
    if len(positive) > 1:
        report.add_figure(
            "attention_singular_values",
            draw.lines(positive, "number", "value", y_title="singular value", y_type="log", markers=True),
            "Singular values of the attention matrix.",
        )
