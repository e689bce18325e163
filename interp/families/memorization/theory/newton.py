"""The best embedding of every row for a given unembedding: convex problems that Newton's method solves together."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from interp.families.memorization.theory.closed_forms import (
    CHUNK_BYTES,
    RankDMap,
    checked_unembedding,
    rank_d_map,
    wls_embeddings,
)
from interp.families.memorization.theory.kl import log_softmax
from interp.families.memorization.theory.table import as_table


@dataclass(frozen=True, eq=False)
class NewtonRefinement(RankDMap):
    """A RankDMap whose rows are optimal for its W_U wherever `converged`.

    gradient_norms   (contexts,) norm of dKL_i / dw_i, divided by the largest norm of a column of W_U
    started_at_zero  (contexts,) whether 0 was a better start than f_wls
    steps            Newton steps of the slowest row
    """

    gradient_norms: Float[np.ndarray, " contexts"]
    converged: Bool[np.ndarray, " contexts"]
    started_at_zero: Bool[np.ndarray, " contexts"]
    steps: int


def newton_refinement(
    table: Any,
    W_U: Float[np.ndarray, "d outputs"],
    *,
    prior: Any = None,
    start: Float[np.ndarray, "contexts d"] | None = None,
    max_steps: int = 200,
    tolerance: float = 1e-10,
    floor: float = 1e-12,
) -> NewtonRefinement:
    """Find the embeddings W_E that minimize every row's divergence for the given W_U, by damped Newton steps.

    A row starts from the better of f_wls (or `start`) and 0. The logits of f_wls can saturate the softmax; Hessian and
    gradient are then both near zero, and plain Newton stalls (errata, table B). A row has converged when its gradient
    norm is below `tolerance`. If the table has zeros, a row's optimum may be at infinity; the row then converges to an
    embedding whose divergence is within about `tolerance` of the infimum.
    """
    checked = as_table(table, prior)
    chosen = checked_unembedding(W_U, checked.n_outputs)
    p = checked.conditional
    first = wls_embeddings(p, checked.log_conditional(floor), chosen) if start is None else np.array(start)
    at_zero = ~(_cross_entropy(p, first @ chosen) <= np.log(checked.n_outputs))
    W_E = np.where(at_zero[:, None], 0.0, first)
    steps, gradient_norms = _minimize(p, chosen, W_E, max_steps, tolerance)
    return NewtonRefinement(
        **vars(rank_d_map(checked, chosen, W_E, "Newton")),
        gradient_norms=gradient_norms,
        converged=gradient_norms <= tolerance,
        started_at_zero=at_zero,
        steps=steps,
    )


def _cross_entropy(p: np.ndarray, logits: np.ndarray) -> np.ndarray:
    return -(p * log_softmax(logits)).sum(axis=1)


def _minimize(
    p: np.ndarray, W_U: np.ndarray, W_E: np.ndarray, max_steps: int, tolerance: float
) -> tuple[int, np.ndarray]:
    """Run damped Newton on the rows of W_E, in place. Returns the number of steps and the gradient norms.

    The damping is c |gradient| max|w_U|. It vanishes at the optimum, so the steps become Newton's; far from it, it is
    large enough because the softmax's third derivative is at most its second times max|w_U|. c adapts to each row.
    """
    reach = float(np.sqrt((W_U**2).sum(axis=0).max()))
    caution = np.full(len(p), 1e-3)
    value = _cross_entropy(p, W_E @ W_U)
    active = np.arange(len(p))
    gradient_norms = np.zeros(len(p))
    for step in range(max_steps + 1):
        q = np.exp(log_softmax(W_E[active] @ W_U))
        gradient = (q - p[active]) @ W_U.T
        gradient_norms[active] = np.sqrt((gradient**2).sum(axis=1)) / reach
        open_ = gradient_norms[active] > tolerance
        active, q, gradient = active[open_], q[open_], gradient[open_]
        if len(active) == 0 or step == max_steps:
            return step, gradient_norms
        damping = caution[active] * gradient_norms[active] * reach**2
        trial = W_E[active] - _solve(q, W_U, gradient, damping + 1e-15 * reach**2)
        logits = trial @ W_U
        trial_value = _cross_entropy(p[active], logits)
        slack = 1e-15 * (1 + np.abs(logits).max(axis=1))  # the change that rounding alone can cause
        better = trial_value <= value[active] + slack
        moved = active[better]
        W_E[moved], value[moved] = trial[better], trial_value[better]
        caution[moved] *= 0.25
        caution[active[~better]] = np.maximum(caution[active[~better]] * 8, 1e-3)
    raise AssertionError("unreachable: the loop returns at max_steps")


def chunks(n: int, W_U: np.ndarray) -> Iterator[slice]:
    """Split n rows so that the temporary arrays of their Hessians stay small."""
    size = max(1, CHUNK_BYTES // (8 * W_U.size))
    return (slice(start, start + size) for start in range(0, n, size))


def row_hessians(q: np.ndarray, W_U: np.ndarray) -> Float[np.ndarray, "rows d d"]:
    """Return the Hessians W_U (diag q_i - q_i q_i^T) W_U^T of the rows' cross-entropies."""
    mean = q @ W_U.T
    return (q[:, None, :] * W_U) @ W_U.T - mean[:, :, None] * mean[:, None, :]


def _solve(q: np.ndarray, W_U: np.ndarray, gradient: np.ndarray, damping: np.ndarray) -> np.ndarray:
    """Solve (H_i + damping_i I)^{-1} gradient_i."""
    step = np.empty_like(gradient)
    for rows in chunks(len(q), W_U):
        hessian = row_hessians(q[rows], W_U) + damping[rows][:, None, None] * np.eye(len(W_U))
        step[rows] = np.linalg.solve(hessian, gradient[rows][:, :, None])[:, :, 0]
    return step
