"""Inventory-based counting by linear mixing (lin, lin-softmax): one hidden neuron per token reads that token's share.

The pattern A is fixed, so x' = e_t + sum_m A_lm e_m does not compare tokens. The neuron of token s has W_in = e_s and
reads how much of s is in the mixture. At a position with token t, neuron t is the own neuron and all others are
foreign neurons, which b_in must silence. All neurons have the same row of W_out, so one readout serves every token.
k is the count of t, and the gap is the smallest distance between the hidden values of successive counts.

**uniform** A = a everywhere, orthonormal e. The own neuron is 1 + a k + b_in, a foreign one at most a (L - 1) + b_in.
With b_in = -1 the own neuron is a k, and foreign neurons are silent iff **a <= 1/(L - 1)**. Gap a. A softmax can give
a = 1/L only, from constant logits. Source: A.3.1, A.3.2, errata 8 (any a in the range) and 9 (arbitrary constant).

**diagonal** A = 2a on the diagonal and a elsewhere, a = 1/(L + 1), b_in = -(1 + a). The own neuron is
1 + a (k + 1) + b_in = a k; foreign neurons are at most a (L - 1) - 1 - a < 0. A softmax gives this pattern from logits
ln 2 on the diagonal. Gap 1/(L + 1). Source: main text, errata 8 (bias for the doubled diagonal) and 9.

**simplex** (d < T). The embeddings are a direct sum of regular simplices, the smallest with m points. Overlaps are
between -1/(m-1) and 0; a = 1/L, b_in = -1. The own neuron is a (k - rest), 0 <= rest <= (L - k)/(m - 1). A foreign
neuron is at most a (L - 1) - 1 < 0, because overlaps only lower it. The ranges of counts k and k + 1 are disjoint for
all k iff (L - 2)/(m - 1) < 1, that is, **m >= L**, so d = T - floor(T/L) is enough. Gap (1 - (L-2)/(m-1))/L. Source:
B.2.1, erratum 14. (The symmetric bound |overlap| < 1/(2L-3) is stricter than needed: at T = 32, L = 10 the overlaps of
-1/9 violate it, yet the construction works. The best known frame with d = 29 violates it too.)

**frame** (d < T). Any unit vectors whose overlaps c satisfy **(L-1) max c - (L-2) min c < 1** work; a search finds
them. Large alphabets gain most: at T = 64, L = 10, d = 53 is enough, while simplices need 58. With M = max c, a foreign
neuron reaches M + a (L - 1 + M) - 1, so a = (1 - M)/(L - 1 + M) if that is below 1/L. With softmax, a stays 1/L, and
b_in is halfway between silencing the foreign neurons and clipping the own neuron. Source: B.2.1, errata 13 and 14.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from interp.constructions import ConstructedWeights
from interp.errors import InterpError
from interp.families.histogram.constructions.parts import (
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
from interp.families.histogram.theory.frame_search import frame_for
from interp.families.histogram.theory.frames import one_sided_bound, overlaps, simplex_dimension, simplex_sum
from interp.families.histogram.theory.ranges import MixingKind, hidden_ranges


def uniform(
    model: MixingKind, T: int, L: int, d_model: int | None, p: int | None, n_out: int | None, a: float | None = None
) -> ConstructedWeights:
    """Build the uniform variant: A = a everywhere, d >= T, p >= T, hidden value a k. See the module.

    a: the weight of every position (lin only; the softmax fixes 1/L). A larger a means a larger gap; foreign neurons
    stay silent up to a = 1/(L - 1). Default 1/L.
    """
    d, p = check_sizes(model, "uniform", T, L, d_model, p, T, T, "orthogonal token embeddings need d >= T")
    limit = 1 / (L - 1) if L > 1 else math.inf
    if a is not None and model == "lin-softmax":
        raise InterpError(f"softmax fixes the weight of every position at 1/L, so a = {a} cannot be chosen")
    if a is not None and not 0 < a <= limit:
        raise InterpError(
            f"the weight a must satisfy 0 < a <= 1/(L - 1) = {limit:.6g}, or foreign neurons fire, got {a}"
        )
    weight = 1 / L if a is None else a
    mix = torch.full((L, L), weight if model == "lin" else 0.0, dtype=torch.float64)
    return _inventory(model, "uniform", torch.eye(T, d, dtype=torch.float64), mix, -1.0, T, L, p, n_out,
                      {"a": weight}, ("Behrens et al. (2024) A.3.1, A.3.2", "errata 8 and 9"))  # fmt: skip


def diagonal(
    model: MixingKind, T: int, L: int, d_model: int | None, p: int | None, n_out: int | None
) -> ConstructedWeights:
    """Build the diagonal variant: d >= T, p >= T, hidden value k/(L+1). See the module."""
    d, p = check_sizes(model, "diagonal", T, L, d_model, p, T, T, "orthogonal token embeddings need d >= T")
    a = 1 / (L + 1)
    identity = torch.eye(L, dtype=torch.float64)
    mix = a * (1 + identity) if model == "lin" else math.log(2) * identity
    return _inventory(model, "diagonal", torch.eye(T, d, dtype=torch.float64), mix, -(1 + a), T, L, p, n_out,
                      {"a": a}, ("Behrens et al. (2024) section 5.1", "errata 8 and 9"))  # fmt: skip


def simplex(
    model: MixingKind, T: int, L: int, d_model: int | None, p: int | None, n_out: int | None
) -> ConstructedWeights:
    """Build the simplex variant: d >= T - floor(T/L), p >= T. See the module."""
    why = f"T - floor(T/L): simplices of at least L = {L} points each"
    d, p = check_sizes(model, "simplex", T, L, d_model, p, simplex_dimension(T, L), T, why)
    groups, _ = simplex_groups(T, L, d)
    mix = torch.full((L, L), 1 / L if model == "lin" else 0.0, dtype=torch.float64)
    frame = pad_columns(simplex_sum(T, groups), d)
    return _inventory(model, "simplex", frame, mix, -1.0, T, L, p, n_out,
                      {"a": 1 / L, "groups": float(groups)}, ("Behrens et al. (2024) B.2.1", "erratum 14"))  # fmt: skip


def frame(
    model: MixingKind, T: int, L: int, d_model: int | None, p: int | None, n_out: int | None, seed: int
) -> ConstructedWeights:
    """Build the frame variant: p >= T, and the frame determines the least d. See the module.

    seed: for the frame search, which runs if no stored or algebraic frame fits these sizes.
    """
    check_bound(model, "frame", T, L, d_model, one_sided_bound(max(T, 2), max(L, 1)), ONE_SIDED)
    found = frame_for("one-sided", T, L, d_model, seed=seed)
    d, p = check_sizes(model, "frame", T, L, d_model, p, found.shape[1], T, "the smallest frame known for these sizes")
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
        claim=f"counts correctly on all {T}^{L} sequences; only the own token's neuron fires",
        numbers=numbers, notes=notes,
    )  # fmt: skip
