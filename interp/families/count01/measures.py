"""Cooperation of heads: exact Shapley values and pairwise synergies of a measure, from its value on every subset.

Zsámboki et al. (2025, section 5.3) ask whether heads form an ensemble or cooperate; the measures here are not theirs.
v(H) is the value of a measure (s-acc, l-acc, ROC AUC) for the group H, and v(empty) is the chance level.

- The Shapley value of a head is its mean gain v(H + i) - v(H) over all orders of adding the heads. The values sum to
  v(all) - v(empty) (efficiency).
- The synergy of two heads is v(ab) - v(a) - v(b) + v(empty): the pair's gain beyond its members, without other heads.
- Their interaction index (Grabisch and Roubens 1999) is the same difference, averaged over all sets of other heads with
  Shapley's weights. It is positive if the heads need each other, and negative if one can replace the other, as in an
  ensemble.
"""

from itertools import combinations
from math import factorial

import numpy as np
import pandas as pd
from jaxtyping import Float
from numpy import ndarray

from interp.errors import InterpError


def shapley(table: pd.DataFrame, metric: str, empty: float = 0.5) -> pd.DataFrame:
    """Return one row per head: head, value (of the head alone), shapley, in units of the metric.

    table: columns heads (tuples) and `metric`, with every non-empty subset of its heads once, as returned by
    `SeparatorPath.score_subsets`. empty: the value without heads. Raises InterpError for missing or repeated subsets.
    """
    heads, values = _cube(table, metric, empty)
    n = len(heads)
    sizes = _sizes(n - 1)
    weights = np.array([factorial(s) * factorial(n - s - 1) / factorial(n) for s in range(n)])[sizes]
    rows = []
    for axis, head in enumerate(heads):
        without, with_head = (values.take(k, axis=axis) for k in (0, 1))
        alone = with_head[(0,) * (n - 1)]
        rows.append((head, float(alone), float((weights * (with_head - without)).sum())))
    return pd.DataFrame(rows, columns=["head", "value", "shapley"])


def pairwise_synergy(table: pd.DataFrame, metric: str, empty: float = 0.5) -> pd.DataFrame:
    """Return one row per pair: head_a < head_b, synergy (the pair alone), interaction (averaged over other heads).

    Arguments, units and errors are as in `shapley`; the table needs at least two heads.
    """
    heads, values = _cube(table, metric, empty)
    n = len(heads)
    sizes = _sizes(n - 2)
    weights = np.array([factorial(s) * factorial(n - s - 2) / factorial(n - 1) for s in range(n - 1)])[sizes]
    rows = []
    for (a, head_a), (b, head_b) in combinations(enumerate(heads), 2):
        corners = {(i, j): values.take(j, axis=b).take(i, axis=a) for i in (0, 1) for j in (0, 1)}
        together = corners[1, 1] - corners[1, 0] - corners[0, 1] + corners[0, 0]
        rows.append((head_a, head_b, float(together[(0,) * (n - 2)]), float((weights * together).sum())))
    return pd.DataFrame(rows, columns=["head_a", "head_b", "synergy", "interaction"])


def _sizes(n: int) -> ndarray:
    """Return the number of ones in each corner of the n-cube, shape (2, ..., 2)."""
    return np.indices((2,) * n).sum(axis=0) if n else np.zeros((), int)


def _cube(table: pd.DataFrame, metric: str, empty: float) -> tuple[list[int], Float[ndarray, "..."]]:
    """Return the heads in order, and the values as a cube: index 1 on axis i means that head i is present."""
    heads = sorted({head for group in table["heads"] for head in group})
    n = len(heads)
    place = {head: i for i, head in enumerate(heads)}
    corners = {tuple(sorted(place[head] for head in group)) for group in table["heads"]}
    if n == 0 or len(corners) != len(table) or len(table) != 2**n - 1:
        raise InterpError(
            f"the table contains {len(corners):,} different groups in {len(table):,} rows; "
            f"exact values for its {n} heads need each of their {2**n - 1:,} subsets once"
        )
    cube = np.full(2**n, float(empty))
    index = [sum(1 << (n - 1 - place[head]) for head in group) for group in table["heads"]]
    cube[index] = table[metric].to_numpy(dtype=float)
    if not np.isfinite(cube).all():
        raise InterpError(f"the column {metric!r} or the value of no heads ({empty}) is not a finite number everywhere")
    return heads, cube.reshape((2,) * n)
