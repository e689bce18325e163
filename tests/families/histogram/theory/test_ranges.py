"""Exact ranges against brute force over every sequence, with a numpy forward written independently."""

import inspect
import itertools

import numpy as np
import pytest
import torch
from closeness import close

from interp.errors import InterpError
from interp.families.histogram.theory import ranges
from interp.families.histogram.theory.ranges import TokenMixing, token_mixing

KINDS = ["lin", "lin-softmax", "dot", "dot-softmax", "bos", "bos-softmax"]


def mixed(kind, arrays, tokens):
    """x' of every position, for one sequence, in numpy."""
    ids = [*tokens] if not kind.startswith("bos") else [len(arrays["E"]) - 1, *tokens]
    x = arrays["E"][ids]
    if kind.startswith("lin"):
        a = arrays["W_mix"]
    else:
        a = x @ arrays["W_Q"] @ arrays["W_K"].T @ x.T / np.sqrt(x.shape[1])
    if kind.endswith("softmax"):
        a = np.exp(a - a.max(1, keepdims=True))
        a = a / a.sum(1, keepdims=True)
    return (x + a @ x)[-len(tokens) :]


def brute_force(kind, arrays, T, L, W, b):
    shape = (T, L, L, W.shape[1])
    lo, hi = np.full(shape, np.inf), np.full(shape, -np.inf)
    for tokens in itertools.product(range(T), repeat=L):
        z = mixed(kind, arrays, tokens) @ W + b
        for position, t in enumerate(tokens):
            at = (t, position, tokens.count(t) - 1)
            lo[at], hi[at] = np.minimum(lo[at], z[position]), np.maximum(hi[at], z[position])
    return lo, hi


def random_model(kind, T, L, d, seed, spread=1.0):
    rng = np.random.default_rng(seed)
    arrays = {"E": spread * rng.normal(size=(T + kind.startswith("bos"), d))}
    if kind.startswith("lin"):
        arrays["W_mix"] = rng.normal(size=(L, L))
    else:
        arrays["W_Q"], arrays["W_K"] = rng.normal(size=(d, d)), rng.normal(size=(d, d))
    return arrays, rng.normal(size=(d, 3)), rng.normal(size=3)


def tensors(arrays):
    named = {name: torch.from_numpy(value) for name, value in arrays.items() if name != "E"}
    return torch.from_numpy(arrays["E"]), named


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("T", "L"), [(2, 5), (3, 4), (4, 3), (5, 2), (3, 1)])
def test_ranges_agree_with_all_sequences(kind, T, L):
    for seed in range(3):
        arrays, W, b = random_model(kind, T, L, d=3, seed=seed)
        lo, hi = brute_force(kind, arrays, T, L, W, b)
        embedding, named = tensors(arrays)
        found = token_mixing(kind, embedding, L, **named).ranges(torch.from_numpy(W), torch.from_numpy(b))
        if kind.startswith("lin"):
            close(found.lo.numpy(), lo, atol=1e-11)
            close(found.hi.numpy(), hi, atol=1e-11)
        merged = found.over_positions()
        close(merged.lo.numpy(), lo.min(1), atol=1e-11)
        close(merged.hi.numpy(), hi.max(1), atol=1e-11)


def test_softmax_ranges_survive_enormous_scores():
    """Scores of +-1e6 overflow a plain exponential; the range is then that of a hard maximum."""
    value = torch.tensor([[1.0], [2.0], [4.0]], dtype=torch.float64)
    scores = 1e6 * torch.tensor([[1.0, -1.0, 0.0], [2.0, 0.0, -1.0], [-3.0, -2.0, -1.0]], dtype=torch.float64)
    mixing = TokenMixing(3, torch.zeros_like(value), value, scores=scores, softmax=True)
    found = mixing.ranges(torch.ones(1, 1, dtype=torch.float64))
    assert found.lo[0, :, 0].tolist() == [1.0, 1.0, 1.0]  # its own score wins
    assert (found.lo[1, 0, 0], found.hi[1, 0, 0]) == (1.0, 2.0)  # token 0 wins over it, token 2 does not


def test_counts_that_no_sequence_reaches_are_empty():
    for kind in KINDS:
        arrays, W, _ = random_model(kind, 1, 3, d=2, seed=0)
        embedding, named = tensors(arrays)
        found = token_mixing(kind, embedding, 3, **named).ranges(torch.from_numpy(W)).over_positions()
        assert torch.isinf(found.lo[0, :2]).all()
        assert (found.lo[0, :2] > found.hi[0, :2]).all()
        expected = mixed(kind, arrays, (0, 0, 0)) @ W
        close(found.lo[0, 2].numpy(), expected.min(0), atol=1e-12)
        close(found.hi[0, 2].numpy(), expected.max(0), atol=1e-12)


def test_blocks_of_directions_do_not_change_the_numbers(monkeypatch):
    for kind in ("lin", "dot-softmax"):
        arrays, W, _ = random_model(kind, 3, 3, d=2, seed=5)
        embedding, named = tensors(arrays)
        whole = token_mixing(kind, embedding, 3, **named).ranges(torch.from_numpy(W))
        with monkeypatch.context() as patch:
            patch.setattr(ranges, "_BLOCK", 1)
            pieces = token_mixing(kind, embedding, 3, **named).ranges(torch.from_numpy(W))
        assert torch.equal(whole.lo, pieces.lo)
        assert torch.equal(whole.hi, pieces.hi)


def test_bad_input_is_one_sentence():
    mixing = inspect.unwrap(token_mixing)  # as users run it: the shape checks of the tests come first else
    E = torch.zeros(3, 2, dtype=torch.float64)
    with pytest.raises(InterpError, match="unknown mixing kind"):
        mixing("linear", E, 3)
    with pytest.raises(InterpError, match=r"needs W_mix of shape \(3, 3\)"):
        mixing("lin", E, 3, W_mix=torch.zeros(2, 2, dtype=torch.float64))
    with pytest.raises(InterpError, match="needs W_Q and W_K"):
        mixing("dot", E, 3)
    with pytest.raises(InterpError, match="must both be"):
        mixing("dot", E, 3, W_Q=torch.zeros(3, 3), W_K=torch.zeros(3, 3))
