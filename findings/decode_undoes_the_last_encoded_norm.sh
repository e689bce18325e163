#!/bin/sh
# sae-lens 6.54.12: decode of an SAE with normalize_activations="layer_norm" or "constant_norm_rescale" multiplies by
# the norm of what encode saw last, not of the input that its features come from: encode keeps the norm as an attribute
# of the SAE. decode is documented as a function of the features, and with "none" it is one. Whoever encodes a clean and
# a corrupted input, copies a feature and decodes, gets the clean features at the corrupted scale, and takes the
# difference for the feature's effect. That the two are called apart was raised when such norms came (source).
# source: https://github.com/decoderesearch/SAELens/pull/178
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export HF_HUB_OFFLINE=1 TMPDIR="$work"
python=${FINDINGS_ENV:+$FINDINGS_ENV/bin/python} # an environment that has these packages already
if [ -z "$python" ]; then
    python3 -m venv "$work/venv"
    "$work/venv/bin/pip" install --quiet torch==2.13.0 transformer-lens==3.9.0 sae-lens==6.54.12
    python="$work/venv/bin/python"
fi
cat > "$work/run.py" <<'END'
import warnings

warnings.simplefilter("ignore")
import torch
from sae_lens import StandardSAE, StandardSAEConfig

torch.set_grad_enabled(False)
torch.manual_seed(0)
clean = torch.randn(4, 8)
corrupted = 3 * torch.randn(4, 8) + 1


def by_hand(sae, features, normed_as):
    if sae.cfg.normalize_activations == "layer_norm":
        scale, mean = normed_as.std(-1, keepdim=True), normed_as.mean(-1, keepdim=True)
    elif sae.cfg.normalize_activations == "constant_norm_rescale":
        scale, mean = normed_as.norm(dim=-1, keepdim=True) / 8**0.5, 0
    else:
        scale, mean = 1, 0
    return (features @ sae.W_dec + sae.b_dec) * scale + mean


for how in ("none", "layer_norm", "constant_norm_rescale"):
    sae = StandardSAE(StandardSAEConfig(d_in=8, d_sae=32, normalize_activations=how, device="cpu"))
    features = sae.encode(clean)
    at_once = sae.decode(features)
    features, other = sae.encode(clean), sae.encode(corrupted)
    later = sae.decode(features)
    own, last = by_hand(sae, features, clean), by_hand(sae, features, corrupted)
    print(f"{how}: decoded at once, off by {float((at_once - own).abs().max()):.1e}; after another encode, off by "
          f"{float((later - own).abs().max()):.1e}, and by {float((later - last).abs().max()):.1e} from the other's norm")
    assert (at_once - own).abs().max() < 1e-4 and (later - last).abs().max() < 1e-4
    assert ((later - own).abs().max() > 1) == (how != "none")
END
"$python" "$work/run.py"
