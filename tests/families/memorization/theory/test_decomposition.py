import numpy as np
import pytest
from closeness import close

from interp.errors import InterpError
from interp.families.memorization.theory.closed_forms import least_squares
from interp.families.memorization.theory.decomposition import head_contributions, learned_directions
from interp.families.memorization.theory.kl import kl_divergence
from interp.families.memorization.theory.table import dirichlet_table, low_rank_table


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
