"""The only importer of transformer_lens: what we use of it, and the quirks of its constructors, in one place.

transformer-lens 3.x is deprecated in favour of 4.x, where HookedTransformer is gone but HookPoint, HookedRootModule
and ActivationCache stay. Everything that differs from stock is ours and reads plain spec fields, so that a 4.x
backend stays a small piece of work.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # its dependencies warn at import; none of it is about us
    from transformer_lens import ActivationCache, HookedTransformer, HookedTransformerConfig, patching
    from transformer_lens.components import MLP, Attention, LayerNorm, TransformerBlock, Unembed
    from transformer_lens.hook_points import HookedRootModule, HookPoint

__all__ = [
    "MLP",
    "ActivationCache",
    "Attention",
    "HookPoint",
    "HookedRootModule",
    "HookedTransformer",
    "HookedTransformerConfig",
    "LayerNorm",
    "TransformerBlock",
    "Unembed",
    "config",
    "patching",
    "quiet_construction",
]


@contextmanager
def quiet_construction() -> Iterator[None]:
    """Silence the announcement that HookedTransformer goes away in 4.0; we pin <4."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*HookedTransformer is deprecated", category=DeprecationWarning)
        yield


def config(**fields: Any) -> HookedTransformerConfig:
    """A config that neither initializes weights nor reseeds the global generators (its `seed` would)."""
    with quiet_construction():
        return HookedTransformerConfig(**fields, init_weights=False, seed=None)
