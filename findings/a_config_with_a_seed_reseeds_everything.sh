#!/bin/sh
# transformer-lens 3.9.0: making a HookedTransformerConfig with seed=... reseeds the global generators of torch,
# random and numpy at once, before there is a model. The field is documented as the seed of the model. Whoever reads
# configs between two draws, or makes one for each of several runs, gets the same random numbers again.
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


import random

draws = []
for seed in (1, 2, 3):
    torch.manual_seed(seed)
    random.seed(seed)
    HookedTransformerConfig(n_layers=1, d_model=4, d_head=2, n_ctx=2, d_vocab=3, act_fn="relu", seed=0)
    draws.append((float(torch.rand(1)), random.random()))
print("after seeds 1, 2 and 3:", draws)
assert len(set(draws)) == 1
END
"$python" "$work/run.py"
