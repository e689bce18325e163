"""The algorithm in a report: what came with interp, what is found on request, a true sentence where neither is so."""

from __future__ import annotations

import interp
from interp.models.subject import Subject
from interp.report import Report
from interp.report.sections.base import Study, availability
from interp.report.sections.explanation import NOT_SEARCHED, evidence, make


def test_without_a_search_the_report_says_so() -> None:
    model = interp.build("algorithmic/max-of-k-exact", K=3, v=7)
    report = Report("max of three")
    make(Study(Subject.of(model)), report)
    assert report.verdict == NOT_SEARCHED
    assert "interp.explain(model)" in report.verdict
    assert "interp explain MODEL" in report.verdict


def test_the_list_of_sections_says_how_to_ask_for_a_search() -> None:
    found = availability(Study(Subject.of(interp.build("algorithmic/max-of-k-exact", K=3, v=7)))).set_index("section")
    assert found.loc["explanation", "status"] == "on request"
    assert found.loc["explanation", "note"].startswith("interp explain MODEL")
    shipped = availability(Study(Subject.of(interp.load("count01/minimal")))).set_index("section")
    assert shipped.loc["explanation", ["status", "note"]].tolist() == ["applies", ""]


def test_a_section_that_is_named_searches() -> None:
    report = interp.analyze(interp.build("algorithmic/max-of-k-exact", K=3, v=7), sections=["explanation"])
    assert report.verdict.startswith("Explained.\n\n1. Head 0.0 attends to positions by their token")
    assert "\n\nThe only part is used. With it alone at its mean, " in report.verdict


def test_with_seconds_it_searches() -> None:
    model = interp.build("algorithmic/max-of-k-exact", K=3, v=7)
    report = interp.analyze(model, sections=["explanation"], options={"explanation": {"seconds": 300.0}})
    assert report.facts["explanation_level"] == "explained"
    assert "def answer(tokens):" in report.html()
    assert "<svg" in report.html()
    assert list(report.tables["explanation_parts"]["status"]) == ["explained"]
    assert 0 < report.tables["explanation_parts"]["without"][0] < 0.9
    found = interp.explain(model)
    assert "Parts of the model: 1 explained." in evidence(found)
