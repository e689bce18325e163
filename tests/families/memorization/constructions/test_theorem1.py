"""Theorem 1 as tensors, against a forward written out token by token."""

import contextlib

import numpy as np
import pytest
from closeness import close
from numpy_forward import table_forward

from interp.errors import InterpError
from interp.families.memorization import as_table, kl_divergence, rank_d_optimum
from interp.families.memorization.constructions.theorem1 import CONDITION_REFUSED, count_likeliest, theorem1
from interp.families.memorization.theory.drawn_tables import dirichlet_table, lookup_table


@pytest.mark.parametrize(
    ("n", "order", "m", "d"),
    [(6, 1, 5, 2), (4, 2, 6, 3), (8, 2, 10, 4), (5, 3, 10, 4), (4, 2, 9, 6), (3, 3, 9, 5), (3, 4, 7, 3)],
)
@pytest.mark.thinned(5)
def test_the_layer_computes_the_optimum_exactly(n, order, m, d):
    table = dirichlet_table(n, m, order=order, prior="zipf", seed=0)
    weights = theorem1(table, d).weights
    logits = table_forward(weights.tensors, table.contexts)[:, -1]
    best = rank_d_optimum(table, d)
    assert kl_divergence(table, logits) == pytest.approx(best.kl, abs=1e-9)
    close(logits, best.logits, atol=1e-9)
    assert weights.numbers["kl"] == pytest.approx(best.kl, abs=1e-12)
    assert weights.numbers["logit_error"] < 1e-9
    assert weights.numbers["residual"] < 1e-10
    assert weights.numbers["condition"] <= 1e6
    assert weights.tensors["blocks.0.attn.W_pos"].shape == (order, d)
    assert weights.tensors["unembed.W_U"].shape == (d, m)


def test_any_target_can_be_given():
    rng = np.random.default_rng(0)
    table = dirichlet_table(4, 5, order=2, seed=0)
    W_U, W_E = rng.normal(size=(3, 5)), rng.normal(size=(16, 3))
    weights = theorem1(table, W_U=W_U, W_E=W_E).weights
    logits = table_forward(weights.tensors, table.contexts)[:, -1]
    close(logits, W_E @ W_U, atol=1e-10)
    ordered = np.sort(logits, axis=1)
    assert weights.margin == pytest.approx((ordered[:, -1] - ordered[:, -2]).min(), abs=1e-9)


def test_erratum_4_one_position_needs_no_head():
    table = dirichlet_table(6, 5, seed=0)
    weights = theorem1(table, 2).weights
    best = rank_d_optimum(table, 2)
    np.testing.assert_array_equal(weights.tensors["embed.W_E"].numpy(), best.W_E)
    assert not weights.tensors["blocks.0.attn.W_O"].any()
    assert weights.numbers["kl"] == best.kl


def test_erratum_5_heads_by_the_corrected_rank():
    # N = 4, k = 2, d = 6: the print's ceil(16 / 6) = 3 heads have rank 13 of 16; 4 are needed.
    table = dirichlet_table(4, 9, order=2, seed=0)
    with pytest.raises(InterpError, match="3 heads are too few for 16 contexts at d = 6; at least 4"):
        theorem1(table, 6, n_heads=3)
    exact = theorem1(table, 6, spare=0.0).weights
    assert exact.numbers["n_heads"] == 4
    assert exact.numbers["logit_error"] < 1e-9


def test_erratum_7_a_quarter_more_heads_buys_digits():
    # k=2, N=16, d=8: condition 3.5e5 with the least number of heads, 9e2 with 25% more.
    table = dirichlet_table(16, 10, order=2, seed=0)
    best = rank_d_optimum(table, 8, random_starts=0)
    least, spared = (
        [
            theorem1(table, W_U=best.W_U, W_E=best.W_E, spare=spare, max_draws=1, draw_seed=seed).weights.numbers
            for seed in range(3)
        ]
        for spare in (0.0, 0.25)
    )
    assert np.median([a["condition"] for a in least]) > 10 * np.median([b["condition"] for b in spared])
    assert max(b["condition"] for b in spared) < 1e5
    # solved in float64 but run in float32: 1e-5 .. 1e-3 of the logits
    assert all(1e-7 < b["float32_logit_error"] < 1e-3 for b in spared)


def test_erratum_7_one_dimension_is_singular_in_float64():
    with pytest.raises(InterpError, match=r"condition number .* give more heads"):
        theorem1(dirichlet_table(6, 5, order=2, seed=0), 1, spare=0.25)


@pytest.mark.slow
def test_one_dimension_takes_three_times_the_least_heads():
    table = dirichlet_table(4, 6, order=2, seed=1)

    def built(spare, n_heads):
        found = 0
        for seed in range(8):
            with contextlib.suppress(InterpError):
                numbers = theorem1(table, 1, spare=spare, draw_seed=seed).weights.numbers
                assert numbers["n_heads"] == n_heads
                assert numbers["condition"] <= CONDITION_REFUSED
                assert numbers["logit_error"] < 1e-6
                found += 1
        return found

    assert built(None, 48) >= 6
    assert built(0.25, 20) <= 2


def test_erratum_8_ridge_over_all_contexts_not_interpolation():
    # N=12, k=2, d=4, Zipf prior: interpolating N_eps contexts leaves gaps of 6..16 nats;
    # ridge leaves 0.0138, 0.050, 0.105, 0.195, 0.344 for eps = .01, .05, .1, .2, .4.
    table = dirichlet_table(12, 12, order=2, prior="zipf", seed=0)
    best = rank_d_optimum(table, 4, random_starts=2)
    gaps = []
    for epsilon, covered, heads in [(0.01, 137, 35), (0.05, 109, 28), (0.1, 83, 21), (0.2, 48, 12), (0.4, 16, 4)]:
        assert count_likeliest(table.prior, epsilon) == covered
        weights = theorem1(table, W_U=best.W_U, W_E=best.W_E, epsilon=epsilon, spare=0.0).weights
        assert weights.numbers["n_heads"] == heads
        logits = table_forward(weights.tensors, table.contexts)[:, -1]
        gaps.append(kl_divergence(table, logits) - best.kl)
        assert gaps[-1] == pytest.approx(weights.numbers["kl"] - weights.numbers["target_kl"], abs=1e-12)
        assert 0 < gaps[-1] < epsilon + 0.02
    assert gaps == sorted(gaps)


def test_erratum_8_interpolation_is_wild():
    table = dirichlet_table(12, 12, order=2, prior="zipf", seed=0)
    best = rank_d_optimum(table, 4, random_starts=2)
    likely = np.argsort(-table.prior)[: count_likeliest(table.prior, 0.2)]
    part = as_table(table.conditional[likely], np.full(len(likely), 1 / len(likely)), np.array(table.contexts)[likely])
    weights = theorem1(part, W_U=best.W_U, W_E=best.W_E[likely], spare=0.0).weights
    logits = table_forward(weights.tensors, table.contexts)[:, -1]
    close(logits[likely], best.logits[likely], atol=1e-6)
    assert kl_divergence(table, logits) - best.kl > 1


def test_likeliest():
    prior = np.array([0.1, 0.5, 0.25, 0.15])
    assert [count_likeliest(prior, epsilon) for epsilon in (0.0, 0.09, 0.1, 0.25, 0.5, 0.9)] == [4, 4, 3, 2, 1, 1]


def test_a_look_up_table_is_memorized():
    # float32 too: logits move by less than the lead of the right output
    table = lookup_table(6, 6, 0.05, order=2, seed=0)
    weights = theorem1(table, 3).weights
    assert weights.numbers["float32_logit_error"] < weights.margin


def test_the_seed_fixes_the_weights():
    table = dirichlet_table(3, 4, order=2, seed=0)
    first, again, other = (theorem1(table, 2, draw_seed=seed).weights.tensors for seed in (5, 5, 6))
    assert all((first[name] == again[name]).all() for name in first)
    assert (first["blocks.0.attn.W_Q"] != other["blocks.0.attn.W_Q"]).any()


def test_bad_input():
    table = dirichlet_table(3, 4, order=2, seed=0)
    for arguments, says in [
        ({}, "give d_model, or both"),
        ({"d_model": 2, "W_U": np.ones((2, 4)), "W_E": np.ones((9, 2))}, "give d_model, or both"),
        ({"W_U": np.ones((2, 4))}, "give d_model, or both"),
        ({"W_U": np.ones((2, 5)), "W_E": np.ones((9, 2))}, "W_U has shape"),
        ({"W_U": np.ones((0, 4)), "W_E": np.ones((9, 0))}, "W_U has shape"),
        ({"W_U": np.ones((2, 4)), "W_E": np.ones((9, 3))}, "W_E has shape"),
        ({"d_model": 2, "epsilon": 1.0}, "epsilon is 1"),
        ({"d_model": 2, "epsilon": 0.1, "ridge": 0.0}, "ridge is 0"),
        ({"d_model": 2, "spare": -1.0}, "1 heads are too few"),
        ({"d_model": 2, "max_draws": 0}, "max_draws is 0"),
    ]:
        with pytest.raises(InterpError, match=says):
            theorem1(table, **arguments)
