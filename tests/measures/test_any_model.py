"""Heads of stock HookedTransformers, against TransformerLens's own attribution and forward passes with edits."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest
import torch

import interp
from interp._lens import HookedTransformer, config, quiet_construction
from interp.errors import InterpError, UnsupportedError
from interp.measures import heads

ROWS = 24


def stock(**changes: object) -> HookedTransformer:
    fields = {
        "n_layers": 2, "d_model": 12, "n_heads": 3, "d_head": 4, "d_mlp": 16, "act_fn": "gelu", "n_ctx": 10,
        "d_vocab": 9, "normalization_type": "LN", "device": "cpu", "dtype": torch.float64,
    }  # fmt: skip
    with quiet_construction():
        model = HookedTransformer(config(**{**fields, **changes}))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * 0.5)
            if name.endswith(".w"):
                parameter.add_(1.0)
    return model


@pytest.fixture(scope="module")
def data() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Tokens, labels 7 and 4, and a position of its own for each row."""
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(0, 9, (ROWS, 8), generator=generator)
    labels = torch.where(torch.arange(ROWS) % 3 == 0, 7, 4)
    return tokens, labels, torch.randint(-8, 8, (ROWS,), generator=generator)


@pytest.mark.parametrize("norm", ["LN", "LNPre", "RMS", "RMSPre", None])
def test_shares_bias_and_rest_are_the_models_logits(norm, data) -> None:
    tokens, labels, at = data
    model = stock(normalization_type=norm)
    found = heads.from_model(model, tokens, labels, at)
    assert found.z.shape == (ROWS, 6, 4)
    assert found.labels.tolist() == (labels == 7).int().tolist()
    whole = model(tokens)[torch.arange(ROWS), at % 8][:, [4, 7]].detach()
    torch.testing.assert_close(found.logits(range(6), with_skip=True), whole, rtol=1e-9, atol=1e-9)


@pytest.mark.skipif(find_spec("transformer_lens.HookedTransformer") is None, reason="TransformerLens 4 has fewer parts")
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"output_logits_soft_cap": 2.0}, "after a soft cap"),
        ({"normalization_type": "RMS", "use_normalization_before_and_after": True}, "a norm follows the attention"),
        ({"normalization_type": "RMS", "original_architecture": "Olmo2ForCausalLM"}, "a norm follows the attention"),
    ],
)
def test_logits_that_are_no_sum_are_refused(changes, reason, data) -> None:
    tokens, labels, at = data
    with pytest.raises(UnsupportedError, match=reason):
        heads.from_model(stock(**changes), tokens, labels, at)


def test_a_removed_final_norm_neither_divides_nor_centers(data) -> None:
    tokens, labels, at = data
    model = stock()
    model.ln_final = torch.nn.Identity()
    found = heads.from_model(model, tokens, labels, at)
    whole = model(tokens)[torch.arange(ROWS), at % 8][:, [4, 7]].detach()
    torch.testing.assert_close(found.logits(range(6), with_skip=True), whole, rtol=1e-9, atol=1e-9)
    model.ln_final = torch.nn.RMSNorm(12, dtype=torch.float64)
    with pytest.raises(UnsupportedError, match="a RMSNorm without a hook_scale"):
        heads.from_model(model, tokens, labels, at)


@pytest.mark.parametrize("norm", ["LNPre", None])
def test_shares_are_transformer_lens_own_attribution(norm, data) -> None:
    tokens, labels, _ = data
    model = stock(normalization_type=norm)
    found = heads.from_model(model, tokens, labels, 5)
    _, cache = model.run_with_cache(tokens)
    stack = cache.stack_head_results(layer=-1, pos_slice=5)  # (layers * heads, rows, d_model)
    if norm is not None:
        stack = cache.apply_ln_to_stack(stack, layer=-1, pos_slice=5)
    theirs = (stack @ model.W_U)[..., [4, 7]].transpose(0, 1).detach()
    torch.testing.assert_close(found.contributions, theirs, rtol=1e-9, atol=1e-9)


def test_one_layer_is_a_slice_of_all_of_them(data) -> None:
    tokens, labels, at = data
    model = stock()
    whole = heads.from_model(model, tokens, labels, at)
    for layer in (0, 1, -1):
        part = heads.from_model(model, tokens, labels, at, layer=layer)
        mine = slice(3 * (layer % 2), 3 * (layer % 2) + 3)
        torch.testing.assert_close(part.z, whole.z[:, mine])
        torch.testing.assert_close(part.contributions, whole.contributions[:, mine])
        torch.testing.assert_close(part.logits(range(3), True), whole.logits(range(6), True))


def test_on_the_papers_model_it_is_the_papers_definition() -> None:
    model = interp.load("count01/paper", dtype="float64")
    batch = model.task.sample(30, "train", seed=4)
    known = heads.head_outputs(model, batch)
    found = heads.from_model(model, batch.tokens, batch.labels, (batch.tokens == 4).int().argmax(1))
    torch.testing.assert_close(found.z, known.z, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(found.contributions, known.contributions[..., 5:7], rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(found.skip, known.skip[..., 5:7], rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(found.bias, known.bias[5:7])


def test_metrics_of_any_two_labels(data) -> None:
    """Words as labels, token ids for them: a separator that scikit-learn agrees with, and AUC by counting pairs."""
    from sklearn.svm import LinearSVC

    tokens, labels, at = data
    words = np.where(labels.numpy() == 7, "yes", "no")
    found = heads.from_model(stock(), tokens, words.tolist(), at, answers=(2, 8))
    table = heads.group_metrics(found, found, [(0,), (1, 5)])
    for row, group in zip(table.itertuples(), table["heads"]):
        x = found.z[:, list(group)].flatten(1).numpy()
        svm = LinearSVC(C=1000.0, tol=1e-8, max_iter=100_000, dual=False).fit(x, words)
        assert row.s_acc == pytest.approx(svm.score(x, words), abs=1 / ROWS + 1e-12)
        logits = found.logits(group).numpy()
        positive = words == "yes"
        areas = [
            np.mean((column[mine][:, None] > column[~mine]) + 0.5 * (column[mine][:, None] == column[~mine]))
            for column, mine in ((logits[:, 0], ~positive), (logits[:, 1], positive))
        ]
        assert row.roc_auc == pytest.approx(max(areas))
        assert row.l_acc == pytest.approx(np.mean((logits[:, 1] > logits[:, 0]) == positive))


def test_more_than_two_labels(data) -> None:
    """Three labels with outputs of their own: the model's logits, and the share of the largest among the three."""
    tokens, _, at = data
    labels, model = torch.arange(ROWS) % 3 + 4, stock()
    found = heads.from_model(model, tokens, labels, at, answers=(8, 0, 3))
    whole = model(tokens)[torch.arange(ROWS), at % 8][:, [8, 0, 3]].detach()
    torch.testing.assert_close(found.logits(range(6), with_skip=True), whole, rtol=1e-9, atol=1e-9)
    table = heads.group_metrics(found, found, [tuple(range(6))], with_skip=True)
    assert table["l_acc"][0] == pytest.approx(float((whole.argmax(1) == labels - 4).double().mean()))
    assert float(table["s_acc"][0]) > 1 / 3


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"labels": [1] * ROWS}, "one class only"),
        ({"labels": list(range(ROWS))}, "answer 9 is not an output token of the model"),
        ({"labels": [0, 1, 2] * 8, "answers": (3, 4)}, "2 answers for the 3 labels 0, 1, 2: give one per label"),
        ({"labels": [1, 2]}, "one label per row"),
        ({"labels": ["a", "b"] * 12}, "answer 'a' is not an output token of the model, which has 0 to 8"),
        ({"labels": [0, 1] * 12, "answers": (3, 3)}, "names one output token twice"),
        ({"labels": [0, 1] * 12, "answers": (3, 9)}, "answer 9 is not an output token"),
        ({"position": 8}, "position 8 is outside the rows, which have 8 tokens"),
        ({"layer": 2}, "layer 2 does not exist: the model has layers 0 to 1"),
        ({"tokens": torch.full((ROWS, 8), 9)}, "tokens has the id 9; the model's ids are 0 to 8"),
        ({"tokens": torch.zeros(0, 8, dtype=torch.long)}, "with at least one token"),
    ],
)
def test_bad_input_is_one_sentence(arguments, sentence, data) -> None:
    tokens, labels, _ = data
    with pytest.raises(InterpError, match=sentence) as error:
        heads.from_model(**{"model": stock(), "tokens": tokens, "labels": labels, **arguments})
    assert "\n" not in str(error.value)


def test_outputs_that_are_not_finite_and_logits_that_are_no_sum(data) -> None:
    tokens, labels, _ = data
    broken = stock()
    with torch.no_grad():
        broken.blocks[1].attn.W_V[0] = torch.nan
    with pytest.raises(InterpError, match="96 of 576 head outputs are not finite"):
        heads.from_model(broken, tokens, labels)
    relu = interp.build(
        interp.ModelSpec(
            task={"name": "count01"}, d_model=8, readout="relu_mlp", readout_width=4, readout_at="=",
            layers=[{"n_heads": 2, "d_head": 4}],
        )
    )  # fmt: skip
    with pytest.raises(UnsupportedError, match="ReLU readout"):
        heads.from_model(relu, tokens.clamp_max(7), labels)


GPT2 = """
import torch
from interp._lens import HookedTransformer, config, quiet_construction
from interp.measures import heads
from interp.sweeps.jobs import peak_memory

def peak():
    return peak_memory() / 2**20

with quiet_construction():
    model = HookedTransformer(config(
        n_layers=12, d_model=768, n_heads=12, d_head=64, d_mlp=3072, act_fn="gelu_new", n_ctx=1024, d_vocab=50257,
        normalization_type="LN", device="cpu",
    ))
generator = torch.Generator().manual_seed(0)
with torch.no_grad():
    for name, parameter in model.named_parameters():
        if "W_" in name:
            parameter.uniform_(-0.03, 0.03, generator=generator)
tokens = torch.randint(0, 50257, (72, 8), generator=generator)
labels = (tokens[:, 0] % 2).tolist()
before = peak()
found = heads.from_model(model, tokens, labels, 7, answers=(464, 262))
assert found.z.shape == (72, 144, 64) and found.contributions.shape == (72, 144, 2), found.z.shape
table = heads.group_metrics(found, found, [(0,), (143,)])
assert len(table) == 2 and table["s_acc"].between(0, 1).all()
print(peak() - before)
"""


@pytest.mark.slow
def test_gpt2_sized_model_in_little_memory() -> None:
    """Each head's share of all 50,257 logits would take 4 GB in float64, a float64 copy of W_U 309 MB."""
    done = subprocess.run([sys.executable, "-c", GPT2], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 150  # MB above the model itself
