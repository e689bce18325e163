"""The only importer of transformer_lens: what its versions share, what 3.x has, and what stands in for it on 4.x.

On 3.x (3.5.1 and newer) models are built from the library's own parts. 4.x removed HookedTransformer; there the same
names come from `v4`, built on what stayed (HookedRootModule, HookPoint, ActivationCache). Nothing else in interp asks
for the version, and nothing here knows a spec.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from interp._lens.common import *  # noqa: F403

if TYPE_CHECKING or find_spec("transformer_lens.HookedTransformer") is not None:
    from interp._lens.v3 import *  # noqa: F403
else:
    from interp._lens.v4 import *  # noqa: F403
