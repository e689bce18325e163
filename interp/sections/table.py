"""How much of a conditional table a model knows, and how far it is from the best map of its width (Dana 2024)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from interp import words
from interp.measures.memorization import Memorization, OptimumGap, memorization, table_of
from interp.report import Report
from interp.sections import _shared as shared
from interp.sections.base import Study, section


@section("table", title="The whole table", order=110, needs=shared.needs_table)
def make(study: Study, report: Report) -> None:
    """Divergence, accuracy by prior, and associations memorized, over every context."""
    task, found = table_of(study.subject), study.once(known)
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
    gap = study.once(shared.known_optimum)
    weighted = bool(np.ptp(task.prior) > 1e-12)
    report.say(sentence(found, gap, weighted, least_width(study)), "what", ["kl_by_row"])
    report.add_fact("divergence", found.kl)
    report.add_fact("memorized", found.memorized)
    report.add_fact("probability memorized", found.accuracy)
    report.add_fact("optimum", gap.optimum if gap else float("nan"))
    report.add_fact("above optimum", gap.gap if gap else float("nan"))


def known(study: Study) -> Memorization:
    """What is memorized; the section on contexts asks for it too."""
    return memorization(study.subject, study.once(shared.context_logits))


def least_width(study: Study) -> int:
    """The width that is enough for any table of this size."""
    task = table_of(study.subject)
    return min(len(task.contexts), task.n_out - 1)


def sentence(found: Memorization, gap: OptimumGap | None, weighted: bool, least: int) -> str:
    """The answer in words, from the numbers alone. weighted: the contexts are not equally likely."""
    share = f", which have probability {words.share(found.accuracy)}" if weighted else ""
    sentences = [
        f"Divergence {found.kl:.4g} nats from the table, whose entropy is {found.entropy:.4g} nats.",
        f"{found.memorized} of {found.contexts} associations are memorized{share}.",
    ]
    if gap is not None and gap.optimum > 1e-9:
        sentences.append(f"The best rank-{gap.d} map found has divergence {gap.optimum:.4g}; the model {above(gap)}.")
    elif gap is not None:
        more = f"; the model has {gap.d}, of which the rest is of no use" if gap.d > least else ""
        sentences.append(f"Width {least} is enough for divergence zero{more}.")
    if found.formula is not None and found.formula < found.contexts:
        more = "; this model, of this table, memorizes more" if found.memorized > found.formula else ""
        sentences.append(
            f"A construction with weights of this size memorizes H d_h + d = {found.formula} associations of any "
            f"table{more}."
        )
    return " ".join(sentences)


def above(gap: OptimumGap) -> str:
    if abs(gap.gap) <= 1e-6 * gap.optimum:
        return "reaches it"
    if gap.gap < 0:
        return f"is {-gap.gap:.2g} nats below it, so the search has missed the best"
    share = gap.gap / gap.optimum
    much = f"{100 * share:.2g}%" if share < 1 else f"{words.number(share, 2)} times as much"
    return f"is {gap.gap:.2g} nats, {much}, above it"
