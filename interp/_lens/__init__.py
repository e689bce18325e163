"""The only importer of transformer_lens: what its versions share, what 3.x has, and what stands in for it on 4.x.

On 3.x (3.5.1 and newer) models are built from the library's own parts. 4.x removed HookedTransformer; there the same
names come from `v4`, built on what stayed (HookedRootModule, HookPoint, ActivationCache). Nothing else in interp asks
for the version, and nothing here knows a spec.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from interp._lens.common import (
    ActivationCache,
    FactoredMatrix,
    HookedRootModule,
    HookPoint,
    as_slice,
    is_bridge,
    patch_activations,
    patching,
)

if TYPE_CHECKING or find_spec("transformer_lens.HookedTransformer") is not None:
    from interp._lens.v3 import (
        MLP,
        Attention,
        GatedMLP,
        GroupedQueryAttention,
        HookedTransformer,
        HookedTransformerConfig,
        LayerNorm,
        RMSNorm,
        TransformerBlock,
        Unembed,
        config,
        config_fields,
        quiet_construction,
    )
else:
    from interp._lens.v4 import (
        MLP,
        Attention,
        GatedMLP,
        GroupedQueryAttention,
        HookedTransformer,
        HookedTransformerConfig,
        LayerNorm,
        RMSNorm,
        TransformerBlock,
        Unembed,
        config,
        config_fields,
        quiet_construction,
    )

__all__ = [
    "MLP",
    "ActivationCache",
    "Attention",
    "FactoredMatrix",
    "GatedMLP",
    "GroupedQueryAttention",
    "HookPoint",
    "HookedRootModule",
    "HookedTransformer",
    "HookedTransformerConfig",
    "LayerNorm",
    "RMSNorm",
    "TransformerBlock",
    "Unembed",
    "as_slice",
    "config",
    "config_fields",
    "is_bridge",
    "patch_activations",
    "patching",
    "quiet_construction",
]
