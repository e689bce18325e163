"""Logistic regression by Newton's method against scikit-learn's."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from interp.measures import logistic as module
from interp.measures.logistic import PRECISION, STEPS, WEAK, logistic


def data(rows: int, d: int, n: int, spread: float) -> tuple[np.ndarray, np.ndarray]:
    """Points around one center for each of n values, none of which is 0."""
    random = np.random.default_rng(n)
    value = np.concatenate([np.arange(n), random.integers(n, size=rows - n)])
    return random.normal(size=(n, d))[value] + spread * random.normal(size=(rows, d)), 3 + 2 * value


def scores(x: np.ndarray, value: np.ndarray) -> np.ndarray:
    """Scores of the values around their mean, by scikit-learn."""
    found = LogisticRegression(C=WEAK, solver="newton-cg", tol=PRECISION, max_iter=STEPS).fit(x, value)
    given = found.decision_function(x)
    given = np.stack([0 * given, given], 1) if given.ndim == 1 else given
    return given - given.mean(1, keepdims=True)


@pytest.mark.parametrize(("rows", "d", "n"), [(60, 1, 2), (200, 3, 2), (200, 4, 5), (600, 2, 60)])
@pytest.mark.parametrize("spread", [0.01, 1.0])
def test_scores_are_those_of_scikit_learn(rows: int, d: int, n: int, spread: float) -> None:
    x, value = data(rows, d, n, spread)
    assert (d + 1) * n <= module.SMALL
    weights, constants, names = logistic(x, value)
    found = x @ weights + constants
    assert names.tolist() == sorted(set(value.tolist()))
    assert np.abs(found - found.mean(1, keepdims=True) - scores(x, value)).max() < 1e-4 * np.abs(found).max()


@pytest.mark.parametrize("n", [2, 5])
def test_large_ones_give_the_same(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x, value = data(200, 4, n, 1.0)
    small = logistic(x, value)
    monkeypatch.setattr(module, "SMALL", 0)
    monkeypatch.setattr(module, "_minimum", None)
    for one, other in zip(small, logistic(x, value), strict=True):
        assert np.allclose(one, other, atol=1e-4)


def test_of_two_values_the_first_scores_zero() -> None:
    weights, constants, _ = logistic(*data(100, 3, 2, 0.5))
    assert not weights[:, 0].any()
    assert constants[0] == 0.0
    assert weights[:, 1].any()
