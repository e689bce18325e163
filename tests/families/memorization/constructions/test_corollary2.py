"""Corollary 2, as printed (it fails) and repaired (it holds at all positions)."""

from itertools import product

import numpy as np
import pytest
from closeness import close

from interp.errors import InterpError
from interp.families.memorization.constructions.corollary2 import corollary2_weights
from interp.families.memorization.theory.attention_heads import attention_matrix
from interp.families.memorization.theory.optimum import rank_d_optimum
from interp.families.memorization.theory.table_generators import dirichlet_table


def forward(tensors, tokens):
    """Logits at every position of one sequence."""
    W_E, W_pos, W_Q, W_O, W_U = (
        tensors[name].numpy()
        for name in ("embed.W_E", "blocks.0.attn.W_pos", "blocks.0.attn.W_Q", "blocks.0.attn.W_O", "unembed.W_U")
    )
    stream = W_E[list(tokens)]
    seen = stream + W_pos[: len(tokens)]
    out = stream.copy()
    for query_key, value_output in zip(W_Q, W_O):
        scores = seen @ query_key @ seen.T / np.sqrt(W_E.shape[1])
        scores[np.triu_indices(len(tokens), 1)] = -np.inf
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        out += weights @ seen @ value_output
    return out @ W_U


@pytest.mark.parametrize(("n", "order", "length", "rank"), [(4, 2, 5, 3), (3, 3, 6, 2), (2, 2, 8, 1), (5, 2, 4, 4)])
@pytest.mark.thinned(3)
def test_every_position_of_every_sequence(n, order, length, rank):
    table = dirichlet_table(n, 6, order=order, seed=0)
    weights = corollary2_weights(table, length, rank)
    best = rank_d_optimum(table, rank)
    row = {context: i for i, context in enumerate(table.contexts)}
    sequences = list(product(range(n), repeat=length))
    if len(sequences) > 1024:
        sequences = [sequences[i] for i in np.random.default_rng(0).choice(len(sequences), 300, replace=False)]
    for tokens in sequences:
        logits = forward(weights.tensors, tokens)
        for end in range(order, length + 1):
            expected = best.logits[row[tokens[end - order : end]]]
            close(logits[end - 1], expected, atol=1e-9)
    assert weights.numbers["n_heads"] == np.ceil(np.ceil((n**order - 1) / (n - 1)) * 1.25)
    assert weights.numbers["outside_mass"] < 1e-24
    assert weights.tensors["embed.W_E"].shape == (n, n + length)


def test_erratum_9_least_number_of_heads_and_one_fewer():
    # P = ceil((N^k - 1) / (N - 1)): 5 heads for N = 4, k = 2; full rank and residual 7e-14 or less there.
    table = dirichlet_table(4, 6, order=2, seed=0)
    weights = corollary2_weights(table, 5, 3, spare=0.0)
    assert weights.numbers["n_heads"] == 5
    assert weights.numbers["logit_error"] < 1e-9
    with pytest.raises(InterpError, match="4 heads are too few for 16 windows; at least 5"):
        corollary2_weights(table, 5, 3, n_heads=4)


def test_erratum_9b_outside_mass_is_exp_minus_lambda_over_sqrt_d():
    # S = 8, d = 14: outside mass 1e-2 at lambda = 40, 1.1e-7 at 80: e^{-lambda / sqrt d} times bounded content scores,
    # not e^{-lambda} (4e-18 at 40).
    rng = np.random.default_rng(0)
    n, length, k, d = 6, 8, 2, 14
    content = np.hstack([rng.normal(size=(n, n)), np.zeros((n, length))])
    positions = np.hstack([np.zeros((length, n)), np.eye(length)])
    tokens = rng.integers(n, size=length)
    seen = content[tokens] + positions
    masses = {}
    for scale in (40, 80, 160):
        W = np.zeros((d, d))
        W[:n, :n] = rng.normal(size=(n, n))
        for s in range(k - 1, length):
            for back in range(k):
                W[n + s, n + s - back] = scale
        scores = seen[-1] @ W @ seen.T / np.sqrt(d)
        weights = np.exp(scores - scores.max())
        masses[scale] = weights[:-k].sum() / weights.sum()
    for scale, mass in masses.items():
        assert np.exp(-scale) < mass
        assert 1e-3 < mass / np.exp(-scale / np.sqrt(d)) < 1e4


def test_erratum_9c_generic_embeddings_destroy_the_mask():
    rng = np.random.default_rng(1)
    n, length, k, d = 6, 8, 2, 14
    positions = np.hstack([np.zeros((length, n)), np.eye(length)])
    outside = []
    for scale in (40, 160, 640):
        embedding = rng.normal(size=(n, d))  # not orthogonal to the position directions
        W = np.zeros((d, d))
        for s in range(k - 1, length):
            for back in range(k):
                W[n + s, n + s - back] = scale
        worst = 0.0
        for _ in range(20):
            seen = embedding[rng.integers(n, size=length)] + positions
            scores = seen[-1] @ W @ seen.T / np.sqrt(d)
            weights = np.exp(scores - scores.max())
            worst = max(worst, weights[:-k].sum() / weights.sum())
        outside.append(worst)
    assert min(outside) > 0.9


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
        rows.append(attention_matrix(np.hstack([before, windows]), content, positions, W))
    stacked = np.vstack(rows)
    assert stacked.shape == (64, 18)
    target = np.tile(rng.normal(size=(16, 3)), (4, 1))
    residual = target - stacked @ np.linalg.lstsq(stacked, target, rcond=None)[0]
    assert np.linalg.norm(residual) > 1


def test_bad_input():
    table = dirichlet_table(3, 4, order=2, seed=0)
    for arguments, says in [
        ({"length": 1, "rank": 2}, "length is 1"),
        ({"length": 5}, "give d_model, or both"),
        ({"length": 2, "W_U": np.ones((6, 4)), "W_E": np.ones((9, 6))}, "rank 6, more than the 5"),
        ({"length": 5, "rank": 2, "max_draws": 0}, "max_draws is 0"),
    ]:
        with pytest.raises(InterpError, match=says):
            corollary2_weights(table, **arguments)
    with pytest.raises(InterpError, match="order is 1"):
        corollary2_weights(dirichlet_table(3, 4, seed=0), 5, 2)
