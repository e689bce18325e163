"""Rank-d maps in closed form: least squares (f_ls) and weighted least squares (f_wls) on the log table."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from interp.errors import InterpError
from interp.families.memorization.theory.kl import kl_rows
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
    centering: str = "uniform",
    sqrt_prior: bool = False,
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
        chosen = least_squares(checked, d, centering=centering, sqrt_prior=sqrt_prior, floor=floor).W_U
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
    (n, m), d = conditional.shape, len(W_U)
    W_E = np.empty((n, d))
    chunk = max(1, CHUNK_BYTES // (8 * m * d))
    for start in range(0, n, chunk):
        rows = slice(start, start + chunk)
        p = conditional[rows]
        root = np.sqrt(p)
        # A weighted design matrix, not its Gram matrix: squaring would lose the directions of small probability.
        design = root[:, :, None] * (W_U.T[None] - (p @ W_U.T)[:, None, :])
        goal = root * (target[rows] - (p * target[rows]).sum(axis=1, keepdims=True))
        W_E[rows] = (np.linalg.pinv(design, rcond=1e-12) @ goal[:, :, None])[:, :, 0]
    return W_E


def checked_unembedding(W_U: Any, n_outputs: int) -> Float[np.ndarray, "d outputs"]:
    """Return W_U as a float64 array (d, outputs). Raises InterpError for another shape or infinite or NaN entries."""
    array = np.asarray(W_U, dtype=np.float64)
    if array.ndim != 2 or array.shape[1] != n_outputs or array.shape[0] < 1:
        raise InterpError(f"W_U has shape {array.shape}; (d, outputs) = (d, {n_outputs}) is needed")
    if not np.isfinite(array).all():
        raise InterpError("W_U has entries that are not finite")
    return array
