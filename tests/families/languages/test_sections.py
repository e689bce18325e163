"""The report on recognizers of formal languages: which models are exact, and both kinds of errors."""

import pytest

import interp
from interp.families.languages import One, sections
from interp.families.languages.constructions.learned import learned_spec
from interp.models.subject import Subject
from interp.report.sections.base import Study


def test_only_a_construction_is_exact():
    trained = interp.build(learned_spec(One(length=6), "first"))
    for model, exact in ((interp.build("languages/one"), True), (trained, False)):
        assert sections.is_exact(Study(Subject.of(model))) is exact


@pytest.mark.slow
def test_report_of_a_wrong_model_names_both_kinds_of_errors():
    """A palindrome model far beyond what its number format can hold."""
    model = interp.build("languages/palindrome", dtype="float32")
    report = interp.analyze(model, sections=["accuracy", "string_lengths"])
    assert "false accept" in report.verdict
    late = report.tables["by_length"].query("dtype == 'float32' and length == 400").iloc[0]
    assert late["accuracy"] < 0.9
