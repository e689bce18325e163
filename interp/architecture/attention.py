"""Attention: dot-product or linear mixing, softmax or raw scores, learned, full or identity values.

These classes are TransformerLens's attention with another forward pass (_lens/forward.py), and with what a spec adds:
mixing by positions, constants, positions inside attention, and scores times the logarithm of the length.
"""

import math
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from interp._lens import Attention, GroupedQueryAttention, HookedTransformerConfig, HookPoint
from interp._lens.forward import AttentionForward
from interp.relative_positions import alibi_bias
from interp.spec import Layer, ModelSpec

if TYPE_CHECKING:
    Base = Attention
else:
    Base = object


class DescribedAttention(AttentionForward, Base):
    """The attention of a spec's Layer; a mixin for the TransformerLens class that has the parameters."""

    def __init__(self, cfg: HookedTransformerConfig, spec: ModelSpec, layer: Layer, index: int) -> None:
        super().__init__(cfg, "global", index)
        for name in ("mask", "IGNORE"):  # they would limit the length and be in the state dict
            self._buffers.pop(name, None)
        self.layer = layer
        self.causal = spec.direction == "causal"
        self.normalized = layer.normalizer == "softmax"
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
        if hasattr(self, "W_pos"):
            past = 0 if past_kv_cache_entry is None else past_kv_cache_entry.past_keys.size(1)
            here = self.hook_pos(self.W_pos[past : past + query_input.shape[1]])
            here = here[:, None] if query_input.ndim == 4 else here  # split inputs have a head axis
            query_input, key_input, value_input = query_input + here, key_input + here, value_input + here
        return super().forward(
            query_input, key_input, value_input, past_kv_cache_entry, additive_attention_mask, attention_mask
        )

    def _scaled(self, q: Tensor, n_keys: int, attention_mask: Tensor | None) -> Tensor:
        return q * self._log_length(attention_mask, n_keys, q)

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
        if hasattr(self, "W_mix"):
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
