#!/bin/sh
# pyvene 0.1.8: VanillaIntervention mixes the subspaces of a batch. Where two examples have subspaces of one size, at
# one position each example gets both subspaces; at two positions both examples get the first one's subspace at the
# first position, and the second one's at the second. A batch of one, and subspaces of different sizes, are right. The
# tutorial says that one can intervene on different subspaces given the examples of a batch. Whoever tests two causal
# variables in one batch reads effects that neither has.
# source: https://stanfordnlp.github.io/pyvene/tutorials/basic_tutorials/Subspace_Partition_with_Intervention.html
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export HF_HUB_OFFLINE=1 TMPDIR="$work"
python=${FINDINGS_ENV:+$FINDINGS_ENV/bin/python} # an environment that has these packages already
if [ -z "$python" ]; then
    python3 -m venv "$work/venv"
    "$work/venv/bin/pip" install --quiet torch==2.13.0 transformers==5.24.0 pyvene==0.1.8
    python="$work/venv/bin/python"
fi
cat > "$work/run.py" <<'END'
import warnings

warnings.simplefilter("ignore")
import pyvene
import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config(vocab_size=17, n_embd=16, n_head=2, n_layer=2, n_positions=8, bos_token_id=None,
                                   eos_token_id=None)).eval().requires_grad_(False)
for parameter in model.parameters():
    parameter += 0.3 * torch.randn(parameter.shape)
base = torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8]])
source = torch.tensor([[9, 10, 11, 12], [13, 14, 15, 16]])


def found(places, subspaces, rows=slice(None)):
    config = pyvene.IntervenableConfig([{"layer": 0, "component": "block_output",
                                         "intervention_type": pyvene.VanillaIntervention}])
    where = [[places] * len(base[rows])]
    return pyvene.IntervenableModel(config, model=model)(
        {"input_ids": base[rows]}, [{"input_ids": source[rows]}], {"sources->base": (where, where)},
        subspaces=[subspaces[rows]])[1].logits


def by_hook(swaps):  # a plain hook of torch: (example, position, coordinates) to take from the source
    def hook(module, given, output):
        stream = (output[0] if isinstance(output, tuple) else output)
        if not kept:
            kept.append(stream.clone())
            return output
        stream = stream.clone()
        for example, place, subspace in swaps:
            stream[example, place, subspace] = kept[0][example, place, subspace]
        return (stream, *output[1:]) if isinstance(output, tuple) else stream

    kept = []
    handle = model.transformer.h[0].register_forward_hook(hook)
    model(source)
    logits = model(base).logits
    handle.remove()
    return logits


def apart(first, second):
    return float((first - second).abs().max())


own = [[0, 1], [2, 3]]
asked = by_hook([(0, 2, own[0]), (1, 2, own[1])])
both = by_hook([(example, 2, subspace) for example in (0, 1) for subspace in own])
one = found([2], own)
print("one position: off by", apart(one, asked), "and from both subspaces in each example by", apart(one, both))
alone = max(apart(found([2], own, slice(n, n + 1)), asked[n:n + 1]) for n in (0, 1))
ragged = apart(found([2], [[0], [2, 3]]), by_hook([(0, 2, [0]), (1, 2, own[1])]))
print("one example at a time: off by", alone, "and with subspaces of different sizes by", ragged)
two = found([1, 2], own)
asked = by_hook([(example, place, own[example]) for example in (0, 1) for place in (1, 2)])
by_place = by_hook([(example, place, own[place - 1]) for example in (0, 1) for place in (1, 2)])
print("two positions: off by", apart(two, asked), "and from one subspace for each position by", apart(two, by_place))
assert apart(one, both) < 1e-5 < 0.1 < apart(one, by_hook([(0, 2, own[0]), (1, 2, own[1])]))
assert alone < 1e-5 and ragged < 1e-5
assert apart(two, by_place) < 1e-5 and apart(two, asked) > 0.1
END
"$python" "$work/run.py"
