"""Do the heads that matter suffice? Measures the model with all other heads silenced."""

import pandas as pd

from interp.measures.faithfulness import TOLERANCE, CircuitTest, evaluate_circuit, fewest
from interp.models.subject import Subject
from interp.report import Report
from interp.report.sections import _shared as shared
from interp.report.sections.base import Study, section
from interp.support import words
from interp.tasks import Batch
from interp.tasks.populations import Population


def needs(study: Study) -> str | None:
    """Require more than one head, so that some can be left out."""
    n = study.model.cfg.n_layers * study.model.cfg.n_heads
    if n < 2:
        return "there is one head, so there is nothing to leave out"
    return f"{n} heads are too many to ablate one by one" if n > 200 else None


ABLATIONS = 40
"""About the number of circuits that are run."""


def population(study: Study) -> Population:
    """Return the inputs on which circuits are tested."""
    return study.population("faithfulness", ABLATIONS)


def find_smallest_circuit(subject: Subject, table: pd.DataFrame, test: Batch, train: Batch) -> CircuitTest:
    """Find by bisection how many heads suffice, starting with those whose mean ablation costs most loss (or accuracy).

    The result has no heads if the model suffices without any, and all heads if no smaller set that was tried suffices.
    """
    heads = table[table["kind"] == "head"].reset_index(drop=True)
    by = "loss_mean" if heads["loss_mean"].notna().all() else "accuracy_mean"
    order = heads[by].sort_values(ascending=by == "accuracy_mean", kind="stable").index.to_list()

    def enough(size: int) -> bool:  # accuracy may fall as the set grows, so the report measures the final set
        tested = evaluate_circuit(subject, heads=order[:size], inputs=test, reference=train, draws=0)
        return tested.circuit.accuracy >= tested.model.accuracy - TOLERANCE

    return evaluate_circuit(subject, heads=order[: fewest(len(order), enough)], inputs=test, reference=train)


def describe_circuit(found: CircuitTest, n: int, population: Population) -> str:
    """Return a sentence on how many of n heads suffice, with the accuracy of these, of all and of none.

    They suffice if the exact accuracy, or the lower end of its interval, is within TOLERANCE of the model's.
    """
    on = population.measured[:1].upper() + population.measured[1:]
    alone, every, none = (words.share(s.accuracy) for s in (found.circuit, found.model, found.nothing))
    if not found.kept:
        if found.nothing.accuracy > found.model.accuracy:
            return f"{on} accuracy does not tell which heads matter: it is {none} without any, {every} with all."
        silenced = f"accuracy is {none} with all of them silenced, {every} with none silenced"
        return f"{on} no head is needed for that: {silenced}."
    if len(found.kept) == n:
        both = "both heads" if n == 2 else f"all {n} heads"
        return f"{on} it takes {both}: accuracy is {every} with them, {none} without any."
    named = ", ".join(found.kept[:12]) + (" and others" if len(found.kept) > 12 else "")
    borne_out = population.score(found.circuit.accuracy).low >= found.model.accuracy - TOLERANCE
    verb = ("suffices", "suffice") if borne_out else ("reaches that", "reach that")
    suffice = words.counted(len(found.kept), f"head {verb[0]}", f"heads {verb[1]}")
    beyond = "" if borne_out else "; these inputs are too few to say whether so few heads suffice on all inputs"
    measured = f"accuracy is {alone} with the others silenced, {every} with all heads, {none} without any"
    return f"{on} {suffice} of {n} ({named}): {measured}{beyond}."


@section("faithfulness", title="A circuit of heads", order=800, block="where", needs=needs)
def make(study: Study, report: Report) -> None:
    """Find the smallest set of heads that suffices, and test it."""
    inputs = study.once(population)
    table = study.once(shared.surveyed)
    tested = find_smallest_circuit(study.subject, table, inputs.batch, shared.reference(study, inputs).batch)
    n = study.model.cfg.n_layers * study.model.cfg.n_heads
    report.heading(
        "A circuit of heads",
        "Heads are sorted by how much silencing each one costs (in loss or, without a loss, in accuracy). The circuit "
        "is as many of the first heads as are needed (found by bisection) to keep accuracy within "
        f"{TOLERANCE:g} of the whole model's when all other heads are mean-ablated. MLPs stay as they are.\n\n"
        + describe_circuit(tested, n, inputs),
    )
    report.add_table(
        "circuit",
        tested.to_frame(),
        f"The whole model, the circuit alone, and no head at all (mean ablation), {inputs.measured}.",
    )
    if len(tested.minimality):
        report.add_table(
            "circuit_minimality",
            tested.minimality,
            "Is a head of the circuit unnecessary? Accuracy and loss of the circuit without that head.",
        )
    if len(tested.completeness) and len(tested.kept) < n:  # the circuit of all heads is the model itself
        report.add_table(
            "circuit_completeness",
            tested.completeness,
            "Is the circuit incomplete? The same heads are removed from the circuit and from the model: a complete "
            "circuit loses as much as the model does (Wang et al. 2022).",
        )
    report.add_fact("circuit_heads", len(tested.kept))
    report.add_fact("circuit_accuracy", tested.circuit.accuracy)
