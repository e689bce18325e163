#!/bin/sh
# captum 0.9.0: seq_attr_dict of an LLMAttributionResult has one entry for each different token: where a token stands
# twice, the attribution of its last place is kept, and those of the others are dropped without a word. seq_attr has
# them all, and Shapley values in it add up to the gain over the baseline; those in the dict do not. inseq mended the
# same in 2023 (source). Prompts for induction heads, and strings of formal languages, are made of repeated tokens: of
# these the first occurrence is missing, which is often the one that decides.
# source: https://github.com/inseq-team/inseq/pull/192
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export HF_HUB_OFFLINE=1 TMPDIR="$work"
python=${FINDINGS_ENV:+$FINDINGS_ENV/bin/python} # an environment that has these packages already
if [ -z "$python" ]; then
    python3 -m venv "$work/venv"
    "$work/venv/bin/pip" install --quiet torch==2.13.0 transformers==5.24.0 captum==0.9.0
    python="$work/venv/bin/python"
fi
cat > "$work/run.py" <<'END'
import warnings

warnings.simplefilter("ignore")
import torch
from captum.attr import LLMAttribution, ShapleyValues, TextTokenInput
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

torch.set_grad_enabled(False)
torch.manual_seed(2)
words = Tokenizer(models.WordLevel({word: i for i, word in enumerate("? a b c d e".split())}, unk_token="?"))
words.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="?")
model = GPT2LMHeadModel(GPT2Config(vocab_size=6, n_embd=16, n_head=2, n_layer=2, n_positions=16, bos_token_id=None,
                                   eos_token_id=None)).eval()
for parameter in model.parameters():
    parameter += 0.5 * torch.randn(parameter.shape)


def answer(ids):  # log-probability of c
    return float(model(ids).logits[0, -1].log_softmax(-1)[3])


for text in ("a b d e", "a b c a b"):
    result = LLMAttribution(ShapleyValues(model), tokenizer).attribute(TextTokenInput(text, tokenizer), target="c")
    ids = tokenizer(text, return_tensors="pt").input_ids
    gain = answer(ids) - answer(torch.zeros_like(ids))
    as_dict = result.seq_attr_dict
    print(f"{text}: gain over the baseline {gain:.2f}, sum of seq_attr {float(result.seq_attr.sum()):.2f}, of seq_attr_dict "
          f"{sum(as_dict.values()):.2f}")
    print("    seq_attr:", *(f"{word} {share:.2f}" for word, share in zip(text.split(), result.seq_attr.tolist())),
          " seq_attr_dict:", *(f"{word} {share:.2f}" for word, share in as_dict.items()))
    assert abs(float(result.seq_attr.sum()) - gain) < 1e-4 and result.input_tokens == text.split()
    if len(as_dict) == len(result.input_tokens):
        assert text == "a b d e" and abs(sum(as_dict.values()) - gain) < 1e-4
    else:
        assert as_dict == dict(zip("cab", result.seq_attr.tolist()[2:])) and abs(sum(as_dict.values()) - gain) > 0.5
END
"$python" "$work/run.py"
