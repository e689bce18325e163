#!/bin/sh
# transformers 5.24.0: with a forward hook that replaces a layer's output, output_hidden_states=True shows either what the
# hook returned, or what it replaced, according to whether the model was ever asked for hidden states before the hook was
# registered. Hidden states are captured by forward hooks that the first such call adds for good, and hooks run in order.
# Logits are those of the hook either way; attentions behave likewise. They are documented as the hidden states at the
# output of each layer. Whoever asks for the clean run first, as one does, and then patches, reads the patched layer as
# unpatched, and the next one as patched.
# source: https://huggingface.co/docs/transformers/main_classes/output
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export HF_HUB_OFFLINE=1 TMPDIR="$work"
python=${FINDINGS_ENV:+$FINDINGS_ENV/bin/python} # an environment that has these packages already
if [ -z "$python" ]; then
    python3 -m venv "$work/venv"
    "$work/venv/bin/pip" install --quiet torch==2.13.0 transformers==5.24.0
    python="$work/venv/bin/python"
fi
cat > "$work/run.py" <<'END'
import warnings

warnings.simplefilter("ignore")
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

torch.set_grad_enabled(False)
x = torch.tensor([[1, 2, 3, 4]])
sizes = dict(vocab_size=17, bos_token_id=None, eos_token_id=None, pad_token_id=None, attn_implementation="eager")
made = {
    "GPT-2": (lambda: GPT2LMHeadModel(GPT2Config(n_embd=16, n_head=2, n_layer=3, n_positions=8, **sizes)),
              lambda model: model.transformer.h[0], "attn"),
    "Llama": (lambda: LlamaForCausalLM(LlamaConfig(hidden_size=16, intermediate_size=24, num_hidden_layers=3,
                                                   num_attention_heads=2, **sizes)),
              lambda model: model.model.layers[0], "self_attn"),
}


def fives(module, given, output):  # the stream after the first layer is 5 everywhere
    return torch.full_like(output, 5)


def sevens(module, given, output):  # what attention returns beside its output
    return output[0], torch.full_like(output[1], 7)


for name, (make, first, attention) in made.items():
    runs = {}
    for asked_before in (False, True):
        torch.manual_seed(0)
        model = make().eval()
        clean = model(x, output_hidden_states=True) if asked_before else None
        first(model).register_forward_hook(fives)
        runs[asked_before] = model(x, output_hidden_states=True)
        states = [float(state[0, 0, 0]) for state in runs[asked_before].hidden_states]
        model = make().eval()
        if asked_before:
            model(x, output_attentions=True)
        getattr(first(model), attention).register_forward_hook(sevens)
        largest = float(model(x, output_attentions=True).attentions[0].max())
        print(f"{name}, asked for before the hook: {asked_before}; first values of the hidden states:",
              *(f"{state:.3f}" for state in states), "and the largest attention:", largest)
        assert largest == (1 if asked_before else 7)
        if asked_before:
            assert torch.equal(runs[True].hidden_states[1], clean.hidden_states[1])
        else:
            assert runs[False].hidden_states[1].unique().tolist() == [5]
    same = [torch.equal(one, other) for one, other in zip(*(run.hidden_states for run in runs.values()))]
    print(f"{name}: equal logits {torch.equal(runs[False].logits, runs[True].logits)}, equal hidden states {same}")
    assert torch.equal(runs[False].logits, runs[True].logits) and same == [True, False, True, True]
END
"$python" "$work/run.py"
