"""The report on memorization models: how much of the table is known, how far from the best map, by which parts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from interp._analyze import generic
from interp.architecture.task_model import TaskModel
from interp.certificates import Certificate
from interp.errors import UnsupportedError
from interp.measures.memorization import (
    Memorization,
    OptimumGap,
    attention_matrix,
    head_table,
    memorization,
    optimum_gap,
    spectrum,
    table_of,
)
from interp.measures.subject import Subject
from interp.report import Report
from interp.report import figures as draw
from interp.tasks import TableTask
from interp.theory.attention_heads import heads_needed
from interp.theory.closed_forms import least_squares, weighted_least_squares

LARGEST = 40_000
"""Entries of a table up to which the best rank-d map is searched for, which takes seconds."""


def fill(report: Report, subject: Subject) -> dict[str, Any]:
    """All sections; returns the row of the comparison table."""
    try:
        task, found = table_of(subject), memorization(subject)
    except UnsupportedError as error:
        row = generic.fill(report, subject)
        report.add_text(f"The study of memorization does not apply: {error}.")
        return row
    row = _table(report, subject, task, found)
    gap = _optimum(report, subject, task)
    _rows(report, found, gap)
    _directions(report, subject, gap)
    _heads(report, subject)
    _attention(report, subject, task)
    report.verdict = _verdict(found, gap, task)
    return row | {"optimum": gap.optimum if gap else float("nan"), "above optimum": gap.gap if gap else float("nan")}


def _verdict(found: Memorization, gap: OptimumGap | None, task: TableTask) -> str:
    weighted = f", which have probability {found.accuracy:.4f}" if np.ptp(task.prior) > 1e-12 else ""
    sentences = [
        f"Divergence {found.kl:.4g} nats from the table, whose entropy is {found.entropy:.4g} nats.",
        f"{found.memorized} of {found.contexts} associations are memorized{weighted}.",
    ]
    if gap is not None and gap.optimum > 1e-9:
        sentences.append(f"The best rank-{gap.d} map found has divergence {gap.optimum:.4g}; the model {_above(gap)}.")
    elif gap is not None:
        least = min(len(task.contexts), task.n_out - 1)
        more = f"; the model has {gap.d}, of which the rest is of no use" if gap.d > least else ""
        sentences.append(f"Width {least} is enough for divergence zero{more}.")
    if found.formula is not None and found.formula < found.contexts:
        sentences.append(f"Weights of this size can hold H d_h + d = {found.formula} associations exactly.")
    return " ".join(sentences)


def _above(gap: OptimumGap) -> str:
    if gap.gap <= 1e-6 * gap.optimum:
        return "reaches it"
    return f"is {gap.gap:.2g} nats, {100 * gap.gap / gap.optimum:.2g}%, above it"


def _table(report: Report, subject: Subject, task: TableTask, found: Memorization) -> dict[str, Any]:
    certificate = generic.certificate_of(subject)
    report.section(
        "The whole table",
        f"{len(task.contexts):,} contexts of {task.order} token{'s' * (task.order > 1)}, {task.n_out} next tokens. "
        "Nothing is sampled: every context is run. A context is memorized if the largest logit is at a most likely "
        "next token; accuracy is the prior probability of these contexts.",
    )
    numbers: dict[str, Any] = {
        "divergence (nats)": found.kl,
        "entropy (nats)": found.entropy,
        "cross-entropy (nats)": found.cross_entropy,
        "accuracy": found.accuracy,
        "memorized": found.memorized,
        "contexts": found.contexts,
        "parameters": found.parameters,
    }
    if found.formula is not None:
        numbers["H d_h + d"] = found.formula
    report.add_table("memorization", pd.DataFrame([numbers]), "Exact numbers over the whole table.")
    if isinstance(certificate, Certificate):
        report.add_table(
            "certificate",
            certificate.to_frame(),
            "Certified: right after every context, by more than rounding. Refuted: some association is not memorized.",
        )
    else:
        report.add_text(f"No certificate with a bound of the rounding: {certificate}.")
    status = certificate.status if isinstance(certificate, Certificate) else "none"
    return {"divergence": found.kl, "accuracy": found.accuracy, "memorized": found.memorized, "certificate": status}


def _optimum(report: Report, subject: Subject, task: TableTask) -> OptimumGap | None:
    """The model beside what its width allows."""
    report.section("Distance to the best map of this width")
    size = task.conditional.size
    if size > LARGEST:
        report.add_text(f"Not shown: the table has {size:,} entries, more than {LARGEST:,}; see optimum_gap.")
        return None
    try:
        gap = optimum_gap(subject)
    except UnsupportedError as error:
        report.add_text(f"Not shown: {error}.")
        return None
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
    return gap


def _rows(report: Report, found: Memorization, gap: OptimumGap | None) -> None:
    report.section("Context by context")
    rows = found.rows.assign(memorized=np.where(found.rows["right"], "memorized", "not memorized"))
    if gap is not None:
        rows = rows.assign(optimum=gap.optimum_by_row)
    rows = rows.sort_values("memorized", kind="stable")  # so that the colors are the same in every report
    even = float(np.ptp(rows["prior"])) < 1e-12
    x, title = ("entropy", "entropy of the context (nats)") if even else ("prior", "prior probability")
    report.add_figure(
        "kl_by_row",
        draw.scatter(
            rows, x, "kl", "memorized", "context", x_title=title, y_title="divergence (nats)",
            x_type="linear" if even else "log",
        ),
        "Each dot is a context: how far the model's distribution is from the table's.",
    )  # fmt: skip
    if gap is not None and gap.optimum > 1e-9:
        report.add_figure(
            "kl_beside_optimum",
            draw.scatter(rows, "optimum", "kl", "memorized", "context", diagonal=True,
                         x_title=f"divergence of the best rank-{gap.d} map (nats)", y_title="divergence (nats)"),
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


def _directions(report: Report, subject: Subject, gap: OptimumGap | None) -> None:
    try:
        table = spectrum(subject)
    except UnsupportedError:
        return
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


def _heads(report: Report, subject: Subject) -> None:
    report.section("Heads", "What each head adds to the logits at the last token.")
    try:
        table = head_table(subject)
    except UnsupportedError as error:
        report.add_text(f"Not shown: {error}.")
        return
    named = table.assign(head=table["head"].astype(str))
    report.add_figure(
        "heads",
        draw.bars(named, "head", "kl_increase", y_title="rise of the divergence (nats)"),
        "By how much the divergence rises when the head alone is left out.",
    )
    report.add_table("heads", table, "rms: root mean square of what a head adds to the logits, centered.")


def _attention(report: Report, subject: Subject, task: TableTask) -> None:
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
    try:
        found = attention_matrix(subject)
    except UnsupportedError as error:
        report.add_text(f"Not shown: {error}.")
        return
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
    if task.order > 1 and isinstance(subject.model, TaskModel) and subject.model.cfg.n_heads <= 32:
        generic.add_attention(report, subject)
