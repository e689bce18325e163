"""Relation-based counting with BOS and softmax, one hidden neuron: attention on BOS falls as the own token repeats.

Throughout, s_0 is the attention from a position with token t to BOS, k the count of t, gamma the hidden value.

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

from interp.constructions import ConstructedWeights
from interp.errors import InterpError
from interp.families.histogram.constructions.parts import check_sizes, dot_attention, finish, pad_columns
from interp.families.histogram.theory.frames import (
    binary_code,
    circle_points,
    kappa_threshold,
    overlaps,
    quarter_circle_points,
)

CODES = {"binary": binary_code, "circle": circle_points, "quarter-circle": quarter_circle_points}


def orthogonal(T: int, L: int, d_model: int | None, p: int | None, n_out: int | None) -> ConstructedWeights:
    """Build the orthogonal variant: d >= T, p >= 1, gamma = 1 + (T-1) e / ((k+1) e + L - k). See the module."""
    model, variant = "bos-softmax", "orthogonal"
    d, p = check_sizes(model, variant, T, L, d_model, p, T, 1, "orthogonal token embeddings need d >= T")
    tokens = torch.eye(T, d, dtype=torch.float64)
    bos = tokens.sum(0)
    return finish(
        "bos-softmax", variant, {"embed.W_E": torch.cat([tokens, bos[None]]), **dot_attention(d)},
        {"count": bos / T**0.5, "bos": bos / T**0.5, "tokens": tokens},
        T=T, L=L, p=p, n_out=n_out, W_in=bos[:, None], b_in=-torch.ones(1, dtype=torch.float64),
        claim=f"counts correctly on all {T}^{L} sequences; the hidden value follows the attention on BOS",
        notes=("Behrens et al. (2024) A.2.2", "erratum 6"),
    )  # fmt: skip


def code(
    variant: str, T: int, L: int, d_model: int | None, p: int | None, n_out: int | None,
    kappa: float | None = None, alpha: float | None = None,
) -> ConstructedWeights:  # fmt: skip
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
    name = variant.removesuffix("-printed")
    printed = name != variant
    vectors = CODES[name](T)
    width = vectors.shape[1]
    coordinates = "two more for alpha and the counter" if printed else "one for the counter"
    why = f"{width} coordinates for the {name} code and {coordinates}"
    d, p = check_sizes("bos-softmax", variant, T, L, d_model, p, width + 1 + printed, 1, why)
    span = overlaps(vectors)
    eps = 1 - span.highest
    least = kappa_threshold(eps, L, span.lowest)
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
        "bos-softmax", variant,
        {"embed.W_E": torch.cat([tokens + alpha * balance, bos[None]]), **dot_attention(d, kappa)},
        {"count": axes[-1], "bos": bos / bos.norm(), "tokens": tokens},
        T=T, L=L, p=p, n_out=n_out, W_in=axes[:, -1:], b_in=torch.zeros(1, dtype=torch.float64),
        claim=f"counts correctly on all {T}^{L} sequences with d_model = {d}; the hidden value falls with the count",
        notes=("Behrens et al. (2024) B.3.1", "errata 19 to 22 and 25"),
        numbers={"kappa": kappa, "kappa_threshold": least, "alpha": alpha, "separation": eps},
    )  # fmt: skip
