"""Heads and MLPs of strangers' models in one table."""

from __future__ import annotations

import pytest
from sections.standin_report import one_section
from standins import NAMES


@pytest.mark.parametrize("name", [*NAMES, "languages/palindrome-learned"])
def test_every_part_has_its_row(name) -> None:
    study, report = one_section(name, "heads")
    table = report.tables["heads"]
    cfg = study.model.cfg
    assert len(table) == cfg.n_layers * (cfg.n_heads + (not cfg.attn_only))
    assert ("layer" in table) == (cfg.n_layers > 1)
    lowest = table.set_index("part")["accuracy_mean"]
    assert lowest.min() == report.facts["accuracy_without_it"]
    assert lowest.idxmin() == report.facts["most_needed_part"]
    assert set(report.figures) == {"heads_ablated", "heads_look"}
    assert max(study.times.values()) == 1
