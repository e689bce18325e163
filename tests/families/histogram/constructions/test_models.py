"""The exact histogram models as HookedTransformers: right, equal to an independent forward, rebuilt from their spec."""

from pathlib import Path

import numpy as np
import pytest
import torch

import interp
from interp.families.histogram import Histogram
from interp.families.histogram.constructions.models import VARIANTS, histogram_spec
from interp.models.constructions import construct, registered_constructions

ROOT = Path(__file__).parents[4]
CASES = [(model, variant) for model, variants in VARIANTS.items() for variant in variants]


@pytest.mark.parametrize(("model", "variant"), CASES)
@pytest.mark.parametrize(("T", "L", "zero_class"), [(5, 3, False), (3, 5, True)])
@pytest.mark.thinned(3)
def test_right_on_every_sequence_and_equal_to_numpy(reference, model, variant, T, L, zero_class):
    made = construct(f"histogram/{model}-exact", variant, T=T, L=L, zero_class=zero_class)
    built = made.model()
    assert isinstance(built, interp.TaskModel)
    batch = next(built.task.inputs(chunk=built.task.n_inputs))
    assert len(batch) == T**L
    assert built.predict(batch.tokens).equal(batch.labels)

    sequences = reference.all_sequences(T, L)
    assert np.array_equal(batch.labels[:, -L:].numpy(), reference.counts(sequences))
    expected = reference.forward(model, made.weights.tensors, sequences)
    with torch.no_grad():
        found = built(batch.tokens)[:, -L:].numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12 * np.abs(expected).max())


@pytest.mark.parametrize(("model", "variant"), CASES)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.thinned(27)
def test_published_size(reference, model, variant, dtype):
    if dtype == "float32" and variant.startswith("quarter-circle"):
        pytest.skip("scores of several thousand leave float32 no digits for the softmax")
    built = interp.build(f"histogram/{model}-exact", variant=variant, dtype=dtype)
    batch = built.task.of_sequences(torch.tensor(reference.two_token_sequences(32, 10)))
    assert built.predict(batch.tokens).equal(batch.labels)


@pytest.mark.parametrize(("model", "variant"), CASES)
@pytest.mark.thinned(3)
def test_the_spec_builds_the_same_model_again(tmp_path, model, variant):
    made = construct(f"histogram/{model}-exact", variant, T=6, L=3)
    again = interp.build(made.spec)
    assert again.spec == made.spec
    assert all(p.detach().equal(made.weights.tensors[name]) for name, p in again.named_parameters())
    file = tmp_path / "model.toml"
    file.write_text(made.spec.to_toml())
    assert interp.ModelSpec.from_toml(file) == made.spec
    loaded = interp.load(interp.save(again, tmp_path / "model.safetensors"))
    assert loaded.spec == made.spec
    assert loaded.embed.W_E.equal(again.embed.W_E)


def test_raw_scores_are_the_pattern_without_a_softmax():
    model = interp.build("histogram/bos-exact", T=4, L=4)
    _, cache = model.run_with_cache(model.task.sample(1).tokens)
    pattern = cache["pattern", 0][0, 0]
    tokens = model.task.sample(1).tokens[0]
    same = (tokens[:, None] == tokens[None, :]).double()
    torch.testing.assert_close(pattern[1:, 1:], same[1:, 1:])
    torch.testing.assert_close(pattern[1:, 0], torch.ones(4, dtype=torch.float64))
    assert {"unembed.hook_pre", "unembed.hook_post"} <= set(cache.keys())


def test_names_defaults_and_arguments():
    names = [name for name in registered_constructions() if name.startswith("histogram/")]
    assert sorted(names) == sorted(f"histogram/{model}-exact" for model in VARIANTS)
    made = construct("histogram/dot-exact", T=32, L=10, d_model=32, p=1)
    assert made.spec.d_model == 32
    assert made.spec.readout_width == 1
    assert made.spec.origin.variant == "orthogonal"
    assert construct("histogram/dot-exact", d_model=8, p=32).spec.origin.variant == "frame"
    wide = construct("histogram/bos-softmax-exact", T=8, L=4, kappa=60.0, alpha=0.02, zero_class=True)
    assert dict(wide.spec.origin.arguments) == {
        "T": 8, "L": 4, "d_model": 5, "p": 1, "zero_class": True, "kappa": 60.0, "alpha": 0.02,
    }  # fmt: skip
    assert wide.task.n_out == 5


@pytest.mark.parametrize(("name", "arguments", "message"), [
    ("histogram/lin-exact", {"p": 3}, "one hidden neuron per token, p >= 32, got p=3"),
    ("histogram/dot-exact", {"variant": "ortogonal"}, "did you mean 'orthogonal'"),
    ("histogram/dot-exact", {"kappa": 2.0}, "size of histogram/dot-exact 'kappa'"),
    ("histogram/bos-softmax-exact", {"T": 32, "d_model": 2}, "needs d_model >= 3"),
    ("histogram/lin-softmax-exact", {"d_model": 12}, "d_model"),
])  # fmt: skip
def test_refusals(name, arguments, message):
    with pytest.raises(interp.InterpError, match=message):
        interp.build(name, **arguments)


def test_bad_inputs_to_a_model():
    linear = interp.build("histogram/lin-exact", T=6, L=4)
    with pytest.raises(interp.InterpError, match="sequences of length 5: this model needs exactly 4"):
        linear.predict(torch.zeros(1, 5, dtype=torch.long))
    with pytest.raises(interp.InterpError, match="ids run from 0 to 6"):
        linear.predict(torch.tensor([[0, 6, 0, 0]]))
    bos = interp.build("histogram/bos-exact", T=6, L=4)
    with pytest.raises(interp.InterpError, match=r"row 0 begins with token 1, not with \[BOS\]"):
        bos.predict(torch.tensor([[1, 1, 2, 3]]))


def test_the_papers_names():
    made = construct("histogram/dot-softmax-exact", T=4, L=3)
    assert interp.build("histogram/dot+sftm-exact", T=4, L=3).spec == made.spec
    assert interp.load("histogram/bos+sftm-exact").spec.origin.name == "histogram/bos-softmax-exact"


@pytest.mark.parametrize(("name", "model", "T", "d_model", "p"), [
    *((model, model, 32, 64, 64) for model in VARIANTS),
    ("bos-softmax-p2-d45", "bos-softmax", 32, 45, 2),
    ("dot-softmax-p32-d32", "dot-softmax", 32, 32, 32),
    ("lin-softmax-T64-p128-d128", "lin-softmax", 64, 128, 128),
])  # fmt: skip
def test_trained_specs(name, model, T, d_model, p):
    """The specs in models/ are the six architectures with the published recipe, and build."""
    spec = interp.ModelSpec.from_toml(ROOT / "models" / "histogram" / name / "model.toml")
    recipe = interp.Training(
        epochs=500, batch_size=32, data="fresh", samples_per_epoch=10_000, learning_rate=1e-3, betas=(0.9, 0.98),
        eps=1e-9, init="torch",
    )  # fmt: skip
    task = Histogram(T=T, bos=model.startswith("bos"), zero_class=True)
    assert spec == histogram_spec(model, task, d_model, p, origin=recipe)
    assert interp.build(spec).task.sampler == "published"
