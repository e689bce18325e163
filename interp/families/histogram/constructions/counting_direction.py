"""Relation-based counting by raw scores (dot, bos) with one hidden neuron: a direction that every token shares.

Without a normalizer, x' = e_t + sum_m <e_t, e_m> e_m (+ <e_t, e_BOS> e_BOS). If all tokens have the same component
along a direction w, then <w, x'> adds up the scores, and the scores add up to the count. Throughout, k is the count of
the token t at the position, gamma the hidden value, and the gap the smallest distance between gamma at successive
counts.

**orthogonal** (dot; also bos with e_BOS = 0, where it is called `bos-zero`). u_1..u_T are orthonormal, w = sum u_s,
e_t = u_t + w. Then <e_t, w> = T + 1 and <e_t, e_s> = T + 2 + [t = s]. With W_in = w / (T + 1) and
b_in = -(1 + L (T + 2)),

    gamma = 1 + sum_m (T + 2 + [x_m = t]) - 1 - L (T + 2) = k.

Source: A.2.1 (errata 2 and 3: w has norm sqrt(T), lines cross at k - 1/2). A BOS embedding of 0 has score 0 and adds
nothing, so bos needs no change to the readout: A.2.3, erratum 7.

**bos-sum** (bos). e_t = u_t are orthonormal and e_BOS = sum u_s. Scores are [t = s] between tokens and 1 on BOS. With
W_in = e_BOS and b_in = -(T + 1), gamma = <u_t, e_BOS> + k + <e_BOS, e_BOS> - T - 1 = 1 + k + T - T - 1 = k.
Source: A.2.3, erratum 7.

**simplex** (dot, bos with e_BOS = 0; d < T). e_t = [v_t; alpha], where the v_t are a direct sum of regular simplices.
With m the size of the smallest simplex, overlaps are between -1/(m-1) and 0. W_in selects the last coordinate and
divides it by alpha; b_in = 0:

    gamma = 1 + sum_m (<v_t, v_m> + alpha^2) = 1 + L alpha^2 + k + rest,  -(L - k)/(m - 1) <= rest <= 0.

The lowest gamma at count k + 1 exceeds the highest at count k iff (L - k - 1)/(m - 1) < 1. This is strictest at k = 1,
so the condition is **m >= L**. There are then at most floor(T/L) simplices, each of which saves one dimension, and the
shared coordinate takes one: d = T - floor(T/L) + 1. Gap 1 - (L-2)/(m-1), for any alpha. Source: B.2.2; errata 14
(simplices) and 15 (alpha need not be small; the printed conditions on it are unnecessary).

**counter-frame** The same with any unit vectors v whose overlaps c satisfy **(L-1) max c - (L-2) min c < 1**, found by
search. Large alphabets gain most: at T = 64, L = 10, d = 54 is enough, while simplices need 59.
Gap 1 - (L-1) max c + (L-2) min c. Source: B.2.2 with the one-sided condition of erratum 14.
"""

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
    dot_attention,
    finish,
    pad_columns,
    simplex_groups,
)
from interp.families.histogram.theory.frame_search import frame_for
from interp.families.histogram.theory.frames import one_sided_bound, simplex_dimension, simplex_sum
from interp.families.histogram.theory.ranges import MixingKind


def orthogonal(
    model: MixingKind, T: int, L: int, d_model: int | None, p: int | None, n_out: int | None
) -> ConstructedWeights:
    """Build dot, or bos with a BOS embedding of zero: d >= T, p >= 1, gamma = k, gap 1. See the module."""
    variant = "orthogonal" if model == "dot" else "bos-zero"
    d, p = check_sizes(model, variant, T, L, d_model, p, T, 1, "orthogonal token embeddings need d >= T")
    tokens = torch.eye(T, d, dtype=torch.float64)
    shared = tokens.sum(0)
    embedding = tokens + shared
    if model == "bos":
        embedding = torch.cat([embedding, torch.zeros(1, d, dtype=torch.float64)])
    return finish(
        model, variant, {"embed.W_E": embedding, **dot_attention(d)},
        {"count": shared / T**0.5, "tokens": tokens},
        T=T, L=L, p=p, n_out=n_out,
        W_in=shared[:, None] / (T + 1), b_in=torch.tensor([-(1.0 + L * (T + 2))], dtype=torch.float64),
        claim=f"counts correctly on all {T}^{L} sequences; the hidden value is the count",
        notes=("Behrens et al. (2024) A.2.1" if model == "dot" else "Behrens et al. (2024) A.2.3", "errata 2, 3 and 7"),
    )  # fmt: skip


def bos_sum(T: int, L: int, d_model: int | None, p: int | None, n_out: int | None) -> ConstructedWeights:
    """Build bos with the sum of all tokens as BOS embedding: d >= T, p >= 1, gamma = k, gap 1. See the module."""
    d, p = check_sizes("bos", "bos-sum", T, L, d_model, p, T, 1, "orthogonal token embeddings need d >= T")
    tokens = torch.eye(T, d, dtype=torch.float64)
    bos = tokens.sum(0)
    return finish(
        "bos", "bos-sum", {"embed.W_E": torch.cat([tokens, bos[None]]), **dot_attention(d)},
        {"count": bos / T**0.5, "bos": bos / T**0.5, "tokens": tokens},
        T=T, L=L, p=p, n_out=n_out,
        W_in=bos[:, None], b_in=torch.tensor([-(T + 1.0)], dtype=torch.float64),
        claim=f"counts correctly on all {T}^{L} sequences; the hidden value is the count",
        notes=("Behrens et al. (2024) A.2.3", "erratum 7: b_in = -(T + 1) gives the count itself"),
    )  # fmt: skip


def simplex(
    model: MixingKind, T: int, L: int, d_model: int | None, p: int | None, n_out: int | None, alpha: float = 1.0
) -> ConstructedWeights:
    """Build dot, or bos with a BOS embedding of zero: d >= T - floor(T/L) + 1, p >= 1. See the module.

    alpha: the coordinate that all tokens share. The gap does not depend on it. A large alpha adds the constant
    L alpha^2 to the hidden value, which costs digits in float32; a small one makes W_in = 1/alpha large.
    """
    least = simplex_dimension(T, L) + 1
    why = f"T - floor(T/L) + 1: simplices of at least L = {L} points each and one shared coordinate"
    d, p = check_sizes(model, "simplex", T, L, d_model, p, least, 1, why)
    groups, _ = simplex_groups(T, L, d - 1)
    return _shared_coordinate(
        model, "simplex", simplex_sum(T, groups), T, L, d, p, n_out, alpha, {"groups": float(groups)}
    )


def counter_frame(
    model: MixingKind, T: int, L: int, d_model: int | None, p: int | None, n_out: int | None,
    alpha: float, seed: int,
) -> ConstructedWeights:  # fmt: skip
    """Build dot, or bos with a BOS embedding of zero: p >= 1, and the frame determines the least d. See the module.

    alpha: as in `simplex`. seed: for the frame search, which runs if no stored or algebraic frame fits these sizes.
    """
    check_bound(model, "counter-frame", T, L, d_model, one_sided_bound(max(T, 2), max(L, 1)) + 1, ONE_SIDED)
    found = frame_for("one-sided", T, L, None if d_model is None else d_model - 1, seed=seed)
    why = "the smallest frame known for these sizes, and one shared coordinate"
    d, p = check_sizes(model, "counter-frame", T, L, d_model, p, found.shape[1] + 1, 1, why)
    check_slack(model, "counter-frame", found, T, L, extra=1)
    return _shared_coordinate(model, "counter-frame", found, T, L, d, p, n_out, alpha, {})


def _shared_coordinate(
    model: MixingKind, variant: str, frame: Float[Tensor, "T width"], T: int, L: int, d: int, p: int,
    n_out: int | None, alpha: float, numbers: dict[str, float],
) -> ConstructedWeights:  # fmt: skip
    if not alpha > 0:
        raise InterpError(f"alpha, the coordinate that all tokens share, must be positive, got {alpha}")
    tokens = pad_columns(frame, d)
    shared = torch.eye(d, dtype=torch.float64)[-1]
    embedding = tokens + alpha * shared
    if model == "bos":
        embedding = torch.cat([embedding, torch.zeros(1, d, dtype=torch.float64)])
    return finish(
        model, variant, {"embed.W_E": embedding, **dot_attention(d)},
        {"count": shared, "tokens": tokens},
        T=T, L=L, p=p, n_out=n_out,
        W_in=shared[:, None] / alpha, b_in=torch.zeros(1, dtype=torch.float64),
        claim=f"counts correctly on all {T}^{L} sequences with d_model = {d}; the last coordinate adds up the scores",
        notes=("Behrens et al. (2024) B.2.2", "errata 14 and 15"),
        numbers={"alpha": alpha, **numbers},
    )  # fmt: skip
