"""Memory capacity of one attention layer: the formulas of the paper's later version."""

from interp.errors import InterpError


def memorized_associations(n_heads: int, d_head: int, d: int) -> int:
    """H d_h + d: associations that one layer of H heads of width d_h in a residual stream of width d can hold exactly.

    Source: Dana 2025 (arXiv 2411.10115), main theorem, as summarized in the errata ("Published version").
    """
    _positive(heads=n_heads, d_head=d_head, d=d)
    return n_heads * d_head + d


def accuracy_lower_bound(n_tokens: int, n_heads: int, d_head: int, d: int) -> float:
    """1 / N + (1 - 1 / N) (H d_h + d) / N^2, at most 1: accuracy on a 2-gram look-up table over N tokens.

    Memorized contexts are right; the others are right with the probability of a guess. Source: Dana 2025, experiments.
    """
    _positive(tokens=n_tokens)
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
    _positive(heads=n_heads, d=d)
    return max(0, round((2 * (n_heads - 1) * d * d - d) / (2 * d + 1)))


def _positive(**sizes: int) -> None:
    for name, size in sizes.items():
        if size < 1:
            raise InterpError(f"{name} is {size}; at least 1 is needed")
