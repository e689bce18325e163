"""TransformerLens 4.x, which has no HookedTransformer: the same names, hooks and parameters, on HookedRootModule.

What 4.x offers in its place, TransformerBridge, cannot hold a model without positions or with unscaled scores, has no
hook_result, and ignores edits of its hook_attn_scores. This stand-in runs decoders and encoders of the plain kind:
positions learned, rotary or ALiBi, layer or RMS norms before the parts or none, grouped keys and values, gated MLPs. It
also runs on 3.x, where the tests hold it against the library's own.
"""

from __future__ import annotations

from interp._lens.v4.model import HookedTransformer, config, config_fields, quiet_construction
from interp._lens.v4.parts import (
    MLP,
    Attention,
    GatedMLP,
    GroupedQueryAttention,
    HookedTransformerConfig,
    LayerNorm,
    RMSNorm,
    TransformerBlock,
    Unembed,
)

__all__ = [
    "MLP",
    "Attention",
    "GatedMLP",
    "GroupedQueryAttention",
    "HookedTransformer",
    "HookedTransformerConfig",
    "LayerNorm",
    "RMSNorm",
    "TransformerBlock",
    "Unembed",
    "config",
    "config_fields",
    "quiet_construction",
]
