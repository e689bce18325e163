from fractions import Fraction
from math import log

import numpy as np
import pytest
from closeness import close

from interp.errors import InterpError
from interp.families.memorization.theory import drawn_tables, kl


def test_divergence_and_entropy_by_hand():
    table = [[0.5, 0.5], [0.25, 0.75]]
    logits = np.log([[0.25, 0.75], [0.25, 0.75]])
    first = 0.5 * log(0.5 / 0.25) + 0.5 * log(0.5 / 0.75)
    close(kl.kl_rows(np.array(table), logits), [first, 0], atol=1e-15)
    assert kl.kl_divergence(table, logits, prior=[0.25, 0.75]) == pytest.approx(first / 4, abs=1e-15)
    by_hand = 0.25 * log(2) + 0.75 * -(0.25 * log(0.25) + 0.75 * log(0.75))
    assert kl.entropy(table, [0.25, 0.75]) == pytest.approx(by_hand, abs=1e-15)


def test_zeros_contribute_nothing_and_missing_mass_is_infinite():
    table = np.array([[1.0, 0.0]])
    assert kl.entropy_rows(table)[0] == 0
    assert kl.kl_rows(table, np.array([[0.0, -np.inf]]))[0] == 0
    assert kl.kl_rows(table, np.array([[5.0, 5.0]]))[0] == pytest.approx(log(2))
    assert kl.kl_rows(table, np.array([[-np.inf, 0.0]]))[0] == np.inf


def test_adding_a_constant_to_a_row_changes_nothing():
    table = drawn_tables.dirichlet_table(30, 7, 0.2, seed=0)
    rng = np.random.default_rng(1)
    logits = rng.normal(size=(30, 7))
    shifted = logits + 100 * rng.normal(size=(30, 1))
    assert kl.kl_divergence(table, logits) == pytest.approx(kl.kl_divergence(table, shifted), abs=1e-12)


def test_against_exact_arithmetic():
    # softmax of log(integers) is rational, so both distributions are exact fractions.
    p = [Fraction(1, 7), Fraction(2, 7), Fraction(4, 7)]
    weights = [5, 3, 2]
    exact = sum(float(a) * log(a / Fraction(w, 10)) for a, w in zip(p, weights))
    got = kl.kl_rows(np.array([[float(a) for a in p]]), np.log(np.array([weights], dtype=float)))
    assert got[0] == pytest.approx(exact, abs=1e-15)


def test_erratum_10_divergence_is_log_mean_exp_of_the_residual():
    # d_KL = E log E_{pi}[e^fbar] exactly; largest relative error 2e-13 over 6000 instances in the errata.
    rng = np.random.default_rng(0)
    for _ in range(300):
        n, m = (int(size) for size in rng.integers(2, 9, size=2))
        table = drawn_tables.dirichlet_table(n, m, 10 ** rng.uniform(-0.5, 1), seed=rng)
        logits = np.log(table.conditional) + 10 ** rng.uniform(-2, 1) * rng.normal(size=(n, m))
        fbar = kl.centered_residual(table.conditional, logits)
        close((table.conditional * fbar).sum(axis=1), 0, atol=1e-12)
        identity = np.log((table.conditional * np.exp(fbar)).sum(axis=1))
        np.testing.assert_allclose(kl.kl_rows(table.conditional, logits), identity, rtol=1e-9, atol=1e-13)


def test_accuracy_counts_a_tie_as_wrong():
    table = drawn_tables.lookup_table(3, 4, 0.1, targets=[0, 1, 2], prior=[0.5, 0.3, 0.2])
    logits = np.array([[2.0, 1, 0, 0], [1, 1, 0, 0], [0, 0, 0, 9]])
    np.testing.assert_array_equal(kl.right_rows(table.conditional, logits), [True, False, False])
    assert kl.memorized(table, logits) == 1
    assert kl.accuracy(table, logits) == 0.5


def test_bad_logits():
    table = drawn_tables.dirichlet_table(3, 4)
    with pytest.raises(InterpError, match="the logits have shape"):
        kl.kl_divergence(table, np.zeros((3, 5)))
    with pytest.raises(InterpError, match="NaN"):
        kl.kl_divergence(table, np.full((3, 4), np.nan))
    with pytest.raises(InterpError, match="zeros"):
        kl.centered_residual(np.array([[1.0, 0.0]]), np.zeros((1, 2)))


def test_equally_likely_outputs_are_right_other_ties_are_not():
    rows = np.array([[0.4, 0.4, 0.2]] * 4)
    logits = np.array([[1.0, 1.0, 0.0], [0.0, 2.0, 1.0], [1.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
    assert kl.memorized(rows, logits) == 2
