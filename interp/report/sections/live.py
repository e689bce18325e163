"""The live panel, in which the page runs the model; interp.live(model) shows it alone, for notebooks."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from interp.certificates import Certificate
from interp.certificates.count_boxes import as_box
from interp.errors import UnsupportedError
from interp.models import zoo
from interp.models.lens import HookedTransformer
from interp.models.subject import Subject, check_finite
from interp.report import Report
from interp.report.sections.base import Study, section
from interp.report.sections.live_payload import payload

INTRODUCTION = (
    "The model runs in this page. Change the input or switch parts off, and every number is computed again. Gray "
    "shows the unchanged model on the same input. Nothing leaves your computer."
)


@section("live", title="The model, live", order=50)
def make(study: Study, report: Report) -> None:
    """Show the panel, or one sentence on why there is none."""
    try:
        data = payload(study.subject, study.load)
    except UnsupportedError as error:
        report.heading("The model, live")
        report.add_live(f"Left out: {error}.")
        return
    data["proved"] = _proved(study, data)
    if data["counts"] is not None and data["proved"] is not None and data["proved"]["ranges"] is not None:
        data["counts"]["start"] = _middle(data)
    report.heading("The model, live", INTRODUCTION)
    report.add_live(data)


def _proved(study: Study, data: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the domain of a certificate, so that the panel can tell whether an input is in it.

    ranges: (token, smallest, largest) per count of a box. lengths: for other domains, the smallest and largest number
    of tokens if all rows of these lengths are in the domain, otherwise None.
    """
    certificate = study.certificate
    if not isinstance(certificate, Certificate) or certificate.status == "undecided":
        return None
    proof: dict[str, Any] = {
        "status": certificate.status,
        "domain": certificate.domain,
        "ranges": None,
        "lengths": None,
    }
    if certificate.source is not None and certificate.source.method == "count box":
        box = as_box(study.task, certificate.source.options.get("box"))
        tokens = map(study.task.token_id, study.task.counted)
        proof["ranges"] = [[token, *limits] for token, limits in zip(tokens, box.ranges.values())]
    else:
        marks = len(data["frame"]["prefix"]) + len(data["frame"]["suffix"])
        shortest = min(len(row) for row in data["tests"]["tokens"])
        proof["lengths"] = all_rows(certificate.n_inputs, len(data["frame"]["alphabet"]), marks, {shortest, marks + 1})
    return proof


def _middle(data: Mapping[str, Any]) -> list[int]:
    """Return the counts in the middle of the certificate's box, to start with an input that it speaks of."""
    middle = {token: (low + high) // 2 for token, low, high in data["proved"]["ranges"]}
    sliders, start = data["counts"]["sliders"], data["counts"]["start"]
    return [middle.get(slider["token"], count) for slider, count in zip(sliders, start)]


def all_rows(n_inputs: int, alphabet: int, marks: int, shortest: set[int]) -> list[int] | None:
    """Return the range of lengths for which every row (marks around any tokens of the alphabet) is an input.

    None if no range that starts with one of the shortest lengths has as many rows as there are inputs.
    """
    for least in sorted(shortest):
        rows, most = 0, least - 1
        while rows < n_inputs and alphabet > 1:
            most += 1
            rows += alphabet ** (most - marks)
        if rows == n_inputs:
            return [least, most]
    return None


def live(source: str | Path | HookedTransformer | Subject) -> Report:
    """Return the live panel alone. Jupyter displays it, and it can be saved as a page.

    source: a name, a path or a model, as in analyze. Raises UnsupportedError with the reason if there is no panel.

    Example:

        >>> panel = interp.live("count01/minimal")  # shown if it is the last line of a cell
        >>> panel.save("live.html").name
        'live.html'
    """
    named = isinstance(source, str | Path)
    subject = Subject.of(zoo.load(source) if isinstance(source, str | Path) else source)
    check_finite(subject)
    report = Report(str(source) if named else f"a model of task {subject.task.name}")
    report.add_text(INTRODUCTION)
    report.add_live(payload(subject, f"model = interp.load({str(source)!r})" if named else None))
    return report
