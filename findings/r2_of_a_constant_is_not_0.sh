#!/bin/sh
# overcomplete 0.3.0: r2_score gives a reconstruction that is the mean activation, whatever the input, 0.9 and more, not
# 0, where coordinates have different means, as in the streams of transformers. It is documented that "a score of 0
# indicates that the reconstruction is as good as the mean". But it compares with one number, the mean over all rows and
# all coordinates, so that the differences between coordinates count as explained variance. It is what train_sae logs
# and prints as R2. Whoever compares layers or SAEs by it reads 0.9 for dictionaries with one concept for all inputs.
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
from overcomplete import TopKSAE, r2_score
from overcomplete.sae import train_sae
from sklearn.metrics import r2_score as r2_of_sklearn
from torch.utils.data import DataLoader

torch.manual_seed(0)
noise, means = torch.randn(1024, 32), torch.randn(32)


def r2(x, x_hat):  # against the mean of each coordinate
    return float(1 - (x - x_hat).square().sum() / (x - x.mean(0)).square().sum())


for name, rows in (("all coordinates have one mean", noise + 3), ("different means", noise + 3 * means),
                   ("one large coordinate", noise + 100 * (torch.arange(32) == 7))):
    constant = rows.mean(0).expand_as(rows)
    found, expected = float(r2_score(rows, constant)), r2(rows, constant)
    by_sklearn = r2_of_sklearn(rows, constant, multioutput="variance_weighted")
    print(f"{name}: r2_score of the mean activation {found:.3f}, of scikit-learn {by_sklearn:.3f}")
    assert abs(expected) < 1e-5 and abs(by_sklearn) < 1e-5
    assert abs(found) < 0.01 if name.startswith("all") else found > 0.85

rows = noise + 3 * means
sae = TopKSAE(32, 2, top_k=1)
logs = train_sae(sae, DataLoader(rows, batch_size=128), lambda x, x_hat, *_: (x - x_hat).square().mean(),
                 torch.optim.Adam(sae.parameters(), 1e-2), nb_epochs=30, device="cpu")
sae.eval()
with torch.no_grad():
    codes, rebuilt = sae(rows)[1:]
most = float((codes != 0).float().mean(0).max())
print(f"an SAE that uses one concept for {most:.0%} of the rows: train_sae logs R2 {logs['r2'][-1]:.3f}, "
      f"true {r2(rows, rebuilt):.3f}")
assert most > 0.99 and logs["r2"][-1] > 0.85 and r2(rows, rebuilt) < 0.05
END
"$python" "$work/run.py" > "$work/seen" || { cat "$work/seen"; exit 1; }
grep -v ^Epoch "$work/seen"
