#!/bin/sh
# transformers 5.24.0 and transformer-lens 4.3.0: a Falcon with ALiBi, such as falcon-rw-1b, gives other logits as soon
# as its attention patterns are asked for. The mask already holds the distances, and eager attention adds them once
# more; output_attentions=True takes that path too, and a TransformerBridge does the same. With sdpa, the default, they
# count once. In 2024 a difference between the two was mended, with a test that they agree (source). Whoever reads or
# patches patterns studies another model than the one that was run.
# source: https://github.com/huggingface/transformers/pull/30123
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
from torch.nn.functional import gelu, layer_norm
from transformer_lens.model_bridge import TransformerBridge
from transformers import FalconConfig, FalconForCausalLM, PreTrainedTokenizerFast
from transformers.utils.logging import disable_progress_bar

disable_progress_bar()
x = torch.tensor([[2, 5, 7, 3, 11, 4, 9, 6]])
torch.manual_seed(0)
model = FalconForCausalLM(FalconConfig(
    vocab_size=17, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, ffn_hidden_size=24, alibi=True,
    multi_query=False, parallel_attn=False, bias=True, bos_token_id=None, eos_token_id=None)).eval().requires_grad_(False)
for parameter in model.parameters():
    parameter += 0.4 * torch.randn(parameter.shape)
folder = tempfile.mkdtemp()
model.save_pretrained(folder)
words = Tokenizer(models.WordLevel({str(i): i for i in range(17)}, unk_token="0"))
PreTrainedTokenizerFast(tokenizer_object=words, unk_token="0").save_pretrained(folder)


def by_hand(times):  # the model in plain torch, with the distances counted so many times
    def norm(stream, name):
        return layer_norm(stream, (16,), weights[name + ".weight"], weights[name + ".bias"])

    def linear(stream, name):
        return stream @ weights[name + ".weight"].T + weights[name + ".bias"]

    weights, n = model.state_dict(), x.shape[1]
    distances = torch.arange(n).float() - torch.arange(n).float()[:, None]
    bias = torch.tensor([2.0**-4, 2.0**-8])[:, None, None] * distances
    hidden = torch.triu(torch.ones(n, n, dtype=torch.bool), 1)
    stream = weights["transformer.word_embeddings.weight"][x[0]]
    for layer in range(2):
        at = f"transformer.h.{layer}."
        joined = linear(norm(stream, at + "input_layernorm"), at + "self_attention.query_key_value")
        q, k, v = joined.view(n, 2, 3, 8).permute(2, 1, 0, 3)
        scores = (q @ k.mT + times * bias) / 8**0.5
        z = scores.masked_fill(hidden, -torch.inf).softmax(-1) @ v
        stream = stream + linear(z.transpose(0, 1).reshape(n, 16), at + "self_attention.dense")
        mlp = linear(norm(stream, at + "post_attention_layernorm"), at + "mlp.dense_h_to_4h")
        stream = stream + linear(gelu(mlp), at + "mlp.dense_4h_to_h")
    return norm(stream, "transformer.ln_f") @ weights["lm_head.weight"].T


once, twice = by_hand(1), by_hand(2)
runs = {name: FalconForCausalLM.from_pretrained(folder, attn_implementation=name).eval() for name in ("sdpa", "eager")}
logits = {
    "sdpa": runs["sdpa"](x).logits, "eager": runs["eager"](x).logits,
    "sdpa with output_attentions=True": runs["sdpa"](x, output_attentions=True).logits,
    "TransformerBridge": TransformerBridge.boot_transformers(folder, device="cpu")(x),
}
for name, found in logits.items():
    apart = [float((found[0] - hand).abs().max()) for hand in (once, twice)]
    print(f"{name}: off by {apart[0]:.1e} from distances counted once, and by {apart[1]:.1e} from twice")
    assert apart[name != "sdpa"] < 1e-5 and apart[name == "sdpa"] > 0.01
END
"$python" "$work/run.py"
