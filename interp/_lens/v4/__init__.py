"""A HookedTransformer for TransformerLens 4.x, with the names, hooks and parameters of 3.x, on HookedRootModule.

TransformerBridge, the replacement in 4.x, does not support models without positions or with unscaled scores, has no
hook_result, and ignores edits of its hook_attn_scores. This package supports decoders and encoders with learned, rotary
or ALiBi positions, pre-layer or pre-RMS norms or none, grouped keys and values, and gated MLPs. It also runs on 3.x,
where the tests compare it with the library's own classes.
"""

from interp._lens.v4.model import HookedTransformer, config, config_fields, quiet_construction
from interp._lens.v4.parts import (
    Attention,
    GatedMLP,
    GroupedQueryAttention,
    HookedTransformerConfig,
    LayerNorm,
    PlainMLP,
    RMSNorm,
    TransformerBlock,
    Unembed,
)

__all__ = [
    "Attention",
    "GatedMLP",
    "GroupedQueryAttention",
    "HookedTransformer",
    "HookedTransformerConfig",
    "LayerNorm",
    "PlainMLP",
    "RMSNorm",
    "TransformerBlock",
    "Unembed",
    "config",
    "config_fields",
    "quiet_construction",
]
