"""Separation accuracy (s-acc): how well a linear separator of head outputs answers the task.

The separator is a linear support vector machine with squared hinge loss (Zsamboki et al. 2025, section 4.2 and
appendix C). Its objective is liblinear's, because the printed one lacks the square and scales its terms differently
(errata, reading 3):

    1/2 |w|^2 (+ 1/2 b^2 for a penalized bias) + C sum_i max(0, 1 - y_i (x_i w + b))^2,   C = 1000

The penalized bias is liblinear's (intercept_scaling = 1) and the default here; a free bias changes accuracies by up to
0.017. s-acc is only as good as its optimizer, so every separator comes with a proof: a bound on how far its objective
is above the minimum. `SeparatorPath` handles all subsets of heads at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Shaped
from numpy import ndarray
from numpy.typing import ArrayLike

from interp.errors import InterpError
from interp.measures.separation_data import (
    check_settings,
    enough_rows,
    features,
    ridge_of,
    signed_rows,
    signs_of,
    two_classes,
    unproven,
)
from interp.measures.separation_path import SeparatorPath as SeparatorPath
from interp.measures.separation_path import separation_accuracies as separation_accuracies
from interp.measures.separation_solver import TOLERANCE, solve_groups


@dataclass(frozen=True)
class Separator:
    """A hyperplane between two classes, with a proven bound on its distance from the optimum."""

    w: Float[ndarray, " features"]
    b: float
    classes: tuple[Any, Any]  # the labels where x w + b is not positive, and where it is
    objective: float
    gap: float  # proven: objective - minimum <= gap
    iterations: int
    n_active: int  # training rows inside the margin
    C: float
    bias: str

    @property
    def relative_gap(self) -> float:
        return self.gap / self.objective if self.objective > 0 else 0.0

    def decision(self, x: ArrayLike) -> Float[ndarray, " rows"]:
        """Compute x w + b for x (rows, features)."""
        rows = features("x", x, "rows features")
        if rows.shape[1] != len(self.w):
            raise InterpError(f"x has {rows.shape[1]} features, but the separator was fitted on {len(self.w)}")
        return rows @ self.w + self.b

    def predict(self, x: ArrayLike) -> Shaped[ndarray, " rows"]:
        """Predict the label of every row; a row exactly on the plane gets the first class, as in scikit-learn."""
        return np.where(self.decision(x) > 0, self.classes[1], self.classes[0])

    def accuracy(self, x: ArrayLike, y: ArrayLike) -> float:
        """Return the share of rows on the right side; y (rows,) must contain only the two fitted labels."""
        decision = self.decision(x)
        return float(np.mean((decision > 0) == (signs_of(y, len(decision), self.classes) > 0)))


def fit_separator(
    x: ArrayLike, y: ArrayLike, C: float = 1000.0, bias: str = "penalized", tolerance: float = TOLERANCE
) -> Separator:
    """Fit the optimal linear separator of x (rows, features) with two-valued labels y (rows,).

    The larger label is the positive class. `bias` is "penalized" (liblinear's) or "free". Raises InterpError for one
    class or more than two, fewer rows than features, values that are not finite, and data so badly scaled that a
    relative gap of `tolerance` cannot be proven in float64.
    """
    check_settings(C, bias, tolerance)
    rows = features("x", x, "rows features")
    signs, classes = two_classes(y, len(rows))
    enough_rows(*rows.shape)
    n_columns = rows.shape[1] + 1
    solution = solve_groups(
        signed_rows(rows, signs),
        np.arange(n_columns)[None],
        np.zeros((1, n_columns)),
        ridge_of(bias, rows.shape[1]),
        C,
        tolerance,
    )
    if not solution.relative_gap[0] <= tolerance:
        raise unproven(f"{rows.shape[1]} features", solution.relative_gap[0], tolerance, rows)
    return Separator(
        w=solution.weights[0, :-1],
        b=float(solution.weights[0, -1]),
        classes=classes,
        objective=float(solution.objective[0]),
        gap=float(solution.gap[0]),
        iterations=int(solution.iterations[0]),
        n_active=int(solution.n_active[0]),
        C=C,
        bias=bias,
    )
