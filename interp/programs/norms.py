"""Norms before parts, or after earlier ones: what is divided, and the length by which, as sums of the variables so far.

A norm divides by the length of a vector. This vector is nearly a sum over the variables, so its length is that of a
few sums of weights: written once, for all that is read behind the norm, with only as many sums as the length needs.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.architecture.blocks import PostNormBlock
from interp.measures.runs import Part
from interp.programs.reading import matrix
from interp.programs.running import Running
from interp.programs.steps import Features, Sums

ACCURACY = 0.002
"""Root of the mean square of the relative error of a length."""


def norm_before(running: Running, part: Part) -> tuple[Any, Float[Tensor, "rows length d_model"]]:
    """The last norm that is before a part (None: none is), and the residual stream before this norm.

    It is the part's own, or that after an earlier part.
    """
    block, mlp = running.blocks[part.layer], Part(part.layer - 1)
    after = isinstance(block, PostNormBlock)
    if part.head is None:
        norm, stream = block.ln1 if after else getattr(block, "ln2", None), running.between(part.layer)
    elif not after:
        norm, stream = getattr(block, "ln1", None), running.before(part.layer)
    elif part.layer == 0 or not isinstance(earlier := running.blocks[mlp.layer], PostNormBlock):
        norm, stream = None, running.before(part.layer)
    elif mlp in running.parts:
        norm, stream = earlier.ln2, running.stream({}, mlp.layer, reads=False) + running.value(mlp)
    else:
        norm, stream = earlier.ln1, running.between(mlp.layer)
    return (norm if hasattr(norm, "eps") else None), stream


def undivided(norm: Any, here: Float[Tensor, "points d"]) -> Float[Tensor, "points d"]:
    """What a norm divides: a layer norm takes the mean off first."""
    return here if "RMS" in type(norm).__name__ else here - here.mean(-1, keepdim=True)


def gain_and_shift(norm: Any, d: int) -> tuple[Tensor, Tensor]:
    """What a norm multiplies by and adds after it has divided, (d,) each."""
    return (
        getattr(norm, "w", torch.ones(d)).detach().double().cpu(),
        getattr(norm, "b", torch.zeros(d)).detach().double().cpu(),
    )


def length(name: str, features: Features, divided: Float[Tensor, "points d"], eps: float) -> Sums:
    """The sums whose length is that by which a norm divides. features: (points, values) of each variable.

    The sums that add least are left out: their mean square is a constant. Weights are turned so that many are zero.
    """
    points = torch.cat([torch.ones(len(divided), 1).double(), *features.values()], 1)
    vectors = torch.linalg.lstsq(points, divided, driver="gelsd").solution / divided.shape[1] ** 0.5
    each = points @ vectors
    vectors = vectors @ torch.linalg.eigh(each.T @ each)[1].flip(1)  # those that add most come first
    wanted = divided.square().mean(1, keepdim=True) + eps
    found = (points @ vectors).square().cumsum(1)
    rest = (wanted - found).mean(0).clamp(min=0)
    error = ((found + rest) / wanted).sqrt().sub(1).square().mean(0).sqrt().tolist()
    n = next((n for n, one in enumerate(error, 1) if one <= ACCURACY), len(error))
    constant = torch.zeros(len(vectors), 1).double()
    constant[0] = rest[n - 1].sqrt()
    turned = torch.linalg.qr(torch.cat([vectors[:, :n], constant], 1).T, mode="r").R.triu().T
    blocks = turned[1:].split([one.shape[1] for one in features.values()])
    return Sums(name, tuple(features), tuple(map(matrix, blocks)), tuple(turned[0].tolist()))
