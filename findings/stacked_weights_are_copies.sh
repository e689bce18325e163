#!/bin/sh
# transformer-lens 3.9.0: model.W_E and model.W_U are the parameters, but model.W_Q, W_K, W_V, W_O, W_in and W_out
# are stacks that are made on each access. Assigning to a part of them, such as model.W_V[0, 1] = 0 to ablate a
# head, changes a copy, without an error: the model stays as it was. Nothing in the assignment tells the two kinds
# apart.
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


made = model()
before = made(x)
made.W_V[0] = 0
made.W_out[0] = 0
same = (made(x) - before).abs().max()
made.W_E[3] = 0
print("after model.W_V[0] = 0 and model.W_out[0] = 0 logits moved by", float(same))
print("after model.W_E[3] = 0 by", float((made(x) - before).abs().max()))
assert same == 0 and (made(x) - before).abs().max() > 0.1
END
"$python" "$work/run.py"
