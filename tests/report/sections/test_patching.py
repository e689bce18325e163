"""Patching of strangers' models: what the key positions must be."""

import pytest
from report.sections.standin_report import one_section
from standins import NAMES

import interp
from interp.report.sections.circuits import describe_undecided_pairs


@pytest.mark.parametrize("name", [*NAMES, "memorization/bigram"])
@pytest.mark.thinned(2)
def test_stream_and_parts(name) -> None:
    study, report = one_section(name, "patching")
    assert set(report.figures) == {"patching_stream", "patching_parts", "patching_heads"}
    table = report.tables["patching"].set_index("part")
    best = table["recovered"].idxmax()
    assert best in report.facts["patched_most"]  # alone, or first of those that so few inputs cannot tell apart
    assert len(table) == study.model.cfg.n_layers * (study.model.cfg.n_heads + (not study.model.cfg.attn_only))


@pytest.mark.parametrize(
    ("clean", "corrupted", "says"),
    [(0.16, -0.28, ""), (-0.2186, -0.2251, "prefers the same answer"), (3.0, 2.9, "same"), (0.0, 0.0, "say little")],
)
def test_a_model_that_tells_no_pair_apart_has_nothing_to_recover(clean, corrupted, says) -> None:
    text = describe_undecided_pairs(clean, corrupted)
    assert says in text
    assert bool(says) == bool(text)


def test_captions_are_true_of_long_rows_and_of_one_pair() -> None:
    """One pair has no standard error; rows of one length may be too long for single positions."""
    page = interp.analyze("count01/minimal", sections=["patching"], inputs=1).html()
    assert " head 0.0 recovers 1.</p>" in page
    assert "rows have different lengths or more than 40 tokens, so positions are grouped" in page
