"""The section on strangers' models and on shipped ones; its numbers are tested with the measures."""

from __future__ import annotations

import pytest
from sections.standin_report import one_section
from standins import NAMES

from interp.errors import UnsupportedError


@pytest.mark.parametrize("name", [*NAMES[:2], "histogram/dot"])
def test_geometry(name) -> None:
    _, report = one_section(name, "embeddings")
    assert {"embeddings_plane", "embeddings_cosines"} <= set(report.figures)
    assert -1 <= report.facts["largest_cosine"] <= 1.0000001


def test_two_tokens_have_none() -> None:
    with pytest.raises(UnsupportedError, match="two tokens have no geometry"):
        one_section("balance", "embeddings")
