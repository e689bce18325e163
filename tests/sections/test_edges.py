"""The section of edges: made where it is cheap, else on request."""

from __future__ import annotations

import pandas as pd
import pytest
from sections.standin_report import one_section
from standins import standin

import interp
from interp.measures.pairs import make_pairs
from interp.measures.subject import Subject
from interp.sections.base import Study, availability


def test_strongest_edge() -> None:
    study, report = one_section("recall", "edges", inputs=16)
    n = len(make_pairs(study.subject, 16))
    table = report.tables["edges"]
    first = table.iloc[0]
    assert report.facts["strongest_edge"] == f"{first['sender']} -> {first['receiver']}"
    assert (
        f"On {n} pairs of inputs, made on 16 inputs only (split test, seed 0), the strongest edge is from"
        in report.html()
    )
    assert table["recovered"].abs().is_monotonic_decreasing
    assert isinstance(report.figures["edges"].data[0].z.shape, tuple)


@pytest.mark.slow
def test_few_edges_are_made_and_many_on_request() -> None:
    for subject, status in ((standin("recall"), "applies"), (Subject.of(interp.load("count01/paper")), "on request")):
        table: pd.DataFrame = availability(Study(subject)).set_index("section")
        assert table.loc["edges", "status"] == status
