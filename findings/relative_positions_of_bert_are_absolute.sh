#!/bin/sh
# transformers 5.24.0: a BERT or RoBERTa whose config says position_embedding_type="relative_key_query" has absolute
# positions: it is the model of "absolute", bit for bit, and its config still says relative. Version 4 had these
# positions; version 5 removed them (source), but takes the field. A model that is made from a config is made without
# a word; from a checkpoint of version 4, the distances are listed as "unexpected" and not used. Whoever trains small
# models to compare kinds of positions, as work on length generalization does, compares one kind with itself.
# source: https://github.com/huggingface/transformers/pull/41170
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
import contextlib
import io

import torch
from transformers import BertConfig, BertForMaskedLM, RobertaConfig, RobertaForMaskedLM

torch.set_grad_enabled(False)
x = torch.tensor([[2, 5, 7, 3, 11, 4, 9, 6]])
for config, made in ((BertConfig, BertForMaskedLM), (RobertaConfig, RobertaForMaskedLM)):
    logits, words = {}, io.StringIO()
    for kind in ("absolute", "relative_key", "relative_key_query"):
        torch.manual_seed(0)
        with contextlib.redirect_stdout(words), contextlib.redirect_stderr(words):
            model = made(config(position_embedding_type=kind, vocab_size=17, hidden_size=16, intermediate_size=24,
                                num_hidden_layers=2, num_attention_heads=2, max_position_embeddings=16, pad_token_id=0,
                                attn_implementation="eager")).eval()
            logits[kind] = model(x).logits
        distances = [name for name in model.state_dict() if "distance" in name]
        apart = float((logits[kind] - logits["absolute"]).abs().max())
        print(f"{made.__name__}: config says {model.config.position_embedding_type}, parameters for distances: "
              f"{len(distances)}, logits differ from those of absolute by {apart}, warnings: {words.getvalue()!r}")
        assert model.config.position_embedding_type == kind and not distances and not words.getvalue()
        assert torch.equal(logits[kind], logits["absolute"])
END
"$python" "$work/run.py"
