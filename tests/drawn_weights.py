"""Models of TransformerLens from the fields of their config, and parameters that are all drawn, or all zero."""

from typing import Any

import torch

from interp.models.lens import HookedTransformer, config, quiet_construction


def hooked(**fields: Any) -> HookedTransformer:
    """A model whose parameters are still to be set."""
    with quiet_construction():
        return HookedTransformer(config(**fields))


@torch.no_grad()
def set_to_zero(part: Any) -> None:
    for parameter in part.parameters():
        parameter.zero_()


@torch.no_grad()
def draw(part: Any, seed: int, scale: float = 1.0, dtype: torch.dtype | None = None) -> None:
    """Normal numbers of one generator, drawn in this dtype, or in that of each parameter."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in part.parameters():
        drawn = torch.randn(parameter.shape, generator=generator, dtype=dtype or parameter.dtype)
        parameter.copy_(drawn * scale)


@torch.no_grad()
def draw_each(part: Any, scale: float = 1.0) -> None:
    """Normal numbers by a generator for each parameter: those of one size are equal."""
    for parameter in part.parameters():
        parameter.normal_(std=scale, generator=torch.Generator().manual_seed(parameter.numel()))
