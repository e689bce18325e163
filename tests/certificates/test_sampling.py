"""Random inputs narrow what a proof leaves open, and never contradict it."""

from __future__ import annotations

import pytest

from interp.certificates.budgets import SampledShare, Stratum


def test_decided_strata_are_exact() -> None:
    assert SampledShare.of([Stratum(8, 6, 2), Stratum(8, 8, 0)]) == SampledShare(0.875)


def test_without_random_inputs_the_interval_is_proved() -> None:
    assert SampledShare.of([Stratum(8, 5, 2), Stratum(8, 8, 0)]) == SampledShare((13 / 16, 14 / 16))


def test_random_inputs_narrow_an_open_stratum_only() -> None:
    found = SampledShare.of([Stratum(50, 49, 1), Stratum(50, drawn=10_000, drawn_right=5_000)])
    low, high = found.accuracy  # type: ignore[misc]
    assert found.confidence == 0.999
    assert 0.49 + 0.24 < low < 0.49 + 0.25 < high < 0.49 + 0.26
    assert "without them [0.49, 0.99]" in found.notes[0]


@pytest.mark.parametrize("drawn_right", [0, 100])
def test_random_inputs_never_contradict_what_is_proved(drawn_right: int) -> None:
    low, high = SampledShare.of([Stratum(100, 40, 50, drawn=100, drawn_right=drawn_right)]).accuracy  # type: ignore[misc]
    assert 0.4 <= low <= high <= 0.5


def test_answers_within_rounding_count_for_neither_side() -> None:
    """The run may get all of them wrong where exact arithmetic gets them right, and the other way round."""
    low, high = SampledShare.of([Stratum(1000, drawn=1000, drawn_right=200, drawn_open=500)]).accuracy  # type: ignore[misc]
    assert 0.15 < low < 0.2
    assert 0.7 < high < 0.75
