"""From one hidden value to a class: thresholds between the counts, and a linear readout that cuts at them.

Appendix A.4 of Behrens et al. (2024) gives no formula; erratum 4 gives one that works.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from interp.errors import InterpError

NEVER = -100.0  # weight and bias of class 0 in the published code: below every other class for hidden values >= 0


@dataclass(frozen=True)
class ScalarReadout:
    """logits = hidden * weight + bias."""

    weight: Float[Tensor, " n_out"]
    bias: Float[Tensor, " n_out"]


@dataclass(frozen=True)
class Separation:
    """Distance between the hidden values of neighboring counts.

    `thresholds[i]` is halfway between counts i + 1 and i + 2. `gap` is the smallest distance between the intervals of
    neighboring counts (inf for L = 1); `rising` tells whether the hidden value grows with the count.
    """

    thresholds: Float[Tensor, " L_minus_1"]
    gap: float
    rising: bool


def separate(lo: Float[Tensor, " L"], hi: Float[Tensor, " L"]) -> Separation:
    """Return thresholds between the intervals [lo, hi] of counts 1..L, which must be disjoint and rising or falling.

    Raises InterpError, naming two counts, if intervals overlap.
    """
    if len(lo) == 1:
        return Separation(lo.new_zeros(0), float("inf"), True)
    rising = bool(lo[-1] + hi[-1] >= lo[0] + hi[0])
    below, above = (hi[:-1], lo[1:]) if rising else (hi[1:], lo[:-1])
    gaps = above - below
    worst = int(gaps.argmin())
    if not float(gaps[worst]) > 0:
        raise InterpError(
            f"the hidden values of counts {worst + 1} and {worst + 2} overlap (by {-float(gaps[worst]):.3g}), "
            "so no single threshold tells them apart"
        )
    return Separation((below + above) / 2, float(gaps[worst]), rising)


def scalar_readout(
    thresholds: Float[Tensor, " L_minus_1"], *, rising: bool = True, n_out: int | None = None
) -> ScalarReadout:
    """Return a linear readout whose argmax is the count, for any hidden value >= 0, given the thresholds.

    For ascending thresholds tau_1 < .. < tau_{L-1}: w_l = -1 + l/(L+1), b_1 = 0,
    b_l = b_{l-1} + (w_{l-1} - w_l) tau_{l-1}. Lines l and l+1 cross at tau_l and slopes rise with l, so line l is on
    top exactly between tau_{l-1} and tau_l; near a threshold the lead is distance / (L+1). If the hidden value falls
    with the count, the thresholds come in descending order (count 1 on top): reverse them, build the lines, then
    reverse the weights and biases.

    `n_out` is L (class c means count c + 1) or L + 1 (published code: class c means count c, class 0 is never right).
    Raises InterpError for another n_out or thresholds out of order. Source: A.4 and A.2.1 eqs. 15-16, errata 3 to 5.
    """
    length = len(thresholds) + 1
    ascending = thresholds if rising else thresholds.flip(0)
    if length > 2 and not bool((ascending[1:] > ascending[:-1]).all()):
        order = "ascending" if rising else "descending"
        raise InterpError(f"thresholds must be strictly {order}, got {thresholds.tolist()}")
    weight = -1 + torch.arange(1, length + 1, dtype=thresholds.dtype) / (length + 1)
    bias = torch.cat([thresholds.new_zeros(1), -(ascending / (length + 1)).cumsum(0)])
    if not rising:
        weight, bias = weight.flip(0), bias.flip(0)
    if n_out is None or n_out == length:
        return ScalarReadout(weight, bias)
    if n_out != length + 1:
        raise InterpError(
            f"n_out must be {length} (counts 1..{length}) or {length + 1} (counts 0..{length}), got {n_out}"
        )
    never = thresholds.new_full((1,), NEVER)
    return ScalarReadout(torch.cat([never, weight]), torch.cat([never, bias]))
