"""Sections on models of conditional tables: fit, distance to the optimum, heads, attention and directions."""

from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from interp.errors import UnsupportedError
from interp.families.memorization import measures
from interp.families.memorization.measures import (
    Memorization,
    OptimumGap,
    attention_matrix,
    context_logits,
    context_outputs,
    head_table,
    memorization,
    spectrum,
    table_of,
    unembedding,
)
from interp.families.memorization.theory.attention_heads import heads_needed
from interp.families.memorization.theory.rank_d import least_squares, weighted_least_squares
from interp.report import Report
from interp.report.aim import tokens
from interp.report.sections.base import Study, section
from interp.support import figures as draw
from interp.support import words
from interp.tasks.structure import CONDITIONAL_TABLE

LARGEST_TABLE = 40_000
"""Largest table, in entries, for which the best rank-d map is searched for; this takes seconds."""


def optimum_gap(study: Study) -> measures.OptimumGap:
    """Compare the model with the best map of its rank. Raises UnsupportedError if that is unknown or too slow."""
    size = measures.table_of(study.subject).conditional.size
    if size > LARGEST_TABLE:
        raise UnsupportedError(f"the table has {size:,} entries, more than {LARGEST_TABLE:,}; see optimum_gap")
    return measures.optimum_gap(study.subject, logits=study.measure(context_logits))


def known_optimum(study: Study) -> measures.OptimumGap | None:
    """Return optimum_gap, or None if it is unknown or too slow."""
    try:
        return study.once(optimum_gap)
    except UnsupportedError:
        return None


tables = partial(section, task=CONDITIONAL_TABLE)


@tables("table", title="The whole table", order=110)
def table(study: Study, report: Report) -> None:
    """Show divergence, accuracy by prior, and memorized associations, over all contexts (Dana 2024)."""
    task, measured = table_of(study.subject), study.once(measures_of)
    report.heading(
        "The whole table",
        f"{len(task.contexts):,} contexts of {task.order} token{'s' * (task.order > 1)}, {task.n_out} next tokens. "
        "Every context is run; nothing is sampled. A context is memorized if the largest logit is at a most likely "
        "next token. Accuracy is the prior probability of the memorized contexts.",
    )
    numbers: dict[str, Any] = {
        "divergence (nats)": measured.kl,
        "entropy (nats)": measured.entropy,
        "cross-entropy (nats)": measured.cross_entropy,
        "accuracy": measured.accuracy,
        "memorized": measured.memorized,
        "contexts": measured.contexts,
        "parameters": measured.parameters,
    }
    if measured.formula is not None:
        numbers["H d_h + d"] = measured.formula
    report.add_table("memorization", pd.DataFrame([numbers]), "Exact numbers over the whole table.")
    gap = study.once(known_optimum)
    weighted = bool(np.ptp(task.prior) > 1e-12)
    report.say(sentence(measured, gap, weighted, least_width(study)), "what", ["kl_by_row"])
    report.add_fact("divergence", measured.kl)
    report.add_fact("memorized", measured.memorized)
    report.add_fact("probability memorized", measured.accuracy)
    report.add_fact("optimum", gap.optimum if gap else float("nan"))
    report.add_fact("above optimum", gap.gap if gap else float("nan"))


def measures_of(study: Study) -> Memorization:
    """Return the measures of memorization; use them with study.once."""
    return memorization(study.subject, study.measure(context_logits))


def least_width(study: Study) -> int:
    """Return the width that is sufficient for any table of this size."""
    task = table_of(study.subject)
    return min(len(task.contexts), task.n_out - 1)


def sentence(found: Memorization, gap: OptimumGap | None, weighted: bool, least: int) -> str:
    """Return the verdict in words. weighted: whether contexts have different probabilities."""
    share = f", which have probability {words.share(found.accuracy)}" if weighted else ""
    sentences = [
        f"Divergence {found.kl:.4g} nats from the table, whose entropy is {found.entropy:.4g} nats.",
        f"{found.memorized} of {found.contexts} associations are memorized{share}.",
    ]
    if gap is not None and gap.optimum > 1e-9:
        sentences.append(
            f"The best rank-{gap.d} map found has divergence {gap.optimum:.4g}; the model {describe_gap(gap)}."
        )
    elif gap is not None:
        more = f"; the model has {gap.d}, more than it needs" if gap.d > least else ""
        sentences.append(f"Width {least} is enough for divergence zero{more}.")
    if found.formula is not None and found.formula < found.contexts:
        more = "; this model memorizes more of this table" if found.memorized > found.formula else ""
        sentences.append(
            f"A construction with weights of this size memorizes H d_h + d = {found.formula} associations of any "
            f"table{more}."
        )
    return " ".join(sentences)


def describe_gap(gap: OptimumGap) -> str:
    if abs(gap.gap) <= 1e-6 * gap.optimum:
        return "reaches it"
    if gap.gap < 0:
        return f"is {-gap.gap:.2g} nats below it, so the search did not find the best map"
    share = gap.gap / gap.optimum
    much = f"{100 * share:.2g}%" if share < 1 else f"{words.number(share, 2)} times as much"
    return f"is {gap.gap:.2g} nats, {much}, above it"


def additive_needs(study: Study) -> str | None:
    """Require a table, and logits that are a sum over heads."""
    return study.subject.no_decomposition()


@tables("table_attention", title="The attention matrix", order=440, block="where", needs=additive_needs)
def table_attention(study: Study, report: Report) -> None:
    """Show the ranks and singular values of the attention matrix (Dana 2024, Theorem 1)."""
    subject, task = study.subject, table_of(study.subject)
    ranks = attention_matrix(subject, study.measure(context_outputs))
    report.heading(
        "The attention matrix",
        "A matrix with one row per context: the outputs of all heads at the last token. If its rank, together with "
        "the embedding of the last token, equals the number of contexts, attention can compute any function of the "
        "contexts (Theorem 1).",
    )
    if task.order == 1:
        report.add_text(
            "Contexts of one token: every head sees only that token, so heads add nothing that the embedding could "
            "not (erratum 4)."
        )
    numbers: dict[str, Any] = {
        "contexts": ranks.contexts,
        "rank": ranks.rank,
        "rank with the embedding": ranks.rank_with_residual,
        "heads": subject.model.cfg.n_heads,
    }
    if ranks.generic is not None:
        numbers["rank of random weights"] = ranks.generic
        numbers["heads that Theorem 1 needs"] = heads_needed(
            task.d_vocab, task.order, subject.model.cfg.d_model, n_contexts=ranks.contexts, spare=0.0
        )
    report.add_table("attention_matrix", pd.DataFrame([numbers]), "Ranks to the precision of the number format.")
    values = pd.DataFrame({"number": np.arange(1, len(ranks.singular_values) + 1), "value": ranks.singular_values})
    positive = values[values["value"] > 0]
    if len(positive) > 1:
        report.add_figure(
            "attention_singular_values",
            draw.lines(positive, "number", "value", y_title="singular value", y_type="log", markers=True),
            "Singular values of the attention matrix.",
        )


@tables("table_contexts", title="Context by context", order=120)
def table_contexts(study: Study, report: Report) -> None:
    """Show the divergence of each context, compared with that of the best map if known."""
    measured = study.once(measures_of)
    gap = study.once(known_optimum)
    report.heading("Context by context")
    rows = measured.rows.assign(
        memorized=np.where(measured.rows["right"], "memorized", "not memorized"),
        input=[tokens(context) for context in table_of(study.subject).contexts],
    )
    if gap is not None:
        rows = rows.assign(optimum=gap.optimum_by_row)
    rows = rows.sort_values("memorized", kind="stable")  # for the same colors in every report
    even = float(np.ptp(rows["prior"])) < 1e-12
    if even and float(np.ptp(rows["entropy"])) < 1e-12:
        rows = rows.assign(place=rows["kl"].rank(method="first"))
        x, title = "place", "contexts in the order of their divergence"
    else:
        x, title = ("entropy", "entropy of the context (nats)") if even else ("prior", "prior probability")
    report.add_figure(
        "kl_by_row",
        draw.scatter(
            rows, x, "kl", "memorized", "context", x_title=title, y_title="divergence (nats)",
            x_type="linear" if even else "log", tokens="input",
        ),
        "Each dot is a context: the divergence of the model's distribution from the table's.",
    )  # fmt: skip
    if gap is not None and gap.optimum > 1e-9:
        report.add_figure(
            "kl_beside_optimum",
            draw.scatter(rows, "optimum", "kl", "memorized", "context", diagonal=True,
                         x_title=f"divergence of the best rank-{gap.d} map (nats)", y_title="divergence (nats)",
                         tokens="input"),
            "The same, against the best map of this rank. Contexts above the line are farther from the table in the "
            "model than in the best map.",
        )  # fmt: skip
    worst = measured.rows.assign(loss=measured.rows["prior"] * measured.rows["kl"]).sort_values("loss", ascending=False)
    report.add_table(
        "rows",
        worst.drop(columns="loss").reset_index(drop=True),
        "Contexts by their contribution to the divergence, the largest first. p and q: the probability of the most "
        "likely next token in the table and in the model.",
        max_rows=12,
    )


def directions_needs(study: Study) -> None:
    """Require a table, and logits that are a linear map of the last stream."""
    unembedding(study.subject)


@tables("table_directions", title="Directions of the table", order=610, block="where", needs=directions_needs)
def table_directions(study: Study, report: Report) -> None:
    """Show the singular vectors of the log table, and how much of each the unembedding expresses."""
    table, gap = spectrum(study.subject), study.once(known_optimum)
    report.heading(
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


@tables("table_heads", title="What heads add to the table", order=340, block="where", needs=additive_needs)
def table_heads(study: Study, report: Report) -> None:
    """Show the rise of the divergence without each head, and the size of what it adds."""
    table = head_table(study.subject, study.measure(context_outputs))
    report.heading("What heads add to the table", "What each head adds to the logits at the last token.")
    named = table.assign(head="0." + table["head"].astype(str))
    report.add_figure(
        "table_heads",
        draw.bars(named, "head", "kl_increase", y_title="nats"),
        "How much the divergence rises without this head.",
    )
    report.add_table("table_heads", table, "rms: root mean square of what a head adds to the logits, centered.")


@tables("table_optimum", title="Distance to the best map of this width", order=115)
def table_optimum(study: Study, report: Report) -> None:
    """Show the divergences of the model, of the best map found, and of the closed forms (Dana 2024, section 4)."""
    task, gap = table_of(study.subject), study.once(optimum_gap)
    report.heading("Distance to the best map of this width")
    report.add_text(
        "All logits of a model of width d are a map of rank d; its best divergence depends only on the table. "
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
        "The model, the best map of its rank, and the closed forms on the logarithms of the table (section 4).",
    )
