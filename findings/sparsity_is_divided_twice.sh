#!/bin/sh
# interpreto 0.5.2: SparsityRatio divides by the number of concepts twice: with 5 of 50 concepts active it gives 0.002,
# and with 5 of 500 it gives 0.00002. Its documentation divides a count by that number once; Sparsity, documented as that
# count, has divided already. MSE is neither a mean nor a square, nor the documented sum of the norms of the errors: it
# is the root of the sum of their squares, so that four copies of the same activations have twice the MSE. Whoever
# compares dictionaries of different sizes sees the sparsity of the larger one overstated by their ratio, and whoever
# compares splits of different sizes reads that the concepts reconstruct the small test set best.
# source: https://github.com/FOR-sight-ai/interpreto
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export HF_HUB_OFFLINE=1 TMPDIR="$work"
python=${FINDINGS_ENV:+$FINDINGS_ENV/bin/python} # an environment that has these packages already
if [ -z "$python" ]; then
    python3 -m venv "$work/venv"
    "$work/venv/bin/pip" install --quiet torch==2.13.0 transformers==5.24.0 nnsight==0.7.0 jaxtyping==0.2.36 numpy==2.4.6 \
        scipy==1.17.1 scikit-learn==1.9.1 einops==0.8.2 matplotlib==3.11.2 nltk==3.10.4 beartype==0.23.1
    "$work/venv/bin/pip" install --quiet --no-deps interpreto==0.5.2 # without the libraries of GPUs that it names
    python="$work/venv/bin/python"
fi
cat > "$work/run.py" <<'END'
import warnings

warnings.simplefilter("ignore")
import torch
from interpreto import SplitterForGeneration
from interpreto.concepts import TopKSAEConcepts
from interpreto.concepts.metrics import MSE, Sparsity, SparsityRatio
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

torch.manual_seed(0)
words = Tokenizer(models.WordLevel({word: i for i, word in enumerate("? a b c d e".split())}, unk_token="?"))
words.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="?", eos_token="?")
model = GPT2LMHeadModel(GPT2Config(vocab_size=6, n_embd=16, n_head=2, n_layer=2, n_positions=16, bos_token_id=None,
                                   eos_token_id=None)).eval()
splitter = SplitterForGeneration(model, 1, tokenizer=tokenizer, batch_size=20)
rows, _ = splitter.get_activations([" ".join("abcde"[i] for i in torch.randint(0, 5, (8,))) for _ in range(20)])
for concepts in (50, 500):
    explainer = TopKSAEConcepts(splitter, nb_concepts=concepts, top_k=5)
    explainer.fit(rows, nb_epochs=5)
    with torch.no_grad():
        codes = explainer.activations_to_concepts(rows)
        errors = (explainer.concepts_to_activations(codes) - rows).double()
    active = float((codes != 0).double().sum(1).mean())
    sparsity, ratio = Sparsity(explainer).compute(rows), SparsityRatio(explainer).compute(rows)
    print(f"{active:.0f} of {concepts} concepts active: Sparsity {sparsity:.2g}, SparsityRatio {ratio:.2g}")
    assert abs(active - 5) < 0.1 and abs(sparsity / (active / concepts) - 1) < 1e-3
    assert abs(ratio / (active / concepts**2) - 1) < 1e-3
once, four = MSE(explainer).compute(rows), MSE(explainer).compute(rows.repeat(4, 1))
print(f"MSE of {len(rows)} activations {once:.3f}, of four copies of them {four:.3f}; the mean of squares is "
      f"{errors.square().mean():.3f}, the sum of norms {errors.norm(dim=1).sum():.3f}")
assert abs(four / once - 2) < 1e-3 and abs(once / float(errors.norm()) - 1) < 1e-3
assert once > 5 * float(errors.square().mean()) and once < float(errors.norm(dim=1).sum()) / 5
END
"$python" "$work/run.py"
