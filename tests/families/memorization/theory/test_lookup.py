import numpy as np
import pytest
from scipy.optimize import brentq, minimize_scalar
from shared import lookup_bounds

from interp.errors import InterpError
from interp.families.memorization.theory.drawn_tables import lookup_table
from interp.families.memorization.theory.kl import entropy_rows, kl_rows
from interp.families.memorization.theory.lookup import coherence, lookup_construction, random_sign_unembedding
from interp.families.memorization.theory.table import as_table


def noisy(rng, m=None):
    m = int(rng.integers(3, 30)) if m is None else m
    return lookup_table(8, m, rng.uniform(0.005, 0.4), noise_concentration=10 ** rng.uniform(-0.5, 2), seed=rng)


def separated_unembedding(rng, m):
    """Nearly orthogonal columns, C below 1/2, norms not all one."""
    basis = np.linalg.qr(rng.normal(size=(m, m)))[0]
    return basis + rng.uniform(0.0, 0.2) * rng.normal(size=(m, m)) / np.sqrt(m)


def test_the_three_equations_for_lambda_by_brentq():
    rng = np.random.default_rng(0)
    for _ in range(30):
        table = noisy(rng, 12)
        W_U = random_sign_unembedding(12, 200, seed=int(rng.integers(1 << 30)))
        gram = W_U.T @ W_U
        for scale in ("entropy", "match", "optimal"):
            found = lookup_construction(table, unembedding=W_U, scale=scale)
            for i, g in enumerate(found.targets):
                p, u = table.conditional[i], gram[:, g]

                def log_q(lam, u=u, g=g):
                    return -np.log(np.exp(lam * (u - u[g])).sum())

                if scale == "entropy":
                    H = -(p * np.log(p)).sum()
                    lam = brentq(lambda x, H=H: log_q(x) + H, 0, 200)
                elif scale == "match":
                    lam = brentq(lambda x, p=p, g=g: log_q(x) - np.log(p[g]), -50, 200)
                else:
                    lam = minimize_scalar(
                        lambda x, p=p, u=u: kl_rows(p[None], x * u[None])[0], bracket=(0, 10), tol=1e-10
                    ).x
                assert found.scales[i] == pytest.approx(lam, rel=1e-6)


def test_erratum_16_the_printed_lambda_equation_has_no_solution():
    # The left side is log sum_j exp(lambda (w_j - w_g) . w_g): in (0, log M] for lambda >= 0, never -H < 0.
    gram = random_sign_unembedding(20, 300).T @ random_sign_unembedding(20, 300)
    for lam in np.concatenate([np.linspace(0, 50, 200), [1e2, 1e3]]):
        left = np.log(np.exp(lam * (gram[:, 3] - gram[3, 3])).sum())
        assert 0 <= left <= np.log(20) + 1e-12
    assert np.log(np.exp(0 * gram[:, 3]).sum()) == pytest.approx(np.log(20))


def test_erratum_16_entropy_scale_gives_probability_exp_minus_H():
    table = noisy(np.random.default_rng(1), 10)
    found = lookup_construction(table, 100, scale="entropy", seed=2)
    q = np.exp(found.logits) / np.exp(found.logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(q[np.arange(8), found.targets], np.exp(-entropy_rows(table.conditional)), rtol=1e-10)
    assert (found.scales >= 0).all()


def test_erratum_16_corrected_bound_holds_printed_is_undefined():
    rng = np.random.default_rng(3)
    rows = 0
    while rows < 800:
        table = noisy(rng)
        m = table.n_outputs
        W_U = separated_unembedding(rng, m)
        targets = rng.integers(m, size=8) if rng.integers(2) else table.conditional.argmax(axis=1)
        gram = W_U.T @ W_U
        deviation = np.abs(gram - np.eye(m)).max()
        if deviation >= 0.5 or not all((np.delete(gram[g], g) < gram[g, g]).all() for g in targets):
            continue
        found = lookup_construction(table, unembedding=W_U, scale="entropy", targets=targets)
        assert found.deviation == pytest.approx(deviation)
        corrected = lookup_bounds.theorem3_bound(table.conditional, targets, deviation)
        loose = lookup_bounds.theorem3_bound(table.conditional, targets, deviation, statement="loose")
        assert (found.kl_by_row <= corrected + 1e-9).all()
        assert (corrected <= loose + 1e-12).all()
        assert np.isnan(lookup_bounds.theorem3_bound(table.conditional, targets, deviation, statement="printed")).all()
        rows += 8


def test_erratum_16_unit_norm_bound_uses_the_measured_coherence():
    rng = np.random.default_rng(4)
    for _ in range(80):
        table = noisy(rng)
        found = lookup_construction(table, int(rng.integers(20, 200)), scale="entropy", seed=int(rng.integers(1 << 30)))
        if found.coherence < 1:
            bound = lookup_bounds.theorem3_unit_bound(table.conditional, found.targets, found.coherence)
            assert (found.kl_by_row <= bound + 1e-9).all()


def test_erratum_16_match_bound_holds_and_often_beats_entropy():
    rng = np.random.default_rng(5)
    wins = rows = 0
    for _ in range(40):
        table = noisy(rng)
        W_U = random_sign_unembedding(table.n_outputs, 150, seed=int(rng.integers(1 << 30)))
        match, entropy, optimal = (
            lookup_construction(table, unembedding=W_U, scale=scale) for scale in ("match", "entropy", "optimal")
        )
        bound = lookup_bounds.match_bound(table.conditional, match.targets, match.coherence, match.scales)
        assert (match.kl_by_row <= bound + 1e-9).all()
        assert (optimal.kl_by_row <= np.minimum(match.kl_by_row, entropy.kl_by_row) + 1e-12).all()
        wins += (match.kl_by_row < entropy.kl_by_row).sum()
        rows += 8
    assert rows == 320
    assert wins / rows > 0.9  # 98.6% in the errata


def test_erratum_16_entropy_lambda_is_far_from_optimal_when_wide():
    # KL(lambda_H) / KL(lambda*) = 5..16 for d >= 64 (M = 20, 100; eps = .01, .1), and it does not vanish as d grows.
    table = lookup_table(30, 100, 0.1, noise_concentration=5.0, seed=0)
    ratios = [
        lookup_construction(table, d, scale="entropy").kl / lookup_construction(table, d, scale="optimal").kl
        for d in (256, 1024)
    ]
    assert min(ratios) > 4
    wide = lookup_construction(table, unembedding=np.eye(100), scale="entropy")
    assert wide.kl > 0.1  # orthogonal outputs, the limit of large d: still (1 - pi_g) lambda away


def test_erratum_16_entropy_zero_is_memorized_at_d_2():
    # M = 12 on the circle, lambda 1, 10, 30, 100, 300: cross-entropy 1.72, .43, .035, 3e-6, 7e-18.
    angles = 2 * np.pi * np.arange(12) / 12
    W_U = np.stack([np.cos(angles), np.sin(angles)])
    p = np.eye(12)
    for lam, loss in {1: 1.72, 10: 0.43, 30: 0.035, 100: 3e-6}.items():
        assert kl_rows(p, lam * W_U.T @ W_U)[0] == pytest.approx(loss, rel=0.05)
    with pytest.raises(InterpError, match="no finite lambda"):
        lookup_construction(as_table(p), unembedding=W_U)


def test_erratum_16_johnson_lindenstrauss_widths():
    assert [lookup_bounds.theorem3_least_width(m) for m in (10, 50, 100, 1000, 50257)] == [307, 504, 591, 885, 1386]
    for m in (10, 1000):
        least = lookup_bounds.theorem3_least_width(m)
        assert lookup_bounds.johnson_lindenstrauss_deviation(m, least) < 0.5
        assert lookup_bounds.johnson_lindenstrauss_deviation(m, least - 1) >= 0.5
    # for M below about 867 the domain lies inside d >= M - 1, where divergence zero is trivial
    assert lookup_bounds.theorem3_least_width(866) >= 865
    assert lookup_bounds.theorem3_least_width(870) < 869


def test_random_signs_have_small_coherence():
    # existence: mu <= 2 sqrt(log M / d) with an exact diagonal; measured .175-.178 against .173-.175
    W_U = random_sign_unembedding(100, 2400, seed=0)
    np.testing.assert_allclose((W_U**2).sum(axis=0), 1)
    assert coherence(W_U) < 1.15 * 2 * np.sqrt(np.log(100) / 2400)


def test_bad_input():
    table = lookup_table(4, 5, 0.1)
    for arguments, says in [
        ({}, "d is 0"),
        ({"d": 100, "scale": "best"}, "unknown scale"),
        ({"d": 1, "scale": "entropy"}, "optimal"),
    ]:
        with pytest.raises(InterpError, match=says):
            lookup_construction(table, **arguments)
    with pytest.raises(InterpError, match="below 1/2"):
        lookup_bounds.theorem3_bound(table.conditional, np.zeros(4, dtype=int), 0.6)
