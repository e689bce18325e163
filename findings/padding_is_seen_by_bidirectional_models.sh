#!/bin/sh
# transformer-lens 3.9.0: HookedTransformer with attention_dir='bidirectional' takes attention_mask and attends to
# the masked tokens all the same. The docstring of forward says that the mask is used to ignore padded tokens, which
# holds for causal attention. Whoever pads a batch gets logits that depend on the padding.
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


made = model(attention_dir="bidirectional")
mask = torch.tensor([[1, 1, 1, 0, 0]])
padded = made(x, attention_mask=mask)
other = x.clone()
other[:, 3:] = 7
moved = (made(other, attention_mask=mask) - padded)[:, :3].abs().max()
print("other tokens behind the mask move the logits before it by", float(moved))
assert moved > 0.1
END
"$python" "$work/run.py"
