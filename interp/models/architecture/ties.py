"""What rounding must not decide: which of equal numbers is the largest, and the sign of what is 0."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

TIED = 2.0**-17
"""Numbers that differ by less than this share of the largest, about 1e-5, are equal: rounding orders them."""


def first_largest(
    values: Float[Tensor, "*rows n"], within: Float[Tensor, "*rows 1"] | float | None = None
) -> Int[Tensor, "*rows"]:
    """Return the index of each row's largest value, or of the first that is equal to it.

    within: how far equal values may be apart (default: TIED times the largest absolute value of the row).
    """
    if within is None:
        within = TIED * values.abs().nan_to_num(posinf=0.0).amax(-1, keepdim=True)
    return (values >= values.amax(-1, keepdim=True) - within).int().argmax(-1)


def leveled(values: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Round to multiples of TIED times the largest absolute value, so that what is equal or 0 is so.

    For orders and signs. No simple fraction of the largest lies halfway between two multiples.
    """
    step = (TIED * values.abs().nan_to_num(posinf=0.0).amax()).clamp(min=torch.finfo(values.dtype).tiny)
    return (values / step).round() * step
