"""Corollary 2, as printed (it fails) and repaired (it holds at all positions)."""

from itertools import product

import numpy as np
import pytest
from closeness import close
from numpy_forward import table_forward

from interp.errors import InterpError
from interp.families.memorization.constructions.corollary2 import corollary2
from interp.families.memorization.theory import attention_heads, drawn_tables, optimum


@pytest.mark.parametrize(("n", "order", "length", "rank"), [(4, 2, 5, 3), (3, 3, 6, 2), (2, 2, 8, 1), (5, 2, 4, 4)])
@pytest.mark.thinned(3)
def test_every_position_of_every_sequence(n, order, length, rank):
    table = drawn_tables.dirichlet_table(n, 6, order=order, seed=0)
    weights = corollary2(table, length, rank).weights
    best = optimum.rank_d_optimum(table, rank)
    row = {context: i for i, context in enumerate(table.contexts)}
    sequences = list(product(range(n), repeat=length))
    logits = table_forward(weights.tensors, sequences)
    for end in range(order, length + 1):
        expected = best.logits[[row[tokens[end - order : end]] for tokens in sequences]]
        close(logits[:, end - 1], expected, atol=1e-9)
    assert weights.numbers["n_heads"] == np.ceil(np.ceil((n**order - 1) / (n - 1)) * 1.25)
    assert weights.numbers["outside_mass"] < 1e-24
    assert weights.tensors["embed.W_E"].shape == (n, n + length)


def test_erratum_9_least_number_of_heads_and_one_fewer():
    # P = ceil((N^k - 1) / (N - 1)): 5 heads for N = 4, k = 2; full rank and residual 7e-14 or less there.
    table = drawn_tables.dirichlet_table(4, 6, order=2, seed=0)
    weights = corollary2(table, 5, 3, spare=0.0).weights
    assert weights.numbers["n_heads"] == 5
    assert weights.numbers["logit_error"] < 1e-9
    with pytest.raises(InterpError, match="4 heads are too few for 16 windows; at least 5"):
        corollary2(table, 5, 3, n_heads=4)


def test_erratum_9d_position_values_cannot_serve_all_positions():
    # S = 5, k = 2, N = 4, d = 9: with positions in the values, ceil(N^k / d) = 2 heads have rank 15 of 64 rows or less.
    rng = np.random.default_rng(2)
    n, length, k, d = 4, 5, 2, 9
    content = np.hstack([rng.normal(size=(n, n)), np.zeros((n, length))])
    positions = np.hstack([np.zeros((length, n)), np.eye(length)])
    W = np.zeros((2, d, d))
    W[:, :n, :n] = rng.normal(size=(2, n, n)) * 3
    for s in range(k - 1, length):
        for back in range(k):
            W[:, n + s, n + s - back] = 300 + 9 * rng.normal(size=2)
    windows = np.array(list(product(range(n), repeat=k)))
    rows = []
    for end in range(k, length + 1):
        before = np.zeros((len(windows), end - k), dtype=int)
        rows.append(attention_heads.attention_matrix(np.hstack([before, windows]), content, positions, W))
    stacked = np.vstack(rows)
    assert stacked.shape == (64, 18)
    target = np.tile(rng.normal(size=(16, 3)), (4, 1))
    residual = target - stacked @ np.linalg.lstsq(stacked, target, rcond=None)[0]
    assert np.linalg.norm(residual) > 1


def test_bad_input():
    table = drawn_tables.dirichlet_table(3, 4, order=2, seed=0)
    for arguments, says in [
        ({"length": 1, "rank": 2}, "length is 1"),
        ({"length": 5}, "give d_model, or both"),
        ({"length": 2, "W_U": np.ones((6, 4)), "W_E": np.ones((9, 6))}, "rank 6, more than the 5"),
        ({"length": 5, "rank": 2, "max_draws": 0}, "max_draws is 0"),
    ]:
        with pytest.raises(InterpError, match=says):
            corollary2(table, **arguments)
    with pytest.raises(InterpError, match="order is 1"):
        corollary2(drawn_tables.dirichlet_table(3, 4, seed=0), 5, 2)
