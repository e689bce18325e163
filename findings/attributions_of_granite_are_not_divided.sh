#!/bin/sh
# transformer-lens 4.3.0: direct_logit_attribution of a Granite model adds up to logits_scaling times the logit. Granite
# divides its logits by that number (9 for PowerLM-3b), and attributions are not divided. For Cohere, which multiplies
# its logits, they add up. The tool was announced as a decomposition of the output logit (source), its docstring says
# that a complete one reconstructs the logit less b_U, and its check of the readout passes. Whoever says how many logits
# a head contributes, or compares heads of two models, is off by that number.
# source: https://github.com/TransformerLensOrg/TransformerLens/pull/1369
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
from transformer_lens.tools.analysis import direct_logit_attribution
from transformers import CohereConfig, CohereForCausalLM, GraniteConfig, GraniteForCausalLM, PreTrainedTokenizerFast
from transformers.utils.logging import disable_progress_bar

disable_progress_bar()
torch.set_grad_enabled(False)
x = torch.tensor([[2, 5, 7, 3, 11, 4]])
sizes = dict(vocab_size=17, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
             num_key_value_heads=2, bos_token_id=None, eos_token_id=None, pad_token_id=None)


def times(original):  # what the attributions add up to, as a multiple of the difference of two logits
    original.eval()
    draw = torch.Generator().manual_seed(1)
    for parameter in original.parameters():
        parameter += 0.25 * torch.randn(parameter.shape, generator=draw)
    folder = tempfile.mkdtemp()
    original.save_pretrained(folder)
    words = Tokenizer(models.WordLevel({str(i): i for i in range(17)}, unk_token="0"))
    PreTrainedTokenizerFast(tokenizer_object=words, unk_token="0").save_pretrained(folder)
    bridge = TransformerBridge.boot_transformers(folder, device="cpu")
    bridge.enable_compatibility_mode()
    logits = original(x).logits[0, -1]
    assert (bridge(x)[0, -1].log_softmax(-1) - logits.log_softmax(-1)).abs().max() < 1e-4 and bridge.b_U.abs().max() == 0
    sums = [float(direct_logit_attribution(bridge, x, answer_tokens=3, incorrect_tokens=5, unit=unit).attribution.sum())
            for unit in ("component", "head")]
    assert abs(sums[0] - sums[1]) < 1e-4
    return sums[0] / float(logits[3] - logits[5])


torch.manual_seed(0)
found = {f"Granite, logits_scaling={n}": (n, times(GraniteForCausalLM(GraniteConfig(logits_scaling=n, **sizes))))
         for n in (1.0, 3.0, 8.0)}
found["Cohere, logit_scale=0.3"] = (1.0, times(CohereForCausalLM(CohereConfig(logit_scale=0.3, **sizes))))
for name, (expected, multiple) in found.items():
    print(f"{name}: attributions add up to {multiple:.4f} times the logit difference")
    assert abs(multiple - expected) < 0.01
END
"$python" "$work/run.py"
