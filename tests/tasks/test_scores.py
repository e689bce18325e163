import math

import pytest
from scipy.stats import binomtest

from interp.tasks.scores import Score, wilson


@pytest.mark.parametrize(("right", "n"), [(0, 200), (200, 200), (199, 200), (1, 1), (979, 1000), (0, 1), (3, 7)])
def test_wilson_against_scipy_and_its_ends_exactly(right: int, n: int) -> None:
    theirs = binomtest(right, n).proportion_ci(method="wilson")
    low, high = wilson(right / n, n)
    assert (low, high) == pytest.approx((theirs.low, theirs.high), abs=1e-12)
    assert (low == 0) == (right == 0)
    assert (high == 1) == (right == n)


def test_scores_compare_within_their_intervals() -> None:
    assert not Score(200, 110, 200).exceeds(Score(200, 100, 200))
    assert Score(200, 140, 200).exceeds(Score(200, 100, 200))
    exact = Score(200, 100, 200, exact=True)
    assert not exact.exceeds(exact)
    assert Score(200, 101, 200, exact=True).exceeds(exact)


def test_answers_of_one_input_are_not_independent() -> None:
    assert Score(1_000, 900, rows=100).interval == wilson(0.9, 100)
    assert Score(1_000, 900, rows=100, exact=True).interval == (0.9, 0.9)


def test_no_answers_have_no_accuracy() -> None:
    assert all(map(math.isnan, (Score(0, 0, 0).accuracy, *Score(0, 0, 0).interval)))
