"""The circuit that the heads suggest: what is said of it is what test_circuit measures."""

from __future__ import annotations

import pytest
from sections.standin_report import one_section
from standins import NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_circuit_of_heads(name) -> None:
    study, report = one_section(name, "faithfulness")
    table = report.tables["circuit"].set_index("what")
    assert table.loc["circuit", "accuracy"] >= table.loc["model", "accuracy"] - 0.01
    assert len(report.tables["circuit_minimality"]) == report.facts["circuit_heads"]
    assert 1 <= report.facts["circuit_heads"] <= study.model.cfg.n_layers * study.model.cfg.n_heads
