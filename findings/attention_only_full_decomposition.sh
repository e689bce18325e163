#!/bin/sh
# transformer-lens 3.9.0: get_full_resid_decomposition of a model without MLPs raises AttributeError,
# 'TransformerBlock' object has no attribute 'mlp', with its default expand_neurons=True. The docstring does not ask
# for MLPs, and decompose_resid leaves them out. Toy models for induction are mostly attention-only. With
# expand_neurons=False it works.
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


_, cache = model(attn_only=True).run_with_cache(x)
rows = cache.get_full_resid_decomposition(expand_neurons=False)
print("expand_neurons=False: off by", float((rows.sum(0) - cache["resid_post", 0]).abs().max()))
try:
    cache.get_full_resid_decomposition()
except AttributeError as error:
    print("by default:", error)
else:
    raise SystemExit("it works now")
END
"$python" "$work/run.py"
