"""The separator against liblinear, against optima worked out by hand, and against its own claim: a gap that bounds."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy import ndarray
from scipy.optimize import minimize

from interp.errors import InterpError
from interp.measures import separation_solver
from interp.measures.separation import SeparatorPath, fit_separator
from interp.measures.separation_solver import TOLERANCE, prove, prove_carefully, signed_rows, solve_groups


def objective(x: ndarray, y: ndarray, w: ndarray, b: float, C: float) -> float:
    """The definition, once more."""
    hinge = np.maximum(0.0, 1.0 - y * (x @ w + b))
    return float(0.5 * w @ w + 0.5 * b * b + C * (hinge**2).sum())


class Fitted(NamedTuple):
    w: ndarray
    b: float
    objective: float
    relative_gap: float
    accuracy: float


def fitted(x: ndarray, y: ndarray, C: float = 1000.0, test: tuple[ndarray, ndarray] | None = None) -> Fitted:
    """The separator with its proof, and its accuracy on test rows (default: those it was fitted on)."""
    path, (seen, right) = SeparatorPath(C).fit(x[:, None], y), test or (x, y)
    row = path.score_subsets(seen[:, None], right).iloc[0]
    w, b = path.weights([0])
    return Fitted(w[0], b, row["objective"], row["relative_gap"], row["s_acc"])


def cloud(seed: int, n: int = 400, d: int = 4, noise: float = 0.5) -> tuple[ndarray, ndarray]:
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(n, d))
    return x, np.where(x @ generator.normal(size=d) + noise * generator.normal(size=n) > 0.3, 1, -1)


@pytest.mark.parametrize("dual", [False, True])
@pytest.mark.parametrize(("noise", "scale"), [(0.5, 1.0), (0.0, 1.0), (0.5, 0.01)])
def test_agrees_with_liblinear(dual: bool, noise: float, scale: float) -> None:
    from sklearn.svm import LinearSVC

    C = 1.0 if dual else 1000.0  # the dual solver needs millions of steps at C = 1000
    x, y = cloud(1, n=600, noise=noise)
    x *= scale
    train, test = slice(0, 400), slice(400, 600)
    reference = LinearSVC(C=C, tol=1e-8, dual=dual, max_iter=1_000_000, random_state=0).fit(x[train], y[train])
    ours = fitted(x[train], y[train], C, test=(x[test], y[test]))
    theirs = objective(x[train], y[train], reference.coef_[0], reference.intercept_[0], C)
    assert ours.objective <= theirs * (1 + 1e-12)
    assert ours.objective == pytest.approx(theirs, rel=1e-6)
    assert abs(ours.accuracy - reference.score(x[test], y[test])) <= 1 / 200 + 1e-12
    np.testing.assert_allclose(ours.w, reference.coef_[0], rtol=1e-3, atol=1e-4)


def test_two_points_by_hand() -> None:
    # x = -1, 1: w minimizes w^2/2 + 2C (1 - w)^2, so w = 4C / (1 + 4C), and b = 0 by symmetry.
    separator = fitted(np.array([[-1.0], [1.0]]), np.array([0, 1]))
    w = 4000 / 4001
    assert separator.w[0] == pytest.approx(w, rel=1e-12)
    assert separator.b == pytest.approx(0.0, abs=1e-12)
    assert separator.objective == pytest.approx(w**2 / 2 + 2000 * (1 - w) ** 2, rel=1e-12)
    # Moved by 10: the bias that follows is penalized.
    assert fitted(np.array([[9.0], [11.0]]), np.array([0, 1])).objective > 10


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10_000), d=st.integers(1, 6), noise=st.sampled_from([0.0, 0.1, 3.0]),
    C=st.sampled_from([0.1, 1e3]),
)  # fmt: skip
def test_optimal_and_proven(seed: int, d: int, noise: float, C: float) -> None:
    x, y = cloud(seed, n=60, d=d, noise=noise)
    if len(set(y)) < 2:
        return
    found = fitted(x, y, C)
    assert found.objective == pytest.approx(objective(x, y, found.w, found.b, C), rel=1e-9)
    assert 0 <= found.relative_gap <= 1e-8

    def value_and_gradient(v: ndarray) -> tuple[float, ndarray]:
        hinge = np.maximum(0.0, 1.0 - y * (x @ v[:-1] + v[-1]))
        pull = -2 * C * hinge * y
        return objective(x, y, v[:-1], v[-1], C), v + np.append(x.T @ pull, pull.sum())

    start = np.append(found.w, found.b) + np.random.default_rng(seed).normal(size=d + 1)
    other = minimize(value_and_gradient, start, jac=True, method="BFGS", options={"gtol": 1e-9, "maxiter": 2000})
    assert other.fun >= found.objective * (1 - found.relative_gap - 1e-12)


@pytest.mark.parametrize("distance", [1e-4, 1e-2, 0.1, 1.0])
def test_gap_bounds_the_distance_to_the_minimum(distance: float) -> None:
    """At any weights, near the optimum or far from it, both proofs leave at least what is still to gain."""
    x, y = cloud(3, n=300, d=5)
    rows, columns = signed_rows(x, y.astype(float)), np.arange(6)[None]
    best = solve_groups(rows, columns, np.zeros((1, 6)), 1000.0)
    for seed in range(5):
        w = best.weights + distance * np.random.default_rng(seed).normal(size=(1, 6))
        u = 1 - w @ rows.T
        objective, gap = prove(rows, columns, w, u, 1000.0)
        left = objective[0] - best.objective[0]
        assert 0 < left <= gap[0]
        careful_objective, careful_gap = prove_carefully(rows, w[0], u[0], 1000.0)
        assert careful_objective == pytest.approx(objective[0], rel=1e-12)
        assert left <= careful_gap


def test_gap_is_primal_minus_dual() -> None:
    """D(a) = sum a - |Z^T a|^2 / 2 - sum a^2 / 4C at a = 2C max(0, u)."""
    C, (x, y) = 10.0, cloud(11, n=50, d=3)
    rows = signed_rows(x, y.astype(float))
    w = np.random.default_rng(1).normal(size=(1, 4))
    u = 1 - w @ rows.T
    a = 2 * C * np.maximum(0, u[0])
    pull = a @ rows
    dual = a.sum() - 0.5 * pull @ pull - (a**2).sum() / (4 * C)
    objective, gap = prove(rows, np.arange(4)[None], w, u, C)
    assert objective[0] - gap[0] == pytest.approx(dual, rel=1e-9)


def test_any_working_set_gives_the_same_optimum(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a slack of -50 hardly any row is in the first working set; the others must be found on the way."""
    monkeypatch.setattr(separation_solver, "_solve_carefully", lambda *_: pytest.fail("not needed here"))
    x, y = cloud(4, n=500, d=6)
    rows, columns = signed_rows(x, y.astype(float)), np.array([[0, 1, 6], [2, 5, 6]])
    start = np.random.default_rng(0).normal(size=(2, 3))
    found = []
    for slack in (np.inf, -50.0):
        monkeypatch.setattr(separation_solver, "_SLACK", slack)
        found.append(solve_groups(rows, columns, start, 1000.0))
    whole, grown = found
    np.testing.assert_allclose(grown.objective, whole.objective, rtol=1e-8)
    np.testing.assert_allclose(grown.weights, whole.weights, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda x: x * 1e6, id="large"),
        pytest.param(lambda x: x * 1e-6, id="small"),
        pytest.param(lambda x: x * 10.0 ** np.array([-6, -2, 2, 6]), id="mixed scales"),
        pytest.param(lambda x: x + 1e3, id="far from the origin"),
        pytest.param(lambda x: x * np.array([1, 0, 1, 1]) + np.array([0, 3, 0, 0]), id="a constant feature"),
        pytest.param(lambda x: x[:, [0, 0, 1, 1]], id="repeated features"),
        pytest.param(lambda x: x * 0 + 1, id="all rows equal"),
    ],
)
@pytest.mark.parametrize("noise", [0.0, 0.5])
def test_hard_data(change: Callable[[ndarray], ndarray], noise: float) -> None:
    x, y = cloud(5, n=400, noise=noise)
    found = fitted(change(x), y)
    assert found.relative_gap <= 1e-8
    assert found.objective == pytest.approx(objective(change(x), y, found.w, found.b, 1000.0), rel=1e-6)


def test_all_rows_equal_by_hand() -> None:
    # 30 rows x = 1 of class +, 10 of class -. Only s = w + b enters, and w = b, so s minimizes
    # s^2/4 + C (30 (1-s)^2 + 10 (1+s)^2): s = 2C (30 - 10) / (1/2 + 2C 40) = 40000 / 80000.5 for C = 1000.
    separator = fitted(np.ones((40, 1)), np.array([1] * 30 + [-1] * 10))
    assert separator.w[0] + separator.b == pytest.approx(40000 / 80000.5, rel=1e-10)
    assert separator.w[0] == pytest.approx(separator.b)
    assert separator.accuracy == 0.75


def test_labels_keep_their_values_and_order() -> None:
    x, y = cloud(7)
    tokens = np.where(y > 0, 6, 5)
    separator, five = fitted(x, tokens), tokens == 5
    assert separator.accuracy == np.mean((x @ separator.w + separator.b > 0) == (tokens == 6)) > 0.8
    assert fitted(x, tokens, test=(x[five], tokens[five])).accuracy > 0.8  # a test set may hold one class
    np.testing.assert_array_equal(fitted(x, y > 0).w, separator.w)


def test_accepts_tensors() -> None:
    import torch

    x, y = cloud(8)
    tensor = torch.tensor(x, requires_grad=True)
    np.testing.assert_array_equal(fit_separator(tensor, torch.tensor(y))[0], fit_separator(x, y)[0])


X, Y = cloud(9, n=20)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"y": np.ones(20)}, "one class only"),
        ({"y": np.arange(20)}, "20 classes"),
        ({"y": Y[:19]}, "one label per row"),
        ({"y": np.where(Y > 0, np.nan, 0.0)}, "labels hold values that are not finite"),
        ({"x": np.where(X > 1, np.nan, X)}, "values that are NaN or above 1e+100, the first at"),
        ({"x": X * 1e200}, "NaN or above 1e+100"),
        ({"x": X[:, 0]}, "(rows, heads, d_head) is needed"),
        ({"x": X[:, :0]}, "nothing to separate"),
        ({"x": X[:3], "y": np.array([0, 1, 0])}, "3 rows are fewer than 4 features"),
    ],
)
def test_bad_input(arguments: dict, sentence: str) -> None:
    with pytest.raises(InterpError) as error:
        fit_separator(**{"x": X, "y": Y, **arguments})
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


def test_a_penalty_that_is_not_positive() -> None:
    with pytest.raises(InterpError, match="C is 0"):
        SeparatorPath(C=0.0)


def test_what_cannot_be_proven_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Far from the origin; with as many steps as it has, the accurate method gets there on some machines."""
    x, y = cloud(10, noise=0.0)
    monkeypatch.setattr(separation_solver, "STEPS", 1)
    with pytest.raises(InterpError, match="not proven optimal: its relative objective gap"):
        fit_separator(x + np.array([1e12, 0, 0, 0]), y)


def test_separable_rows_of_large_values_need_many_steps() -> None:
    """A hundred steps end far from the optimum, at 50,000 times its objective: the head would get no s-acc."""
    generator = np.random.default_rng(0)
    sizes = np.logspace(3, 1.3, 33)
    x = 300 * generator.normal(size=33) + generator.normal(size=(640, 33)) * sizes
    values = x @ (generator.normal(size=33) / sizes)
    rows = signed_rows(x, np.where(values > np.quantile(values, 0.9), 1.0, -1.0))
    found = solve_groups(rows, np.arange(34)[None], np.zeros((1, 34)), C=1000.0)
    assert found.relative_gap[0] < TOLERANCE
    assert (rows @ found.weights[0]).min() > 0.9
