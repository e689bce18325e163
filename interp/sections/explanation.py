"""The algorithm of a model: a sentence on the first screen, and a program with the role of each part."""

from __future__ import annotations

from interp import words
from interp.explanations import Explanation, explain_subject
from interp.explanations.picture import svg
from interp.explanations.shipped import shipped
from interp.populations import Asked
from interp.report import Report
from interp.sections.base import Study, section

NOT_SEARCHED = "No explanation has been searched for. interp.explain(model) searches for one."
NAMED_SECONDS = 60.0
"""Time limit of the search, in seconds, if the user names this section but gives no limit."""
DRAWN = (
    "From the tokens to the answer: the parts that are needed, and the role of each. Dashed: the output of this part "
    "is not explained."
)


def shipped_one(study: Study) -> Explanation | None:
    """Return the explanation shipped with interp for these weights, or None."""
    return shipped(study.subject)


@section("explanation", title="The algorithm", order=250, block="how")
def make(study: Study, report: Report) -> None:
    """Show the explanation shipped with interp, or search for one if the user names this section or a time."""
    found = study.once(shipped_one)
    seconds = study.asked_of.get("explanation", Asked()).over(study.asked).seconds
    if seconds is None and "explanation" in study.wanted:
        seconds = NAMED_SECONDS
    if found is None and seconds is not None:
        found = explain_subject(study.subject, report.title, seconds)
    report.say(NOT_SEARCHED if found is None else found.sentence, "how")
    if found is None:
        return
    report.add_fact("explained", found.found)
    if not found.found or found.agreement is None:
        report.section("The algorithm", found.sentence)
        return
    measured = [rest for note in found.notes if (rest := note.partition(". ")[2])]
    report.section("The algorithm", "\n\n".join([found.sentence, evidence(found), *measured]))
    report.add_code(found.source)
    report.add_drawing(svg(found.program, found.parts), DRAWN)
    report.add_table(
        "explanation_parts",
        found.to_frame(),
        "The role of each head and MLP. cut: not needed; it can be replaced by its mean at each position. explained: "
        "it can be replaced by its mean over all positions with the same value of the quantity that it carries. "
        "kept: neither works. The numbers are shares of the model's answers that stay the same when this part is "
        "replaced (with all cut parts cut).",
    )
    report.add_fact("explanation_constants", found.constants)
    report.add_fact("explanation_share", found.agreement.share)


def evidence(found: Explanation) -> str:
    """Return sentences on the parts that were replaced in the running model, and on how many answers stayed equal."""
    if found.cut is None or found.joint is None or found.empty is None:
        return ""
    parts = words.joined(
        f"{found.count(status)} {said}"
        for status, said in (("cut", "cut"), ("explained", "explained"), ("kept", "not explained"))
    )
    loss = ""
    if found.recovered is not None:
        loss = f" and {words.portion(min(1.0, found.recovered))} of the loss is recovered"
    return (
        f"The program needs {found.size}. Parts of the model: {parts}. Tested on {found.tested_on}; a "
        "quarter of them have rare answers, if there are any. "
        f"With the parts cut that are not needed, {words.portion(found.cut)} of the model's answers stay the same. "
        f"With the explained parts replaced, too, {words.portion(found.joint)} stay the same{loss}. With every part "
        f"cut, {words.portion(found.empty)} stay the same."
    )
