"""Checks of the arguments of separation measures: head outputs and labels of two classes."""

from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from numpy.typing import ArrayLike

from interp.errors import InterpError

BIASES = ("penalized", "free")
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
    index, classes = class_indices(labels, n_rows)
    if len(classes) != 2:
        raise InterpError(
            f"the labels hold {len(classes)} classes ({_some(np.array(classes))}); a linear separator needs exactly two"
        )
    return 2.0 * index - 1.0, (classes[0], classes[1])


def class_indices(labels: ArrayLike, n_rows: int) -> tuple[ndarray, tuple[Any, ...]]:
    """Return each row's index among the sorted classes, and these classes. Raises InterpError for a single class."""
    array = as_array(labels)
    _check_labels(array, n_rows)
    classes, index = np.unique(array, return_inverse=True)
    if len(classes) < 2:
        raise InterpError(f"the labels hold one class only ({_some(classes)}); there is nothing to separate")
    return index, tuple(value.item() for value in classes)


def signs_of(labels: ArrayLike, n_rows: int, classes: tuple[Any, Any]) -> ndarray:
    """Return the signs -1 and +1 of labels, which must be among the two classes; they may all be of one class."""
    array = as_array(labels)
    _check_labels(array, n_rows)
    unknown = np.setdiff1d(array, np.asarray(classes))
    if len(unknown):
        raise InterpError(
            f"the labels hold {_some(unknown)}, but the separator was fitted on {classes[0]} and {classes[1]}"
        )
    return np.where(array == classes[1], 1.0, -1.0)


def _check_labels(labels: ndarray, n_rows: int) -> None:
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


def check_settings(C: float, bias: str, tolerance: float) -> None:
    if not (np.isfinite(C) and C > 0):
        raise InterpError(f"C is {C}; a positive number is needed (the paper's is 1000)")
    if bias not in BIASES:
        raise InterpError(f"bias is {bias!r}; known: {', '.join(BIASES)}")
    if not 0 < tolerance < 1:
        raise InterpError(f"tolerance is {tolerance}; a relative objective gap between 0 and 1 is needed")


def signed_rows(x: Float[ndarray, "rows features"], signs: Float[ndarray, " rows"]) -> Float[ndarray, "rows columns"]:
    """Return the rows y (x, 1): a row is classified correctly if its product with (w, b) is positive."""
    return signs[:, None] * np.concatenate([x, np.ones((len(x), 1))], axis=1)


def ridge_of(bias: str, n_features: int) -> Float[ndarray, " columns"]:
    """Return the weight of each square in the penalty: 1, or 0 for a free bias."""
    ridge = np.ones(n_features + 1)
    ridge[-1] = float(bias == "penalized")
    return ridge


def unproven(what: str, relative_gap: float, tolerance: float, x: ndarray) -> InterpError:
    sizes = np.abs(x).max(axis=0)
    return InterpError(
        f"the separator of {what} was not proven optimal: its relative objective gap is {relative_gap:.1e}, "
        f"above {tolerance:.1e}; the largest values of its features run from {sizes.min():.1e} to {sizes.max():.1e}: "
        "rescale or center them"
    )
