"""The section on strangers' models and on shipped ones; its numbers are tested with the measures."""

from __future__ import annotations

import pytest
from sections.standin_report import one_section
from standins import NAMES

from interp.errors import UnsupportedError


@pytest.mark.parametrize("name", [*NAMES[1:], "histogram/dot"])
def test_neurons(name) -> None:
    _, report = one_section(name, "neurons")
    table = report.tables["neurons"]
    assert len(table) == 24
    assert table["accuracy"].is_monotonic_increasing
    assert set(report.figures) == {"neurons_response"} or len(report.figures) == 4


def test_no_neurons() -> None:
    with pytest.raises(UnsupportedError, match="neither an MLP nor a readout with neurons"):
        one_section("recall", "neurons")
