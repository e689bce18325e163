"""Patching of strangers' models: what the key positions must be."""

from __future__ import annotations

import pytest
from sections.standin_report import one_section
from standins import NAMES


@pytest.mark.parametrize("name", [*NAMES, "memorization/bigram"])
def test_stream_and_parts(name) -> None:
    study, report = one_section(name, "patching")
    assert set(report.figures) == {"patching_stream", "patching_parts"}
    table = report.tables["patching"].set_index("part")
    assert table["recovered"].idxmax() == report.facts["patched_most"]
    assert len(table) == study.model.cfg.n_layers * (study.model.cfg.n_heads + (not study.model.cfg.attn_only))
