"""The section's numbers are the measure's, and its words are true."""

from __future__ import annotations

import pytest
from sections.standin_report import one_section
from standins import NAMES

from interp.errors import UnsupportedError


@pytest.mark.parametrize("name", NAMES)
def test_shares_of_a_strangers_model(name) -> None:
    study, report = one_section(name, "components")
    table = report.tables["components"]
    assert table["effect"].sum() == pytest.approx(report.facts["mean_difference"], abs=1e-4)
    assert table.set_index("component")["effect"].abs().idxmax() == report.facts["largest_component"]
    assert {"components", "components_by_answer"} <= set(report.figures)
    assert study.subject.right(study.data("test")).double().mean() > 0.99


def test_what_is_no_sum_says_so() -> None:
    with pytest.raises(UnsupportedError, match="behind a ReLU readout"):
        one_section("histogram/dot", "components")
