#!/bin/sh
# transformer-lens 3.9.0: accumulated_bias of a float64 model is float32. Whoever checks in float64 that parts add
# up to the residual stream finds an error of 6e-8 and looks for it in their own code.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export HF_HUB_OFFLINE=1 TMPDIR="$work"
python=${FINDINGS_ENV:+$FINDINGS_ENV/bin/python} # an environment that has these packages already
if [ -z "$python" ]; then
    python3 -m venv "$work/venv"
    "$work/venv/bin/pip" install --quiet torch==2.13.0 transformer-lens==3.9.0
    python="$work/venv/bin/python"
fi
cat > "$work/run.py" <<'END'
import warnings

import torch
from transformer_lens import HookedTransformer, HookedTransformerConfig

warnings.simplefilter("ignore")
x = torch.tensor([[1, 2, 3, 4, 5]])


def model(**fields):
    sizes = dict(n_layers=1, d_model=8, n_heads=2, d_head=4, d_mlp=12, act_fn="relu", n_ctx=10, d_vocab=9,
                 normalization_type=None, device="cpu")
    made = HookedTransformer(HookedTransformerConfig(**{**sizes, **fields})).requires_grad_(False)
    draw = torch.Generator().manual_seed(0)
    for parameter in made.parameters():
        parameter.copy_(torch.randn(parameter.shape, generator=draw) * 0.5)
    return made


made = model(dtype=torch.float64)
exact = made.blocks[0].attn.b_O + made.blocks[0].mlp.b_out
found = made.accumulated_bias(1)
print(made.W_E.dtype, found.dtype, "off by", float((found.double() - exact).abs().max()))
assert made.W_E.dtype == torch.float64 and found.dtype == torch.float32
END
"$python" "$work/run.py"
