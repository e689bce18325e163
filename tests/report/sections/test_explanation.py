"""The algorithm in a report: what came with interp, what is found within a budget, and a card of at most 80 words."""

from dataclasses import replace

import pytest

import interp
from interp.models.subject import Subject
from interp.report import Report
from interp.report.sections.base import Study, availability
from interp.report.sections.explanation import MORE, MOST_WORDS, REQUEST, SEARCH, budget, card, evidence, make
from interp.support.words import n_words


def test_a_report_explains_any_model_within_the_budget() -> None:
    model = interp.build("algorithmic/max-of-k-exact", K=3, v=7)
    report = Report("max of three")
    make(Study(Subject.of(model)), report)
    assert report.verdict.startswith("Explained.\n\n1. Head 0.0 attends to positions by their token")
    assert report.verdict.endswith("1 of 1 part used · answers not proved")
    left_out = Report("max of three")
    make(Study(Subject.of(model), explains=False), left_out)
    assert (left_out.verdict, left_out.items) == ("", [])


def test_the_list_of_sections_says_how_to_ask_for_a_search() -> None:
    subject = Subject.of(interp.build("algorithmic/max-of-k-exact", K=3, v=7))
    found = availability(Study(subject, explains=False)).set_index("section")
    assert found.loc["explanation", ["status", "note"]].tolist() == ["on request", REQUEST]
    for given in (subject, Subject.of(interp.load("count01/minimal"))):
        shown = availability(Study(given)).set_index("section")
        assert shown.loc["explanation", ["status", "note"]].tolist() == ["applies", ""]


def test_a_model_too_large_for_the_budget_is_not_searched(monkeypatch) -> None:
    """The work of a step decides: 5,000 inputs of 300,000 multiplications each leave 1,000 steps: enough."""
    subject = Subject.of(interp.build("algorithmic/max-of-k-exact", K=3, v=7))
    assert budget(Study(subject)) == SEARCH
    monkeypatch.setattr("interp.report.sections.explanation.work", lambda *given: 3 * 10**5)
    assert budget(Study(subject)) == pytest.approx(1_000 / 20)
    monkeypatch.setattr("interp.report.sections.explanation.work", lambda *given: 10**10)
    assert budget(Study(subject)) is None


@pytest.mark.parametrize("name", ["count01/paper", "histogram/dot", "languages/parity", "algorithmic/induction"])
def test_a_card_has_at_most_eighty_words(name: str) -> None:
    subject = Subject.of(interp.load(name))
    report = Report(name)
    make(Study(subject), report)
    assert 3 < n_words(report.verdict) <= MOST_WORDS


def test_a_card_of_many_steps_says_that_the_rest_is_below() -> None:
    found = interp.explain(interp.build("algorithmic/max-of-k-exact", K=3, v=7))
    long = replace(found, parts=tuple(replace(one, brief="reads " + "very " * 70 + "much") for one in found.parts))
    assert n_words(card(long)) <= MOST_WORDS
    assert MORE in card(long)
    assert MORE not in card(found)


def test_with_seconds_it_searches() -> None:
    model = interp.build("algorithmic/max-of-k-exact", K=3, v=7)
    report = interp.analyze(model, sections=["explanation"], options={"explanation": {"seconds": 300.0}})
    assert report.facts["explanation_level"] == "explained"
    assert "def answer(tokens):" in report.html()
    assert "<svg" in report.html()
    assert list(report.tables["explanation_parts"]["status"]) == ["explained"]
    assert 0 < report.tables["explanation_parts"]["without"][0] < 0.9
    assert "Parts of the model: 1 explained." in evidence(interp.explain(model))
