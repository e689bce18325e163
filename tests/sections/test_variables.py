"""The section on strangers' models and on shipped ones; its numbers are tested with the measures."""

from __future__ import annotations

import pytest
from sections.standin_report import one_section
from standins import NAMES


@pytest.mark.parametrize("name", [*NAMES, "memorization/bigram"])
def test_variables(name) -> None:
    study, report = one_section(name, "variables")
    if name == "memorization/bigram":
        assert report.html()  # its answer has more values than are probed, or as many: either is said
        return
    table = report.tables["variables"]
    assert set(table["layer"]) == set(range(study.model.cfg.n_layers + 1))
    assert {"variables_probe", "variables_along_probe"} <= set(report.figures)
