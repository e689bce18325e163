"""The rank of the attention matrix: how many contexts one layer can tell apart, and how many heads a table needs."""

import numpy as np
from jaxtyping import Float, Int

from interp.errors import InterpError


def affine_dimension(n_tokens: int, order: int) -> int:
    """N + k - 2: the dimension of the affine hull of all e(t) + pos_j, for N generic tokens and k generic positions."""
    return n_tokens + order - 2


def attention_rank(n_tokens: int, order: int, d: int, n_heads: int) -> int:
    """Rank of A (N^k contexts, P d) for generic embeddings, positions and keys.

    min(N^k, P min(d, r) + [d > r]), r = N + k - 2: beyond d = r every head repeats one constant column. With one
    position (k = 1) every head gives e(t) + pos_1, so the rank is min(N, d) whatever P. Printed: min(N^k, P d).
    Observed in 13 cases at 120 digits, not proved. Source: Dana 2024, Lemma 3; errata 4 and 5.
    """
    _sizes(n_tokens, order, d)
    if n_heads < 0:
        raise InterpError(f"{n_heads} heads: the number cannot be negative")
    if n_heads == 0:
        return 0
    if order == 1:
        return min(n_tokens, d)
    r = affine_dimension(n_tokens, order)
    return min(n_tokens**order, n_heads * min(d, r) + (d > r))


def heads_needed(n_tokens: int, order: int, d: int, *, n_contexts: int | None = None, spare: float = 0.25) -> int:
    """Heads for a rank of n_contexts (default: all N^k), times 1 + spare: 25% more gain 2.5 digits of conditioning.

    ceil(n / d) for d <= r = N + k - 2, else ceil((n - 1) / r). For k = 1 it is 0: the embedding alone determines the
    answer, so heads do not help. Source: Dana 2024, Theorem 1; errata 4, 5 and 7.
    """
    _sizes(n_tokens, order, d)
    if spare < 0:
        raise InterpError(f"spare is {spare}; 0 (the least number of heads) or more is needed")
    if order == 1:
        return 0
    n, r = n_tokens**order if n_contexts is None else n_contexts, affine_dimension(n_tokens, order)
    least = -(-n // d) if d <= r else -(-(n - 1) // r)
    return max(1, int(np.ceil(least * (1 + spare) - 1e-9)))


def attention_matrix(
    contexts: Int[np.ndarray, "rows length"],
    W_E: Float[np.ndarray, "tokens d"],
    W_pos: Float[np.ndarray, "positions d"],
    W_QK: Float[np.ndarray, "heads d d"],
) -> Float[np.ndarray, "rows heads_times_d"]:
    """Return A, the output of every head at the last token of every context, before W_OV: rows x (heads d).

    Head p: sum_j softmax_j(x_s W_QK x_j / sqrt d) x_j with x_j = e(t_j) + pos_j, s the last position. The last
    position of a context of length L is position L - 1. Source: Dana 2024, section 3.1; erratum 1.
    """
    length, d = contexts.shape[1], W_E.shape[1]
    x = W_E[contexts] + W_pos[:length]
    scores = np.einsum("ra,pab->rpb", x[:, -1], W_QK, optimize=True) @ np.swapaxes(x, 1, 2) / np.sqrt(d)
    weights = np.exp(scores - scores.max(axis=2, keepdims=True))
    weights /= weights.sum(axis=2, keepdims=True)
    return (weights @ x).reshape(len(contexts), -1)


def _sizes(n_tokens: int, order: int, d: int) -> None:
    if min(n_tokens, order, d) < 1:
        raise InterpError(f"{n_tokens} tokens, order {order}, d = {d}: each must be at least 1")
