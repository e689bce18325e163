"""Norms before parts: what is divided, and the length by which, as sums of the variables so far.

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
from interp.programs.language import Features, Sums
from interp.programs.reading import matrix

ACCURACY = 0.002
"""Root of the mean square of the relative error of a length."""


def norm_before(block: Any, part: Part) -> Any:
    """The norm through which a part reads the residual stream; None where there is none."""
    norm = getattr(block, "ln2" if part.head is None else "ln1", None)
    return norm if hasattr(norm, "eps") and not isinstance(block, PostNormBlock) else None


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
