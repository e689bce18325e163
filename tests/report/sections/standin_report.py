"""One section of a report on a stand-in, for the tests of sections."""

from typing import Any

from standins import NAMES, standin

import interp
from interp.models.subject import Subject
from interp.report import Report
from interp.report.sections.base import Study, fill
from interp.tasks.populations import InputsAsked


def one_section(source: str, name: str, **options: Any) -> tuple[Study, Report]:
    """A report that holds one section, on a stand-in or a model by name; on 200 inputs, whatever the machine."""
    study = Study(
        standin(source) if source in NAMES else Subject.of(interp.load(source)), asked=InputsAsked(inputs=200)
    )
    report = Report(source)
    fill(study, report, [name], {name: options} if options else None)
    assert report.html()
    return study, report
