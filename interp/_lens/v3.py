"""TransformerLens 3.x: the library's own HookedTransformer and parts, and the quirks of their constructors."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from transformer_lens import HookedTransformer, HookedTransformerConfig
    from transformer_lens.components import (
        MLP,
        Attention,
        GatedMLP,
        GroupedQueryAttention,
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


@contextmanager
def quiet_construction() -> Iterator[None]:
    """Silence the announcement that HookedTransformer goes away in 4.0: there `v4` takes its place."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*HookedTransformer is deprecated", category=DeprecationWarning)
        yield


def config_fields() -> dict[str, Any]:
    """The fields of a config and their defaults; None if there is no default."""
    fields = dataclasses.fields(HookedTransformerConfig)
    return {f.name: None if f.default is dataclasses.MISSING else f.default for f in fields}


def config(**fields: Any) -> HookedTransformerConfig:
    """A config that neither initializes weights nor reseeds the global generators (its `seed` would)."""
    with quiet_construction():
        return HookedTransformerConfig(**fields, init_weights=False, seed=None)
