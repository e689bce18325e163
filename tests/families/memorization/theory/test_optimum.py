from itertools import product

import numpy as np
import pytest
from closeness import close

from interp.errors import InterpError
from interp.families.memorization.theory import joint, kl
from interp.families.memorization.theory.drawn_tables import dirichlet_table, lookup_table, low_rank_table
from interp.families.memorization.theory.optimum import LEAD, rank_d_optimum
from interp.families.memorization.theory.rank_d import least_squares, newton_refinement, weighted_least_squares
from interp.families.memorization.theory.table import as_table


def test_smallest_case_against_a_grid():
    # 3 outputs, d = 1: W_U is a direction in a plane and each row one number, so a grid finds the global optimum.
    table = dirichlet_table(4, 3, seed=2)
    plane = np.array([[1, -1, 0], [1, 1, -2]]) / np.sqrt([[2], [6]])
    best = min(
        newton_refinement(table, np.array([[np.cos(angle), np.sin(angle)]]) @ plane).kl
        for angle in np.linspace(0, np.pi, 720, endpoint=False)
    )
    found = rank_d_optimum(table, 1)
    assert found.kl <= best + 1e-12
    assert found.kl == pytest.approx(best, abs=1e-5)
    assert found.curvature > 1e-6
    assert found.gradient_norm < 1e-12
    assert "strict local minimum" in found.evidence


@pytest.mark.slow
def test_the_order_of_table_b():
    # best <= svd start <= Newton rows <= f_wls or f_ls, and the best W_U needs joint optimization.
    for seed, (d, concentration) in enumerate(product((2, 4), (1.0, 5.0))):
        table = dirichlet_table(20, 10, concentration, seed=seed)
        wls = weighted_least_squares(table, d)
        newton = newton_refinement(table, wls.W_U)
        best = rank_d_optimum(table, d)
        svd = best.restarts.set_index("start").kl["svd"]
        assert best.kl <= svd + 1e-12
        assert svd < newton.kl < min(wls.kl, least_squares(table, d).kl)
        assert best.kl == pytest.approx(kl.kl_divergence(table, best.W_E @ best.W_U), abs=1e-15)
        assert best.gradient_norm < 1e-10


def test_every_optimum_is_stationary_in_both_factors():
    table = dirichlet_table(15, 7, prior="zipf", seed=5)
    best = rank_d_optimum(table, 3)
    q = np.exp(best.logits) / np.exp(best.logits).sum(axis=1, keepdims=True)
    residual = table.prior[:, None] * (q - table.conditional)
    close(best.W_E.T @ residual, 0, atol=1e-9)
    close(residual @ best.W_U.T, 0, atol=1e-9)


def test_zero_exactly_from_the_rank_condition():
    for n, m, d in [(9, 5, 4), (9, 5, 7), (3, 9, 3), (3, 9, 6)]:
        found = rank_d_optimum(dirichlet_table(n, m, seed=0), d)
        assert found.kl == 0.0
        assert found.exact
        assert found.attained
        assert "zero exactly" in found.evidence
        assert found.W_U.shape == (d, m)
        assert found.kl_by_row.max() < 1e-15
    assert rank_d_optimum(dirichlet_table(9, 5, seed=0), 3).kl > 1e-4


def test_zeros_make_it_an_infimum():
    # erratum 3, and section 4.2: entropy 0 is memorized in the limit for any d >= 2.
    for d in (2, 3):
        found = rank_d_optimum(lookup_table(20, 10, 0.0, seed=0), d)
        assert found.kl == 0.0
        assert found.kl_by_row.max() < 1e-25
        assert found.exact
        assert not found.attained
        assert "infimum" in found.evidence
    exact = rank_d_optimum(lookup_table(20, 10, 0.0, seed=0), 9)
    assert exact.kl == 0.0
    assert not exact.attained
    assert exact.kl_by_row.max() < 1e-25


def test_single_answers_are_points_on_a_circle():
    # The optimum is at infinity, so a search would end where rounding stops it, at another place on each CPU.
    rows = np.eye(7)[[1, 5, 1, 3, 5]]
    found = rank_d_optimum(rows, 2)
    leads = np.sort(found.logits, axis=1)
    assert found.logits.argmax(axis=1).tolist() == [1, 5, 1, 3, 5]
    assert (leads[:, -1] - leads[:, -2]).min() == pytest.approx(LEAD)
    assert found.restarts.empty
    # in one dimension two answers fit, of which the others are told apart, too
    assert rank_d_optimum(np.eye(4)[[0, 2, 2]], 1).logits.argmax(axis=1).tolist() == [0, 2, 2]
    assert not rank_d_optimum(np.eye(4)[[0, 1, 2]], 1).exact
    # one context with two answers, or one without a prior, which is no matter
    rows = np.vstack([rows, np.full(7, 1 / 7)])
    assert not rank_d_optimum(rows, 2).exact
    assert rank_d_optimum(rows, 2, prior=[0.2] * 5 + [0.0]).kl_by_row[-1] == pytest.approx(0, abs=1e-9)


def test_plain_arrays_zero_priors_and_unlikely_contexts():
    rows = dirichlet_table(12, 8, seed=0).conditional
    prior = np.array([0.0, 0.0] + [0.1] * 10)
    found = rank_d_optimum(rows, d=2, prior=prior)
    alone = rank_d_optimum(as_table(rows[2:]), d=2)
    assert found.kl == pytest.approx(alone.kl, abs=1e-9)
    assert np.isfinite(found.W_E).all()
    # contexts that never occur still get their best embedding for this W_U
    assert found.kl_by_row[0] == pytest.approx(newton_refinement(rows, found.W_U).kl_by_row[0], abs=1e-9)
    # three likely contexts need d = 3 at most
    assert rank_d_optimum(rows, d=3, prior=[0.5, 0.25, 0.25] + [0.0] * 9).exact


def test_sqrt_prior_start_pays_under_a_zipf_prior():
    # table B, 100 x 50, d = 8, Zipf: Newton-converged .2826 with the plain SVD, .1593 with the sqrt(prior) one.
    for seed in range(3):
        table = dirichlet_table(100, 50, prior="zipf", seed=seed)
        plain, weighted = (
            newton_refinement(table, least_squares(table, 8, sqrt_prior=choice).W_U).kl for choice in (False, True)
        )
        assert plain / weighted > 1.4


@pytest.mark.slow
def test_low_entropy_needs_clipped_or_random_starts():
    table = dirichlet_table(20, 10, 0.1, seed=1)
    starts = rank_d_optimum(table, 4).restarts.set_index("start").kl
    assert starts.drop("svd").min() < starts["svd"] - 0.005


def test_polish_reaches_machine_precision_and_keeps_the_product():
    table = low_rank_table(20, 10, 4, 0.5, seed=0)
    start = least_squares(table, 4)
    W_U, W_E = joint.balance(start.W_U, start.W_E, table.prior)
    close((W_E @ W_U), start.logits, atol=1e-11)
    gram = W_U @ W_U.T
    close(gram, (W_E.T * table.prior) @ W_E, atol=1e-11)
    close(gram, np.diag(np.diag(gram)), atol=1e-11)
    end = joint.polish(table.conditional, table.prior, start.W_U, start.W_E)
    assert end.gradient_norm < 1e-13
    assert end.curvature > 0


def test_curvature_is_the_divergence_s_second_derivative():
    # Independent reference: differences of the row-optimized divergence along random symmetric-free directions.
    table = dirichlet_table(8, 5, seed=3)
    best = rank_d_optimum(table, 2)
    W_U, _ = joint.balance(best.W_U, best.W_E, table.prior)
    rng = np.random.default_rng(0)
    symmetries = [np.outer(np.eye(2)[a], W_U[b]).ravel() for a in range(2) for b in range(2)]
    symmetries += [np.outer(np.eye(2)[a], np.ones(5)).ravel() for a in range(2)]
    basis = np.linalg.svd(np.array(symmetries), full_matrices=True)[2][len(symmetries) :]
    step = 1e-3

    def value(direction):
        moved = W_U + step * direction.reshape(2, 5)
        return newton_refinement(table, moved, tolerance=1e-12).kl

    centre = value(np.zeros(10))
    for coefficients in rng.normal(size=(20, len(basis))):
        direction = coefficients @ basis / np.linalg.norm(coefficients)
        second = (value(direction) + value(-direction) - 2 * centre) / step**2
        assert second >= best.curvature * 0.98


def test_bad_width():
    for d in (0, -1):
        with pytest.raises(InterpError, match="at least 1"):
            rank_d_optimum(dirichlet_table(4, 4), d)


def test_the_seed_fixes_the_result():
    table = dirichlet_table(10, 6, 0.3, seed=0)
    first, second = rank_d_optimum(table, 2, seed=7), rank_d_optimum(table, 2, seed=7)
    np.testing.assert_array_equal(first.W_U, second.W_U)
    assert first.restarts.equals(second.restarts)
