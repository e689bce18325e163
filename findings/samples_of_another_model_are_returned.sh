#!/bin/sh
# devinterp 2.0.1: sample, and with it llc and bif, returns what lies at output_path, whatever the model is now. It
# compares lr, n_beta and the like, and raises where they differ; but neither the model, nor the data, nor param_masks,
# nor loss_fn. output_path is documented as "path for output zarr", and a warning advises to give one; that it was
# reused is told to a logger at a level that is not shown. Whoever follows the learning coefficient over the checkpoints
# of a training, or over heads by param_masks, with one path gets the first number for all of them, bit for bit.
# source: https://github.com/timaeus-research/devinterp
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export HF_HUB_OFFLINE=1 TMPDIR="$work" TQDM_DISABLE=1
python=${FINDINGS_ENV:+$FINDINGS_ENV/bin/python} # an environment that has these packages already
if [ -z "$python" ]; then
    python3 -m venv "$work/venv"
    "$work/venv/bin/pip" install --quiet torch==2.13.0 transformers==5.24.0 devinterp==2.0.1 datasets==5.2.0 \
        xarray==2026.9.0 zarr==3.1.6 numpy==2.4.6
    python="$work/venv/bin/python"
fi
cat > "$work/run.py" <<'END'
import os
import warnings

warnings.simplefilter("ignore")
import torch
from datasets import Dataset
from devinterp.slt.llc import llc
from devinterp.slt.weight_restrictions import create_param_masks
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)
tokens = (torch.randint(0, 11, (64, 1)) + torch.arange(6) * torch.randint(1, 3, (64, 1))) % 11  # counting in ones or twos
counting = Dataset.from_dict({"input_ids": tokens.tolist()}).with_format("torch")
backwards = Dataset.from_dict({"input_ids": tokens.flip(1).tolist()}).with_format("torch")
model = GPT2LMHeadModel(GPT2Config(vocab_size=11, n_embd=16, n_head=2, n_layer=1, n_positions=8, bos_token_id=None,
                                   eos_token_id=None, attn_pdrop=0, resid_pdrop=0, embd_pdrop=0))


def measured(path, data=counting, **more):
    found = llc(model, data, {"train": (data, 1)}, lr=1e-4, n_beta=10.0, num_chains=1, num_draws=20, batch_size=16,
                num_init_loss_batches=4, device="cpu", output_path=os.path.join(os.environ["TMPDIR"], path), **more)
    return float(found.llc_mean), float(found.init_loss)


def train(steps):
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(steps):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(tokens).logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()).backward()
        optimizer.step()


first = measured("reused")
print(f"before training: llc {first[0]:.3f}, loss {first[1]:.3f}")
train(300)
found, expected = measured("reused"), measured("other")
print(f"trained: same path: llc {found[0]:.3f}, loss {found[1]:.3f}; another path: llc {expected[0]:.3f}, "
      f"loss {expected[1]:.3f}")
assert found == first and expected[1] < 1 < first[1] and abs(expected[0] - first[0]) > 0.01
for name, change in (("weights of one head", {"param_masks": create_param_masks(model, "l0h0")}),
                     ("other data", {"data": backwards})):
    found, expected = measured("reused", **change), measured(name, **change)
    print(f"{name}: same path: llc {found[0]:.3f}; another path: llc {expected[0]:.3f}")
    assert found == first and abs(expected[0] - first[0]) > 0.01
try:
    measured("reused", num_burnin_steps=1)
    raise SystemExit("other settings are taken too")
except RuntimeError as error:
    print("one burn-in step more: raises, because of", *str(error).splitlines()[1:2])
END
"$python" "$work/run.py"
