import numpy as np
import pytest
from closeness import close

from interp.errors import InterpError
from interp.families.memorization import as_table, head_contributions, kl_divergence, learned_directions, least_squares
from interp.families.memorization.theory import spectrum
from interp.families.memorization.theory.drawn_tables import dirichlet_table, lookup_table, low_rank_table


def test_erratum_11_rank_for_zero_divergence():
    # N=6, M=5: rank 4 with uniform or marginal centering, 5 with pi-centering, whose f_ls at d=4 is not exact.
    table = dirichlet_table(6, 5, seed=0)
    assert spectrum.zero_divergence_rank(table) == 4
    assert spectrum.zero_divergence_rank(table, "marginal") == 4
    assert spectrum.zero_divergence_rank(table, "pi") == 5
    assert least_squares(table, 4).kl < 1e-15
    assert least_squares(table, 4, centering="marginal").kl < 1e-15
    assert least_squares(table, 4, centering="pi").kl > 1e-3
    # N < M - 1: both 5.
    wide = dirichlet_table(5, 8, seed=0)
    assert spectrum.zero_divergence_rank(wide) == spectrum.zero_divergence_rank(wide, "pi") == 5


def test_rank_is_never_more_than_contexts_or_outputs_less_one():
    for n, m in [(3, 9), (9, 3), (5, 6), (6, 6), (2, 2)]:
        assert spectrum.zero_divergence_rank(dirichlet_table(n, m, seed=1)) == min(n, m - 1)


def test_the_rank_of_a_table_is_the_smallest_over_row_shifts():
    table = low_rank_table(30, 12, 3, seed=0)
    assert spectrum.zero_divergence_rank(table) == 3
    # No constant subtracted in each row brings the rank below that of the projection J.
    logs = np.log(table.conditional)
    shift = np.random.default_rng(0).normal(size=(30, 1))
    assert np.linalg.matrix_rank(logs - shift, tol=1e-10) >= 3


def test_zeros_have_no_rank():
    with pytest.raises(InterpError, match="zeros"):
        spectrum.zero_divergence_rank(lookup_table(4, 4))


def test_centerings_have_zero_weighted_mean():
    table = dirichlet_table(7, 5, prior="zipf", seed=0)
    for centering, weights in [
        ("uniform", np.full((7, 5), 0.2)),
        ("marginal", np.tile(table.prior @ table.conditional, (7, 1))),
        ("pi", table.conditional),
    ]:
        close((weights * spectrum.centered_log_table(table, centering)).sum(axis=1), 0, atol=1e-13)
    with pytest.raises(InterpError, match="unknown centering"):
        spectrum.centered_log_table(table, "mean")


def test_sqrt_prior_spectrum_is_that_of_repeated_rows():
    # A row of prior 3/4 counts like three equal rows of prior 1/4.
    rows = dirichlet_table(2, 5, seed=3).conditional
    weighted = as_table(rows, [0.25, 0.75])
    repeated = np.log(rows[[0, 1, 1, 1]])
    repeated -= repeated.mean(axis=1, keepdims=True)
    expected = np.linalg.svd(repeated, compute_uv=False)[:2] / 2
    close(spectrum.singular_values(weighted, sqrt_prior=True), expected, atol=1e-13)


def test_subspace_angles():
    first = np.array([[1.0, -1, 0, 0], [0, 0, 1, -1]])
    angle = 0.3
    turned = np.array([[np.cos(angle), -np.cos(angle), np.sin(angle), -np.sin(angle)]])
    np.testing.assert_allclose(spectrum.subspace_angles(first[:1], turned), np.degrees([angle]))
    close(spectrum.subspace_angles(first, turned + 7), [0], atol=1e-12)  # constants do not count
    tilted = np.array([[1.0, -1, 0, 0], [1e-9, 1e-9, 1 - 1e-9, -1 - 1e-9]])
    assert spectrum.subspace_angles(first, tilted)[1] == pytest.approx(np.degrees(np.sqrt(2) * 1e-9), rel=1e-6)


def test_top_directions_are_bounded():
    with pytest.raises(InterpError, match="d is 5"):
        least_squares(dirichlet_table(4, 6), 5)


@pytest.mark.parametrize("outputs", [2, 3, 7, 10])
def test_a_uniform_table_has_rank_zero(outputs):
    """Its logarithms are constants: what the centering leaves is rounding, which is no direction."""
    for contexts in (1, 4, 30):
        assert spectrum.zero_divergence_rank(np.full((contexts, outputs), 1 / outputs)) == 0


def test_what_is_small_beside_the_largest_value_is_no_dimension():
    """Logits 100 u v^T + 1e-9 x y^T with orthogonal factors: rank 1 as far as float64 tells ranks apart, 2 at 1e-5."""
    u, v = np.array([1.0, 1, -1, -1]), np.array([1.0, -1, 1, -1])
    x, y = np.array([1.0, -1, 1, -1]), np.array([1.0, 1, -1, -1])
    for size, rank in ((1e-9, 1), (1e-5, 2)):
        logits = 100 * np.outer(u, v) + size * np.outer(x, y)
        table = np.exp(logits - logits.max(1, keepdims=True))
        assert spectrum.zero_divergence_rank(table / table.sum(1, keepdims=True)) == rank


def test_head_contributions_add_up():
    table = dirichlet_table(8, 5, prior="zipf", seed=0)
    rng = np.random.default_rng(0)
    heads = rng.normal(size=(3, 8, 5))
    heads[1] = rng.normal(size=(8, 1))  # a constant in each row: softmax never sees it
    rest = np.log(table.conditional) - heads[0] - heads[2]  # so all together are exact
    found = head_contributions(table, rest, heads)
    assert found["kl_increase"][1] == pytest.approx(0, abs=1e-12)
    assert found["rms"][1] == pytest.approx(0, abs=1e-12)
    assert found["accuracy_without"][1] == pytest.approx(1.0)
    assert found["kl_without"][0] == pytest.approx(kl_divergence(table, rest + heads[2]))
    assert found["kl_alone"][0] == pytest.approx(kl_divergence(table, rest + heads[0]))
    assert (found["kl_increase"][[0, 2]] > 0.01).all()
    with pytest.raises(InterpError, match="heads, contexts, outputs"):
        head_contributions(table, rest, heads[0])


def test_learned_directions():
    table = low_rank_table(30, 8, 3, 0.01, prior="zipf", seed=0)
    best = least_squares(table, 2, sqrt_prior=True)
    found = learned_directions(table, np.array([[1.0, 2], [0, 1]]) @ best.W_U + 5.0)  # any basis, any constant
    np.testing.assert_allclose(found["expressed"][:2], 1)
    close(found["expressed"][2:], 0, atol=1e-20)
    close(found["angle"][:2], 0, atol=1e-6)
    assert found["angle"][2:].isna().all()
    assert found["energy"].sum() == pytest.approx(1)
    assert found["energy"][:3].sum() > 0.999
    assert len(found) == 7
    one = low_rank_table(30, 8, 1, 0.0, seed=0)  # rounding leaves further directions, which are none
    assert learned_directions(one, best.W_U)["energy"].to_list() == [pytest.approx(1)]
    other = np.linalg.svd(np.vstack([best.W_U, np.ones(8)]))[2][3:5]  # orthogonal to both and to the ones
    np.testing.assert_allclose(learned_directions(table, other)["angle"][:2], 90)


def test_equal_singular_values_share_what_is_expressed():
    """Four equal directions of five outputs: whatever basis LAPACK gives, two rows express half of their space."""
    found = learned_directions(lookup_table(5, 5, 0.1, targets=range(5)), np.random.default_rng(0).normal(size=(2, 5)))
    np.testing.assert_allclose(found["singular_value"], found["singular_value"][0])
    np.testing.assert_allclose(found["expressed"], [0.5] * 4)
