"""A HookedTransformer for TransformerLens 4.x, with the names, hooks and parameters of 3.x, on HookedRootModule.

TransformerBridge, the replacement in 4.x, does not support models without positions or with unscaled scores, has no
hook_result, and ignores edits of its hook_attn_scores. This package supports decoders and encoders with learned, rotary
or ALiBi positions, pre-layer or pre-RMS norms or none, grouped keys and values, and gated MLPs. It also runs on 3.x,
where the tests compare it with the library's own classes.
"""

from interp.models.lens.v4.model import HookedTransformer as HookedTransformer
from interp.models.lens.v4.model import config as config
from interp.models.lens.v4.model import config_fields as config_fields
from interp.models.lens.v4.model import quiet_construction as quiet_construction
from interp.models.lens.v4.parts import Attention as Attention
from interp.models.lens.v4.parts import GatedMLP as GatedMLP
from interp.models.lens.v4.parts import GroupedQueryAttention as GroupedQueryAttention
from interp.models.lens.v4.parts import HookedTransformerConfig as HookedTransformerConfig
from interp.models.lens.v4.parts import LayerNorm as LayerNorm
from interp.models.lens.v4.parts import PlainMLP as PlainMLP
from interp.models.lens.v4.parts import RMSNorm as RMSNorm
from interp.models.lens.v4.parts import TransformerBlock as TransformerBlock
from interp.models.lens.v4.parts import Unembed as Unembed
