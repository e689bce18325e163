#!/bin/sh
# transformer-lens 4.3.0: in a model of TransformerBridge.boot_native, hook_attn_scores is not the scores before
# softmax, as in HookedTransformer, and an edit of it has no effect. Whoever masks attention by setting scores to
# minus infinity, or scales them, measures the model without any change.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export HF_HUB_OFFLINE=1 TMPDIR="$work"
python=${FINDINGS_ENV:+$FINDINGS_ENV/bin/python} # an environment that has these packages already
if [ -z "$python" ]; then
    python3 -m venv "$work/venv"
    "$work/venv/bin/pip" install --quiet torch==2.13.0 transformer-lens==4.3.0
    python="$work/venv/bin/python"
fi
cat > "$work/run.py" <<'END'
import warnings

import torch
from transformer_lens.config import TransformerBridgeConfig
from transformer_lens.model_bridge import TransformerBridge

warnings.simplefilter("ignore")
x = torch.tensor([[1, 2, 3, 4, 5]])


def model(**fields):
    sizes = dict(n_layers=2, d_model=16, n_heads=2, d_head=8, d_mlp=24, act_fn="relu", n_ctx=16, d_vocab=9,
                 normalization_type="LN", positional_embedding_type="standard", seed=0)
    made = TransformerBridge.boot_native(TransformerBridgeConfig(**{**sizes, **fields})).requires_grad_(False).eval()
    draw = torch.Generator().manual_seed(0)
    for parameter in made.parameters():
        parameter.copy_(torch.randn(parameter.shape, generator=draw) * 0.4)
    return made


made = model()
before = made(x)
_, cache = made.run_with_cache(x)
scores = cache["blocks.0.attn.hook_attn_scores"]
print("rows of hook_attn_scores add up to", scores.sum(-1).unique().tolist()[:3])
edited = made.run_with_hooks(x, fwd_hooks=[("blocks.0.attn.hook_attn_scores", lambda t, hook: torch.zeros_like(t))])
pattern = made.run_with_hooks(x, fwd_hooks=[("blocks.0.attn.hook_pattern", lambda t, hook: torch.zeros_like(t))])
print("logits moved by an edit of scores:", float((edited - before).abs().max()), "of the pattern:",
      float((pattern - before).abs().max()))
assert (edited - before).abs().max() == 0 and (pattern - before).abs().max() > 0.1
END
"$python" "$work/run.py"
