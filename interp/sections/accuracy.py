"""Is the model right? Proved on every input where a certificate holds, else measured."""

from __future__ import annotations

import pandas as pd

from interp.certificates import Certificate
from interp.measures.accuracy import Accuracy, accuracy
from interp.report import Report
from interp.report import figures as draw
from interp.sections.base import Study, section
from interp.tasks import Task


@section("accuracy", title="Accuracy", order=100)
def make(study: Study, report: Report) -> None:
    """A certificate with its tables, or the accuracy on all inputs or on a sample, with its interval."""
    found = study.certificate
    if isinstance(found, Certificate):
        _certified(report, study.task, found)
    else:
        _measured(report, study, found)


def _certified(report: Report, task: Task, found: Certificate) -> None:
    report.say(certificate_sentence(found))
    report.section("Accuracy on every input", certificate_sentence(found))
    report.add_table("certificate", _as_rows(found), f"The certificate, by {found.method}.")
    for name, (caption, formats) in TABLES.items():
        if name in found.tables:
            report.add_table(name, found.tables[name], caption, formats)
    if "errors" in found.tables and task.contrast is not None:
        report.add_figure(
            "errors",
            draw.error_by_difference(found.tables["errors"], tokens=task.counted, answers=task.contrast),
            "Where the errors lie: the share of wrong answers among all inputs with the same difference n1 - n0 of the "
            f"numbers of '{task.counted[1]}' and '{task.counted[0]}'.",
        )
    if found.n_errors and "frontier" in found.tables:
        report.add_figure(
            "frontier",
            draw.error_frontier(found.tables["frontier"], task.counted),
            "The frontier of errors: the range of n1 - n0 in which the model still errs, for each number n2 of "
            f"'{task.counted[2]}'.",
        )
    if "lengths" in found.tables:
        both = found.tables["lengths"].melt("length", ["smallest_margin", "rounding"], "quantity", "value")
        both["quantity"] = both["quantity"].str.replace("_", " ")
        report.add_figure(
            "margins",
            draw.lines(
                both[both["value"] > 0], "length", "value", "quantity", "symbols", "size of the logit", y_type="log"
            ),
            "The margin of the string nearest to a wrong answer, and how much rounding may move it, in any order of "
            "evaluation. Where the margin is larger, every string of that length is right.",
        )
    report.add_fact("accuracy", share(found))
    report.add_fact("exact", isinstance(found.accuracy, float))
    report.add_fact("certificate", found.status)


def _measured(report: Report, study: Study, why: str) -> None:
    found = study.once(measured)
    report.section("Accuracy on every input" if found.exact else "Accuracy on a sample", f"No certificate: {why}.")
    report.add_table("accuracy", found.to_frame(), accuracy_caption(found))
    report.say(accuracy_sentence(found))
    report.add_fact("accuracy", found.accuracy)
    report.add_fact("exact", found.exact)
    report.add_fact("certificate", "none")


def measured(study: Study) -> Accuracy:
    """Accuracy on all inputs or on a sample; other sections ask for it with study.once."""
    return accuracy(study.subject)


TABLES: dict[str, tuple[str, dict[str, str]]] = {
    "accuracy": ("Exact accuracy of each answer that is read.", {"accuracy": ".6f"}),
    "counts": (
        "Pairs of a sequence and a position by the count that is right there: proved right, proved wrong, right but "
        "within rounding (close), too near to tell (tied), and undecided when the time was up.",
        {},
    ),
}
"""Tables of certificates that a report shows: captions and number formats."""


def certificate_sentence(found: Certificate) -> str:
    """What a certificate says, in words."""
    if found.status == "certified":
        return f"Proved right on every input: {found.domain}."
    what = "over every input in exact arithmetic" if found.status == "undecided" else "over every input"
    wrong = f" For example, it is wrong at {found.counterexample}." if found.counterexample else ""
    if isinstance(found.accuracy, float):
        return f"Accuracy exactly {found.accuracy:.6g} {what}: {found.domain}.{wrong}"
    low, high = found.accuracy
    return f"Accuracy between {low:.6g} and {high:.6g} {what}: {found.domain}.{wrong}"


def accuracy_sentence(found: Accuracy) -> str:
    """What a measured accuracy says, in words."""
    if found.exact:
        return f"Accuracy exactly {found.accuracy:.6g} on all {found.rows:,} inputs."
    return f"Accuracy {found.accuracy:.4f}, measured on a sample of {found.rows:,} different inputs."


def accuracy_caption(found: Accuracy) -> str:
    if found.exact:
        return f"All {found.rows:,} inputs were run."
    several = " It counts rows, because answers of one row may go wrong together." * (found.answers > found.rows)
    return f"{found.rows:,} different sampled inputs; the interval is Wilson's, 95%.{several}"


def share(found: Certificate) -> float | str:
    """Exact accuracy as a number, an interval in words."""
    return found.accuracy if isinstance(found.accuracy, float) else "{:.6g} to {:.6g}".format(*found.accuracy)


def _as_rows(found: Certificate) -> pd.DataFrame:
    """A certificate as two columns, which fit on a narrow screen."""
    row = found.to_frame().iloc[0].drop("model")
    row["accuracy"] = share(found)
    named = [(name.replace("_", " "), _said(value)) for name, value in row.items() if value is not None]
    return pd.DataFrame([*named, *(("note", note) for note in found.notes)], columns=["property", "value"])


def _said(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
