"""An independent forward pass of the six histogram models, in numpy, from the parameters by name."""

import itertools

import numpy as np
import pytest


def forward(model, tensors, sequences, dtype=np.float64):
    """Logits (n, L, n_out) of sequences (n, L). Weights are rounded to dtype first and everything is done in it."""
    w = {name: tensor.numpy().astype(dtype) for name, tensor in tensors.items()}
    length = sequences.shape[1]
    ids = np.asarray(sequences)
    if model.startswith("bos"):
        ids = np.concatenate([np.full((len(ids), 1), len(w["embed.W_E"]) - 1), ids], 1)
    x = w["embed.W_E"][ids]
    if model.startswith("lin"):
        a = np.broadcast_to(w["blocks.0.attn.W_mix"][0], (len(ids), length, length))
    else:
        q, k = x @ w["blocks.0.attn.W_Q"][0], x @ w["blocks.0.attn.W_K"][0]
        a = q @ k.transpose(0, 2, 1) / np.sqrt(dtype(x.shape[-1]))
    if model.endswith("softmax"):
        a = np.exp(a - a.max(-1, keepdims=True))
        a = a / a.sum(-1, keepdims=True)
    mixed = (x + a @ x)[:, -length:]
    hidden = np.maximum(mixed @ w["unembed.W_in"] + w["unembed.b_in"], 0)
    logits = hidden @ w["unembed.W_out"] + w["unembed.b_out"]
    assert np.isfinite(logits).all()  # pyproject.toml does not let numpy's own flag of a product say it
    return logits


def counts(sequences):
    return (sequences[:, :, None] == sequences[:, None, :]).sum(-1)


def all_sequences(T, L):
    return np.array(list(itertools.product(range(T), repeat=L)))


def two_token_sequences(T, L):
    """a^k b^(L-k) for all pairs and all k: the exact worst case of every model whose mixing treats slots alike."""
    pairs = np.array(list(itertools.permutations(range(T), 2)))
    slots = np.arange(L)
    return np.concatenate([np.where(slots < k, pairs[:, :1], pairs[:, 1:]) for k in range(1, L + 1)])


def leads(model, built, sequences, dtype=np.float64):
    """By how much the right logit leads over the best other one, (n, L)."""
    logits = forward(model, built.tensors, sequences, dtype)
    right = (counts(sequences) - (logits.shape[-1] == sequences.shape[1]))[..., None]
    others = logits.copy()
    np.put_along_axis(others, right, -np.inf, -1)
    return np.take_along_axis(logits, right, -1)[..., 0] - others.max(-1)


class Reference:
    forward, counts, leads = staticmethod(forward), staticmethod(counts), staticmethod(leads)
    all_sequences, two_token_sequences = staticmethod(all_sequences), staticmethod(two_token_sequences)


@pytest.fixture
def reference():
    return Reference
