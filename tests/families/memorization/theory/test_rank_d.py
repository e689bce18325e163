import numpy as np
import pytest
from closeness import close
from scipy.optimize import minimize

from interp.errors import InterpError
from interp.families.memorization import as_table, kl_divergence
from interp.families.memorization.theory import rank_d
from interp.families.memorization.theory.drawn_tables import dirichlet_table, lookup_table, low_rank_table
from interp.families.memorization.theory.rank_d import (
    least_squares,
    newton_refinement,
    weighted_least_squares,
    wls_embeddings,
)


def variance(p, values):
    return (p * (values - (p * values).sum(axis=1, keepdims=True)) ** 2).sum(axis=1)


def test_least_squares_is_the_truncated_svd():
    table = dirichlet_table(9, 6, seed=0)
    logs = np.log(table.conditional)
    left, values, right = np.linalg.svd(logs - logs.mean(axis=1, keepdims=True))
    expected = left[:, :3] * values[:3] @ right[:3]
    found = least_squares(table, 3)
    close(found.logits, expected, atol=1e-12)
    assert found.kl == pytest.approx(kl_divergence(table, expected), abs=1e-14)
    assert found.d == 3
    close(found.W_U @ found.W_U.T, np.eye(3), atol=1e-13)


def test_sqrt_prior_weighting_minimizes_the_prior_weighted_error():
    table = dirichlet_table(9, 6, prior="zipf", seed=1)
    centered = np.log(table.conditional) - np.log(table.conditional).mean(axis=1, keepdims=True)
    errors = {
        weighted: table.prior @ ((least_squares(table, 2, sqrt_prior=weighted).logits - centered) ** 2).sum(axis=1)
        for weighted in (True, False)
    }
    values = np.linalg.svd(np.sqrt(table.prior)[:, None] * centered, compute_uv=False)
    assert errors[True] == pytest.approx((values[2:] ** 2).sum(), abs=1e-12)
    assert errors[True] < errors[False]


def test_lemma_2_the_minimizer_as_printed():
    # erratum 13: right for W_U of shape (M, d) and I_M; the P of Lemma 2 is an oblique projection, P 1 = 0.
    rng = np.random.default_rng(0)
    for _ in range(50):
        n, m, d = 4, 8, 3
        table = dirichlet_table(n, m, seed=rng)
        W_U = rng.normal(size=(d, m))
        found = weighted_least_squares(table, W_U=W_U)
        for i in range(n):
            p = table.conditional[i]
            C = np.diag(p) - np.outer(p, p)
            close(found.W_E[i], np.linalg.solve(W_U @ C @ W_U.T, W_U @ C @ np.log(p)), atol=1e-8)
            P = W_U.T @ np.linalg.inv(W_U @ C @ W_U.T) @ W_U @ C
            close(P @ P, P, atol=1e-8)
            close(P @ np.ones(m), 0, atol=1e-8)
            close(C @ P, (C @ P).T, atol=1e-10)
            assert np.abs(P - P.T).max() > 0.01
        logs = np.log(table.conditional)
        best = variance(table.conditional, found.logits - logs)
        for _ in range(10):
            other = found.W_E + rng.normal(size=found.W_E.shape) * 10 ** rng.uniform(-4, 1)
            assert (variance(table.conditional, other @ W_U - logs) >= best - 1e-12).all()


def test_ones_in_the_row_space_change_nothing():
    # erratum 13: the Gram matrix is singular, the divergence the same as without that direction.
    table = dirichlet_table(20, 10, seed=4)
    W_U = np.random.default_rng(0).normal(size=(3, 10))
    with_ones = np.vstack([W_U + 2.0, np.ones((1, 10))])
    without = weighted_least_squares(table, W_U=W_U)
    assert weighted_least_squares(table, W_U=with_ones).kl == pytest.approx(without.kl, abs=1e-12)


def test_peaked_rows_stay_accurate():
    # Probabilities down to 1e-12: the fit still reproduces an exactly representable target in every direction.
    p = np.array([[0.6, 0.4 - 2e-12, 1e-12, 1e-12]])
    W_U = np.array([[1.0, -1, 0, 0], [0, 1, -1, 0], [0, 0, 1, -1]])
    fitted = wls_embeddings(p, np.log(p), W_U) @ W_U
    np.testing.assert_allclose(fitted - fitted[:, :1], np.log(p) - np.log(p)[:, :1], rtol=1e-6)


def test_wls_beats_ls_at_moderate_entropy_and_not_at_low_entropy():
    # table B: f_wls is below f_ls at moderate entropy; at low entropy it can be far above.
    for seed in range(5):
        table = dirichlet_table(100, 50, seed=seed)
        assert weighted_least_squares(table, 8).kl < least_squares(table, 8).kl
    low = [dirichlet_table(20, 10, 0.1, seed=seed) for seed in range(10)]
    assert any(weighted_least_squares(table, 4).kl > least_squares(table, 4).kl for table in low)


def test_uniform_centering_is_better_on_low_rank_tables():
    # erratum 11: logits of rank 8 plus noise 0.1, N=100, M=50: f_ls 0.0028 (uniform) against 0.1376 (pi).
    table = low_rank_table(100, 50, 8, 0.1, seed=0)
    uniform, pi = least_squares(table, 8).kl, least_squares(table, 8, centering="pi").kl
    assert 0.001 < uniform < 0.006
    assert pi > 10 * uniform


def test_prior_argument_and_chunks(monkeypatch):
    table = dirichlet_table(50, 9, seed=0)
    whole = weighted_least_squares(table, 3)
    monkeypatch.setattr(rank_d, "CHUNK_BYTES", 8 * 9 * 3 * 7)  # seven rows at a time
    np.testing.assert_allclose(weighted_least_squares(table, 3).W_E, whole.W_E)
    prior = np.arange(50) / np.arange(50).sum()
    assert weighted_least_squares(table, 3, prior=prior).kl == pytest.approx(prior @ whole.kl_by_row)


def test_bad_input():
    table = as_table(lookup_table(4, 5, 0.1))
    for arguments, says in [
        ({}, "give d or W_U"),
        ({"d": 2, "W_U": np.ones((2, 5))}, "give d or W_U"),
        ({"W_U": np.ones((2, 4))}, r"\(d, outputs\) = \(d, 5\)"),
        ({"W_U": np.full((2, 5), np.inf)}, "not finite"),
        ({"d": 0}, "d is 0"),
    ]:
        with pytest.raises(InterpError, match=says):
            weighted_least_squares(table, **arguments)


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
