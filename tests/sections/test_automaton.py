"""The section: drawn beside the task's own automaton, in the words of the measure."""

from __future__ import annotations

import pytest
from standins import standin

import interp
from interp.errors import UnsupportedError


def test_a_right_recognizer_is_drawn_once() -> None:
    report = interp.analyze("languages/parity", sections=["automaton"], options={"automaton": {"longest": 6}})
    assert set(report.figures) == {"automaton_model"}
    assert report.facts == {
        "automaton_states": 2, "automaton_states_task": 2, "automaton_longest": 6, "automaton_wrong": 0,
    }  # fmt: skip
    assert report.said[0].text.startswith("On every string of 1 to 6 symbols (126), the model is an automaton of 2")


def test_one_that_errs_is_drawn_beside_the_tasks_own() -> None:
    report = interp.analyze(standin("ends"), sections=["automaton"], options={"automaton": {"longest": 2}})
    assert report.facts["automaton_longest"] == 2
    tables = (
        {"automaton_model_table", "automaton_task_table"}
        if report.facts["automaton_wrong"]
        else {"automaton_model_table"}
    )
    assert set(report.tables) == tables


@pytest.mark.slow
def test_left_to_itself_it_takes_seconds() -> None:
    report = interp.analyze("languages/first-learned", sections=["automaton"])
    assert 4 <= report.facts["automaton_longest"] <= 19


def test_other_tasks_have_none() -> None:
    with pytest.raises(UnsupportedError, match="section automaton does not apply"):
        interp.analyze("algorithmic/max-of-k-exact", sections=["automaton"])
