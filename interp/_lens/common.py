"""What TransformerLens 3 and 4 share."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

if TYPE_CHECKING:
    import pandas as pd

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # its dependencies warn at import; none of it is about us
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
    """TransformerLens's slice of positions or rows: None (all), an integer, a tuple, a list or a Slice."""
    return choice if isinstance(choice, Slice) else Slice(choice)


def is_bridge(model: object) -> bool:
    """Is this a TransformerBridge? (asked without importing what makes one: whoever has one has imported it)"""
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
    """TransformerLens's activation patching of one activation, over all layers and heads: layer, head, difference.

    Its bar is left out: tqdm.auto draws one for every call, even the shortest, and warns where a notebook lacks it.
    Training mode, which 4.x refuses, changes nothing in our models and is as it was when this returns.
    """
    bar, patching.tqdm = patching.tqdm, iter
    training = model.training
    try:
        patched, index = patching.generic_activation_patch(
            model.eval(), corrupted, clean_cache, metric, setter, activation, ["layer", "head"], None, True
        )  # type: ignore[call-overload]  # its setter is annotated to take a cache, and is given one activation
    finally:
        patching.tqdm = bar
        model.train(training)
    return index.assign(difference=patched.flatten().double().cpu().numpy())
