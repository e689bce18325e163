"""The algorithm of a model: a sentence on the first screen, and the program with the role of each part."""

import math

from interp import words
from interp.explanations import Explanation, explain_subject
from interp.explanations.picture import svg
from interp.explanations.shipped import shipped
from interp.populations import InputsAsked
from interp.programs.words import answer_words
from interp.report import Report
from interp.sections.base import Study, section

NOT_SEARCHED = "No explanation has been searched for. interp.explain(model) searches for one."
DRAWN = (
    "From the tokens to the answer: the parts that are used, and what each does. Parts that do the same share a box. "
    "Dashed: what this part does is not described."
)


def shipped_one(study: Study) -> Explanation | None:
    """Return the explanation shipped with interp for these weights, or None."""
    return shipped(study.subject)


@section("explanation", title="The algorithm", order=250, block="how")
def make(study: Study, report: Report) -> None:
    """Show the explanation shipped with interp, or search for one if the user names this section or a time."""
    found = study.once(shipped_one)
    seconds = study.asked_of.get("explanation", InputsAsked()).seconds
    if found is None and (seconds is not None or "explanation" in study.wanted):
        found = explain_subject(study.subject, report.title, math.inf if seconds is None else seconds)
    report.say(NOT_SEARCHED if found is None else found.sentence, "how")
    if found is None:
        return
    report.add_fact("explanation_level", found.level)
    report.heading("The algorithm", "\n\n".join(text for text in (found.sentence, evidence(found)) if text))
    if found.found:
        report.add_code(found.source)
        report.add_fact("explanation_constants", found.constants)
    if found.agreement is not None:
        report.add_fact("explanation_share", found.agreement.share)
    drawing = svg(found.parts, answer_words(found.program) if found.program is not None else "")
    if drawing:
        report.add_drawing(drawing, DRAWN)
    if found.parts:
        report.add_table(
            "explanation_parts",
            found.to_frame(),
            "What was found about each head and MLP. explained: its description takes its place in the running model. "
            "kept: it matters, and no description takes its place. minor: it matters, but for fewer answers than a "
            "description may change. not used: its mean over positions of the same kind (the read position, marks, "
            "content) takes its place, together with all others not used. Column without: the share of the model's "
            "answers that stay with this part and all that are minor or not used at their means. Column kept: the "
            f"share that stays with this description and those of earlier parts in place. Both: {found.tested_on}.",
            {"without": words.share, "kept": words.share},
        )


def evidence(found: Explanation) -> str:
    """Return sentences on the parts that were replaced in the running model, and on how many answers stayed."""
    if not found.parts or found.without is None or found.joint is None:
        return ""
    names = {"explained": "explained", "kept": "not described", "minor": "minor", "not used": "not used"}
    parts = words.joined(f"{n} {said}" for status, said in names.items() if (n := found.count(status)))
    size = f"The program has {found.size}. " if found.found else ""
    described = f"; with the descriptions in place, too, {words.portion(found.joint)}"
    return (
        f"{size}Parts of the model: {parts}. With the parts that are minor or not used at their means, "
        f"{words.portion(found.without)} of the model's answers stay {found.tested_on}"
        f"{described if found.count('explained') else ''}."
    )
