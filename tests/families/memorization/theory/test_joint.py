import numpy as np
import pytest

from interp.families.memorization import kl_divergence, least_squares, theory
from interp.families.memorization.theory import drawn_tables
from interp.families.memorization.theory.joint import balance, descend, gradient_norm


def test_gradient_norm_by_differences():
    table = drawn_tables.dirichlet_table(6, 5, prior="zipf", seed=0)
    rng = np.random.default_rng(0)
    W_U, W_E = rng.normal(size=(2, 5)), rng.normal(size=(6, 2))
    root = np.sqrt(table.prior)[:, None]
    slopes, step = [], 1e-6
    for array in (W_U, root * W_E):
        for index in np.ndindex(array.shape):
            values = []
            for sign in (1, -1):
                factors = [W_U.copy(), root * W_E]
                factors[0 if array is W_U else 1][index] += sign * step
                values.append(kl_divergence(table, factors[1] / root @ factors[0]))
            slopes.append((values[0] - values[1]) / (2 * step))
    assert gradient_norm(table, W_U, W_E) == pytest.approx(np.linalg.norm(slopes), rel=1e-6)


@pytest.mark.parametrize(
    "table",
    [drawn_tables.dirichlet_table(40, 12, prior="zipf", seed=0), drawn_tables.low_rank_table(200, 30, 4, 0.3, seed=0)],
    ids=["dirichlet", "low rank"],
)
def test_descent_ends_at_a_stationary_point_of_both_factors(table):
    start = least_squares(table, 4)
    W_U, W_E, iterations = descend(table, start.W_U, start.W_E)
    assert gradient_norm(table, W_U, W_E) < 1e-6
    np.testing.assert_allclose(balance(W_U, W_E, table.prior)[0] ** 2, W_U**2, rtol=1e-6, atol=1e-9)
    assert kl_divergence(table, W_E @ W_U) < 0.95 * start.kl
    assert 0 < iterations < 1000


def test_iterations_are_counted_over_rounds_and_bounded(monkeypatch):
    monkeypatch.setattr(theory.joint, "MOST_ITERATIONS", 70)
    table = drawn_tables.dirichlet_table(40, 12, 0.1, seed=0)
    start = least_squares(table, 4, floor=1e-3)
    assert descend(table, start.W_U, start.W_E)[2] == 70  # one round of 50 and 20 of the next
