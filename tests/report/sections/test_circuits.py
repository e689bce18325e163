"""The section on strangers' models and on shipped ones; its numbers are tested with the measures."""

import pytest
from report.sections.standin_report import one_section
from standins import NAMES


@pytest.mark.parametrize("name", [*NAMES, "languages/palindrome-learned", "count01/paper"])
@pytest.mark.thinned(2)
def test_circuits(name) -> None:
    study, report = one_section(name, "circuits")
    cfg = study.model.cfg
    assert len(report.tables["circuits"]) == cfg.n_layers * cfg.n_heads
    assert ("strongest_composition" in report.facts) == (cfg.n_layers > 1)
    assert ("circuits_qk" in report.figures) == (not study.subject.count_space)
    assert ("circuits_ov" in report.figures) == (name in NAMES)
    for which, measured, other in (("qk", "score", "output"), ("ov", "output", "score")):
        if f"circuits_{which}" in report.figures:
            shown = report.figures[f"circuits_{which}"].to_json()
            assert f'"text":"{measured}"' in shown
            assert f'"text":"{other}"' not in shown


def test_the_head_that_was_made_to_feed_another_is_named() -> None:
    _, report = one_section("algorithmic/induction-exact", "circuits")
    assert report.facts["strongest_composition"] == "head 0.0 -> head 1.1 (K)"
    _, report = one_section("algorithmic/induction", "circuits")
    assert report.facts["strongest_composition"] == "head 0.1 -> head 1.1 (K)"
