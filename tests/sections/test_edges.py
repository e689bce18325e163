"""The section of edges, made on request."""

from __future__ import annotations

import pandas as pd
from sections.standin_report import one_section
from standins import standin

from interp.sections.base import Study, availability


def test_strongest_edge() -> None:
    _, report = one_section("recall", "edges", pairs=16)
    table = report.tables["edges"]
    first = table.iloc[0]
    assert report.facts["strongest_edge"] == f"{first['sender']} -> {first['receiver']}"
    assert table["recovered"].abs().is_monotonic_decreasing
    assert isinstance(report.figures["edges"].data[0].z.shape, tuple)


def test_it_is_on_request() -> None:
    table: pd.DataFrame = availability(Study(standin("recall"))).set_index("section")
    assert table.loc["edges", "status"] == "on request"
