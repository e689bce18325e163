#!/bin/sh
# transformer-lens 3.9.0: TransformerBridge.boot_transformers(name, hf_model=mine) wraps the parts of the caller's
# own model, and enable_compatibility_mode() then folds and centers their weights: the original gives other logits
# afterwards (with the same log-probabilities), and its state dict has other names. Whoever compares the bridge with
# the original after that compares the changed model with itself.
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


import tempfile

from transformer_lens.model_bridge import TransformerBridge
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)
mine = GPT2LMHeadModel(GPT2Config(vocab_size=13, n_embd=8, n_head=2, n_layer=1, n_positions=12, bos_token_id=None,
                                  eos_token_id=None)).eval().requires_grad_(False)
for parameter in mine.parameters():
    parameter += 0.3 * torch.randn(parameter.shape)
folder = tempfile.mkdtemp()
mine.save_pretrained(folder)
before, names = mine(x).logits, list(mine.state_dict())
bridge = TransformerBridge.boot_transformers(folder, hf_model=mine, device="cpu")
booted = (mine(x).logits - before).abs().max()
bridge.enable_compatibility_mode()
moved = mine(x).logits - before
print("the original's logits moved by", float(booted), "and, in compatibility mode, by", float(moved.abs().max()))
print("its first parameter is called", names[0], "and then", next(iter(mine.state_dict())))
assert booted < 1e-5 and moved.abs().max() > 0.1
assert (mine(x).logits.log_softmax(-1) - before.log_softmax(-1)).abs().max() < 1e-4
assert list(mine.state_dict()) != names
END
"$python" "$work/run.py"
