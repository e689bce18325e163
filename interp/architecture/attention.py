"""Attention: dot-product or linear mixing, softmax or raw scores, learned, full or identity values.

These classes are TransformerLens's attention with a different forward pass. hook_q, hook_k, hook_v, hook_attn_scores,
hook_pattern, hook_z and hook_result keep their names and shapes. Bidirectional attention respects the attention mask,
which TransformerLens ignores.
"""

import math
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from interp._lens import Attention, GroupedQueryAttention, HookedTransformerConfig, HookPoint
from interp.relative_positions import alibi_bias, rotated
from interp.spec import Layer, ModelSpec

if TYPE_CHECKING:
    Base = Attention
else:
    Base = object


class DescribedAttention(Base):
    """The attention of a spec's Layer; a mixin for the TransformerLens class that has the parameters."""

    def __init__(self, cfg: HookedTransformerConfig, spec: ModelSpec, layer: Layer, index: int) -> None:
        super().__init__(cfg, "global", index)
        for name in ("mask", "IGNORE"):  # they would limit the length and be in the state dict
            self._buffers.pop(name, None)
        self.layer = layer
        self.causal = spec.direction == "causal"
        self.attn_scale = 1 / layer.factor(spec.d_model)  # TransformerLens divides scores by it

        whole = layer.query_key == "full" or layer.value_output != "learned"
        eye = torch.eye(spec.d_model if whole else 0, dtype=cfg.dtype).expand(layer.n_heads, -1, -1)
        if layer.mixing == "linear":
            length = spec.max_length or 0
            self.W_mix = nn.Parameter(torch.zeros(layer.n_heads, length, length, dtype=cfg.dtype))
            self._fix("W_Q", torch.zeros_like(self.W_Q))
            self._fix("W_K", torch.zeros_like(self.W_K))
        elif layer.query_key == "full":
            self._fix("W_K", eye)
        if layer.value_output in ("full", "identity"):
            self._fix("W_V", eye)
        if layer.value_output == "identity":
            self._fix("W_O", eye)
        for name in "QKVO":
            if not getattr(layer.bias, name.lower()):
                held = f"_b_{name}" if f"_b_{name}" in self._parameters else f"b_{name}"  # grouped
                self._fix(held, torch.zeros_like(getattr(self, held)))
        if spec.positions == "learned" and spec.positions_enter == "attention":
            # In pos_embed, these positions would be in decompositions of the residual stream, which never has them.
            self.W_pos = nn.Parameter(torch.zeros(spec.max_length or 0, spec.d_model, dtype=cfg.dtype))
            self.hook_pos = HookPoint()  # [pos, d_model]
        self.rotary_dim = (spec.rotary_dim or layer.d_head) if spec.positions == "rotary" else 0
        self.rotary_base, self.rotary_adjacent = float(spec.rotary_base), spec.rotary_pairs == "adjacent"
        if self.rotary_dim:
            self.hook_rot_q, self.hook_rot_k = HookPoint(), HookPoint()  # [batch, pos, head_index, d_head]
        self.sloped = spec.positions == "alibi"
        for norm in (self.q_norm, self.k_norm) if layer.query_key_norm else ():
            assert norm is not None
            norm.eps = layer.norm_eps

    def _fix(self, name: str, value: Tensor) -> None:
        """Turn a parameter into a constant that optimizers and state dicts omit, but OV and QK include."""
        delattr(self, name)
        self.register_buffer(name, value.detach().clone(), persistent=False)

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
        if hasattr(self, "W_pos"):
            here = self.hook_pos(self.W_pos[past : past + query_input.shape[1]])
            here = here[:, None] if query_input.ndim == 4 else here  # split inputs have a head axis
            query_input, key_input, value_input = query_input + here, key_input + here, value_input + here
        q, k, v = self.calculate_qkv_matrices(query_input, key_input, value_input)
        if past_kv_cache_entry is not None:
            k, v = past_kv_cache_entry.append(k, v)
        n_keys = k.size(1)
        places = torch.arange(n_keys, device=q.device)
        if self.rotary_dim:
            q, k = self.hook_rot_q(self._rotated(q, places[past:])), self.hook_rot_k(self._rotated(k, places))
        q = q * self._log_length(attention_mask, n_keys, q)
        keep = self._keep(places[past:, None], n_keys, attention_mask)
        z = self._fused(q, k, v, keep) if self._can_fuse(attention_mask) else self._explicit(q, k, v, keep, past)
        if not self.cfg.use_attn_result:
            return functional.linear(z.flatten(2), self.W_O.flatten(0, 1).T, self.b_O)
        # TransformerLens builds a (rows, length, heads, d_head, d_model) tensor here; this contraction does not.
        return self.hook_result(torch.einsum("blhk,hkd->blhd", z, self.W_O)).sum(2) + self.b_O

    def pattern_at(
        self,
        q: Float[Tensor, "rows length heads d_head"],
        k: Float[Tensor, "rows length heads d_head"],
        at: Int[Tensor, "rows"],
        attention_mask: Bool[Tensor, "rows length"] | None,
        added: Float[Tensor, "rows length"] | None = None,
    ) -> Float[Tensor, "rows heads length"]:
        """Compute the pattern of one query position per row, from hook_q and hook_k, without building the whole.

        added: to the scores of each key.
        """
        if self.layer.mixing == "linear":
            scores = self.W_mix[:, at, : k.size(1)].transpose(0, 1)[:, :, None]
        else:
            asking = q[torch.arange(len(q), device=q.device), at][:, None]
            if self.q_norm is not None and self.k_norm is not None:
                asking, k = self._apply_qk_norm(asking, self.q_norm), self._apply_qk_norm(k, self.k_norm)
            if self.rotary_dim:
                asking = self._rotated(asking, at[:, None])
                k = self._rotated(k, torch.arange(k.size(1), device=k.device))
            scores = self.calculate_attention_scores(asking * self._log_length(attention_mask, k.size(1), q), k)
            if self.sloped:
                scores = scores + alibi_bias(at[:, None, None], k.size(1), q.size(2)).to(scores)
        if added is not None:
            scores = scores + added[:, None, None].to(scores)
        keep = self._keep(at[:, None, None, None], k.size(1), attention_mask)
        return self._normalized(self._masked(scores, keep), keep)[:, :, 0]

    def _rotated(
        self, x: Float[Tensor, "rows length heads d_head"], at: Int[Tensor, "*#rows length"]
    ) -> Float[Tensor, "rows length heads d_head"]:
        return rotated(x, at, self.rotary_base, self.rotary_dim, self.rotary_adjacent)

    def _log_length(self, attention_mask: Tensor | None, n_keys: int, like: Tensor) -> Tensor | float:
        """Return ln(n) for log-length-scaled attention: n is the row's number of tokens, or the training length."""
        choice = self.layer.log_length
        if choice == "none":
            return 1.0
        if choice != "current":
            return math.log(choice)
        n = like.new_tensor([float(n_keys)]) if attention_mask is None else attention_mask.sum(-1).to(like)
        # Rows that are all padding have n = 0. They are not read, but -inf times 0 would make gradients NaN.
        return n.clamp(min=1).log()[:, None, None, None]

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

    def _can_fuse(self, attention_mask: Tensor | None) -> bool:
        """Test whether the fused kernel can be used: dot-product softmax attention without hooks on scores or pattern.

        Causal attention with padding may mask a whole row, for which the fused kernel returns NaN.
        """
        watched = any(hook.fwd_hooks or hook.bwd_hooks for hook in (self.hook_attn_scores, self.hook_pattern))
        plain = self.layer.mixing == "dot" and self.layer.normalizer == "softmax"
        return plain and not watched and (attention_mask is None or not self.causal)

    def _fused(self, q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None) -> Float[Tensor, "rows length heads d_head"]:
        added = keep
        if self.sloped:
            slopes = self._slopes(q, k)
            added = slopes if keep is None else slopes.masked_fill(~keep, -torch.inf)
        k, v = self._for_every_head(k), self._for_every_head(v)
        mixed = functional.scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), attn_mask=added, scale=1 / self.attn_scale
        )
        return self.hook_z(mixed.transpose(1, 2))

    def _slopes(self, q: Tensor, k: Tensor) -> Float[Tensor, "heads queries keys"]:
        """Return ALiBi's bias on scores, for queries at the last positions of the keys."""
        return alibi_bias(torch.arange(k.size(1) - q.size(1), k.size(1), device=q.device), k.size(1), q.size(2)).to(q)

    def _for_every_head(self, x: Tensor) -> Float[Tensor, "rows length heads d_head"]:
        """Repeat shared keys or values so that each query head has its own."""
        repeats = self.layer.n_heads // x.size(2)
        return x if repeats == 1 else x.repeat_interleave(repeats, dim=2)

    def _explicit(
        self, q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None, past: int
    ) -> Float[Tensor, "rows length heads d_head"]:
        if self.layer.mixing == "linear":
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
        return scores.masked_fill(~keep, -torch.inf if self.layer.normalizer == "softmax" else 0.0)

    def _normalized(self, scores: Tensor, keep: Tensor | None) -> Tensor:
        """Convert masked scores to the pattern."""
        if self.layer.normalizer != "softmax":
            return scores
        pattern = scores.softmax(-1)
        # A padding query may have no visible key. Its softmax would be 0/0, and it is never read.
        return pattern if keep is None else torch.where(keep.any(-1, keepdim=True), pattern, 0.0)


class TaskAttention(DescribedAttention, Attention):
    """Attention with separate keys and values for each head."""


class GroupedTaskAttention(DescribedAttention, GroupedQueryAttention):
    """Attention in which several query heads share keys and values.

    As in TransformerLens, _W_K and _W_V are the shared weights, hook_k and hook_v see the shared vectors, and W_K and
    W_V repeat the weights for every query head.
    """


def make_attention(spec: ModelSpec, cfg: HookedTransformerConfig, index: int) -> TaskAttention | GroupedTaskAttention:
    """Build the attention of block `index`."""
    layer = spec.layers[index]
    kind = TaskAttention if layer.key_value_heads is None else GroupedTaskAttention
    return kind(cfg, spec, layer, index)
