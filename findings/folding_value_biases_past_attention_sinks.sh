#!/bin/sh
# transformer-lens 4.3.0: enable_compatibility_mode() changes the log-probabilities of a bridge of GPT-OSS. By default
# it moves value biases into the output's bias, which is exact where rows of the attention pattern add up to 1. Heads
# of GPT-OSS have sinks, so that their rows add up to less. With fold_value_biases=False, or without sinks, nothing
# moves. The folding was made because patterns add up to 1 (source), and the docstring of process_weights names
# GPT-OSS among the models that it works with. Whoever turns the mode on, as direct_logit_attribution asks, studies
# another model.
# source: https://github.com/TransformerLensOrg/TransformerLens/pull/116
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export HF_HUB_OFFLINE=1 TMPDIR="$work"
python=${FINDINGS_ENV:+$FINDINGS_ENV/bin/python} # an environment that has these packages already
if [ -z "$python" ]; then
    python3 -m venv "$work/venv"
    "$work/venv/bin/pip" install --quiet torch==2.13.0 transformers==5.24.0 transformer-lens==4.3.0
    python="$work/venv/bin/python"
fi
cat > "$work/run.py" <<'END'
import tempfile
import warnings

warnings.simplefilter("ignore")
import torch
from tokenizers import Tokenizer, models
from transformer_lens.model_bridge import TransformerBridge
from transformers import GptOssConfig, GptOssForCausalLM, PreTrainedTokenizerFast
from transformers.utils.logging import disable_progress_bar

disable_progress_bar()
x = torch.tensor([[2, 5, 7, 3, 11, 4]])


def moved(sinks=None, **processing):
    torch.manual_seed(0)
    original = GptOssForCausalLM(GptOssConfig(
        vocab_size=17, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, head_dim=8, num_local_experts=3, num_experts_per_tok=2, bos_token_id=None,
        eos_token_id=None, pad_token_id=None)).eval().requires_grad_(False)
    for parameter in original.parameters():
        parameter += 0.25 * torch.randn(parameter.shape)
    if sinks is not None:
        for layer in original.model.layers:
            layer.self_attn.sinks.fill_(sinks)
    folder = tempfile.mkdtemp()
    original.save_pretrained(folder)
    words = Tokenizer(models.WordLevel({str(i): i for i in range(17)}, unk_token="0"))
    PreTrainedTokenizerFast(tokenizer_object=words, unk_token="0").save_pretrained(folder)
    bridge = TransformerBridge.boot_transformers(folder, device="cpu")
    exact, booted = original(x).logits, bridge(x)
    _, cache = bridge.run_with_cache(x)
    bridge.enable_compatibility_mode(**processing)
    change = (bridge(x).log_softmax(-1) - exact.log_softmax(-1)).abs().max()
    rows = cache["blocks.0.attn.hook_pattern"].sum(-1)
    return float((booted - exact).abs().max()), float(rows.min()), float(change)


for name, given in (("by default", {}), ("fold_value_biases=False", dict(fold_value_biases=False)),
                    ("without sinks", dict(sinks=-1e4))):
    booted, rows, change = moved(**given)
    print(f"{name}: smallest sum of a row of the pattern {rows:.3f}, log-probabilities moved by {change:.1e}")
    assert booted < 1e-5
    assert change > 0.1 if name == "by default" else change < 1e-4
    assert rows > 0.999 if name == "without sinks" else rows < 0.9
END
"$python" "$work/run.py"
