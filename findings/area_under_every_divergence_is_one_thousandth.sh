#!/bin/sh
# auto-circuit 1.0.1: the area under the curve of the KL divergence from the whole model, over sizes of circuits, is 0.001
# for every method: measurements_auc subtracts from each height that of the empty circuit, which is the largest, and
# raises what is negative to eps=0.001. With log_y, as for this metric, it subtracts that height itself from logarithms.
# It is documented as "the area under the curve of a set of points", and eps as "a small value to ensure the returned
# area is greater than zero". average_auc_plot, and measurement_figs with auc_plots, draw all methods as long as random
# edges. Whoever ranks methods of finding circuits by it reads that none is better than chance.
# source: https://github.com/UFO-101/auto-circuit
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export HF_HUB_OFFLINE=1 TMPDIR="$work"
python=${FINDINGS_ENV:+$FINDINGS_ENV/bin/python} # an environment that has these packages already
if [ -z "$python" ]; then
    python3 -m venv "$work/venv"
    "$work/venv/bin/pip" install --quiet torch==2.13.0 transformers==4.57.3 transformer-lens==2.16.1 datasets==3.6.0 \
        pyarrow==18.1.0 pandas==2.3.3 auto-circuit==1.0.1
    python="$work/venv/bin/python"
fi
cat > "$work/run.py" <<'END'
import warnings

warnings.simplefilter("ignore")
import torch
from auto_circuit.data import PromptDataLoader, PromptDataset
from auto_circuit.metrics.area_under_curve import algo_measurements_auc, average_auc_plot
from auto_circuit.metrics.prune_metrics.prune_metrics import CLEAN_KL_DIV_METRIC as KL
from auto_circuit.prune import run_circuits
from auto_circuit.prune_algos.prune_algos import LOGIT_DIFF_GRAD_PRUNE_ALGO, RANDOM_PRUNE_ALGO
from auto_circuit.types import AblationType, PatchType
from auto_circuit.utils.graph_utils import patchable_model
from transformer_lens import HookedTransformer, HookedTransformerConfig

torch.manual_seed(0)
model = HookedTransformer(HookedTransformerConfig(n_layers=2, d_model=16, n_heads=2, d_head=8, d_mlp=32, act_fn="relu", n_ctx=4,
                                                  d_vocab=9, seed=0, device="cpu", use_attn_result=True,
                                                  use_split_qkv_input=True, use_hook_mlp_in=True))
tokens = torch.randint(0, 9, (256, 4))
optimizer = torch.optim.Adam(model.parameters(), 1e-2)
for _ in range(300):  # the last prediction is the first token
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(tokens)[:, -1], tokens[:, 0]).backward()
    optimizer.step()
for parameter in model.parameters():
    parameter.requires_grad_(False)
clean = tokens[:32]
corrupt = clean.clone()
corrupt[:, 0] = (clean[:, 0] + 1 + torch.randint(0, 8, (32,))) % 9
loader = PromptDataLoader(PromptDataset(clean, corrupt, list(clean[:, :1]), list(corrupt[:, :1])), seq_len=4, diverge_idx=0,
                          batch_size=32)
model = patchable_model(model, factorized=True, slice_output="last_seq", seq_len=4, separate_qkv=True)
edges = [0, 1, 3, 10, 30, 100, model.n_edges]
curves = {}
for algo in (LOGIT_DIFF_GRAD_PRUNE_ALGO, RANDOM_PRUNE_ALGO):
    scores = algo.func(model, loader, None)
    outputs = run_circuits(model, loader, edges, scores, PatchType.TREE_PATCH, AblationType.RESAMPLE)
    curves[algo.key] = KL.metric_func(model, loader, outputs)
    print(f"{algo.name}: KL divergence", *(f"{value:.2f}" for _, value in curves[algo.key]), "with so many edges:",
          *(size for size, _ in curves[algo.key]))
found = algo_measurements_auc(curves, KL.log_x, KL.log_y, KL.y_min)
plain = algo_measurements_auc(curves, False, False)
print("area:", *found.values(), " without logarithms:", *plain.values())
figure = average_auc_plot({"Docstring Component Circuit": curves}, KL.log_x, KL.log_y, KL.y_min, inverse=True)
bars = {name: float(length) for bar in figure.data if bar.type == "bar" for name, length in zip(bar.y, bar.x)}
print("bars of average_auc_plot:", bars)
best, chance = (dict(curve) for curve in curves.values())
assert best[30] < 0.5 and chance[3] > 5  # random edges differ from run to run
assert set(found.values()) == set(plain.values()) == {0.001} and len(bars) == 2 and set(bars.values()) == {1.0}
END
"$python" "$work/run.py" 2> "$work/progress" || { cat "$work/progress"; exit 1; }
