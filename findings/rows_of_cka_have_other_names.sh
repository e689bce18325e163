#!/bin/sh
# torch-cka 0.21: export() of a CKA comparison returns names of layers in the order of named_modules(), where a block
# stands before its parts, and rows in the order in which the layers returned, where it stands behind them. A layer that
# is made early and runs late is at the wrong end too; the order of a list of layers that was given counts for neither.
# Nothing warns, and plot_results draws the matrix without names. It is documented that export "exports the CKA data
# along with the respective model layer names". Whoever asks which layers of a transformer are alike, or where
# two training runs part, reads it off other layers: blocks and their attention or MLP change places.
# source: https://github.com/AntixK/PyTorch-Model-Compare
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export HF_HUB_OFFLINE=1 TMPDIR="$work"
python=${FINDINGS_ENV:+$FINDINGS_ENV/bin/python} # an environment that has these packages already
if [ -z "$python" ]; then
    python3 -m venv "$work/venv"
    "$work/venv/bin/pip" install --quiet torch==2.13.0 torch-cka==0.21 numpy==2.4.6 matplotlib==3.11.2 tqdm==4.70.1
    python="$work/venv/bin/python"
fi
cat > "$work/run.py" <<'END'
import warnings

warnings.simplefilter("ignore")
import torch
from torch import nn
from torch_cka import CKA
from torch.utils.data import DataLoader, TensorDataset

torch.set_grad_enabled(False)
torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn = nn.MultiheadAttention(16, 2, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))

    def forward(self, stream):
        stream = stream + self.attn(stream, stream, stream, need_weights=False)[0]
        return stream + self.mlp(stream)


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.unembed = nn.Embedding(11, 16), nn.Linear(16, 11, bias=False)
        self.blocks = nn.ModuleList(Block() for _ in range(2))

    def forward(self, tokens):
        stream = self.embed(tokens)
        for block in self.blocks:
            stream = block(stream)
        return self.unembed(stream)


model, tokens = Transformer().eval(), torch.randint(0, 11, (40, 6))
for block in model.blocks:
    block.mlp[0].weight *= 4
    block.mlp[2].weight *= 4
layers = ["embed", "blocks.0", "blocks.0.mlp", "blocks.1", "blocks.1.mlp", "unembed"]
outputs = {}
for name, layer in model.named_modules():
    if name in layers:
        layer.register_forward_hook(lambda _, __, output, name=name: outputs.__setitem__(name, output))
model(tokens)
compared = CKA(model, model, "one", "same", layers, layers)
compared.compare(DataLoader(TensorDataset(tokens), batch_size=40))
found = compared.export()
names = found["model1_layers"]


def by_definition(first, second):  # the unbiased estimate that the package names, of outputs that a hook saw
    grams = [outputs[name].flatten(1).double() for name in (first, second)]
    grams = [(gram @ gram.T).fill_diagonal_(0) for gram in grams]
    n = len(tokens)

    def hsic(left, right):
        return float((left * right).sum() + left.sum() * right.sum() / (n - 1) / (n - 2) - 2 * (left @ right).sum() / (n - 2))

    left, right = grams
    return hsic(left, right) / (hsic(left, left) * hsic(right, right)) ** 0.5


def wrong(order):
    return max(abs(float(found["CKA"][i, j]) - by_definition(first, second))
               for i, first in enumerate(order) for j, second in enumerate(order))


print("names:    ", *names)
print("rows are: ", *outputs)
print(f"CKA of blocks.1 and unembed: by its name {float(found['CKA'][names.index('blocks.1'), names.index('unembed')]):.3f}, "
      f"true {by_definition('blocks.1', 'unembed'):.3f}")
print(f"wrong by up to {wrong(names):.3f} with these names, by up to {wrong(list(outputs)):.0e} in the order of running")
assert sorted(names) == sorted(layers) and names != layers and names != list(outputs)
assert wrong(names) > 0.1 and wrong(list(outputs)) < 1e-3
END
"$python" "$work/run.py" 2> "$work/progress" || { cat "$work/progress"; exit 1; }
