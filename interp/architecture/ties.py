"""What rounding must not decide: which of equal numbers is the largest, and the sign of what is 0."""

from jaxtyping import Float, Int
from torch import Tensor

TIED = 1e-5
"""Numbers that differ by less than this share of the largest are equal: rounding decides which of them is larger."""


def first_largest(
    values: Float[Tensor, "*rows n"], within: Float[Tensor, "*rows 1"] | float | None = None
) -> Int[Tensor, "*rows"]:
    """Return the index of each row's largest value, or of the first that is equal to it.

    within: how far equal values may be apart (default: TIED times the largest absolute value of the row).
    """
    if within is None:
        within = TIED * values.abs().nan_to_num(posinf=0.0).amax(-1, keepdim=True)
    return (values >= values.amax(-1, keepdim=True) - within).int().argmax(-1)
