"""Multinomial logistic regression with a weak penalty: by Newton's method, or if large by scikit-learn's.

Both converge to the only minimum, so that they give the same up to rounding; but a large one nearly without a penalty
may end before, after STEPS steps.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

WEAK, STEPS, PRECISION = 100.0, 1000, 1e-8
"""For probes, the inverse weight of the penalty and the gradient at which the search ends, so that scores are exact to
1e-5; for all, the most steps."""
SMALL = 300
"""Most weights and constants for which the matrix of second derivatives is solved as a whole."""
LEAST_FALL = 1e-4
"""Share of the expected fall of the loss that a step must bring."""


def logistic(
    x: Float[np.ndarray, "rows d"], value: Int[np.ndarray, "rows"], weak: float = WEAK, precision: float = PRECISION
) -> tuple[Float[np.ndarray, "d n"], Float[np.ndarray, "n"], Int[np.ndarray, "n"]]:
    """Return weights and constants of the score of each value that occurs, two or more, and these values.

    Of two values, the first has the score 0. weak: the inverse weight of the penalty (scikit-learn's C). precision: the
    gradient of the mean loss at which the search ends.
    """
    names, target = np.unique(value, return_inverse=True)
    if (x.shape[1] + 1) * len(names) > SMALL:
        from sklearn.linear_model import LogisticRegression

        # Nearly without a penalty, the steps of newton-cg are ill-conditioned, and slow.
        solver = "newton-cg" if weak <= WEAK else "lbfgs"
        fitted = LogisticRegression(C=weak, solver=solver, tol=precision, max_iter=STEPS).fit(x, value)
        weights, constants = fitted.coef_.T, fitted.intercept_
        if len(names) == 2:  # one column: how much more the second value scores than the first
            weights, constants = weights * [0, 1], constants * [0, 1]
        return weights, constants, names
    # The weights of two values are opposite, so their penalty is half of that of their difference.
    weights, constants = _minimum(x, np.eye(len(names))[target], (2 if len(names) == 2 else 1) / weak, precision)
    if len(names) == 2:
        weights, constants = weights - weights[:, :1], constants - constants[0]
    return weights, constants, names


def _minimum(
    x: Float[np.ndarray, "rows d"], target: Float[np.ndarray, "rows n"], penalty: float, precision: float
) -> tuple[Float[np.ndarray, "d n"], Float[np.ndarray, "n"]]:
    """Return weights and constants at which the summed loss plus half of the penalty on squared weights is least."""
    extended = np.concatenate([x, np.ones((len(x), 1))], 1)
    d, n = extended.shape[1], target.shape[1]
    penalties = np.full((d, 1), penalty)
    penalties[-1] = 0.0
    alike = np.outer(np.arange(d) == d - 1, np.ones(n)).ravel()  # moving all constants alike changes nothing

    def loss(weights: np.ndarray) -> tuple[float, np.ndarray]:
        scores = extended @ weights
        scores -= scores.max(1, keepdims=True)
        shares = np.exp(scores)
        total = shares.sum(1, keepdims=True)
        whole = np.log(total).sum() - (scores * target).sum() + (penalties * weights**2).sum() / 2
        return float(whole), shares / total

    weights = np.zeros((d, n))
    now, shares = loss(weights)
    for _ in range(STEPS):
        slope = extended.T @ (shares - target) + penalties * weights
        if np.abs(slope).max() <= precision * len(x):
            break
        curved = _second_derivatives(extended, shares, penalties[:, 0]).reshape(d * n, d * n) + np.outer(alike, alike)
        step = np.linalg.solve(curved, slope.ravel()).reshape(d, n)
        size, fall = 1.0, LEAST_FALL * float((slope * step).sum())
        then = loss(weights - step)
        while then[0] > now - size * fall and size > PRECISION:
            size /= 2
            then = loss(weights - size * step)
        weights, (now, shares) = weights - size * step, then
    return weights[:-1], weights[-1]


def _second_derivatives(
    extended: Float[np.ndarray, "rows d"], shares: Float[np.ndarray, "rows n"], penalties: Float[np.ndarray, "d"]
) -> Float[np.ndarray, "d n d n"]:
    """Return those of the loss by each two weights."""
    each = extended[:, :, None] * shares[:, None, :]
    rows = each.reshape(len(extended), -1)
    derivatives = -(rows.T @ rows).reshape(*each.shape[1:], *each.shape[1:])
    for value in range(shares.shape[1]):
        derivatives[:, value, :, value] += each[:, :, value].T @ extended + np.diag(penalties)
    return derivatives
