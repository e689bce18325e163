#!/bin/sh
# transformer-lens 3.9.0: load_and_process_state_dict(fold_ln=True) changes the function of a model whose MLP is
# gated and whose LayerNorms have biases: W_gate has no bias to take that of the norm. The documentation says that
# folding a LayerNorm leaves the output as it was, and for plain MLPs it does. Whoever processes weights of their
# own gated model studies another model.
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


moved = {}
for gated in (False, True):
    fields = dict(normalization_type="LN", gated_mlp=gated, act_fn="silu")
    plain, folded = model(**fields), model(**fields)
    folded.load_and_process_state_dict(folded.state_dict(), fold_ln=True, center_writing_weights=False,
                                       center_unembed=False, fold_value_biases=False)
    moved[gated] = float((plain(x).log_softmax(-1) - folded(x).log_softmax(-1)).abs().max())
print("log-probabilities moved by", moved[False], "(plain MLP) and", moved[True], "(gated)")
assert moved[False] < 1e-5 and moved[True] > 0.1
END
"$python" "$work/run.py"
