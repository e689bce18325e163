"""Theorem 3's construction for low entropy: each context's embedding is parallel to its right output's unembedding.

f(i) = lambda_i W_U^T w_U(g(i)), so the logits are lambda_i u_j with u_j = w_U(j) . w_U(g(i)). The construction chooses
a set of nearly orthogonal vectors and one scale lambda_i per context.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from interp.errors import InterpError, check_one_of
from interp.families.memorization.theory.kl import entropy_rows, log_softmax
from interp.families.memorization.theory.rank_d import RankDMap, rank_d_map
from interp.families.memorization.theory.table import as_table

SCALES = ("optimal", "match", "entropy")


@dataclass(frozen=True, eq=False)
class LookupConstruction(RankDMap):
    """A RankDMap with W_E[i] = scales[i] W_U[:, targets[i]].

    deviation   C = max |W_U^T W_U - I| over outputs; coherence its off-diagonal part, of unit-norm columns mu
    """

    targets: Int[np.ndarray, " contexts"]
    scales: Float[np.ndarray, " contexts"]
    deviation: float
    coherence: float


def lookup_construction(
    table: Any,
    d: int | None = None,
    *,
    unembedding: Float[np.ndarray, "d outputs"] | None = None,
    scale: str = "optimal",
    targets: Sequence[int] | Int[np.ndarray, " contexts"] | None = None,
    prior: Any = None,
    seed: int = 0,
) -> LookupConstruction:
    """Build Theorem 3's map and compute its exact divergence.

    unembedding   W_U; by default random signs / sqrt d
    scale         lambda: 'entropy', the paper's equation with its sign corrected (softmax gives g probability e^-H);
                  'match', softmax gives g its own probability pi_g; 'optimal', the least divergence
    targets       g; by default, the most likely output of each context
    Raises InterpError if lambda would be infinite: a context with entropy 0 has divergence zero only in the limit. Also
    raises for 'entropy' if w_g . w_g is not the largest u_j, because the equation may then have no solution.
    Source: Dana 2024, Theorem 3; erratum 16.
    """
    rows = as_table(table, prior)
    W_U = random_sign_unembedding(rows.n_outputs, d or 0, seed) if unembedding is None else unembedding
    g = rows.conditional.argmax(axis=1) if targets is None else np.asarray(targets)
    gram = W_U.T @ W_U
    scales = lookup_scales(rows.conditional, gram, g, scale)
    if not np.isfinite(scales).all():
        bad = int(np.argmax(~np.isfinite(scales)))
        raise InterpError(
            f"context {bad} gives its output the probability {rows.conditional[bad, g[bad]]:g}, for which no finite "
            "lambda is right: give the table some noise"
        )
    built = rank_d_map(rows, W_U, scales[:, None] * W_U[:, g].T, f"look-up, lambda {scale}")
    return LookupConstruction(
        **vars(built),
        targets=g,
        scales=scales,
        deviation=float(np.abs(gram - np.eye(len(gram))).max()),
        coherence=coherence(W_U),
    )


def lookup_scales(
    conditional: Float[np.ndarray, "contexts outputs"],
    gram: Float[np.ndarray, "outputs outputs"],
    targets: Int[np.ndarray, " contexts"],
    scale: str,
) -> Float[np.ndarray, " contexts"]:
    """Solve for the lambda of every context by bisection; inf if only the limit solves the equation.

    entropy   log sum_j exp(lambda (u_j - u_g)) = H(pi_i). The paper prints -H, for which there is no solution: the left
              side is in (0, log M] for lambda >= 0. The solution is unique if u_g > u_j for all j != g.
    match     log q_g = log pi_g; lambda is negative if pi_g < 1 / M
    optimal   E_q[u] = E_pi[u], which makes the divergence stationary in lambda
    """
    n = len(conditional)
    u = gram[targets]
    gap = u - u[np.arange(n), targets][:, None]
    away = np.arange(gram.shape[0]) != targets[:, None]
    if scale != "optimal" and not (gap[away] < 0).all():
        raise InterpError(
            "some w_U(j) . w_U(g) is not below w_U(g) . w_U(g), so the equation for lambda need not have a solution; "
            "use scale='optimal', a larger d, or unit-norm columns"
        )
    if scale == "optimal":
        mean = (conditional * gap).sum(axis=1)
        root = _increasing_root(lambda lam: (np.exp(log_softmax(lam[:, None] * gap)) * gap).sum(axis=1) - mean, n)
        return np.where(mean >= gap.max(axis=1), np.inf, np.where(mean <= gap.min(axis=1), -np.inf, root))
    check_one_of("scale", scale, SCALES)
    p_g = conditional[np.arange(n), targets]
    log_q = -entropy_rows(conditional) if scale == "entropy" else np.log(np.maximum(p_g, 1e-300))
    # log q_g is increasing in lambda, from -inf to 0.
    root = _increasing_root(lambda lam: log_softmax(lam[:, None] * gap)[np.arange(n), targets] - log_q, n)
    return np.where(log_q >= 0, np.inf, np.where(p_g <= 0, -np.inf, root))


def random_sign_unembedding(n_outputs: int, d: int, seed: int = 0) -> Float[np.ndarray, "d outputs"]:
    """Unit columns with independent entries +-1 / sqrt d; coherence about 2 sqrt(log M / d) at most (erratum 16)."""
    if d < 1:
        raise InterpError(f"d is {d}; at least 1 is needed")
    return np.random.default_rng(seed).choice([-1.0, 1.0], size=(d, n_outputs)) / np.sqrt(d)


def coherence(W_U: Float[np.ndarray, "d outputs"]) -> float:
    """Return mu, the largest |w_U(i) . w_U(j)| of two different outputs."""
    gram = np.abs(W_U.T @ W_U)
    np.fill_diagonal(gram, 0)
    return float(gram.max())


def _increasing_root(function: Callable[[np.ndarray], np.ndarray], n: int) -> np.ndarray:
    """Find the zeros of n increasing functions of lambda, by doubling and bisection."""
    low, high = np.full(n, -1.0), np.ones(n)
    for _ in range(20):
        high = np.where(function(high) < 0, 2 * high, high)
        low = np.where(function(low) > 0, 2 * low, low)
    for _ in range(80):
        middle = (low + high) / 2
        below = function(middle) < 0
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return (low + high) / 2
