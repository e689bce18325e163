"""Do the heads that matter suffice? All others are silenced, and what remains is measured."""

from __future__ import annotations

import pandas as pd

from interp import words
from interp.measures.faithfulness import CircuitTest, test_circuit
from interp.measures.runs import data, within
from interp.measures.subject import Subject
from interp.report import Report
from interp.sections import _shared as shared
from interp.sections.base import Study, section
from interp.tasks import Batch


def needs(study: Study) -> str | None:
    """More than one head, to leave some out."""
    n = study.model.cfg.n_layers * study.model.cfg.n_heads
    if n < 2:
        return "there is one head, so there is nothing to leave out"
    return f"{n} heads are too many to silence one by one" if n > 200 else None


def rows(subject: Subject) -> Batch:
    """Test inputs, as many as seconds allow."""
    return within(subject, data(subject, "test"), 40)


def smallest(subject: Subject, table: pd.DataFrame) -> CircuitTest:
    """Heads by the loss that mean ablation of each costs, the costliest first, as many as bisection says it takes.

    No head where accuracy without any is within .01 of the whole model's; else a number of heads that reaches this
    while the next smaller one that was tried does not; else all heads.
    """
    heads = table[table["kind"] == "head"].reset_index(drop=True)
    by = "loss_mean" if heads["loss_mean"].notna().all() else "accuracy_mean"
    order = heads[by].sort_values(ascending=by == "accuracy_mean", kind="stable").index.to_list()
    test = rows(subject)
    train = within(subject, data(subject, "train"), 6)
    low, high = 0, len(order)
    while low < high:  # accuracy need not grow with the set; what is reported is measured on the set that is found
        size = (low + high) // 2 if low else 0
        found = test_circuit(subject, heads=order[:size], test=test, reference=train, draws=0)
        if found.circuit.accuracy >= found.model.accuracy - 0.01:
            high = size
        else:
            low = size + 1
    return test_circuit(subject, heads=order[:low], test=test, reference=train)


def sentence(found: CircuitTest, n: int, inputs: int) -> str:
    """How many of n heads suffice, and what is measured on so many inputs with them, with all and with none."""
    on = f"On {words.counted(inputs, 'test input')}"
    alone, every, none = (words.share(s.accuracy) for s in (found.circuit, found.model, found.nothing))
    if not found.kept:
        silenced = f"accuracy is {none} with all of them silenced, {every} with none silenced"
        return f"{on} no head is needed for that: {silenced}."
    if len(found.kept) == n:
        both = "both heads" if n == 2 else f"all {n} heads"
        return f"{on} it takes {both}: accuracy is {every} with them, {none} without any."
    named = ", ".join(found.kept[:12]) + (" and others" if len(found.kept) > 12 else "")
    suffice = words.counted(len(found.kept), "head suffices", "heads suffice")
    measured = f"accuracy is {alone} with the others silenced, {every} with all heads, {none} without any"
    return f"{on} {suffice} of {n} ({named}): {measured}."


@section("faithfulness", title="A circuit of heads", order=800, needs=needs)
def make(study: Study, report: Report) -> None:
    """The smallest set of heads that the heads section suggests, put to the test."""
    found = smallest(study.subject, study.once(shared.surveyed))
    n = study.model.cfg.n_layers * study.model.cfg.n_heads
    report.section(
        "A circuit of heads",
        "Heads are taken in the order of what silencing each costs (in loss, where there is one, else in accuracy), as "
        "many as it takes, found by bisection, to bring accuracy with all other heads mean-ablated within .01 of the "
        "whole model's. MLPs stay as they are.\n\n" + sentence(found, n, len(rows(study.subject))),
    )
    report.add_table(
        "circuit", found.to_frame(), "The whole model, the circuit alone, and no head at all (mean ablation)."
    )
    if len(found.minimality):
        report.add_table(
            "circuit_minimality",
            found.minimality,
            "Is a head idle? Accuracy and loss of the circuit with that head silenced too.",
        )
    if len(found.completeness) and len(found.kept) < n:  # the circuit of all heads is the model itself
        report.add_table(
            "circuit_completeness",
            found.completeness,
            "Is something missing? The same heads taken out of the circuit and out of the model: a complete circuit "
            "loses as "
            "much as the model does (Wang et al. 2022).",
        )
    report.add_fact("circuit_heads", len(found.kept))
    report.add_fact("circuit_accuracy", found.circuit.accuracy)
