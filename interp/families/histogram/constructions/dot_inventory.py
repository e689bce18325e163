"""Inventory-based counting by scores (dot, bos, dot-softmax), one hidden neuron per token: W_in = the embeddings.

At a position with token t, k is the count of t, neuron t is the own neuron and all others are foreign neurons. gamma is
the value of the own neuron.

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

import torch

from interp.constructions import ConstructedWeights
from interp.errors import InterpError
from interp.families.histogram.constructions.parts import (
    SQUARED,
    check_bound,
    check_sizes,
    dot_attention,
    finish,
    own_and_foreign,
    pad_columns,
    silencing_bias,
)
from interp.families.histogram.theory.frame_search import best_kappa, frame_for, frame_slack
from interp.families.histogram.theory.frames import mutual_coherence, squared_bound
from interp.families.histogram.theory.ranges import MixingKind, hidden_ranges


def frame(
    model: MixingKind, T: int, L: int, d_model: int | None, p: int | None, n_out: int | None, seed: int
) -> ConstructedWeights:
    """Build dot, or bos with a BOS embedding of zero; the frame determines the least d, and p >= T. See the module.

    seed: for the frame search, which runs if no stored or algebraic frame fits these sizes.
    """
    check_bound(model, "frame", T, L, d_model, squared_bound(max(T, 2), max(L, 1)), SQUARED)
    found = frame_for("squared", T, L, d_model, seed=seed)
    d, p = check_sizes(model, "frame", T, L, d_model, p, found.shape[1], T, "the smallest frame stored for these sizes")
    slack, coherence = frame_slack(found, "squared", L), mutual_coherence(found)
    if slack <= 0:
        raise InterpError(
            f"histogram/{model}-exact (variant frame) found no {T} vectors in {d} dimensions with "
            f"{SQUARED} at L={L}, at best {1 - slack:.4g}; "
            f"none exist below d_model = {squared_bound(T, L)}"
        )
    scale = min(1 / L, (1 - coherence) / (L * coherence)) if coherence > 0 else 1 / L
    vectors = pad_columns(found, d)
    embedding = vectors if model == "dot" else torch.cat([vectors, torch.zeros(1, d, dtype=torch.float64)])
    return finish(
        model, "frame", {"embed.W_E": embedding, **dot_attention(d, scale)}, {"tokens": vectors},
        T=T, L=L, p=p, n_out=n_out, W_in=vectors.T.contiguous(), b_in=-torch.ones(T, dtype=torch.float64),
        claim=f"counts correctly on all {T}^{L} sequences with d_model = {d}; only the own token's neuron fires",
        notes=("Behrens et al. (2024) B.2.3", "errata 16 and 17"),
        numbers={"coherence": coherence, "slack": slack, "query_scale": scale},
    )  # fmt: skip


def softmax_orthogonal(T: int, L: int, d_model: int | None, p: int | None, n_out: int | None) -> ConstructedWeights:
    """Build dot-softmax with d >= T, p >= T and gamma = k e / (k e + L - k). See the module."""
    model, variant = "dot-softmax", "orthogonal"
    d, p = check_sizes(model, variant, T, L, d_model, p, T, T, "orthogonal token embeddings need d >= T")
    tokens = torch.eye(T, d, dtype=torch.float64)
    return finish(
        "dot-softmax", variant, {"embed.W_E": tokens, **dot_attention(d)}, {"tokens": tokens},
        T=T, L=L, p=p, n_out=n_out, W_in=tokens.T.contiguous(), b_in=-torch.ones(T, dtype=torch.float64),
        claim=f"counts correctly on all {T}^{L} sequences; the hidden value is the attention on the own token",
        notes=("Behrens et al. (2024) A.3.3", "erratum 10"),
    )  # fmt: skip


def softmax_frame(
    T: int, L: int, d_model: int | None, p: int | None, n_out: int | None, kappa: float | None, seed: int
) -> ConstructedWeights:
    """Build dot-softmax with p >= T; the frame determines the least d. See the module.

    kappa: inverse temperature. If it is too small, overlaps count like the token itself; if it is too large, the
    attention saturates on the own token whatever its count. None: the best value for the frame.
    seed: for the frame search, which runs if no stored frame fits these sizes.
    """
    model, variant = "dot-softmax", "frame"
    found = frame_for("softmax", T, L, d_model, seed=seed)
    d, p = check_sizes(model, variant, T, L, d_model, p, found.shape[1], T, "the smallest frame stored for these sizes")
    kappa = best_kappa(found, L)[0] if kappa is None else kappa
    vectors = pad_columns(found, d)
    tensors = {"embed.W_E": vectors, **dot_attention(d, kappa)}
    hidden = hidden_ranges(
        "dot-softmax", vectors, L, vectors.T, W_Q=tensors["blocks.0.attn.W_Q"][0], W_K=tensors["blocks.0.attn.W_K"][0]
    )
    own, foreign = own_and_foreign(hidden)
    bias = silencing_bias(own.lo, foreign)
    return finish(
        "dot-softmax", variant, tensors, {"tokens": vectors},
        T=T, L=L, p=p, n_out=n_out, W_in=vectors.T.contiguous(), b_in=torch.full((T,), bias, dtype=torch.float64),
        claim=f"counts correctly on all {T}^{L} sequences with d_model = {d}; only the own token's neuron fires",
        notes=("Behrens et al. (2024) B.3.2, which is wrong as described", "errata 26 and 27"),
        numbers={"kappa": kappa, "b_in": bias, "coherence": mutual_coherence(vectors)},
    )  # fmt: skip
