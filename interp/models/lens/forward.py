"""The forward pass of attention with hooks, for task models on TransformerLens 3 and 4 and all models on 4.

hook_q, hook_k, hook_v, hook_attn_scores, hook_pattern, hook_z and hook_result keep their names and shapes. Unlike in
TransformerLens, bidirectional attention respects the attention mask, and fused attention runs where nobody looks.
"""

from typing import TYPE_CHECKING, Any

import torch
from einops import einsum
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from interp.models.relative_positions import alibi_bias, rotated

SHORT = 16
"""Along a last axis that is shorter, PyTorch's softmax on a CPU is not vectorized: over 5 keys it takes 12 times as
long as along the first axis."""


def softmax(scores: Float[Tensor, "*rows keys"]) -> Float[Tensor, "*rows keys"]:
    """Return the softmax over the keys."""
    if scores.shape[-1] >= SHORT or scores.device.type != "cpu":
        return scores.softmax(-1)
    return scores.movedim(-1, 0).softmax(0).movedim(0, -1).contiguous()


class AttentionForward:
    """A mixin for an attention that makes queries, keys, values, scores and mixtures as TransformerLens's does.

    causal: whether queries see no later keys. normalized: whether a softmax normalizes the scores. W_mix, if there is
    one, (heads, length, length), takes the place of scores. rotary_dim (0: not rotary), rotary_base and rotary_adjacent
    describe rotary positions; sloped says whether ALiBi's bias is added.
    """

    causal: bool
    normalized: bool = True
    rotary_dim: int = 0
    rotary_base: float
    rotary_adjacent: bool
    sloped: bool = False

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def forward(
        self,
        query_input: Tensor,
        key_input: Tensor,
        value_input: Tensor,
        past_kv_cache_entry: Any = None,
        additive_attention_mask: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_bias: Tensor | None = None,
    ) -> Float[Tensor, "rows length d_model"]:
        past = 0 if past_kv_cache_entry is None else past_kv_cache_entry.past_keys.size(1)
        q, k, v = self.calculate_qkv_matrices(*self._entering((query_input, key_input, value_input), past))
        if past_kv_cache_entry is not None:
            k, v = past_kv_cache_entry.append(k, v)
        n_keys = k.size(1)
        if self.rotary_dim:
            at = self._places(n_keys, attention_mask).to(q.device)
            q, k = self.hook_rot_q(self._rotated(q, at[..., past:])), self.hook_rot_k(self._rotated(k, at))
        q = self._scaled(q, n_keys, attention_mask)
        keep = self._keep(torch.arange(past, n_keys, device=q.device)[:, None], n_keys, attention_mask)
        z = self._fused(q, k, v, keep) if self._can_fuse(attention_mask) else self._explicit(q, k, v, keep, past)
        if not self.cfg.use_attn_result:
            return functional.linear(z.flatten(2), self.W_O.flatten(0, 1).T, self.b_O)
        # TransformerLens builds a (rows, length, heads, d_head, d_model) tensor here; this contraction does not.
        added = einsum(z, self.W_O, "row query head d_head, head d_head d_model -> row query head d_model")
        return self.hook_result(added).sum(2) + self.b_O

    def _entering(self, inputs: tuple[Tensor, ...], past: int) -> tuple[Tensor, ...]:
        """Return what queries, keys and values are computed from. past: the number of cached positions."""
        return inputs

    def _places(self, n_keys: int, attention_mask: Tensor | None) -> Int[Tensor, "*rows keys"]:
        """Return the position of each token. In rows that start with padding, the first token has position 0."""
        return torch.arange(n_keys) if attention_mask is None else (attention_mask.cumsum(1) - 1).clamp(min=0)

    def _scaled(self, q: Tensor, n_keys: int, attention_mask: Tensor | None) -> Tensor:
        """Multiply queries by a factor that depends on the length of their rows."""
        return q

    def _keep(
        self, order: Int[Tensor, "*#rows queries 1"], keys: int, attention_mask: Tensor | None
    ) -> Bool[Tensor, "*#rows #queries keys"] | None:
        """Return the mask of the keys that each query may attend to (causal: none after it; no padding); None: all."""
        keep = None
        if self.causal:
            keep = torch.arange(keys, device=order.device) <= order
        if attention_mask is not None:
            tokens = attention_mask.bool()[:, None, None, :]
            # Not expanded over the queries, so that memory in the fused kernel is linear in the length.
            keep = tokens if keep is None else keep & tokens
        return keep

    def _rotated(
        self, x: Float[Tensor, "rows length heads d_head"], at: Int[Tensor, "*#rows length"]
    ) -> Float[Tensor, "rows length heads d_head"]:
        return rotated(x, at, self.rotary_base, self.rotary_dim, self.rotary_adjacent)

    def _slopes(self, q: Tensor, k: Tensor) -> Float[Tensor, "heads queries keys"]:
        """Return ALiBi's bias on scores, for queries at the last positions of the keys."""
        return alibi_bias(torch.arange(k.size(1) - q.size(1), k.size(1), device=q.device), k.size(1), q.size(2)).to(q)

    def _can_fuse(self, attention_mask: Tensor | None) -> bool:
        """Test whether the fused kernel can be used: dot-product softmax attention without hooks on scores or pattern.

        Causal attention with padding may mask a whole row, for which the fused kernel returns NaN.
        """
        watched = any(hook.fwd_hooks or hook.bwd_hooks for hook in (self.hook_attn_scores, self.hook_pattern))
        plain = self.normalized and not hasattr(self, "W_mix")
        return plain and not watched and (attention_mask is None or not self.causal)

    def _fused(self, q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None) -> Float[Tensor, "rows length heads d_head"]:
        added = keep
        if self.sloped:
            slopes = self._slopes(q, k)
            added = slopes if keep is None else slopes.masked_fill(~keep, -torch.inf)
        k, v = self._for_every_head(k, q.size(2)), self._for_every_head(v, q.size(2))
        mixed = functional.scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), attn_mask=added, scale=1 / self.attn_scale
        )
        return self.hook_z(mixed.transpose(1, 2))

    def _for_every_head(self, x: Tensor, heads: int) -> Float[Tensor, "rows length heads d_head"]:
        """Repeat shared keys or values so that each query head has its own."""
        repeats = heads // x.size(2)
        return x if repeats == 1 else x.repeat_interleave(repeats, dim=2)

    def _explicit(
        self, q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None, past: int
    ) -> Float[Tensor, "rows length heads d_head"]:
        if hasattr(self, "W_mix"):
            scores = self.W_mix[:, past : past + q.size(1), : k.size(1)].expand(len(q), -1, -1, -1)
        else:
            scores = self.calculate_attention_scores(q, k)
            if self.sloped:
                scores = scores + self._slopes(q, k)
        scores = self.hook_attn_scores(self._masked(scores, keep))
        return self.calculate_z_scores(v, self.hook_pattern(self._normalized(scores, keep)))

    def _masked(self, scores: Tensor, keep: Tensor | None) -> Tensor:
        if keep is None:
            return scores
        return scores.masked_fill(~keep, -torch.inf if self.normalized else 0.0)

    def _normalized(self, scores: Tensor, keep: Tensor | None) -> Tensor:
        """Convert masked scores to the pattern."""
        if not self.normalized:
            return scores
        pattern = softmax(scores)
        # A padding query may have no visible key. Its softmax would be 0/0, and it is never read.
        return pattern if keep is None else torch.where(keep.any(-1, keepdim=True), pattern, 0.0)
