"""Inventory-based counting: one hidden neuron per token reads how much of that token is in the mixture.

W_in = the embeddings e. At a position with token t, neuron t is the own neuron and all others are foreign neurons,
which b_in must silence. All neurons have the same row of W_out, so one readout serves every token. k is the count of t,
gamma the value of the own neuron, and the gap the smallest distance between its values for successive counts.

**Linear mixing** (lin, lin-softmax). The pattern A is fixed, so x' = e_t + sum_m A_lm e_m does not compare tokens.

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

**Scores** (dot, bos, dot-softmax).

**frame** (dot, and bos with e_BOS = 0; d < T). The embeddings e are unit vectors with small overlaps c;
W_Q = d^(1/4) I / L, W_K = d^(1/4) I, b_in = -1. Every overlap enters twice, once in the score and once in the neuron.
It is therefore squared and never negative:

    gamma = 1 + (1/L)(k + sum c^2) - 1,  between (k + (L-k) min c^2)/L and (k + (L-k) max c^2)/L.

These ranges are disjoint iff **(L-1) max c^2 - (L-2) min c^2 < 1**. For this, max|c| < 1/sqrt(L-1) is sufficient (the
printed 1/sqrt(2L-3) subtracts an error that cannot be negative), and a nearly equiangular frame may have larger
overlaps. With M = max|c|, foreign neurons are at most M + M - 1, which is silent for M <= 1/2. For larger M, scale W_Q
by (1 - M)/(L M) instead of 1/L; the gap shrinks by the same factor. Source: B.2.3, errata 16 and 17.

**orthogonal** (dot-softmax; d >= T). W_Q = W_K = d^(1/4) I, b_in = -1. The own neuron equals the attention on the own
token, gamma = k e / (k e + L - k). A foreign neuron equals an attention weight minus 1, which is below 0.
Source: A.3.3, erratum 10.

**frame** (dot-softmax; d < T). If all overlaps with other tokens equal c, let g = 1 - c and l = e^(-kappa g). Then
gamma = 2 + b_in - phi_k with phi_k = (L-k) g l / (k + (L-k) l). The printed recipe, a binary code with a large kappa,
cannot work: without BOS, a large kappa sends the attention on the own token to 1 whatever its count (erratum 26). A
small kappa (1.1 to 1.5) works: there g l/(k + (L-k) l) is flat in g, so phi_k hardly depends on the overlap, and frames
with overlaps up to +-0.44 suffice at L = 10. kappa is tuned to the frame. b_in is halfway between the value that
silences the foreign neurons and the value that would clip the own neuron. Source: B.3.2, errata 26 and 27.
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
    silencing_bias,
    with_silent_bos,
)
from interp.families.histogram.theory.frame_search import best_kappa, frame_for
from interp.families.histogram.theory.frames import (
    mutual_coherence,
    overlaps,
    simplex_dimension,
    simplex_groups,
    simplex_sum,
)
from interp.families.histogram.theory.ranges import token_mixing
from interp.models.constructions import ConstructedWeights

# ---------------------------------------------------------------- linear mixing


def uniform(want: Wanted, a: float | None = None) -> ConstructedWeights:
    """Build the uniform variant: A = a everywhere, d >= T, p >= T, hidden value a k. See the module.

    a: the weight of every position (lin only; the softmax fixes 1/L). A larger a means a larger gap; foreign neurons
    stay silent up to a = 1/(L - 1). Default 1/L.
    """
    tokens, p = want.orthonormal(want.T)
    limit = 1 / (want.L - 1) if want.L > 1 else math.inf
    if a is not None and want.model == "lin-softmax":
        raise InterpError(f"softmax fixes the weight of every position at 1/L, so a = {a} cannot be chosen")
    if a is not None and not 0 < a <= limit:
        raise InterpError(
            f"the weight a must satisfy 0 < a <= 1/(L - 1) = {limit:.6g}, or foreign neurons fire, got {a}"
        )
    weight = 1 / want.L if a is None else a
    notes = ("Behrens et al. (2024) A.3.1, A.3.2", "errata 8 and 9")
    return _linear(want, p, tokens, _constant(want, weight), -1.0, {"a": weight}, notes)


def diagonal(want: Wanted) -> ConstructedWeights:
    """Build the diagonal variant: d >= T, p >= T, hidden value k/(L+1). See the module."""
    tokens, p = want.orthonormal(want.T)
    a = 1 / (want.L + 1)
    identity = torch.eye(want.L, dtype=torch.float64)
    mix = a * (1 + identity) if want.model == "lin" else math.log(2) * identity
    return _linear(want, p, tokens, mix, -(1 + a), {"a": a}, ("Behrens et al. (2024) section 5.1", "errata 8 and 9"))


def simplex(want: Wanted) -> ConstructedWeights:
    """Build the simplex variant: d >= T - floor(T/L), p >= T. See the module."""
    T, L = want.T, want.L
    why = f"T - floor(T/L): simplices of at least L = {L} points each"
    d, p = want.sizes(simplex_dimension(T, L), T, why)
    groups = simplex_groups(T, L, d)
    frame = pad_columns(simplex_sum(T, groups), d)
    numbers, notes = {"a": 1 / L, "groups": float(groups)}, ("Behrens et al. (2024) B.2.1", "erratum 14")
    return _linear(want, p, frame, _constant(want, 1 / L), -1.0, numbers, notes)


def linear_frame(want: Wanted, seed: int = 0) -> ConstructedWeights:
    """Build the frame variant: p >= T, and the frame determines the least d. See the module.

    seed: for the frame search, which runs if no stored or algebraic frame fits these sizes.
    """
    L, (frame, _, d, p) = want.L, want.frame("one-sided", want.T, seed)
    vectors = pad_columns(frame, d)
    highest = overlaps(frame).highest
    a, bias = 1 / L, -1.0
    if highest > 1 / (L + 1) and want.model == "lin":
        a = (1 - highest) / (L - 1 + highest)
    mix = _constant(want, a)
    if highest > 1 / (L + 1) and want.model == "lin-softmax":
        bias = silencing_bias(token_mixing(want.model, vectors, L, W_mix=mix).ranges(vectors.T).over_positions())
    numbers = {"a": a, "b_in": bias, "highest_overlap": highest}
    return _linear(want, p, vectors, mix, bias, numbers, ("Behrens et al. (2024) B.2.1", "errata 13 and 14"))


def _constant(want: Wanted, a: float) -> Float[Tensor, "L L"]:
    """Return the mixing matrix that gives every position the weight a, which is 1/L with a softmax."""
    return torch.full((want.L, want.L), a if want.model == "lin" else 0.0, dtype=torch.float64)


def _linear(
    want: Wanted, p: int, frame: Float[Tensor, "T d"], mix: Float[Tensor, "L L"], bias: float,
    numbers: dict[str, float], notes: tuple[str, ...],
) -> ConstructedWeights:  # fmt: skip
    return finish(
        want, {"embed.W_E": frame, "blocks.0.attn.W_mix": mix[None]}, {"tokens": frame}, p=p,
        W_in=frame.T.contiguous(), b_in=bias, claim="; only the own token's neuron fires", numbers=numbers, notes=notes,
    )  # fmt: skip


# ---------------------------------------------------------------- scores


def score_frame(want: Wanted, seed: int = 0) -> ConstructedWeights:
    """Build dot, or bos with a BOS embedding of zero; the frame determines the least d, and p >= T. See the module.

    seed: for the frame search, which runs if no stored or algebraic frame fits these sizes.
    """
    L, (frame, slack, d, p) = want.L, want.frame("squared", want.T, seed)
    coherence = mutual_coherence(frame)
    scale = min(1 / L, (1 - coherence) / (L * coherence)) if coherence > 0 else 1 / L
    vectors = pad_columns(frame, d)
    return finish(
        want, {"embed.W_E": with_silent_bos(want, vectors), **dot_attention(d, scale)}, {"tokens": vectors},
        p=p, W_in=vectors.T.contiguous(), b_in=-1.0, claim=f" with d_model = {d}; only the own token's neuron fires",
        notes=("Behrens et al. (2024) B.2.3", "errata 16 and 17"),
        numbers={"coherence": coherence, "slack": slack, "query_scale": scale},
    )  # fmt: skip


def softmax_orthogonal(want: Wanted) -> ConstructedWeights:
    """Build dot-softmax with d >= T, p >= T and gamma = k e / (k e + L - k). See the module."""
    tokens, p = want.orthonormal(want.T)
    return finish(
        want, {"embed.W_E": tokens, **dot_attention(tokens.shape[1])}, {"tokens": tokens},
        p=p, W_in=tokens.T.contiguous(), b_in=-1.0, claim="; the hidden value is the attention on the own token",
        notes=("Behrens et al. (2024) A.3.3", "erratum 10"),
    )  # fmt: skip


def softmax_frame(want: Wanted, kappa: float | None = None, seed: int = 0) -> ConstructedWeights:
    """Build dot-softmax with p >= T; the frame determines the least d. See the module.

    kappa: inverse temperature. If it is too small, overlaps count like the token itself; if it is too large, the
    attention saturates on the own token whatever its count. None: the best value for the frame.
    seed: for the frame search, which runs if no stored frame fits these sizes.
    """
    frame = frame_for("softmax", want.T, want.L, want.d_model, seed=seed)
    d, p = want.sizes(frame.shape[1], want.T, "the smallest frame stored for these sizes")
    kappa = best_kappa(frame, want.L)[0] if kappa is None else kappa
    vectors, attention = pad_columns(frame, d), dot_attention(d, kappa)
    W_Q, W_K = (matrix[0] for matrix in attention.values())
    bias = silencing_bias(token_mixing(want.model, vectors, want.L, W_Q=W_Q, W_K=W_K).ranges(vectors.T))
    return finish(
        want, {"embed.W_E": vectors, **attention}, {"tokens": vectors},
        p=p, W_in=vectors.T.contiguous(), b_in=bias, claim=f" with d_model = {d}; only the own token's neuron fires",
        notes=("Behrens et al. (2024) B.3.2, which is wrong as described", "errata 26 and 27"),
        numbers={"kappa": kappa, "b_in": bias, "coherence": mutual_coherence(vectors)},
    )  # fmt: skip
