#!/bin/sh
# transformer-lens 3.9.0: get_full_resid_decomposition(layer, mlp_input=True, apply_ln=True, project_output_onto=v)
# divides the rows of neurons by the scale of ln1, and all other rows by that of ln2. Its docstring says that the
# projection only avoids a large tensor. Without project_output_onto the rows are right. Whoever attributes the
# input of an MLP to neurons reads wrong numbers; the rows no longer add up.
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


made = model(normalization_type="LN", n_layers=2)
_, cache = made.run_with_cache(x)
v = torch.randn(8, generator=torch.Generator().manual_seed(1))
asked = dict(layer=1, mlp_input=True, apply_ln=True, expand_neurons=True, return_labels=True)
right, names = cache.get_full_resid_decomposition(**asked)
found, _ = cache.get_full_resid_decomposition(**asked, project_output_onto=v)
apart = (right @ v - found).abs().flatten(1).amax(1)
neurons = torch.tensor(["N" in name for name in names])
print("largest difference in rows of neurons, and in others:", float(apart[neurons].max()), float(apart[~neurons].max()))
assert apart[neurons].max() > 0.1 and apart[~neurons].max() < 1e-5
END
"$python" "$work/run.py"
