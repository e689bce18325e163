"""Names that TransformerLens 3 and 4 share."""

import sys
import warnings
from typing import Any

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # its dependencies warn at import
    from transformer_lens import ActivationCache, FactoredMatrix, HookedRootModule
    from transformer_lens.hook_points import HookPoint
    from transformer_lens.utilities import Slice

__all__ = ["ActivationCache", "FactoredMatrix", "HookPoint", "HookedRootModule", "as_slice", "is_bridge"]


def as_slice(choice: Any) -> Slice:
    """Convert None (all), an integer, a tuple, a list or a Slice to TransformerLens's Slice of positions or rows."""
    return choice if isinstance(choice, Slice) else Slice(choice)


def is_bridge(model: object) -> bool:
    """Test for a TransformerBridge without importing its module, which is already imported if a bridge exists."""
    bridge = sys.modules.get("transformer_lens.model_bridge")
    return bridge is not None and isinstance(model, bridge.TransformerBridge)
