"""The component s of an exact recognizer beside what its proof says it is, string by string."""

from __future__ import annotations

from interp.measures import languages as measures
from interp.report import Report
from interp.report import figures as draw
from interp.sections import _shared as shared
from interp.sections.base import Study, section


def needs(study: Study) -> str | None:
    """An exact recognizer whose proof says more than a sign."""
    if (reason := shared.needs_recognizer(study)) is not None:
        return reason
    if not shared.is_exact(study):
        return "the model is not exact: there is no proof to compare it with"
    proof = measures.proof_of(study.subject.task_model)
    return None if proof.value else "the proof says where s is 0 or what its sign is, not its value"


@section("string_value", title="The value s against its proof", order=720, needs=needs)
def make(study: Study, report: Report) -> None:
    """200 strings of 1 to 30 symbols."""
    model = study.subject.task_model
    task = measures.language_of(model)
    frame = measures.value_against_proof(model, task.strings(200, 30, 1, seed=3))
    report.section("The value s against its proof")
    frame["answer"] = frame["label"].map({True: "in the language", False: "not in it"})
    report.add_figure(
        "value_against_proof",
        draw.scatter(frame, "proof", "s", "answer", "string", "s by the proof", "s in the model", diagonal=True),
        f"200 strings of 1 to 30 symbols; the largest difference is {frame['error'].abs().max():.2g}.",
    )
    report.add_table("value_against_proof", frame, "String by string.", max_rows=10)
