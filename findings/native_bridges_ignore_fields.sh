#!/bin/sh
# transformer-lens 4.3.0: TransformerBridge.boot_native takes a TransformerBridgeConfig with use_attn_scale=False,
# use_qk_norm=True, parallel_attn_mlp=True, local attention or scaling by the layer's index, keeps the fields in its
# cfg, and runs without them; rotary positions always turn neighboring coordinates, whatever rotary_adjacent_pairs
# says; positional_embedding_type=None means standard. Other fields that it does not support raise an error. Whoever
# trains such a model reports another architecture than they have.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export HF_HUB_OFFLINE=1 TMPDIR="$work"
python=${FINDINGS_ENV:+$FINDINGS_ENV/bin/python} # an environment that has these packages already
if [ -z "$python" ]; then
    python3 -m venv "$work/venv"
    "$work/venv/bin/pip" install --quiet torch==2.13.0 transformer-lens==4.3.0
    python="$work/venv/bin/python"
fi
cat > "$work/run.py" <<'END'
import warnings

import torch
from transformer_lens.config import TransformerBridgeConfig
from transformer_lens.model_bridge import TransformerBridge

warnings.simplefilter("ignore")
x = torch.tensor([[1, 2, 3, 4, 5]])


def model(**fields):
    sizes = dict(n_layers=2, d_model=16, n_heads=2, d_head=8, d_mlp=24, act_fn="relu", n_ctx=16, d_vocab=9,
                 normalization_type="LN", positional_embedding_type="standard", seed=0)
    made = TransformerBridge.boot_native(TransformerBridgeConfig(**{**sizes, **fields})).requires_grad_(False).eval()
    draw = torch.Generator().manual_seed(0)
    for parameter in made.parameters():
        parameter.copy_(torch.randn(parameter.shape, generator=draw) * 0.4)
    return made


fields = {
    "use_attn_scale": dict(use_attn_scale=False), "use_qk_norm": dict(use_qk_norm=True),
    "parallel_attn_mlp": dict(parallel_attn_mlp=True),
    "use_local_attn": dict(use_local_attn=True, window_size=2, attn_types=["local", "local"]),
    "scale_attn_by_inverse_layer_idx": dict(scale_attn_by_inverse_layer_idx=True),
    "positional_embedding_type": dict(positional_embedding_type=None), "attention_dir": dict(attention_dir="bidirectional"),
}
base = model()(x)
moved = {name: float((model(**given)(x) - base).abs().max()) for name, given in fields.items()}
rotary = [model(positional_embedding_type="rotary", rotary_dim=8, rotary_adjacent_pairs=pairs)(x) for pairs in (True, False)]
moved["rotary_adjacent_pairs"] = float((rotary[0] - rotary[1]).abs().max())
print("how far each field moves the logits:", moved)
assert moved.pop("attention_dir") > 0.1  # one that is read
assert set(moved.values()) == {0.0}
END
"$python" "$work/run.py"
