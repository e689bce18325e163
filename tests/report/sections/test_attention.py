"""The section on strangers' models and on shipped ones; its numbers are tested with the measures."""

import pytest
from report.sections.standin_report import one_section
from standins import NAMES

import interp
from interp.models.subject import Subject
from interp.report.sections import Study, all_sections


@pytest.mark.parametrize("name", [*NAMES, "languages/palindrome-learned"])
@pytest.mark.thinned(2)
def test_patterns(name) -> None:
    study, report = one_section(name, "attention")
    assert {"attention_by_position", "attention_by_token"} <= set(report.figures)
    assert ("attention_at_reads" in report.tables) == (study.subject.read_at != "all")


def test_of_one_token_no_attention_is_drawn() -> None:
    study = Study(Subject.of(interp.load("memorization/bigram")))
    known = {one.name: one for one in all_sections()}
    for name, what in (("attention", "each input"), ("example", "the example")):
        assert known[name].why_not(study) == f"{what} is a single token, so heads have nothing else to attend to"
