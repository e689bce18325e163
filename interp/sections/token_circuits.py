"""QK and OV of every head as tables of tokens, exact where tokens alone decide."""

from __future__ import annotations

from interp.measures.attention import ov_circuit, qk_circuit
from interp.report import Report
from interp.report import figures as draw
from interp.sections._shared import numbers_in_words
from interp.sections.base import Study, section


def needs(study: Study) -> str | None:
    """One attention layer without positions, on tokens few enough to draw."""
    if not study.subject.count_space:
        return "token by token circuits are exact for one attention layer without positions and a linear readout only"
    cells = study.task.d_vocab * max(study.task.d_vocab, study.task.n_out) * study.model.cfg.n_heads
    return f"{cells:,} pairs of tokens and heads are too many to draw" if cells > 40_000 else None


@section("token_circuits", title="QK and OV circuits", order=520, needs=needs)
def make(study: Study, report: Report) -> None:
    """Scores of all pairs of tokens, and what each token adds to every output when it is attended to alone."""
    attention, logits = qk_circuit(study.subject), ov_circuit(study.subject)
    report.section("QK and OV circuits", numbers_in_words(study))
    report.add_figure(
        "qk",
        draw.circuit(attention.rename(columns={"score": "value"})),
        "QK: the attention score of every query token (rows) for every key token (columns), before the softmax.",
    )
    report.add_figure(
        "ov",
        draw.circuit(logits.rename(columns={"logit": "value", "token": "logit"})),
        "OV: what a head adds to every output's logit (columns) when it attends to one token alone (rows).",
    )
