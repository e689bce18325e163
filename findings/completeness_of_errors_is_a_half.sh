#!/bin/sh
# circuit-tracer 0.5.0: compute_graph_scores gives a completeness of 0.5, not 0, where all that reaches the logits comes
# from error nodes. It is documented as the fraction of incoming edges, weighted by influence, that originate from
# features or tokens, as in the paper (source). But it averages 1 minus the share of errors over all nodes: error and
# token nodes, which have no incoming edges, count as explained in full, so that each error node makes its own influence
# good. The more errors, the more is added: transcoders that write nothing look half as good as perfect ones. Whoever
# compares transcoders or prompts by this score sees them closer to each other, and to 1, than they are.
# source: https://transformer-circuits.pub/2025/attribution-graphs/methods.html
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export HF_HUB_OFFLINE=1 TMPDIR="$work"
python=${FINDINGS_ENV:+$FINDINGS_ENV/bin/python} # an environment that has these packages already
if [ -z "$python" ]; then
    python3 -m venv "$work/venv"
    "$work/venv/bin/pip" install --quiet torch==2.13.0 transformers==4.57.3 transformer-lens==3.2.1 circuit-tracer==0.5.0
    python="$work/venv/bin/python"
fi
cat > "$work/run.py" <<'END'
import logging
import warnings

warnings.simplefilter("ignore")
import torch
from circuit_tracer import ReplacementModel, attribute
from circuit_tracer.graph import compute_graph_scores
from circuit_tracer.transcoder import SingleLayerTranscoder, TranscoderSet
from tokenizers import Tokenizer, models
from transformer_lens import HookedTransformerConfig
from transformers import PreTrainedTokenizerFast

logging.getLogger("circuit_tracer.graph").setLevel(logging.ERROR)
config = HookedTransformerConfig(n_layers=2, d_model=16, n_heads=2, d_head=8, d_mlp=32, act_fn="gelu", n_ctx=10, d_vocab=9,
                                 normalization_type="LN", device="cpu", model_name="small")
words = Tokenizer(models.WordLevel({str(i): i for i in range(9)}, unk_token="0"))


def graph(written, embedded):  # by how much features write, and by how much embeddings do
    draw = torch.Generator().manual_seed(0)
    transcoders = {}
    for layer in range(2):
        coder = SingleLayerTranscoder(16, 40, torch.relu, layer, dtype=torch.float32, device=torch.device("cpu"))
        coder.W_enc.data = 0.3 * torch.randn(40, 16, generator=draw)
        coder.W_dec.data = written * torch.randn(40, 16, generator=draw)
        transcoders[layer] = coder
    model = ReplacementModel.from_config(config, TranscoderSet(transcoders, "hook_resid_mid", "hook_mlp_out"))
    for name, parameter in model.named_parameters():
        if "transcoder" not in name:
            size = 0.3 * (embedded if name in ("embed.W_E", "pos_embed.W_pos") else 1)
            parameter.data = size * torch.randn(parameter.shape, generator=draw)
    model.tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, bos_token="0", unk_token="0")
    return attribute(torch.tensor([0, 2, 3, 4, 5]), model, attribution_targets=torch.tensor([3, 4]))


def by_definition(found):  # over edges: (those from features and tokens) / (all), each times its target's influence
    shares = found.adjacency_matrix.abs()
    shares = shares / shares.sum(1, keepdim=True).clamp(min=1e-10)
    weights = torch.zeros(len(shares))
    weights[-len(found.logit_targets):] = found.logit_probabilities
    influence = weights @ torch.linalg.inv(torch.eye(len(shares)) - shares)
    edges = shares * influence[:, None]
    features = len(found.selected_features)
    errors = slice(features, features + found.n_pos * found.cfg.n_layers)
    has_none = shares.sum(1) == 0
    with_none = 1 - edges[:, errors].sum() / influence.sum()  # as if nodes without incoming edges had them from features
    assert has_none[errors].all()
    return float(1 - edges[:, errors].sum() / edges.sum()), float(with_none)


for name, written, embedded in (("features that write", 0.3, 1), ("features that write nothing", 0, 1),
                                ("the same, and embeddings that hardly do", 0, 1e-4)):
    found = graph(written, embedded)
    replacement, completeness = compute_graph_scores(found)
    defined, with_none = by_definition(found)
    print(f"{name}: completeness {completeness:.3f}, as defined {defined:.3f}, replacement {replacement:.3f}")
    assert abs(completeness - with_none) < 1e-4 and completeness - defined > 0.03
    if not written:  # edges to logits only: each error's influence is made good by itself
        assert abs(completeness - (1 + defined) / 2) < 1e-3 and abs(replacement - defined) < 1e-3
assert completeness > 0.5 and defined < 0.01
END
"$python" "$work/run.py"
