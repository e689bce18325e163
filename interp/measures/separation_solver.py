"""Linear SVMs with squared hinge loss, many at a time, solved to a proven optimum.

The problem, for rows z_i = y_i (x_i, 1) and weights w whose last entry is the bias:

    P(w) = 1/2 |w|^2 + C sum_i max(0, 1 - z_i w)^2

P is convex and piecewise quadratic, so Newton's method on the active rows (those with 1 - z_i w > 0) with an exact line
search ends after finitely many steps (Mangasarian 2002; Keerthi and DeCoste 2005). At C = 1000, only about 1% of
Count01's rows are active, so:

- Newton's method runs on a working set: the rows that are active or nearly so, about a hundred of 7000.
- The result is checked by the gap below, which uses all rows and so is a proof for any working set. While the gap is
  too large, the active rows join the working set, which only grows, and Newton's method runs again.

The proof: any a >= 0 gives a lower bound D(a) on the minimum of P, and

    P(w) - D(a) = 1/2 |w - Z^T a|^2 + sum_i (a_i - 2C m_i)^2 / 4C + sum_i a_i (m_i - u_i)

with u_i = 1 - z_i w and m_i = max(0, u_i), where no term is negative. For a = 2C m, the gap is half the squared
norm of the gradient.

The numpy arrays are stacked (group, row, column), so that there are no inner loops in Python. This is more than ten
times faster than liblinear, without compiled loops (analyses/benchmarks/subsets.py).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from numpy.typing import ArrayLike

from interp.errors import InterpError

_LARGEST = 1e100  # sums of squares of larger numbers could overflow float64


def as_array(values: ArrayLike) -> ndarray:
    """Convert to a numpy array; tensors are detached and moved to the CPU."""
    held: Any = values
    return np.asarray(held.detach().cpu() if hasattr(held, "detach") else held)


def features(name: str, values: ArrayLike, shape: str) -> ndarray:
    """Convert to finite float64 with one axis per word of `shape` and at least one row."""
    array = as_array(values).astype(np.float64)
    if array.ndim != len(shape.split()):
        raise InterpError(f"{name} has shape {array.shape}, but ({', '.join(shape.split())}) is needed")
    if 0 in array.shape:
        raise InterpError(f"{name} has shape {array.shape}: there is nothing to separate")
    # One comparison finds both NaN and large values, because it is false for NaN.
    bad = ~(np.abs(array) <= _LARGEST)
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        raise InterpError(
            f"{name} has {bad.sum()} values that are NaN or above {_LARGEST:g}, the first at {where}: {array[where]}"
        )
    return array


def two_classes(labels: ArrayLike, n_rows: int) -> tuple[ndarray, tuple[Any, Any]]:
    """Return signs, -1 for the smaller and +1 for the larger label, and the two labels in this order."""
    array = as_array(labels)
    check_labels(array, n_rows)
    classes, index = np.unique(array, return_inverse=True)
    if len(classes) < 2:
        raise InterpError(f"the labels hold one class only ({_some(classes)}); there is nothing to separate")
    if len(classes) > 2:
        raise InterpError(
            f"the labels hold {len(classes)} classes ({_some(classes)}); a linear separator needs exactly two"
        )
    return 2.0 * index - 1.0, (classes[0].item(), classes[1].item())


def signs_of(labels: ArrayLike, n_rows: int, classes: tuple[Any, Any]) -> ndarray:
    """Return the signs -1 and +1 of labels, which must be among the two classes; they may all be of one class."""
    array = as_array(labels)
    check_labels(array, n_rows)
    unknown = np.setdiff1d(array, np.asarray(classes))
    if len(unknown):
        raise InterpError(
            f"the labels hold {_some(unknown)}, but the separator was fitted on {classes[0]} and {classes[1]}"
        )
    return np.where(array == classes[1], 1.0, -1.0)


def check_labels(labels: ndarray, n_rows: int) -> None:
    if labels.shape != (n_rows,):
        raise InterpError(f"the labels have shape {labels.shape}, but ({n_rows},) is needed: one label per row")
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise InterpError("the labels hold values that are not finite numbers")


def _some(values: ndarray) -> str:
    shown = ", ".join(str(value) for value in values[:5])
    return shown + (", ..." if len(values) > 5 else "")


def enough_rows(n_rows: int, n_features: int) -> None:
    if n_rows < n_features:
        raise InterpError(
            f"{n_rows} rows are fewer than {n_features} features: every labeling would be separable; "
            "give more rows or fewer heads"
        )


def signed_rows(x: Float[ndarray, "rows features"], signs: Float[ndarray, " rows"]) -> Float[ndarray, "rows columns"]:
    """Return the rows y (x, 1): a row is classified correctly if its product with (w, b) is positive."""
    return signs[:, None] * np.concatenate([x, np.ones((len(x), 1))], axis=1)


TOLERANCE = 1e-8  # largest relative objective gap that counts as solved
STEPS = 1000  # most steps of the accurate method: separable classes far from the origin take a few hundred
_TINY = float(np.finfo(float).tiny)
_SLACK = 0.5  # rows with a margin below 1 + this are the first working set
_BUCKET = 300_000  # numbers in one stacked array: large enough for BLAS, small enough for a cache


@dataclass(frozen=True)
class Solutions:
    """The optima of many groups of columns: one row per group."""

    weights: Float[ndarray, "groups columns"]  # the bias last
    objective: Float[ndarray, " groups"]
    gap: Float[ndarray, " groups"]  # proven upper bound on objective - minimum

    @property
    def relative_gap(self) -> Float[ndarray, " groups"]:
        return self.gap / np.maximum(self.objective, _TINY)


def solve_groups(
    rows: Float[ndarray, "rows all_columns"],
    columns: Int[ndarray, "groups columns"],
    start: Float[ndarray, "groups columns"],
    C: float,
) -> Solutions:
    """Find the optimum of every group of columns of the signed `rows`, from the weights `start`.

    `columns` contains the columns of each group, the bias last. If rounding prevents a proof (columns of very different
    scales, or far from the origin), the group is solved again by a slower, more accurate method. If scales differ by
    more than about nine orders of magnitude, this may also miss TOLERANCE, so the caller must check `relative_gap`.
    """
    n_groups = len(columns)
    weights = start.copy()
    objective, gap = np.empty(n_groups), np.empty(n_groups)
    padded = np.append(rows, np.zeros((1, rows.shape[1])), axis=0)  # the padding row is zero and has no loss
    working = _losses(rows, columns, weights) > -_SLACK
    open_groups = np.arange(n_groups)
    for _ in range(50):
        for bucket, chosen in _buckets(working[open_groups], columns.shape[1]):
            groups = open_groups[bucket]
            weights[groups] = _newton_on(padded, chosen, columns[groups], weights[groups], C)
        u = _losses(rows, columns[open_groups], weights[open_groups])
        proof = prove(rows, columns[open_groups], weights[open_groups], u, C)
        objective[open_groups], gap[open_groups] = proof
        grown = working[open_groups] | (u > 0)
        improvable = (grown != working[open_groups]).any(axis=1)
        working[open_groups] = grown
        solved = gap[open_groups] <= TOLERANCE * objective[open_groups]
        open_groups = open_groups[~solved & improvable]
        if not len(open_groups):
            break
    for group in np.flatnonzero(~(gap <= TOLERANCE * objective)):
        careful = _solve_carefully(rows[:, columns[group]], C)
        weights[group], objective[group], gap[group] = careful
    return Solutions(weights, objective, gap)


def _scatter(columns: Int[ndarray, "groups columns"], weights: Float[ndarray, "groups columns"], width: int) -> ndarray:
    full = np.zeros((len(columns), width))
    np.put_along_axis(full, columns, weights, axis=1)
    return full


def _losses(rows: ndarray, columns: ndarray, weights: ndarray) -> Float[ndarray, "groups rows"]:
    """Return u = 1 - z w of every row, which is positive if the row is active."""
    return 1.0 - _scatter(columns, weights, rows.shape[1]) @ rows.T


def prove(rows: ndarray, columns: ndarray, weights: ndarray, u: ndarray, C: float) -> tuple[ndarray, ndarray]:
    """Return the objective and gap of each group, over all rows."""
    m = np.maximum(u, 0.0)
    objective = 0.5 * (weights**2).sum(axis=1) + C * np.einsum("gr,gr->g", m, m)
    m *= 2 * C  # the dual point
    gradient = weights - np.take_along_axis(m @ rows, columns, axis=1)
    return objective, 0.5 * np.einsum("gc,gc->g", gradient, gradient)


def _buckets(working: Bool[ndarray, "groups rows"], width: int) -> Iterator[tuple[ndarray, ndarray]]:
    """Yield groups with similar numbers of working rows, and these rows, padded with the index after the last row."""
    counts = working.sum(axis=1)
    order = np.argsort(counts)
    end = len(order)
    while end:
        longest = max(1, counts[order[end - 1]])
        size = max(1, int(_BUCKET // (longest * width)))
        begin = max(0, end - size, int(np.searchsorted(counts[order], 0.6 * longest)))
        bucket = order[min(begin, end - 1) : end]
        which, row = np.nonzero(working[bucket])
        first = np.concatenate([[0], np.cumsum(counts[bucket])[:-1]])
        chosen = np.full((len(bucket), longest), working.shape[1])
        chosen[which, np.arange(len(row)) - first[which]] = row
        yield bucket, chosen
        end -= len(bucket)


def _newton_on(
    padded: ndarray, chosen: ndarray, columns: ndarray, weights: ndarray, C: float
) -> Float[ndarray, "groups columns"]:
    """Run Newton's method on each group's rows of `padded` (the last is padding); return the weights."""
    target = (chosen < len(padded) - 1).astype(float)
    z = padded.ravel()[chosen[:, :, None] * padded.shape[1] + columns[:, None, :]]
    weights = weights.copy()
    live = np.arange(len(weights))
    diagonal = np.arange(columns.shape[1])
    for _ in range(60):
        w = weights[live]
        u = target - np.matmul(z, w[:, :, None])[:, :, 0]
        m = np.maximum(u, 0.0)
        pull = np.matmul(m[:, None, :], z)[:, 0]
        gradient = w - 2 * C * pull
        objective = 0.5 * (w**2).sum(axis=1) + C * np.einsum("gr,gr->g", m, m)
        going = np.einsum("gc,gc->g", gradient, gradient) > 0.1 * TOLERANCE * objective
        if not going.any():
            break
        if going.mean() < 0.7:
            live, z, target, w, u, m, gradient = (a[going] for a in (live, z, target, w, u, m, gradient))
        hessian = 2 * C * np.matmul((z * (u > 0)[:, :, None]).transpose(0, 2, 1), z)
        hessian[:, diagonal, diagonal] += 1
        # Keep it invertible where rounding loses the 1. Only the direction changes.
        hessian[:, diagonal, diagonal] += 1e-9 + 1e-15 * np.einsum("gcc->gc", hessian)
        direction = np.linalg.solve(hessian, -gradient[:, :, None])
        along = np.matmul(z, direction)[:, :, 0]
        step = _line_search(w, direction[:, :, 0], u, along, C)
        weights[live] = w + step[:, None] * direction[:, :, 0]
    return weights


def _line_search(w: ndarray, d: ndarray, u: ndarray, along: ndarray, C: float) -> Float[ndarray, " groups"]:
    """Find the step t that minimizes P(w + t d) on each group's rows, the root of its increasing derivative."""
    steps = np.ones(len(w))
    linear, square = (w * d).sum(axis=1), (d * d).sum(axis=1)
    low, high, live = np.zeros(len(w)), np.full(len(w), np.inf), np.arange(len(w))
    for _ in range(60):
        t = steps[live]
        m = np.maximum(u - t[:, None] * along, 0.0)
        active_along = along * (m > 0)
        slope = linear + t * square - 2 * C * np.einsum("gr,gr->g", m, along)
        curvature = square + 2 * C * np.einsum("gr,gr->g", active_along, active_along)
        low, high = np.where(slope < 0, t, low), np.where(slope < 0, high, t)
        newton = t - slope / np.maximum(curvature, _TINY)
        middle = np.where(np.isinf(high), 2 * low, 0.5 * (low + high))
        steps[live] = np.where((newton >= low) & (newton <= high), newton, middle)
        moving = np.abs(steps[live] - t) > 1e-6 * t
        if not moving.any():
            break
        if not moving.all():
            live, u, along = live[moving], u[moving], along[moving]
            linear, square, low, high = linear[moving], square[moving], low[moving], high[moving]
    return steps


def _solve_carefully(z: Float[ndarray, "rows columns"], C: float) -> tuple[ndarray, float, float]:
    """Solve one group on all rows, for data whose Hessian is too ill-conditioned to form.

    Returns weights, objective and gap. Each Newton step is a least-squares problem, solved by QR, whose condition
    number is the square root of the Hessian's. The dual point gets the smallest correction on the rows at the margin
    such that Z^T a equals w up to rounding.
    """
    w = np.zeros(z.shape[1])
    best: tuple[ndarray, float, float] = (w, np.inf, np.inf)
    for step in range(STEPS):
        u = 1.0 - z @ w
        active = u > 0
        objective, gap = prove_carefully(z, w, u, C)
        if gap * best[1] < best[2] * objective or step == 0:
            best = (w, objective, gap)
        if gap <= TOLERANCE * objective:
            break
        stacked = np.concatenate([np.eye(len(w)), np.sqrt(2 * C) * z[active]])
        residual = np.concatenate([-w, np.sqrt(2 * C) * u[active]])
        scale = np.linalg.norm(stacked, axis=0)
        q, r = np.linalg.qr(stacked / scale)
        direction = np.linalg.solve(r, q.T @ residual) / scale
        length = _line_search(w[None], direction[None], u[None], (z @ direction)[None], C)[0]
        w = w + length * direction
    return best


def prove_carefully(z: ndarray, w: ndarray, u: ndarray, C: float) -> tuple[float, float]:
    """Return objective and gap by the identity in the module docstring, with a corrected dual point."""
    m = np.maximum(u, 0.0)
    dual = 2 * C * m
    near = u > -1e-9
    scale = np.linalg.norm(z[near], axis=0)
    scale[scale == 0] = 1.0
    for _ in range(3):
        change = np.linalg.lstsq((z[near] / scale).T, (w - dual @ z) / scale)[0]
        dual[near] = np.maximum(0.0, dual[near] + change)
    difference = w - dual @ z
    objective = 0.5 * (w**2).sum() + C * (m**2).sum()
    gap = 0.5 * (difference**2).sum() + ((dual - 2 * C * m) ** 2).sum() / (4 * C) + (dual * (m - u)).sum()
    return float(objective), float(gap)
