"""The only package of interp that imports transformer_lens and depends on its version.

With 3.x (3.5.1 and newer), models use the library's own parts. 4.x has no HookedTransformer; there, `v4` provides the
same names, built on the library's HookedRootModule, HookPoint and ActivationCache.
"""

from importlib.util import find_spec
from typing import TYPE_CHECKING

from interp.models.lens.common import *  # noqa: F403

if TYPE_CHECKING or find_spec("transformer_lens.HookedTransformer") is not None:
    from interp.models.lens.v3 import *  # noqa: F403
else:
    from interp.models.lens.v4 import *  # noqa: F403
