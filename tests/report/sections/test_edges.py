"""The section of edges: made where it is cheap, else on request."""

import pandas as pd
import pytest
from report.sections.standin_report import one_section
from standins import standin

import interp
from interp.measures import edges, minimal_pairs
from interp.models.subject import Subject
from interp.report.sections.base import Study, availability
from interp.report.sections.circuits import describe_pairs


def test_strongest_edge() -> None:
    study, report = one_section("recall", "edges", inputs=16)
    n = len(minimal_pairs.make_pairs(study.subject, 16))
    table = report.tables["edges"]
    first = table.iloc[0]
    assert report.facts["strongest_edge"] == f"{first['sender']} -> {first['receiver']}"
    assert f"On {n} pairs with one token changed" in report.html()
    assert "made on 16 inputs only (split test, seed 0), the strongest edge is from" in report.html()
    largest = table.drop(columns=["sender", "receiver"]).abs().max(axis=1)
    assert largest.round(edges.DIGITS).is_monotonic_decreasing
    assert isinstance(report.figures["edges"].data[0].z.shape, tuple)


def test_what_pairs_of_one_length_cannot_show() -> None:
    subject = Subject.of(interp.load("count01/minimal"))

    def said(clean: str, corrupted: str, kind: str) -> str:
        return describe_pairs({kind: minimal_pairs.pairs_from(subject, clean, corrupted)})

    blind = " (inputs of one length, so an edge that only carries the length has effect 0)"
    assert said("[BOS]1101=", "[BOS]0101=", "changed") == f"1 pair with one token changed{blind}"
    assert said("[BOS]1101=", "[BOS]01=", "shorter") == "1 pair with one token less"


def test_an_edge_that_carries_the_length_is_seen_by_its_pairs() -> None:
    """languages/parity: its last head reads where the row ends, and no changed token moves that."""
    _, report = one_section("languages/parity", "edges")
    table = report.tables["edges"].set_index(["sender", "receiver"])
    assert list(table.columns) == ["own", "changed", "shorter"]
    carried = table.loc[("embedding", "MLP 0")].abs()
    assert carried["changed"] < 1e-6
    assert carried["shorter"] > 0.1


def test_few_edges_are_made_and_many_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    def status(name: str) -> str:
        subject = standin("recall") if name == "recall" else Subject.of(interp.load(name))
        table: pd.DataFrame = availability(Study(subject)).set_index("section")
        return str(table.loc["edges", "status"])

    assert status("recall") == status("count01/paper") == "applies"
    monkeypatch.setattr("interp.report.sections.circuits.reduces", lambda subject: False)  # whole inputs take long
    assert status("count01/paper") == "on request"
