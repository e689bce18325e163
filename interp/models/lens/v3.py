"""TransformerLens 3.x: the library's own HookedTransformer and parts, constructed without warnings or reseeding."""

import dataclasses
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from transformer_lens import HookedTransformer, HookedTransformerConfig
    from transformer_lens.components import (
        MLP as PlainMLP,
    )
    from transformer_lens.components import (
        Attention,
        GatedMLP,
        GroupedQueryAttention,
        LayerNorm,
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


@contextmanager
def quiet_construction() -> Iterator[None]:
    """Silence the warning that HookedTransformer is removed in 4.0, where `v4` replaces it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*HookedTransformer is deprecated", category=DeprecationWarning)
        yield


def config_fields() -> dict[str, Any]:
    """Return the fields of a config and their defaults; None if there is no default."""
    fields = dataclasses.fields(HookedTransformerConfig)
    return {f.name: None if f.default is dataclasses.MISSING else f.default for f in fields}


def config(**fields: Any) -> HookedTransformerConfig:
    """Build a config without initializing weights or reseeding the global generators (as `seed` would)."""
    with quiet_construction():
        return HookedTransformerConfig(**fields, init_weights=False, seed=None)
