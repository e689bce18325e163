"""Rank-d maps: least squares (f_ls, f_wls) on the log table in closed form, and the best embeddings by Newton's method.

For a given unembedding, the embeddings of the rows are convex problems, which Newton's method solves together.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from interp.errors import InterpError
from interp.families.memorization.theory.kl import checked_unembedding, kl_rows, log_softmax
from interp.families.memorization.theory.spectrum import centered_log_table, top_directions
from interp.families.memorization.theory.table import ConditionalTable, as_table

CHUNK_BYTES = 1 << 25
"""Per-row systems are solved in chunks of rows, so that memory does not grow with the table."""


@dataclass(frozen=True, eq=False)
class RankDMap:
    """A map from contexts to logits W_E @ W_U, and its exact divergence from the table.

    W_U (d, outputs); W_E (contexts, d); kl is the prior-weighted mean of kl_by_row, in nats.
    """

    W_U: Float[np.ndarray, "d outputs"]
    W_E: Float[np.ndarray, "contexts d"]
    kl: float
    kl_by_row: Float[np.ndarray, " contexts"]
    method: str

    @property
    def d(self) -> int:
        return self.W_U.shape[0]

    @property
    def logits(self) -> Float[np.ndarray, "contexts outputs"]:
        return self.W_E @ self.W_U


def rank_d_map(table: ConditionalTable, W_U: np.ndarray, W_E: np.ndarray, method: str) -> RankDMap:
    """Build a RankDMap and compute its divergences."""
    by_row = kl_rows(table.conditional, W_E @ W_U)
    return RankDMap(W_U, W_E, float(table.prior @ by_row), by_row, method)


def least_squares(
    table: Any, d: int, *, prior: Any = None, centering: str = "uniform", sqrt_prior: bool = False, floor: float = 1e-12
) -> RankDMap:
    """Return f_ls, the best rank-d approximation of the centered log table in the Frobenius norm.

    centering    'uniform' (default: its residual is zero whenever zero divergence is possible), 'marginal', or 'pi'
                 (the paper's, which Corollary 1 needs)
    sqrt_prior   take W_U from the SVD of sqrt(prior) times the table: better if the prior is far from uniform
    floor        smaller probabilities are raised to this value before taking logs
    Source: Dana 2024, Theorem 2; errata 11 and 14.
    """
    checked = as_table(table, prior)
    centered = centered_log_table(checked, centering, floor=floor)
    weighted = np.sqrt(checked.prior)[:, None] * centered if sqrt_prior else centered
    W_U = top_directions(weighted, d)
    return rank_d_map(checked, W_U, centered @ W_U.T, "least squares")


def weighted_least_squares(
    table: Any,
    d: int | None = None,
    *,
    W_U: Float[np.ndarray, "d outputs"] | None = None,
    prior: Any = None,
    floor: float = 1e-12,
) -> RankDMap:
    """Return f_wls: for a given W_U, the embedding of every row that minimizes Var_{o ~ pi_i}[f - log pi].

    Give either d (W_U is then that of `least_squares`) or W_U. If the row space of W_U contains the all-ones vector,
    the Gram matrix is singular, and the least-norm solution is returned; its divergence is the same (erratum 13).
    Source: Dana 2024, Lemma 2, with W_U of shape (outputs, d) there.
    """
    checked = as_table(table, prior)
    if (d is None) == (W_U is None):
        raise InterpError("give d or W_U: the width to choose W_U for, or the W_U itself")
    if W_U is None:
        assert d is not None
        chosen = least_squares(checked, d, floor=floor).W_U
    else:
        chosen = checked_unembedding(W_U, checked.n_outputs)
    W_E = wls_embeddings(checked.conditional, checked.log_conditional(floor), chosen)
    return rank_d_map(checked, chosen, W_E, "weighted least squares")


def wls_embeddings(
    conditional: Float[np.ndarray, "contexts outputs"],
    target: Float[np.ndarray, "contexts outputs"],
    W_U: Float[np.ndarray, "d outputs"],
) -> Float[np.ndarray, "contexts d"]:
    """Solve argmin_w Var_{o ~ pi_i}[W_U^T w - target_i] for every row i, in chunks of rows: O(N M d^2) time."""
    W_E = np.empty((len(conditional), len(W_U)))
    for rows in chunks(len(conditional), W_U):
        p = conditional[rows]
        root = np.sqrt(p)
        # A weighted design matrix, not its Gram matrix: squaring would lose the directions of small probability.
        design = root[:, :, None] * (W_U.T[None] - (p @ W_U.T)[:, None, :])
        goal = root * (target[rows] - (p * target[rows]).sum(axis=1, keepdims=True))
        W_E[rows] = (np.linalg.pinv(design, rcond=1e-12) @ goal[:, :, None])[:, :, 0]
    return W_E


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
    """Split n rows so that temporary arrays of the size of W_U per row stay small."""
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
