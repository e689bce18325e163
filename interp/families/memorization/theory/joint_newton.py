"""Newton's method on both factors of a rank-d map: polishes the result of a search and returns its curvature."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from interp.families.memorization.theory.kl import log_softmax
from interp.families.memorization.theory.newton import row_hessians

FLAT = 1e-12
"""Directions with less than this share of a block's largest curvature count as flat. Rounding leaves about 1e-16 of it,
and the decision must not depend on the CPU."""


@dataclass(frozen=True, eq=False)
class Polished:
    """The polished map. curvature: least eigenvalue of the Hessian on W_U (W_E eliminated) without symmetries."""

    W_U: Float[np.ndarray, "d outputs"]
    W_E: Float[np.ndarray, "contexts d"]
    gradient_norm: float
    curvature: float


def polish(
    conditional: Float[np.ndarray, "contexts outputs"],
    prior: Float[np.ndarray, " contexts"],
    W_U: Float[np.ndarray, "d outputs"],
    W_E: Float[np.ndarray, "contexts d"],
    *,
    max_steps: int = 50,
    tolerance: float = 1e-13,
) -> Polished:
    """Take damped Newton steps on (W_E, W_U) by the Schur complement of the rows' blocks.

    Each step costs O(N (M d)^2 d + (M d)^3). The prior must be positive. gradient_norm is in balanced factors.
    """
    W_U, W_E = balance(W_U, W_E, prior)
    value = _value(conditional, prior, W_U, W_E)
    damping = 1e-6
    for step in range(max_steps + 1):
        gradient_E, gradient_U, schur, solve = _system(conditional, prior, W_U, W_E, damping)
        # Scale W_E by sqrt(prior): in these variables the factors are balanced.
        norm = float(np.sqrt((gradient_U**2).sum() + (gradient_E**2 / prior[:, None]).sum()))
        if norm <= tolerance or step == max_steps or damping > 1e6:
            break
        step_U, step_E = solve()
        trial_U, trial_E = W_U + step_U, W_E + step_E
        trial = _value(conditional, prior, trial_U, trial_E)
        if trial <= value + 1e-15 * (1 + abs(value)):
            W_U, W_E, value, damping = trial_U, trial_E, trial, damping * 0.1
        else:
            damping = max(damping, 1e-6) * 10
    _, _, schur, _ = _system(conditional, prior, W_U, W_E, 0.0)
    return Polished(W_U, W_E, norm, _curvature(schur, W_U))


def balance(W_U: np.ndarray, W_E: np.ndarray, prior: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Factors of the same product with W_U W_U^T = W_E^T diag(prior) W_E diagonal and rows of W_U that sum to 0."""
    W_U = W_U - W_U.mean(axis=1, keepdims=True)
    Q_U, R_U = np.linalg.qr(W_U.T)
    Q_E, R_E = np.linalg.qr(np.sqrt(prior)[:, None] * W_E)
    left, values, right = np.linalg.svd(R_E @ R_U.T)
    root = np.sqrt(values)
    return root[:, None] * (right @ Q_U.T), (Q_E @ left * root) / np.sqrt(prior)[:, None]


def _value(p: np.ndarray, prior: np.ndarray, W_U: np.ndarray, W_E: np.ndarray) -> float:
    return float(-(prior @ (p * log_softmax(W_E @ W_U)).sum(axis=1)))


def _system(
    p: np.ndarray, prior: np.ndarray, W_U: np.ndarray, W_E: np.ndarray, damping: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, Callable[[], tuple[np.ndarray, np.ndarray]]]:
    """Return the gradients, the Schur complement on W_U (outputs x d, flattened), and a solver for both steps."""
    (d, m), n = W_U.shape, len(W_E)
    q = np.exp(log_softmax(W_E @ W_U))
    residual = prior[:, None] * (q - p)
    gradient_E, gradient_U = residual @ W_U.T, W_E.T @ residual
    mean = q @ W_U.T
    blocks = prior[:, None, None] * (row_hessians(q, W_U) + damping * np.eye(d))
    # cross[i, a, (o, b)] = d^2 value / d W_E[i, a] d W_U[b, o]
    cross = (prior[:, None] * q)[:, None, :, None] * (W_U[None] - mean[:, :, None])[:, :, :, None]
    cross = cross * W_E[:, None, None, :]
    cross += residual[:, None, :, None] * np.eye(d)[None, :, None, :]
    cross = cross.reshape(n, d, m * d)
    outer = (W_E[:, :, None] * W_E[:, None, :]).reshape(n, d * d)
    weights = prior[:, None] * q
    diagonal = (weights.T @ outer).reshape(m, d, d)
    spread = (np.sqrt(prior)[:, None, None] * q[:, :, None] * W_E[:, None, :]).reshape(n, m * d)
    full = -spread.T @ spread
    for o in range(m):
        full[o * d : (o + 1) * d, o * d : (o + 1) * d] += diagonal[o]
    inverse_cross = np.linalg.solve(blocks, cross) if damping else np.linalg.pinv(blocks, FLAT, hermitian=True) @ cross
    schur = full - np.einsum("iax,iay->xy", cross, inverse_cross, optimize=True)

    def solve() -> tuple[np.ndarray, np.ndarray]:
        goal = gradient_U.T.reshape(-1) - np.einsum("iax,ia->x", inverse_cross, gradient_E)
        values, vectors = np.linalg.eigh(schur)
        # At a saddle, use the absolute value of negative curvature, so that the step goes down.
        step = -vectors @ ((vectors.T @ goal) / (np.abs(values) + damping * max(values[-1], 1e-300)))
        step_E = -np.linalg.solve(blocks, gradient_E[:, :, None])[:, :, 0] - inverse_cross @ step
        return step.reshape(m, d).T, step_E

    return gradient_E, gradient_U, schur, solve


def _curvature(schur: np.ndarray, W_U: np.ndarray) -> float:
    """The least eigenvalue orthogonal to the symmetries W_U -> R W_U (d^2 directions) and W_U -> W_U + c 1^T (d)."""
    d, m = W_U.shape
    symmetries = [np.outer(np.eye(d)[a], W_U[b]).T.reshape(-1) for a in range(d) for b in range(d)]
    symmetries += [np.outer(np.eye(d)[a], np.ones(m)).T.reshape(-1) for a in range(d)]
    basis = np.linalg.svd(np.stack(symmetries).T, full_matrices=True)[0][:, len(symmetries) :]
    if basis.shape[1] == 0:
        return 0.0
    return float(np.linalg.eigvalsh(basis.T @ schur @ basis)[0])
