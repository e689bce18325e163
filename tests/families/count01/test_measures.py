"""Shapley values and synergies against their definitions over all orders, and against games solved by hand."""

from itertools import permutations

import numpy as np
import pandas as pd
import pytest
from closeness import close

from interp.errors import InterpError
from interp.families.count01.measures import pairwise_synergy, shapley
from interp.measures.subsets import all_subsets


def game(seed: int, n_heads: int) -> pd.DataFrame:
    groups = all_subsets(n_heads)
    values = np.random.default_rng(seed).random(len(groups))
    return pd.DataFrame({"heads": groups, "s_acc": values}).sample(frac=1.0, random_state=seed)


@pytest.mark.parametrize("n_heads", [1, 2, 5])
def test_shapley_is_the_mean_gain_over_all_orders(n_heads: int) -> None:
    table = game(0, n_heads)
    value = {frozenset(): 0.3} | {frozenset(h): v for h, v in zip(table["heads"], table["s_acc"], strict=True)}
    gains = np.zeros(n_heads)
    orders = list(permutations(range(n_heads)))
    for order in orders:
        for i, head in enumerate(order):
            gains[head] += (value[frozenset(order[: i + 1])] - value[frozenset(order[:i])]) / len(orders)
    found = shapley(table, "s_acc", empty=0.3)
    assert list(found.columns) == ["head", "value", "shapley"]
    np.testing.assert_array_equal(found["head"], np.arange(n_heads))
    close(found["shapley"], gains, atol=1e-12)
    assert list(found["value"]) == [value[frozenset({head})] for head in range(n_heads)]


@pytest.mark.parametrize("n_heads", [2, 5])
def test_interaction_averages_over_orders_with_the_pair_as_one(n_heads: int) -> None:
    """Merge the pair to one player: the index is its mean joint difference on arrival, over all (n - 1)! orders."""
    table = game(1, n_heads)
    value = {frozenset(): 0.5} | {frozenset(h): v for h, v in zip(table["heads"], table["s_acc"], strict=True)}
    found = pairwise_synergy(table, "s_acc")
    assert len(found) == n_heads * (n_heads - 1) // 2
    for row in found.itertuples():
        a, b = {row.head_a}, {row.head_b}
        assert row.synergy == pytest.approx(value[frozenset(a | b)] - value[frozenset(a)] - value[frozenset(b)] + 0.5)
        players = ["pair", *(set(range(n_heads)) - a - b)]
        differences = []
        for order in permutations(players):
            before = set(order[: order.index("pair")])
            differences.append(
                value[frozenset(before | a | b)]
                - value[frozenset(before | a)]
                - value[frozenset(before | b)]
                + value[frozenset(before)]
            )
        assert row.interaction == pytest.approx(np.mean(differences), abs=1e-12)


def test_efficiency_with_sixteen_heads() -> None:
    table = game(2, 16)
    found = shapley(table, "s_acc", empty=0.5)
    everyone = table.loc[table["heads"].map(len) == 16, "s_acc"].iloc[0]
    assert found["shapley"].sum() == pytest.approx(everyone - 0.5, abs=1e-10)


def test_cooperation_and_ensemble_by_hand() -> None:
    # Heads 3 and 5 are worth .5 beyond chance only together; head 9 brings .1 to any group; head 11 nothing.
    groups = [tuple(np.array([3, 5, 9, 11])[list(g)].tolist()) for g in all_subsets(4)]
    values = [0.4 + 0.5 * ({3, 5} <= set(g)) + 0.1 * (9 in g) for g in groups]
    table = pd.DataFrame({"heads": groups, "auc": values})
    close(shapley(table, "auc", empty=0.4)["shapley"], [0.25, 0.25, 0.1, 0.0], atol=1e-12)
    pairs = pairwise_synergy(table, "auc", empty=0.4).set_index(["head_a", "head_b"])
    expected = [0.5, 0, 0, 0, 0, 0]
    close(pairs["synergy"], expected, atol=1e-12)
    close(pairs["interaction"], expected, atol=1e-12)
    # An ensemble: each of two heads answers alone, so either replaces the other.
    table = pd.DataFrame({"heads": [(0,), (1,), (0, 1)], "auc": [1.0, 1.0, 1.0]})
    assert pairwise_synergy(table, "auc")["interaction"][0] == pytest.approx(-0.5)
    np.testing.assert_allclose(shapley(table, "auc")["shapley"], [0.25, 0.25])


def test_bad_tables() -> None:
    table = game(3, 3)
    with pytest.raises(
        InterpError, match="6 different groups in 6 rows; exact values for its 3 heads need each of their 7"
    ):
        shapley(table.iloc[1:], "s_acc")
    with pytest.raises(InterpError, match="7 different groups in 8 rows"):
        shapley(pd.concat([table, table.iloc[:1]]), "s_acc")
    with pytest.raises(InterpError, match="6 different groups in 7 rows"):
        shapley(pd.concat([table.iloc[1:], table.iloc[1:2]]), "s_acc")
    with pytest.raises(InterpError, match="not a finite number"):
        pairwise_synergy(table.assign(s_acc=np.nan), "s_acc")
    with pytest.raises(InterpError, match="0 different groups"):
        shapley(table.iloc[:0], "s_acc")
