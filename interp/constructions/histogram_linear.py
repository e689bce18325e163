"""Inventory-based counting by linear mixing (lin, lin-softmax): one hidden neuron per token reads that token's share.

The pattern A is fixed, so x' = e_t + sum_m A_lm e_m holds no comparison: the neuron of token s, W_in = e_s, reads how
much of s is in the mixture, and b_in must silence every neuron but the own one. The own neuron's value falls on one
readout, the same row of W_out for all neurons.

**uniform** A = a everywhere, orthonormal e. Own neuron 1 + a k + b_in, foreign at most a (L - 1) + b_in. With
b_in = -1 the own one is a k, and foreign ones are silent iff **a <= 1/(L - 1)**. Gap a. The softmax reaches a = 1/L
only, by constant logits. Source: A.3.1, A.3.2, errata 8 (any a in the range) and 9 (the constant is arbitrary).

**diagonal** A = a off and 2a on the diagonal, a = 1/(L + 1), b_in = -(1 + a): own neuron 1 + a (k + 1) + b_in = a k,
foreign ones at most a (L - 1) - 1 - a < 0. The softmax reaches it by logits ln 2 on the diagonal. Gap 1/(L + 1).
Source: main text, erratum 8 (the bias goes with the doubled diagonal) and 9.

**simplex** d < T: a direct sum of regular simplices of at least L points, overlaps 0 or -1/(m-1), a = 1/L, b_in = -1.
Own neuron a (k - rest), 0 <= rest <= (L - k)/(m - 1); foreign at most a (L - 1) - 1 < 0, since overlaps only lower it.
Count k + 1 lies above count k iff (L - 2)/(m - 1) < 1, that is **m >= L**, so d = T - floor(T/L) is enough.
Gap (1 - (L-2)/(m-1))/L. Source: B.2.1, erratum 14. (A symmetric bound |overlap| < 1/(2L-3) allows less: at T = 32,
L = 10 these overlaps of -1/9 break it and the construction works; the best known frame with d = 29 breaks it too.)

**frame** d < T: any unit vectors whose overlaps c satisfy **(L-1) max c - (L-2) min c < 1**, found by search. Large
alphabets gain: at T = 64, L = 10 d = 53 where simplices need 58. With M = max c a foreign neuron reaches
M + a (L - 1 + M) - 1, so a = (1 - M)/(L - 1 + M) where that is below 1/L; with softmax a stays 1/L and b_in is halfway
between silencing the foreign neurons and clipping the own one. Source: B.2.1, errata 13 and 14.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from interp.constructions.base import ConstructedWeights
from interp.constructions.histogram_parts import (
    ONE_SIDED,
    check_bound,
    check_sizes,
    check_slack,
    finish,
    own_and_foreign,
    pad_columns,
    silencing_bias,
    simplex_groups,
)
from interp.errors import InterpError
from interp.theory.frame_cache import frame_for
from interp.theory.frames import one_sided_bound, overlaps, simplex_dimension, simplex_sum
from interp.theory.ranges import MixingKind, hidden_ranges


def uniform(
    model: MixingKind, T: int, L: int, d_model: int | None, p: int | None, n_out: int | None, a: float | None = None
) -> ConstructedWeights:
    """A = a everywhere; d >= T, p >= T, gamma = a k, gap a. See the module.

    a: the weight of every position (lin only; the softmax fixes 1/L). Larger means a larger gap, up to 1/(L - 1), where
    foreign neurons just stay silent. Default 1/L.
    """
    d, p = check_sizes(model, "uniform", T, L, d_model, p, T, T, "orthogonal token embeddings need d >= T")
    limit = 1 / (L - 1) if L > 1 else math.inf
    if a is not None and model == "lin-softmax":
        raise InterpError(f"softmax fixes the weight of every position at 1/L, so a = {a} cannot be chosen")
    if a is not None and not 0 < a <= limit:
        raise InterpError(
            f"the weight a must lie in 0 < a <= 1/(L - 1) = {limit:.6g}, or foreign neurons fire, got {a}"
        )
    weight = 1 / L if a is None else a
    mix = torch.full((L, L), weight if model == "lin" else 0.0, dtype=torch.float64)
    return _inventory(model, "uniform", torch.eye(T, d, dtype=torch.float64), mix, -1.0, T, L, p, n_out,
                      {"a": weight}, ("Behrens et al. (2024) A.3.1, A.3.2", "errata 8 and 9"))  # fmt: skip


def diagonal(
    model: MixingKind, T: int, L: int, d_model: int | None, p: int | None, n_out: int | None
) -> ConstructedWeights:
    """A = 1/(L+1), doubled on the diagonal; d >= T, p >= T, gamma = k/(L+1), gap 1/(L+1). See the module."""
    d, p = check_sizes(model, "diagonal", T, L, d_model, p, T, T, "orthogonal token embeddings need d >= T")
    a = 1 / (L + 1)
    identity = torch.eye(L, dtype=torch.float64)
    mix = a * (1 + identity) if model == "lin" else math.log(2) * identity
    return _inventory(model, "diagonal", torch.eye(T, d, dtype=torch.float64), mix, -(1 + a), T, L, p, n_out,
                      {"a": a}, ("Behrens et al. (2024) section 5.1", "errata 8 and 9"))  # fmt: skip


def simplex(
    model: MixingKind, T: int, L: int, d_model: int | None, p: int | None, n_out: int | None
) -> ConstructedWeights:
    """A = 1/L, simplices of at least L points; d >= T - floor(T/L), p >= T, gap (1 - (L-2)/(m-1))/L. See the module."""
    why = f"T - floor(T/L): simplices of at least L = {L} points each"
    d, p = check_sizes(model, "simplex", T, L, d_model, p, simplex_dimension(T, L), T, why)
    groups, _ = simplex_groups(T, L, d)
    mix = torch.full((L, L), 1 / L if model == "lin" else 0.0, dtype=torch.float64)
    frame = pad_columns(simplex_sum(T, groups), d)
    return _inventory(model, "simplex", frame, mix, -1.0, T, L, p, n_out,
                      {"a": 1 / L, "groups": float(groups)}, ("Behrens et al. (2024) B.2.1", "erratum 14"))  # fmt: skip


def frame(
    model: MixingKind, T: int, L: int, d_model: int | None, p: int | None, n_out: int | None, seed: int = 0
) -> ConstructedWeights:
    """A = a everywhere, a one-sided frame; d by the frame, p >= T. See the module.

    seed: of the frame search, where no stored or algebraic frame serves these sizes.
    """
    check_bound(model, "frame", T, L, d_model, one_sided_bound(max(T, 2), max(L, 1)), ONE_SIDED)
    found = frame_for("one-sided", T, L, d_model, seed=seed)
    d, p = check_sizes(
        model, "frame", T, L, d_model, p, found.shape[1], T, "the smallest frame at hand for these sizes"
    )
    check_slack(model, "frame", found, T, L, extra=0)
    vectors = pad_columns(found, d)
    highest = overlaps(found).highest
    a, bias = 1 / L, -1.0
    if highest > 1 / (L + 1) and model == "lin":
        a = (1 - highest) / (L - 1 + highest)
    mix = torch.full((L, L), a if model == "lin" else 0.0, dtype=torch.float64)
    if highest > 1 / (L + 1) and model == "lin-softmax":
        own, foreign = own_and_foreign(hidden_ranges(model, vectors, L, vectors.T, W_mix=mix).over_positions())
        bias = silencing_bias(own.lo, foreign)
    return _inventory(model, "frame", vectors, mix, bias, T, L, p, n_out,
                      {"a": a, "b_in": bias, "highest_overlap": highest},
                      ("Behrens et al. (2024) B.2.1", "errata 13 and 14"))  # fmt: skip


def _inventory(
    model: MixingKind, variant: str, frame: Float[Tensor, "T d"], mix: Float[Tensor, "L L"], bias: float,
    T: int, L: int, p: int, n_out: int | None, numbers: dict[str, float], notes: tuple[str, ...],
) -> ConstructedWeights:  # fmt: skip
    return finish(
        model, variant, {"embed.W_E": frame, "blocks.0.attn.W_mix": mix[None]}, {"tokens": frame},
        T=T, L=L, p=p, n_out=n_out, W_in=frame.T.contiguous(), b_in=torch.full((T,), bias, dtype=torch.float64),
        claim=f"counts right on all {T}^{L} sequences; only the own token's neuron fires",
        numbers=numbers, notes=notes,
    )  # fmt: skip
