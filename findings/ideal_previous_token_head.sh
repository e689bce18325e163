#!/bin/sh
# transformer-lens 3.9.0: a head that attends to the previous token with weight 1 gets less than 1 from detect_head.
# The first position has no previous token and attends to itself, which counts against the head: with n tokens the
# score is (n - 1) / n. The docstring does not say so. Whoever compares scores of prompts of several lengths, or
# takes a threshold near 1, is misled.
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

from tokenizers import Tokenizer, models, pre_tokenizers
from transformer_lens.head_detector import detect_head
from transformers import AutoTokenizer, PreTrainedTokenizerFast

words = Tokenizer(models.WordLevel({w: i for i, w in enumerate(["<s>", *"abcdefgh"])}, unk_token="<s>"))
words.pre_tokenizer = pre_tokenizers.Whitespace()
folder = tempfile.mkdtemp()
PreTrainedTokenizerFast(tokenizer_object=words, bos_token="<s>", eos_token="<s>", pad_token="<s>",
                        unk_token="<s>").save_pretrained(folder)
made = HookedTransformer(
    HookedTransformerConfig(n_layers=1, d_model=10, n_heads=1, d_head=10, n_ctx=10, d_vocab=9, attn_only=True,
                            normalization_type=None, use_attn_scale=False, device="cpu"),
    tokenizer=AutoTokenizer.from_pretrained(folder),
).requires_grad_(False)
for parameter in made.parameters():
    parameter.zero_()
made.pos_embed.W_pos[:] = torch.eye(10)
made.blocks[0].attn.W_K[0] = torch.eye(10)
made.blocks[0].attn.W_Q[0, 1:, :9] = 100 * torch.eye(9)
for text, n in (("a b c", 4), ("a b c d e f g h", 9)):
    _, cache = made.run_with_cache(text)
    assert cache["pattern", 0][0, 0].diagonal(-1).min() > 0.999999
    scores = [float(detect_head(made, text, "previous_token_head", error_measure=how)) for how in ("mul", "abs")]
    print(f"{n} tokens: {scores[0]:.4f} (mul), {scores[1]:.4f} (abs)")
    assert abs(scores[0] - (n - 1) / n) < 1e-4 and scores[1] < 0.999
END
"$python" "$work/run.py"
