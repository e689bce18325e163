#!/bin/sh
# overcomplete 0.3.0: an SAE that is in evaluation mode when load_state_dict gives it weights encodes with the new ones
# and decodes with the dictionary that it had before. All keys match, get_dictionary() returns the old dictionary, and
# eval() once more does not help: only train() and then eval(). The dictionary is kept at the first eval(), in an
# attribute that is neither a parameter nor a buffer. In torch, eval() and loading may come in either order. Whoever
# goes through checkpoints of a training with one SAE in evaluation mode compares each encoder with the first
# decoder, and reads that the later ones got worse; whoever calls eval() first reads features of a random dictionary.
# source: https://github.com/KempnerInstitute/overcomplete
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export HF_HUB_OFFLINE=1 TMPDIR="$work"
python=${FINDINGS_ENV:+$FINDINGS_ENV/bin/python} # an environment that has these packages already
if [ -z "$python" ]; then
    python3 -m venv "$work/venv"
    "$work/venv/bin/pip" install --quiet torch==2.13.0 numpy==2.4.6 scikit-learn==1.9.1 scipy==1.17.1 einops==0.8.2 \
        matplotlib==3.8.4 scikit-image==0.26.0 opencv-python-headless==5.0.0.93 tqdm==4.70.1
    "$work/venv/bin/pip" install --quiet --no-deps overcomplete==0.3.0 # torchvision and timm are for its models of images
    python="$work/venv/bin/python"
fi
cat > "$work/run.py" <<'END'
import sys
import types
import warnings

warnings.simplefilter("ignore")
sys.modules["torchvision"] = types.SimpleNamespace(transforms=None)  # for models of images only, which are not used here
import torch
from overcomplete import TopKSAE

torch.manual_seed(0)
hidden = torch.nn.functional.normalize(torch.randn(24, 12), dim=1)  # features that the activations are made of
codes = torch.rand(2000, 24) * (torch.rand(2000, 24) < 0.08)
rows = codes @ hidden


def error(sae):  # share of the squares that the reconstruction misses
    with torch.no_grad():
        return float((rows - sae(rows)[2]).square().sum() / rows.square().sum())


def trained(checkpoints):
    sae = TopKSAE(12, 24, top_k=3)
    optimizer = torch.optim.Adam(sae.parameters(), 3e-3)
    saved = []
    for step in range(1, max(checkpoints) + 1):
        optimizer.zero_grad()
        (rows - sae(rows)[2]).square().sum(1).mean().backward()
        optimizer.step()
        if step in checkpoints:
            sae.get_dictionary()  # scales the rows of the weights to length 1, as every step of the training does
            saved.append({name: value.clone() for name, value in sae.state_dict().items()})
    return saved


steps = (50, 300, 1500)
checkpoints = trained(steps)
reused = TopKSAE(12, 24, top_k=3)
reused.load_state_dict(checkpoints[0])
reused.eval()
for step, weights in zip(steps, checkpoints):
    fresh = TopKSAE(12, 24, top_k=3)
    fresh.load_state_dict(weights)
    fresh.eval()
    early = TopKSAE(12, 24, top_k=3).eval()  # eval() first, then the weights
    for sae in (early, reused):
        missing = sae.load_state_dict(weights)
        sae.eval()
        assert not missing.missing_keys and not missing.unexpected_keys
    same = torch.allclose(reused.get_dictionary(), weights["dictionary._weights"])
    assert torch.allclose(reused.state_dict()["dictionary._weights"], weights["dictionary._weights"])
    assert torch.equal(reused.encode(rows)[1], fresh.encode(rows)[1])
    print(f"step {step}: missed of the activations by a fresh SAE {error(fresh):.3f}, by one that was in evaluation mode "
          f"{error(reused):.3f} (its dictionary is the loaded one: {same}), by one with eval() before loading "
          f"{error(early):.3f}")
    assert same == (step == steps[0]) and (error(reused) > 1.5 * error(fresh)) == (not same) and error(early) > 0.9
reused.train()
reused.eval()
print(f"after train() and eval(): {error(reused):.3f}")
assert abs(error(reused) - error(fresh)) < 1e-4 and error(fresh) < 0.15
END
"$python" "$work/run.py"
