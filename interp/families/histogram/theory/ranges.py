"""The exact range of a direction of the mixed token, over all T^L sequences.

One mixing layer maps position l to x'_l = e_{x_l} + sum_m A_lm v_{x_m}. For a given own token t, its count k and a
direction w, this module computes the smallest and largest w.x'_l over all sequences in which t is at l and occurs k
times. The other L - k slots can have any other tokens, with repetitions, so:

- scores without a normalizer (dot, bos): w.x' is a constant plus one term per slot that depends only on the slot's
  token, so every slot takes the same best token o.
- softmax over scores (dot-softmax, bos-softmax): w.x' is a constant plus a ratio (N_0 + sum n_m) / (D_0 + sum d_m)
  with positive denominators. This is a mediant of per-slot ratios, so it lies between the smallest and the largest of
  them; again the same token o in every slot is extreme.
- a fixed pattern (lin, lin-softmax): slots differ, so each takes its own best other token, and the k - 1 other copies
  of t go to the slots where they gain most over the best other token.

So O(T^2 L) numbers replace T^L sequences, and the result is exact.
Source: errata on Behrens et al. (2024), section C.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from interp.errors import InterpError, check_one_of

MixingKind = Literal["lin", "lin-softmax", "dot", "dot-softmax", "bos", "bos-softmax"]
_BLOCK = 1 << 22  # entries of a temporary array: 32 MiB in float64


@dataclass(frozen=True)
class Ranges:
    """lo and hi of every direction, by own token, (position,) count and direction. Count k has index k - 1.

    An impossible count (T = 1 and k < L) has the empty interval lo = inf, hi = -inf.
    """

    lo: Float[Tensor, "*T_position_L_p"]
    hi: Float[Tensor, "*T_position_L_p"]

    def over_positions(self) -> Ranges:
        """The ranges over all positions: (T, L, p)."""
        if self.lo.ndim == 3:
            return self
        return Ranges(self.lo.amin(1), self.hi.amax(1))


@dataclass(frozen=True)
class TokenMixing:
    """One mixing layer as tables over tokens: x'_l = residual[x_l] + sum_m A_lm value[x_m] (+ the BOS term).

    Exactly one of these is set: `pattern` (L, L), the attention pattern of linear mixing, or `scores`, own token by
    other token. softmax: whether scores are normalized. The last row of bos models is BOS. Build it with
    `token_mixing`, or directly for other models.
    """

    length: int
    residual: Float[Tensor, "T d"]
    value: Float[Tensor, "rows d"]
    pattern: Float[Tensor, "L L"] | None = None
    scores: Float[Tensor, "T rows"] | None = None
    softmax: bool = False

    def ranges(self, directions: Float[Tensor, "d p"], bias: Float[Tensor, " p"] | None = None) -> Ranges:
        """Exact range of x' @ directions + bias: (T, L, p), for a fixed pattern (T, position, L, p)."""
        own, value = self.residual @ directions, self.value @ directions
        if bias is not None:
            own = own + bias
        value, bos = value[: len(own)], value[len(own) :].sum(0)
        if self.pattern is not None:
            return Ranges(-_linear_highest(-own, -value, self.pattern), _linear_highest(own, value, self.pattern))
        n_tokens, width = own.shape
        block = max(1, _BLOCK // n_tokens**2)
        parts = [self._dot(own[:, s], value[:, s], bos[s]) for s in _blocks(width, block)]
        return Ranges(torch.cat([p.lo for p in parts], -1), torch.cat([p.hi for p in parts], -1))

    def _dot(self, own: Tensor, value: Tensor, bos: Tensor) -> Ranges:
        """Score mixing: the extreme over tokens o, with o in all other slots."""
        n_tokens, width = own.shape
        same = torch.eye(n_tokens, dtype=torch.bool)[:, :, None]
        lo = own.new_full((n_tokens, self.length, width), torch.inf)
        hi = -lo
        for k in range(1, self.length):
            mixed = self.two_token_mix(own, value, bos, k)
            lo[:, k - 1] = mixed.masked_fill(same, torch.inf).amin(1)
            hi[:, k - 1] = mixed.masked_fill(same, -torch.inf).amax(1)
        alone = self.two_token_mix(own, value, bos, self.length).diagonal().T
        lo[:, -1] = hi[:, -1] = alone
        return Ranges(lo, hi)

    def two_token_mix(
        self, own: Float[Tensor, "T p"], value: Float[Tensor, "T p"], bos: Float[Tensor, " p"], k: int
    ) -> Float[Tensor, "T T p"]:
        """Entry (t, o): the mixed value of t in a sequence of k times t and L - k times o. Scores only."""
        assert self.scores is not None
        s_own, s_other, s_bos = self.scores.diagonal()[:, None], self.scores[:, : len(own)], self.scores[:, len(own) :]
        if not s_bos.numel():
            s_bos = torch.full_like(s_own, -torch.inf if self.softmax else 0.0)
        if self.softmax:  # subtract the largest present score, so that no exponential overflows and D >= 1
            top = torch.maximum(s_own, s_other) if k < self.length else s_own.expand_as(s_other)
            top = torch.maximum(top, s_bos)
            s_own, s_other, s_bos = ((s - top).clamp(max=0).exp() for s in (s_own, s_other, s_bos))
            total = k * s_own + (self.length - k) * s_other + s_bos
            s_own, s_other, s_bos = s_own / total, s_other / total, s_bos / total
        mixed = own[:, None] + (k * s_own)[..., None] * value[:, None]
        mixed = mixed + ((self.length - k) * s_other)[..., None] * value[None]
        return mixed + s_bos[..., None] * bos


def _linear_highest(own: Tensor, value: Tensor, pattern: Tensor) -> Float[Tensor, "T position L p"]:
    """Fixed pattern: the largest value per own token, position and count."""
    n_tokens, width = value.shape
    length = pattern.shape[0]
    everything = own[:, None] + pattern.sum(1)[None, :, None] * value[:, None]
    out = own.new_full((n_tokens, length, length, width), -torch.inf)
    out[:, :, -1] = everything
    if n_tokens == 1 or length == 1:
        return out
    same = torch.eye(n_tokens, dtype=torch.bool)[:, :, None]
    top = value[None].masked_fill(same, -torch.inf).amax(1)[:, None, None]
    bottom = value[None].masked_fill(same, torch.inf).amin(1)[:, None, None]
    off = pattern[~torch.eye(length, dtype=torch.bool)].view(length, length - 1)[None, :, :, None]
    block = max(1, _BLOCK // (n_tokens * length**2))
    for s in _blocks(width, block):
        best_other = torch.where(off > 0, off * top[..., s], off * bottom[..., s])
        advantage = (off * value[:, None, None, s] - best_other).sort(2, descending=True).values
        base = own[:, None, s] + pattern.diagonal()[None, :, None] * value[:, None, s] + best_other.sum(2)
        out[:, :, 0, s] = base
        out[:, :, 1:-1, s] = base[:, :, None] + advantage.cumsum(2)[:, :, :-1]
    return out


def _blocks(width: int, block: int) -> list[slice]:
    return [slice(start, min(start + block, width)) for start in range(0, width, block)]


def token_mixing(
    kind: MixingKind,
    embedding: Float[Tensor, "rows d"],
    length: int,
    *,
    W_Q: Float[Tensor, "d d_head"] | None = None,
    W_K: Float[Tensor, "d d_head"] | None = None,
    W_mix: Float[Tensor, "L L"] | None = None,
    scale: float | None = None,
) -> TokenMixing:
    """The mixing layer of a histogram model, value and output the identity.

    `embedding` has T rows, for the bos kinds T + 1 with BOS last. dot and bos kinds need W_Q and W_K (scale is
    1/sqrt(d) unless given), lin kinds W_mix (the logits if there is a softmax). The dtype is the embedding's.
    Raises InterpError on an unknown kind, missing matrices or sizes that do not fit.
    """
    check_one_of("mixing kind", kind, get_args(MixingKind))
    softmax = kind.endswith("-softmax")
    if kind.startswith("lin"):
        if W_mix is None or W_mix.shape != (length, length):
            raise InterpError(
                f"{kind} mixing needs W_mix of shape ({length}, {length}), "
                f"got {None if W_mix is None else tuple(W_mix.shape)}"
            )
        pattern = W_mix.softmax(-1) if softmax else W_mix
        return TokenMixing(length, embedding, embedding, pattern=pattern)
    if W_Q is None or W_K is None:
        raise InterpError(f"{kind} mixing needs W_Q and W_K")
    d = embedding.shape[1]
    if W_Q.shape != W_K.shape or W_Q.shape[0] != d:
        raise InterpError(
            f"W_Q and W_K must both be ({d}, d_head) for embeddings of width {d}, "
            f"got {tuple(W_Q.shape)} and {tuple(W_K.shape)}"
        )
    scores = (embedding @ W_Q) @ (embedding @ W_K).T * (d**-0.5 if scale is None else scale)
    T = len(embedding) - kind.startswith("bos")
    return TokenMixing(length, embedding[:T], embedding, scores=scores[:T], softmax=softmax)
