"""The section on strangers' models and on shipped ones; its numbers are tested with the measures."""

from __future__ import annotations

import pytest
from report.sections.standin_report import one_section
from standins import NAMES

from interp.report.sections._shared import reasons


@pytest.mark.parametrize("name", [*NAMES, "memorization/bigram"])
@pytest.mark.thinned(2)
def test_variables(name) -> None:
    study, report = one_section(name, "variables")
    if name == "memorization/bigram":
        assert report.html()  # its answer has more values than are probed, or as many: either is said
        return
    table = report.tables["variables"]
    assert set(table["layer"]) == set(range(study.model.cfg.n_layers + 1))
    assert {"variables_probe", "variables_along_probe"} <= set(report.figures)


def test_features_with_the_same_reason_share_a_sentence() -> None:
    found = {
        "a": "No set needs a to tell",
        "n1 - n0": "No set needs n1 - n0 to tell",
        "b": "The feature b has one value",
    }
    assert reasons(found) == " No set needs a or n1 - n0 to tell. The feature b has one value."
