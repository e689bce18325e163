#!/bin/sh
# nnterp 1.3.0: patchscope_lens with target prompts of different lengths patches another token than index_to_patch names
# in all but the longest: prompts are padded on the left, and an index from the front counts the padding. An index inside
# the padding changes nothing, and the result for that prompt is the unpatched one; other indices patch an earlier token.
# Nothing is said, while get_token_activations of the same package refuses such an index. TargetPromptBatch is documented
# as for multiple target prompts with potentially different indices. Indices from the end, and prompts one at a time, are
# right. Whoever reads what a hidden state says reads, for short prompts, what the prompt says without it.
# source: https://github.com/ndif-team/nnterp
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export HF_HUB_OFFLINE=1 TMPDIR="$work"
python=${FINDINGS_ENV:+$FINDINGS_ENV/bin/python} # an environment that has these packages already
if [ -z "$python" ]; then
    python3 -m venv "$work/venv"
    "$work/venv/bin/pip" install --quiet torch==2.13.0 transformers==5.24.0 accelerate==1.15.0 nnsight==0.7.0 nnterp==1.3.0
    python="$work/venv/bin/python"
fi
cat > "$work/run.py" <<'END'
import tempfile
import warnings

warnings.simplefilter("ignore")
import torch
from nnterp import StandardizedTransformer
from nnterp.interventions import TargetPrompt, patchscope_lens
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from transformers.utils import logging

logging.set_verbosity_error()
logging.disable_progress_bar()
torch.set_grad_enabled(False)
torch.manual_seed(0)
words = Tokenizer(models.WordLevel({word: i for i, word in enumerate("? a b c d e f g h".split())}, unk_token="?"))
words.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="?", pad_token="?")
model = LlamaForCausalLM(LlamaConfig(vocab_size=9, hidden_size=16, intermediate_size=24, num_hidden_layers=3,
                                     num_attention_heads=2, bos_token_id=None, eos_token_id=None)).eval()
for parameter in model.parameters():
    parameter += 0.3 * torch.randn(parameter.shape)
folder = tempfile.mkdtemp()
model.save_pretrained(folder)
tokenizer.save_pretrained(folder)
standard = StandardizedTransformer(folder, device_map="cpu")
prompts = ["a b c d e f", "g h a"]
latent = 3 * torch.randn(16)


def by_hand(prompt, at=None):  # with the latent at this token of the prompt, after layer 1
    def hook(module, given, output):
        output[:, at] = latent

    handle = None if at is None else model.model.layers[1].register_forward_hook(hook)
    probabilities = model(tokenizer(prompt, return_tensors="pt").input_ids).logits[0, -1].softmax(-1)
    if handle is not None:
        handle.remove()
    return probabilities


def apart(first, second):
    return float((first - second).abs().max())


for at in (-2, 1, 0):
    targets = [TargetPrompt(prompt, at) for prompt in prompts]
    together = patchscope_lens(standard, target_patch_prompts=targets, layers=[1], latents=latent.expand(1, 2, 16))[:, 0]
    alone = [patchscope_lens(standard, target_patch_prompts=[target], layers=[1], latents=latent.expand(1, 1, 16))[0, 0]
             for target in targets]
    for prompt, found, single in zip(prompts, together, alone):
        asked, unpatched = by_hand(prompt, at), by_hand(prompt)
        print(f"index {at} of {prompt!r}: off by {apart(found, asked):.4f}, alone by {apart(single, asked):.4f}, and from "
              f"the unpatched prompt by {apart(found, unpatched):.4f}")
        assert apart(single, asked) < 1e-5 and apart(asked, unpatched) > 1e-3
        if at >= 0 and prompt == prompts[1]:
            assert apart(found, unpatched) < 1e-5 and apart(found, asked) > 1e-3
        else:
            assert apart(found, asked) < 1e-5
targets = [TargetPrompt(prompts[0], 1), TargetPrompt("g h a b c", 2)]  # one word of padding
found = patchscope_lens(standard, target_patch_prompts=targets, layers=[1], latents=latent.expand(1, 2, 16))[1, 0]
asked, earlier = by_hand("g h a b c", 2), by_hand("g h a b c", 1)
print(f"index 2 of 'g h a b c': off by {apart(found, asked):.4f}, and from index 1 by {apart(found, earlier):.4f}")
assert apart(found, earlier) < 1e-5 and apart(found, asked) > 1e-3
END
"$python" "$work/run.py"
