"""Names that TransformerLens 3 and 4 share."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

if TYPE_CHECKING:
    import pandas as pd

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # its dependencies warn at import
    from transformer_lens import ActivationCache, FactoredMatrix, HookedRootModule, patching
    from transformer_lens.hook_points import HookPoint
    from transformer_lens.utilities import Slice

__all__ = [
    "ActivationCache",
    "FactoredMatrix",
    "HookPoint",
    "HookedRootModule",
    "as_slice",
    "is_bridge",
    "patch_activations",
    "patching",
]


def as_slice(choice: Any) -> Slice:
    """Convert None (all), an integer, a tuple, a list or a Slice to TransformerLens's Slice of positions or rows."""
    return choice if isinstance(choice, Slice) else Slice(choice)


def is_bridge(model: object) -> bool:
    """Test for a TransformerBridge without importing its module, which is already imported if a bridge exists."""
    bridge = sys.modules.get("transformer_lens.model_bridge")
    return bridge is not None and isinstance(model, bridge.TransformerBridge)


def patch_activations(
    model: Any,
    corrupted: Tensor,
    clean_cache: ActivationCache,
    metric: Callable[[Tensor], Tensor],
    setter: Callable[[Tensor, Sequence[int], Tensor], Tensor],
    activation: str,
) -> pd.DataFrame:
    """Patch one activation of every layer and head with TransformerLens; columns layer, head and difference.

    Disables its progress bar. The model runs in evaluation mode, which 4.x requires; its mode is restored afterwards.
    """
    bar, patching.tqdm = patching.tqdm, iter
    training = model.training
    try:
        patched, index = patching.generic_activation_patch(
            model.eval(), corrupted, clean_cache, metric, setter, activation, ["layer", "head"], None, True
        )  # type: ignore[call-overload]  # its setter gets one activation, not a cache as annotated
    finally:
        patching.tqdm = bar
        model.train(training)
    return index.assign(difference=patched.flatten().double().cpu().numpy())
