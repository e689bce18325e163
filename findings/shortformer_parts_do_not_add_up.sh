#!/bin/sh
# transformer-lens 3.9.0: with positional_embedding_type='shortformer' positions never enter the residual stream,
# but decompose_resid still returns a row 'pos_embed', so its rows do not add up to the stream: the sum is off by
# exactly the positions. Its docstring calls them a decomposition of the residual stream. Whoever attributes logits
# in such a model counts positions that are not there.
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


apart = {}
for kind in ("standard", "shortformer"):
    _, cache = model(positional_embedding_type=kind).run_with_cache(x)
    rows, names = cache.decompose_resid(return_labels=True)
    apart[kind] = rows.sum(0) - cache["resid_post", 0]
    print(kind, names, "the sum is off by", float(apart[kind].abs().max()))
assert apart["standard"].abs().max() < 1e-5
assert (apart["shortformer"] - cache["pos_embed"]).abs().max() < 1e-5 and cache["pos_embed"].abs().max() > 0.1
END
"$python" "$work/run.py"
