import numpy as np
import pytest
from closeness import close
from scipy.optimize import minimize

from interp.families.memorization.theory.closed_forms import least_squares, weighted_least_squares
from interp.families.memorization.theory.kl import kl_divergence
from interp.families.memorization.theory.newton import newton_refinement
from interp.families.memorization.theory.table import dirichlet_table, lookup_table


def row_loss(w, W_U, p):
    logits = w @ W_U
    top = logits.max()
    q = np.exp(logits - top)
    return top + np.log(q.sum()) - p @ logits, W_U @ (q / q.sum() - p)


@pytest.mark.parametrize("concentration", [0.3, 1.0, 5.0])
def test_rows_are_optimal(concentration):
    table = dirichlet_table(12, 8, concentration, seed=0)
    W_U = least_squares(table, 3).W_U
    found = newton_refinement(table, W_U)
    assert found.converged.all()
    for i, p in enumerate(table.conditional):
        reference = minimize(row_loss, np.zeros(3), args=(W_U, p), jac=True, method="BFGS", options={"gtol": 1e-9})
        assert row_loss(found.W_E[i], W_U, p)[0] <= reference.fun + 1e-10
        close(row_loss(found.W_E[i], W_U, p)[1], 0, atol=1e-9)


def test_table_b_plain_newton_stalls_and_the_safe_start_does_not():
    # Dir(.1), 20 x 10, d = 4 (errata, table B, *): undamped steps from f_wls stay far above the row optima.
    stalled = 0
    for seed in range(10):
        table = dirichlet_table(20, 10, 0.1, seed=seed)
        wls = weighted_least_squares(table, 4)
        found = newton_refinement(table, wls.W_U)
        assert found.converged.all()
        assert found.kl <= wls.kl + 1e-12
        W_E = wls.W_E.copy()
        for _ in range(20):
            logits = W_E @ wls.W_U
            q = np.exp(logits - logits.max(axis=1, keepdims=True))
            q /= q.sum(axis=1, keepdims=True)
            for i in range(20):
                hessian = wls.W_U @ (np.diag(q[i]) - np.outer(q[i], q[i])) @ wls.W_U.T
                step = np.linalg.pinv(hessian, rcond=1e-10) @ (wls.W_U @ (q[i] - table.conditional[i]))
                # the safeguard of a plain Newton: no step that makes things worse
                if (
                    row_loss(W_E[i] - step, wls.W_U, table.conditional[i])[0]
                    <= row_loss(W_E[i], wls.W_U, table.conditional[i])[0]
                ):
                    W_E[i] -= step
        stalled += kl_divergence(table, W_E @ wls.W_U) > found.kl + 0.1
        assert found.started_at_zero.any()
    assert stalled >= 5


def test_each_row_starts_from_the_better_of_wls_and_zero():
    table = dirichlet_table(20, 10, 0.1, seed=0)
    wls = weighted_least_squares(table, 4)
    found = newton_refinement(table, wls.W_U, max_steps=0)
    at_zero = np.array([row_loss(np.zeros(4), wls.W_U, p)[0] for p in table.conditional])
    at_wls = np.array([row_loss(w, wls.W_U, p)[0] for w, p in zip(wls.W_E, table.conditional)])
    np.testing.assert_array_equal(found.started_at_zero, at_wls > at_zero)
    assert 0 < found.started_at_zero.sum() < 20
    np.testing.assert_array_equal(found.W_E[~found.started_at_zero], wls.W_E[~found.started_at_zero])
    assert not found.W_E[found.started_at_zero].any()


def test_two_steps_take_most_of_the_gain_at_moderate_entropy():
    # table B, Dir(1) rows: wls .1483, N1 .1363, N2 .1359, converged .1359 and alike.
    for seed in range(5):
        table = dirichlet_table(100, 50, seed=seed)
        wls = weighted_least_squares(table, 8)
        twice = newton_refinement(table, wls.W_U, max_steps=2)
        converged = newton_refinement(table, wls.W_U)
        assert wls.kl - twice.kl > 0.95 * (wls.kl - converged.kl)
        assert not twice.converged.all()


def test_low_entropy_and_zeros_converge():
    for table in (
        lookup_table(100, 50, 0.05, seed=0),
        lookup_table(30, 10, 0.0, seed=0),
        dirichlet_table(50, 20, 0.02),
    ):
        found = newton_refinement(table, least_squares(table, 5).W_U)
        assert found.converged.all()
        assert np.isfinite(found.W_E).all()


def test_ones_in_the_row_space_do_no_harm():
    table = dirichlet_table(10, 6, seed=0)
    W_U = np.vstack([least_squares(table, 2).W_U, np.ones((1, 6))])
    assert newton_refinement(table, W_U).kl == pytest.approx(newton_refinement(table, W_U[:2]).kl, abs=1e-13)


def test_a_scale_of_W_U_does_not_matter():
    table = dirichlet_table(10, 6, seed=0)
    W_U = least_squares(table, 2).W_U
    kls = [newton_refinement(table, scale * W_U).kl for scale in (1e-3, 1.0, 1e3)]
    close(kls, kls[1], atol=1e-13)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_gradient_norms_are_those_of_a_readout_with_unit_columns(scale):
    table = dirichlet_table(10, 6, seed=0)
    best = least_squares(table, 2)
    found = newton_refinement(table, scale * best.W_U, start=best.W_E / scale, max_steps=0)
    longest = np.linalg.norm(best.W_U, axis=0).max()
    for i, p in enumerate(table.conditional):
        start = np.zeros(2) if found.started_at_zero[i] else best.W_E[i]
        wanted = np.linalg.norm(row_loss(start, best.W_U, p)[1]) / longest
        assert found.gradient_norms[i] == pytest.approx(wanted, rel=1e-9)
