"""The section of edges: made where it is cheap, else on request."""

from __future__ import annotations

import pandas as pd
import pytest
from sections.standin_report import one_section
from standins import standin

import interp
from interp.measures.pairs import make_pairs, pairs_from
from interp.measures.subject import Subject
from interp.sections.base import Study, availability
from interp.sections.edges import differs


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
    assert "The inputs of a pair" in report.html()
    assert table["recovered"].abs().is_monotonic_decreasing
    assert isinstance(report.figures["edges"].data[0].z.shape, tuple)


def test_in_what_pairs_differ() -> None:
    subject = Subject.of(interp.load("count01/minimal"))

    def said(clean: str, corrupted: str) -> str:
        return differs(pairs_from(subject, clean, corrupted))

    blind = "so an edge that only carries the length has effect 0 here."
    assert (
        said("[BOS]1101=", "[BOS]0101=") == f"The inputs of a pair have the same length and differ in 1 token, {blind}"
    )
    assert said("[BOS]1101=", "[BOS]0000=").endswith(f"differ in at most 3 tokens, {blind}")
    assert said("[BOS]1101=", "[BOS]01=") == "The inputs of a pair may differ in length."


def test_few_edges_are_made_and_many_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    def status(name: str) -> str:
        subject = standin("recall") if name == "recall" else Subject.of(interp.load(name))
        table: pd.DataFrame = availability(Study(subject)).set_index("section")
        return str(table.loc["edges", "status"])

    assert status("recall") == status("count01/paper") == "applies"
    monkeypatch.setattr("interp.sections.edges.reduces", lambda subject: False)  # whole inputs take long
    assert status("count01/paper") == "on request"
