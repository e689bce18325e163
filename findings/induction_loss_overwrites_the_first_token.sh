#!/bin/sh
# transformer-lens 3.9.0: evals.induction_loss says that it prepends a beginning-of-sequence token. It overwrites
# the first token of the first half, so the second half repeats a token that was never shown, and the sequence keeps
# its length. The loss leaves out the predictions at that place. Whoever counts on a resting position before the
# repeated text, or compares with sequences that they made by the docstring, has other inputs.
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


from types import SimpleNamespace

from transformer_lens.evals import induction_loss

seen = []
made = model(d_vocab=20001, n_ctx=16)
embed = made.embed.forward
made.embed.forward = lambda tokens: (seen.append(tokens.clone()), embed(tokens))[1]
torch.manual_seed(0)
induction_loss(made, SimpleNamespace(bos_token_id=7), batch_size=2, subseq_len=5, prepend_bos=True, device="cpu")
print(seen[0].tolist())
first, second = seen[0].split(5, 1)
assert seen[0].shape == (2, 10) and first[:, 1:].equal(second[:, 1:])
assert bool((first[:, 0] == 7).all()) and bool((second[:, 0] != 7).all())
END
"$python" "$work/run.py"
