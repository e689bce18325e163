"""Positions in attention scores, as in TransformerLens: rotary (Su et al. 2021) and ALiBi (Press et al. 2021)."""

import torch
from jaxtyping import Float, Int
from torch import Tensor


def rotated(
    x: Float[Tensor, "*rows length heads d_head"],
    at: Int[Tensor, "*#rows length"],
    base: float,
    dim: int,
    adjacent: bool,
) -> Float[Tensor, "*rows length heads d_head"]:
    """Rotate the first `dim` dimensions of queries or keys by their positions `at`.

    Args:
        base: the angle of pair j at position i is i / base^(2j / dim), in radians.
        dim: an even number; the other dimensions do not change.
        adjacent: whether pair j consists of the dimensions (2j, 2j + 1) instead of (j, j + dim/2).
    """
    # Compute angles in float64: float32 angles are inaccurate at lengths in the thousands.
    rates = base ** (-torch.arange(0, dim, 2, device=x.device, dtype=torch.float64) / dim)
    angles = at[..., None, None].double() * rates  # *rows, length, 1 (heads), pairs
    cos, sin = angles.cos().to(x), angles.sin().to(x)
    turning = x[..., :dim]
    first, second = (turning[..., ::2], turning[..., 1::2]) if adjacent else turning.chunk(2, -1)
    turned = (first * cos - second * sin, second * cos + first * sin)
    joined = torch.stack(turned, -1).flatten(-2) if adjacent else torch.cat(turned, -1)
    return torch.cat([joined, x[..., dim:]], -1) if dim < x.shape[-1] else joined


def alibi_slopes(n_heads: int) -> Float[Tensor, "heads"]:
    """Return the slope of each head h = 0, 1, ..., 2^(-8 (h + 1) / n_heads), in float64."""
    return 2.0 ** (-8.0 / n_heads * torch.arange(1, n_heads + 1, dtype=torch.float64))


def alibi_bias(
    at: Int[Tensor, "*rows queries"], keys: int, n_heads: int
) -> Float[Tensor, "*rows_or_heads queries keys"]:
    """Return ALiBi's bias on the scores of queries at these positions, -slope * distance, in float64.

    The bias of keys after a query is 0, because a causal mask hides them. With rows, `at` has an axis of 1 for heads.
    """
    distance = (at[..., None] - torch.arange(keys, device=at.device)).clamp(min=0)
    return -alibi_slopes(n_heads).to(at.device)[:, None, None] * distance
