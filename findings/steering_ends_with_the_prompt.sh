#!/bin/sh
# steering-vectors 0.12.2: apply(model, min_token_index=n) with n the length of the prompt does nothing to generate: the
# text is the unsteered one. Hooks number the tokens of each forward pass from 0, and with a cache, the default of
# generate, each pass after the first has one token, number 0. With use_cache=False every generated token is steered.
# token_indices=[0] steers the first token of the prompt, and with a cache every generated token, too. min_token_index
# is documented as the smallest token index to apply the patch to. That other indices raise IndexError in generate was
# reported in 2024 (source). Whoever steers the answer, but not the question, reports that steering has no effect.
# source: https://github.com/steering-vectors/steering-vectors/issues/60
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export HF_HUB_OFFLINE=1 TMPDIR="$work"
python=${FINDINGS_ENV:+$FINDINGS_ENV/bin/python} # an environment that has these packages already
if [ -z "$python" ]; then
    python3 -m venv "$work/venv"
    "$work/venv/bin/pip" install --quiet torch==2.13.0 transformers==4.57.3 steering-vectors==0.12.2 numpy==2.4.6
    python="$work/venv/bin/python"
fi
cat > "$work/run.py" <<'END'
import warnings

warnings.simplefilter("ignore")
import torch
from steering_vectors import SteeringVector
from transformers import GPT2Config, GPT2LMHeadModel

torch.set_grad_enabled(False)
torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config(vocab_size=17, n_embd=16, n_head=2, n_layer=2, n_positions=32, bos_token_id=None,
                                   eos_token_id=None)).eval()
for parameter in model.parameters():
    parameter += 0.3 * torch.randn(parameter.shape)
vector = 5 * torch.randn(16)
steering = SteeringVector({0: vector})
prompt = torch.tensor([[1, 2, 3, 4, 5]])


def generated(use_cache):
    return model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=8, do_sample=False,
                          use_cache=use_cache, pad_token_id=0)[0, prompt.shape[1]:].tolist()


def by_hand(steered):  # greedy, without a cache; steered says which positions are
    def hook(module, given, output):
        stream = output[0] if isinstance(output, tuple) else output
        stream += vector * torch.tensor([steered(at) for at in range(stream.shape[1])])[:, None]

    handle = model.transformer.h[0].register_forward_hook(hook)
    tokens = prompt
    for _ in range(8):
        tokens = torch.cat([tokens, model(tokens, use_cache=False).logits[:, -1:].argmax(-1)], 1)
    handle.remove()
    return tokens[0, prompt.shape[1]:].tolist()


n = prompt.shape[1]
plain, answer, first = by_hand(lambda at: False), by_hand(lambda at: at >= n), by_hand(lambda at: at == 0)
print("by hand, unsteered:", plain, "the answer steered:", answer, "the first token steered:", first)
for name, where, right in (("min_token_index=5", dict(min_token_index=n), answer),
                           ("token_indices=[0]", dict(min_token_index=None, token_indices=[0]), first)):
    with steering.apply(model, **where):
        cached, uncached = generated(True), generated(False)
    print(f"{name}, with a cache:", cached, "without:", uncached)
    assert uncached == right != cached
    assert cached == (plain if name.startswith("min") else by_hand(lambda at: at == 0 or at >= n)) != right
with steering.apply(model):
    everywhere = generated(True)
assert everywhere == by_hand(lambda at: True) != plain
END
"$python" "$work/run.py"
