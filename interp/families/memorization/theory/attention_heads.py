"""What one attention layer can hold: the rank of its attention, the heads a table needs, and its memory capacity."""

import numpy as np
from jaxtyping import Float, Int


def affine_dimension(n_tokens: int, order: int) -> int:
    """N + k - 2: the dimension of the affine hull of all e(t) + pos_j, for N generic tokens and k generic positions."""
    return n_tokens + order - 2


def attention_rank(n_tokens: int, order: int, d: int, n_heads: int) -> int:
    """Rank of A (N^k contexts, P d) for generic embeddings, positions and keys.

    min(N^k, P min(d, r) + [d > r]), r = N + k - 2: beyond d = r every head repeats one constant column. With one
    position (k = 1) every head gives e(t) + pos_1, so the rank is min(N, d) whatever P. Printed: min(N^k, P d).
    Observed in 13 cases at 120 digits, not proved. Source: Dana 2024, Lemma 3; errata 4 and 5.
    """
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


def memorized_associations(n_heads: int, d_head: int, d: int) -> int:
    """H d_h + d: associations that one layer of H heads of width d_h in a residual stream of width d can hold exactly.

    Source: Dana 2025 (arXiv 2411.10115), main theorem, as summarized in the errata ("Published version").
    """
    return n_heads * d_head + d


def accuracy_lower_bound(n_tokens: int, n_heads: int, d_head: int, d: int) -> float:
    """1 / N + (1 - 1 / N) (H d_h + d) / N^2, at most 1: accuracy on a 2-gram look-up table over N tokens.

    Memorized contexts are right; the others are right with the probability of a guess. Source: Dana 2025, experiments.
    """
    held = min(1.0, memorized_associations(n_heads, d_head, d) / n_tokens**2)
    return 1 / n_tokens + (1 - 1 / n_tokens) * held


def attention_parameters(n_tokens: int, n_outputs: int, order: int, d: int, n_heads: int) -> int:
    """Parameters of the layer of Theorem 1: embeddings, positions, W_QK and W_OV (d x d per head) and unembedding.

    W_QK and W_OV are counted as d x d matrices, not as the factors that a model stores.
    """
    return d * (n_tokens + order + n_outputs) + 2 * n_heads * d * d


def mlp_width(d: int, n_heads: int) -> int:
    """Width of the MLP with which one head has as many parameters as `n_heads` heads, to the nearest; 0 for one head.

    A head has two d x d matrices, an MLP of width w has w (2 d + 1) + d numbers.
    """
    return max(0, round((2 * (n_heads - 1) * d * d - d) / (2 * d + 1)))
