"""The only importer of transformer_lens: what we use of it, and the quirks of its constructors, in one place.

transformer-lens 3.x is deprecated in favour of 4.x, where HookedTransformer is gone but HookPoint, HookedRootModule
and ActivationCache stay. Everything that differs from stock is ours and reads plain spec fields, so that a 4.x
backend stays a small piece of work.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torch import Tensor

if TYPE_CHECKING:
    import pandas as pd

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # its dependencies warn at import; none of it is about us
    from transformer_lens import ActivationCache, HookedTransformer, HookedTransformerConfig, patching
    from transformer_lens.ActivationCache import Slice
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
    "Slice",
    "TransformerBlock",
    "Unembed",
    "as_slice",
    "config",
    "patch_activations",
    "patching",
    "quiet_construction",
]


def as_slice(choice: Any) -> Slice:
    """TransformerLens's slice of positions or rows: None (all), an integer, a tuple, a list or a Slice."""
    return choice if isinstance(choice, Slice) else Slice(choice)


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


def patch_activations(
    model: HookedTransformer,
    corrupted: Tensor,
    clean_cache: ActivationCache,
    metric: Callable[[Tensor], Tensor],
    setter: Callable[[Tensor, Sequence[int], Tensor], Tensor],
    activation: str,
) -> pd.DataFrame:
    """TransformerLens's activation patching of one activation, over all layers and heads: layer, head, difference.

    Its bar is left out: tqdm.auto draws one for every call, even the shortest, and warns where a notebook lacks it.
    """
    bar, patching.tqdm = patching.tqdm, iter
    try:
        patched, index = patching.generic_activation_patch(
            model, corrupted, clean_cache, metric, setter, activation, ["layer", "head"], None, True
        )  # type: ignore[call-overload]  # its setter is annotated to take a cache, and is given one activation
    finally:
        patching.tqdm = bar
    return index.assign(difference=patched.flatten().double().cpu().numpy())
