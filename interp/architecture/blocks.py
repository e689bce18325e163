"""Blocks: TransformerLens's own with our attention, and the post-layer-norm block of the original transformer."""

from __future__ import annotations

import copy
from typing import Any

from jaxtyping import Float
from torch import Tensor

from interp._lens import HookedTransformerConfig, HookPoint, LayerNorm, TransformerBlock
from interp.architecture.attention import TaskAttention
from interp.spec import ModelSpec


class PostNormBlock(TransformerBlock):
    """x -> ln1(x + attn(x)) -> ln2(. + mlp(.)), as in Vaswani et al. 2017.

    hook_resid_mid and hook_resid_post hold the normalized streams, hook_resid_mid_pre_ln and hook_resid_post_pre_ln
    the sums before. What the parts write no longer adds up to the last residual stream (`additive_residual`).
    """

    def __init__(self, cfg: HookedTransformerConfig, index: int) -> None:
        super().__init__(cfg, index)
        self.hook_resid_mid_pre_ln = HookPoint()
        if cfg.attn_only:
            self.hook_resid_mid = HookPoint()
        else:
            self.hook_resid_post_pre_ln = HookPoint()

    def forward(
        self,
        resid_pre: Float[Tensor, "rows length d_model"],
        shortformer_pos_embed: Tensor | None = None,
        past_kv_cache_entry: Any = None,
        attention_mask: Tensor | None = None,
    ) -> Float[Tensor, "rows length d_model"]:
        x = self.hook_resid_pre(resid_pre)
        mask, cache = attention_mask, past_kv_cache_entry
        out = self.hook_attn_out(self.attn(x, x, x, past_kv_cache_entry=cache, attention_mask=mask))
        mid = self.hook_resid_mid(self.ln1(self.hook_resid_mid_pre_ln(x + out)))
        if self.cfg.attn_only:
            return self.hook_resid_post(mid)
        out = self.hook_mlp_out(self.mlp(mid))
        return self.hook_resid_post(self.ln2(self.hook_resid_post_pre_ln(mid + out)))


def make_block(spec: ModelSpec, cfg: HookedTransformerConfig, index: int) -> TransformerBlock:
    """Block number `index` of a spec."""
    layer = spec.layers[index]
    cfg = copy.copy(cfg)
    cfg.attn_only = layer.mlp is None
    if layer.mlp is not None:
        cfg.d_mlp, cfg.act_fn = layer.mlp.d_mlp, layer.mlp.activation
    cfg.eps = layer.norm_eps
    block = PostNormBlock(cfg, index) if layer.norm == "post" else TransformerBlock(cfg, index)
    block.attn = TaskAttention(cfg, spec, layer, index)
    if layer.norm != "none":
        block.ln1 = LayerNorm(cfg)
        if layer.mlp is not None:
            block.ln2 = LayerNorm(cfg)
    return block
