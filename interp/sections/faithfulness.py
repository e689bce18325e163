"""Do the heads that matter suffice? All others are silenced, and what remains is measured."""

from __future__ import annotations

import pandas as pd

from interp.measures.faithfulness import CircuitTest, test_circuit
from interp.measures.runs import data, within
from interp.measures.subject import Subject
from interp.measures.survey import survey
from interp.report import Report
from interp.sections.base import Study, section


def needs(study: Study) -> str | None:
    """More than one head, to leave some out."""
    n = study.model.cfg.n_layers * study.model.cfg.n_heads
    if n < 2:
        return "there is one head, so there is nothing to leave out"
    return f"{n} heads are too many to silence one by one" if n > 200 else None


def smallest(subject: Subject, table: pd.DataFrame) -> CircuitTest:
    """Heads by the loss that mean ablation of each costs, the costliest first, until accuracy is the model's.

    The first set whose accuracy is within .01 of the whole model's, or all heads.
    """
    heads = table[table["kind"] == "head"].reset_index(drop=True)
    by = "loss_mean" if heads["loss_mean"].notna().all() else "accuracy_mean"
    order = heads[by].sort_values(ascending=by == "accuracy_mean", kind="stable").index.to_list()
    test = within(subject, data(subject, "test"), 40)
    train = within(subject, data(subject, "train"), 6)
    low, high = 1, len(order)
    while low < high:  # accuracy need not grow with the set; what is reported is measured on the set that is found
        size = (low + high) // 2
        found = test_circuit(subject, heads=order[:size], test=test, reference=train, draws=0)
        if found.circuit.accuracy >= found.model.accuracy - 0.01:
            high = size
        else:
            low = size + 1
    return test_circuit(subject, heads=order[:low], test=test, reference=train)


@section("faithfulness", title="A circuit of heads", order=800, needs=needs)
def make(study: Study, report: Report) -> None:
    """The smallest set of heads that the heads section suggests, put to the test."""
    found = smallest(study.subject, study.measure(survey))
    n = study.model.cfg.n_layers * study.model.cfg.n_heads
    kept = len(found.kept)
    named = ", ".join(found.kept[:12]) + (" and others" if kept > 12 else "")
    report.section(
        "A circuit of heads",
        "Heads are taken in the order of the loss that silencing each costs, until accuracy with all other heads "
        "mean-ablated is within .01 of the whole model's. MLPs stay as they are.\n\n"
        + (
            f"It takes all {n} heads."
            if kept == n
            else f"{kept} of {n} heads suffice ({named}): accuracy {found.circuit.accuracy:.4f} with the others "
            "silenced, "
            f"{found.model.accuracy:.4f} with all, {found.nothing.accuracy:.4f} with none."
        ),
    )
    report.add_table(
        "circuit", found.to_frame(), "The whole model, the circuit alone, and no head at all (mean ablation)."
    )
    report.add_table(
        "circuit_minimality",
        found.minimality,
        "Is a head idle? Accuracy and loss of the circuit with that head silenced too.",
    )
    if len(found.completeness):
        report.add_table(
            "circuit_completeness",
            found.completeness,
            "Is something missing? The same heads taken out of the circuit and out of the model: a complete circuit "
            "loses as "
            "much as the model does (Wang et al. 2022).",
        )
    report.add_fact("circuit_heads", kept)
    report.add_fact("circuit_accuracy", found.circuit.accuracy)
