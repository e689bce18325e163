"""Lower bounds on sum_i w_i relu(z_i): affine functions below it, given an interval for each z_i.

On [lo, hi] a neuron of fixed sign is affine. A neuron that changes sign is bounded from below by
- w < 0: the chord w hi (z - lo) / (hi - lo), the best affine bound, touching at both ends;
- w > 0: any line w a z with 0 <= a <= 1; `flat_or_steep` takes a = 0 or 1, whichever leaves the smaller gap, and
  `parallel` takes the slope of the chord.
The minimum of an affine function over token sequences is exact (see `ranges.py`), so these give sound
bounds, exact where no neuron changes its sign. Bounds from above follow with -w.
Source: errata on Behrens et al. (2024), section C; the relaxation is that of Wong & Kolter (2018) and CROWN (2018).
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float

Choice = Literal["flat_or_steep", "parallel"]


@dataclass(frozen=True)
class Affine:
    """The affine functions z -> sum_i slope_i z_i + offset, one per row."""

    slope: Float[np.ndarray, "rows p"]
    offset: Float[np.ndarray, " rows"]


def affine_below(
    weight: Float[np.ndarray, "rows p"],
    lo: Float[np.ndarray, "rows p"],
    hi: Float[np.ndarray, "rows p"],
    choice: Choice = "flat_or_steep",
) -> Affine:
    """Return an affine function that is at most sum_i weight_i relu(z_i) for all lo <= z <= hi."""
    bends = (lo < 0) & (hi > 0)
    chord = np.divide(hi, hi - lo, out=np.zeros_like(hi), where=bends)
    line = chord if choice == "parallel" else (hi > -lo).astype(hi.dtype)
    share = np.where(bends, np.where(weight < 0, chord, line), lo >= 0)
    offset = -(np.where(bends & (weight < 0), weight * chord, 0.0) * np.where(bends, lo, 0.0)).sum(1)
    return Affine(weight * share, offset)


def interval_below(
    weight: Float[np.ndarray, "rows p"], lo: Float[np.ndarray, "rows p"], hi: Float[np.ndarray, "rows p"]
) -> Float[np.ndarray, " rows"]:
    """Return the smallest sum_i weight_i relu(z_i) if each z_i varies freely in its interval; exact for p = 1."""
    return np.where(weight > 0, weight * np.maximum(lo, 0), weight * np.maximum(hi, 0)).sum(1)
