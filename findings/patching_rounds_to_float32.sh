#!/bin/sh
# transformer-lens 3.9.0: transformer_lens.patching returns float32 for a float64 model, whatever the metric
# returns: the table of results is made by torch.zeros without a dtype. Nothing says so. Whoever runs in float64 to
# tell small effects from rounding loses the digits that they asked for.
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


from transformer_lens import patching

made = model(dtype=torch.float64)
_, cache = made.run_with_cache(x)
metric = lambda logits: 1e9 + logits[0, -1, 0]  # noqa: E731
found = patching.get_act_patch_resid_pre(made, x.flip(1), cache, metric)
print("logits:", made(x).dtype, "results:", found.dtype, "distinct results:", len(found.unique()), "of", found.numel())
assert made(x).dtype == torch.float64 and found.dtype == torch.float32 and len(found.unique()) == 1
END
"$python" "$work/run.py"
