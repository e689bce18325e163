"""The section on strangers' models and on shipped ones; its numbers are tested with the measures."""

from __future__ import annotations

import pytest
from sections.standin_report import one_section
from standins import NAMES


@pytest.mark.parametrize("name", [*NAMES, "languages/palindrome-learned"])
def test_patterns(name) -> None:
    study, report = one_section(name, "attention")
    assert {"attention_by_position", "attention_by_token"} <= set(report.figures)
    assert ("attention_at_reads" in report.tables) == (study.subject.read_at != "all")
