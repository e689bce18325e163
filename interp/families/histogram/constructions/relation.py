"""Relation-based counting with one hidden neuron: attention compares tokens and writes along a direction they share.

Throughout, k is the count of the token t at the position, gamma the hidden value, s_0 the attention from t to BOS, and
the gap the smallest distance between gamma at successive counts.

**Raw scores** (dot, bos). Without a normalizer, x' = e_t + sum_m <e_t, e_m> e_m (+ <e_t, e_BOS> e_BOS). If all tokens
have the same component along a direction w, then <w, x'> adds up the scores, and the scores add up to the count.

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

**BOS and softmax** (bos-softmax). Attention on BOS falls as the own token repeats.

**orthogonal** (d >= T). The embeddings e_t = u_t are orthonormal and e_BOS = sum u_s. Scores are [t = s] between tokens
and 1 on BOS. W_in = e_BOS and b_in = -1. The product with e_BOS is 1 for every token and T for BOS:

    gamma = 1 + (1 - s_0) + T s_0 - 1 = 1 + (T - 1) s_0,   s_0 = e / ((k + 1) e + L - k),   falling in k.

Source: A.2.2, erratum 6.

**binary, circle, quarter-circle** (d far below T). v_1..v_T are distinct unit vectors, e_t = [v_t; alpha],
e_BOS = [0; 1/alpha], W_Q = kappa d^(1/4) I, W_K = d^(1/4) I. Scores are kappa between a token and BOS, and
kappa (<v_t, v_s> + alpha^2) between tokens. The counter is the last coordinate itself, and b_in = 0:

    gamma = alpha + (1 - s_0) alpha + s_0 / alpha = 2 alpha + s_0 (1/alpha - alpha),
    1/s_0 = 1 + F (k + sum over other tokens of e^(-kappa (1 - <v_t, v_s>))),   F = e^(kappa alpha^2).

gamma falls with k, and the counts separate iff kappa > kappa* (see `kappa_threshold`). The codes v_t are: the bits
of t, in d' = ceil(log2(T + 1)) dimensions; T points on the full circle, d' = 2; and the printed quarter circle, d' = 2,
whose points are closer together, so that at T = 32 its kappa* is about 40 times as large. d_model = d' + 1.
Source: B.3.1 eq. 76, errata 19 (norm), 20 (merged counter, one dimension fewer than printed), 21, 25 (circle).

**NAME-printed** has a separate coordinate for the counter, as in eq. 76: e_t = [v_t; alpha; 0],
e_BOS = [0; 1/alpha; 1], gamma = s_0, d_model = d' + 2.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from interp.errors import InterpError
from interp.families.histogram.constructions.readout import (
    Wanted,
    dot_attention,
    finish,
    pad_columns,
    with_silent_bos,
)
from interp.families.histogram.theory import frames
from interp.models.constructions import ConstructedWeights

CODES = {"binary": frames.binary_code, "circle": frames.circle_points, "quarter-circle": frames.quarter_circle_points}

# ---------------------------------------------------------------- raw scores


def orthogonal(want: Wanted) -> ConstructedWeights:
    """Build dot, or bos with a BOS embedding of zero: d >= T, p >= 1, gamma = k, gap 1. See the module."""
    T, L = want.T, want.L
    tokens, p = want.orthonormal(1)
    shared = tokens.sum(0)
    return finish(
        want, {"embed.W_E": with_silent_bos(want, tokens + shared), **dot_attention(len(shared))},
        {"count": shared / T**0.5, "tokens": tokens},
        p=p, W_in=shared[:, None] / (T + 1), b_in=-(1.0 + L * (T + 2)), claim="; the hidden value is the count",
        notes=(f"Behrens et al. (2024) A.2.{1 if want.model == 'dot' else 3}", "errata 2, 3 and 7"),
    )  # fmt: skip


def summed_bos(want: Wanted) -> ConstructedWeights:
    """Build bos with BOS as the sum of all tokens: d >= T, p >= 1, gamma = k, gap 1. See the module (bos-sum)."""
    return _of_sum(want, -(want.T + 1.0), "; the hidden value is the count",
                   ("Behrens et al. (2024) A.2.3", "erratum 7: b_in = -(T + 1) gives the count itself"))  # fmt: skip


def simplex(want: Wanted, alpha: float = 1.0) -> ConstructedWeights:
    """Build dot, or bos with a BOS embedding of zero: d >= T - floor(T/L) + 1, p >= 1. See the module.

    alpha: the coordinate that all tokens share. The gap does not depend on it. A large alpha adds the constant
    L alpha^2 to the hidden value, which costs digits in float32; a small one makes W_in = 1/alpha large.
    """
    T, L = want.T, want.L
    why = f"T - floor(T/L) + 1: simplices of at least L = {L} points each and one shared coordinate"
    d, p = want.sizes(frames.simplex_dimension(T, L) + 1, 1, why)
    groups = frames.simplex_groups(T, L, d - 1)
    return _shared_coordinate(want, d, p, frames.simplex_sum(T, groups), alpha, {"groups": float(groups)})


def counter_frame(want: Wanted, alpha: float = 1.0, seed: int = 0) -> ConstructedWeights:
    """Build dot, or bos with a BOS embedding of zero: p >= 1, and the frame determines the least d. See the module.

    alpha: as in `simplex`. seed: for the frame search, which runs if no stored or algebraic frame fits these sizes.
    """
    frame, _, d, p = want.frame("one-sided", 1, seed, shared=1)
    return _shared_coordinate(want, d, p, frame, alpha, {})


def _shared_coordinate(
    want: Wanted, d: int, p: int, frame: Float[Tensor, "T width"], alpha: float, numbers: dict[str, float]
) -> ConstructedWeights:
    if not alpha > 0:
        raise InterpError(f"alpha, the coordinate that all tokens share, must be positive, got {alpha}")
    tokens = pad_columns(frame, d)
    shared = torch.eye(d, dtype=torch.float64)[-1]
    return finish(
        want, {"embed.W_E": with_silent_bos(want, tokens + alpha * shared), **dot_attention(d)},
        {"count": shared, "tokens": tokens},
        p=p, W_in=shared[:, None] / alpha, b_in=0.0,
        claim=f" with d_model = {d}; the last coordinate adds up the scores",
        notes=("Behrens et al. (2024) B.2.2", "errata 14 and 15"), numbers={"alpha": alpha, **numbers},
    )  # fmt: skip


def _of_sum(want: Wanted, bias: float, claim: str, notes: tuple[str, ...]) -> ConstructedWeights:
    """Build a model of orthonormal tokens whose BOS is their sum, which is also the direction that is read."""
    tokens, p = want.orthonormal(1)
    bos = tokens.sum(0)
    return finish(
        want, {"embed.W_E": torch.cat([tokens, bos[None]]), **dot_attention(len(bos))},
        {"count": bos / want.T**0.5, "bos": bos / want.T**0.5, "tokens": tokens},
        p=p, W_in=bos[:, None], b_in=bias, claim=claim, notes=notes,
    )  # fmt: skip


# ---------------------------------------------------------------- attention on BOS


def softmax_orthogonal(want: Wanted) -> ConstructedWeights:
    """Build the orthogonal variant: d >= T, p >= 1, gamma = 1 + (T-1) e / ((k+1) e + L - k). See the module."""
    claim = "; the hidden value follows the attention on BOS"
    return _of_sum(want, -1.0, claim, ("Behrens et al. (2024) A.2.2", "erratum 6"))


def code(want: Wanted, kappa: float | None = None, alpha: float | None = None) -> ConstructedWeights:
    """Build a code variant: d >= d' + 1 (printed form: d' + 2) and p >= 1. See the module.

    kappa: inverse temperature; must exceed kappa*. With eps the separation of the code (1 minus its largest overlap),
    other tokens have weight at most e^(-kappa eps). A larger kappa makes this smaller, but scores of size kappa lose
    digits in float32, and alpha must shrink. Default ln(10 L)/eps, which always exceeds kappa*: all other tokens
    together weigh at most a tenth of one copy of the own token.
    alpha: must be small compared with 1/sqrt(kappa). The gap between k and k + 1 is about F/((1 + kF)(1 + (k+1)F)) with
    F = e^(kappa alpha^2), which is 5e-20 at kappa = 40 and alpha = 1. If alpha is too small, the score of BOS with
    itself grows like kappa/alpha^2. It affects no token's output, but needs a softmax that subtracts its maximum.
    Default 0.3/sqrt(kappa). Erratum 22.
    """
    T, L = want.T, want.L
    name = want.variant.removesuffix("-printed")
    printed = name != want.variant
    vectors = CODES[name](T)
    width = vectors.shape[1]
    coordinates = "two more for alpha and the counter" if printed else "one for the counter"
    why = f"{width} coordinates for the {name} code and {coordinates}"
    d, p = want.sizes(width + 1 + printed, 1, why)
    span = frames.overlaps(vectors)
    eps = 1 - span.highest
    least = frames.kappa_threshold(eps, L, span.lowest)
    kappa = math.log(10 * L) / eps if kappa is None else kappa
    alpha = 0.3 / math.sqrt(kappa) if alpha is None and kappa > 0 else alpha
    if not kappa > least:
        raise InterpError(f"the {name} code of {T} tokens has separation {eps:.6g}, so at L={L} kappa must exceed "
                          f"kappa* = {least:.6g} (eq. 92), got {kappa}")  # fmt: skip
    if alpha is None or not alpha > 0 or (not printed and alpha >= 1):
        raise InterpError(
            f"alpha must be positive{'' if printed else ' and below 1, or the counter would not fall'}, got {alpha}"
        )
    tokens, axes = pad_columns(vectors, d), torch.eye(d, dtype=torch.float64)
    balance = axes[-2] if printed else axes[-1]
    bos = balance / alpha + (axes[-1] if printed else 0)
    return finish(
        want, {"embed.W_E": torch.cat([tokens + alpha * balance, bos[None]]), **dot_attention(d, kappa)},
        {"count": axes[-1], "bos": bos / bos.norm(), "tokens": tokens},
        p=p, W_in=axes[:, -1:], b_in=0.0, claim=f" with d_model = {d}; the hidden value falls with the count",
        notes=("Behrens et al. (2024) B.3.1", "errata 19 to 22 and 25"),
        numbers={"kappa": kappa, "kappa_threshold": least, "alpha": alpha, "separation": eps},
    )  # fmt: skip
