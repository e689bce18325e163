"""The verdict on how a model counts: every construction must be called what its proof says it is."""

import pytest
import torch

import interp
from interp.families.histogram.constructions.models import VARIANTS
from interp.families.histogram.measures import relation_or_inventory
from interp.families.histogram.measures.counting import CountingModel, flat_sample
from interp.families.histogram.measures.relation_or_inventory import (
    balanced_accuracy,
    decompose,
    mechanism,
    others_of_the_token,
    slopes,
    squared_correlation,
)

INVENTORIES = {(m, v) for m in ("lin", "lin-softmax", "dot-softmax") for v in VARIANTS[m]}
INVENTORIES |= {("dot", "frame"), ("bos", "frame")}
CASES = [(model, variant) for model, variants in VARIANTS.items() for variant in variants]


@pytest.mark.parametrize(("model", "variant"), CASES)
@pytest.mark.parametrize(("T", "L"), [(32, 10), (6, 4)])
@pytest.mark.thinned(9)
def test_constructions_are_called_what_they_are(model, variant, T, L):
    found = mechanism(interp.build(f"histogram/{model}-exact", variant=variant, T=T, L=L))
    assert found.accuracy == 1
    if (model, variant) in INVENTORIES:
        assert found.verdict == "inventory-based"
        assert found.relation < (0.06 if T == 32 else 0.27)
        assert found.without_contents < 0.15
        assert found.without_weights > 0.6
        assert found.specificity == pytest.approx(1)
        assert found.neurons == 1
        if model not in ("dot", "bos"):  # there the weights are constant, by the architecture
            assert found.by_weights == pytest.approx(0, abs=0.001)
            assert found.by_contents == pytest.approx(1, abs=0.001)
            assert found.without_weights == pytest.approx(1)
    else:
        assert found.verdict == "relation-based"
        assert (found.by_weights, found.by_contents) == pytest.approx((1, 0), abs=1e-9)  # contents say nothing at all
        assert found.explained == pytest.approx(1)
        assert found.without_contents == pytest.approx(1)
        assert found.without_weights < 0.01
        assert found.specificity == pytest.approx(0, abs=0.02)
    assert found.to_frame()["specificity"][0] == found.specificity
    assert found.verdict in str(found)


def test_with_a_relation_in_a_wide_readout():
    """p = T does not make an inventory: filled with zeros, or with the one neuron copied into all of them."""
    wide = interp.build("histogram/bos-softmax-exact", T=8, L=5, p=16)
    assert mechanism(wide).verdict == "relation-based"
    tensors = {name: p.detach().clone() for name, p in wide.named_parameters()}
    tensors["unembed.W_in"] = tensors["unembed.W_in"][:, :1].repeat(1, 16)
    tensors["unembed.b_in"] = tensors["unembed.b_in"][:1].repeat(16)
    tensors["unembed.W_out"] = tensors["unembed.W_out"][:1].repeat(16, 1) / 16
    copied = mechanism(interp.TaskModel(wide.spec, wide.task, tensors))
    assert copied.accuracy == 1
    assert copied.verdict == "relation-based"
    assert copied.own_loss == pytest.approx(copied.other_loss, abs=0.05)


def test_half_shared_direction_and_half_inventory_is_mixed():
    """dot with orthogonal tokens on a shared coordinate, and as many neurons as tokens beside the one that reads it."""
    T, L, d = 8, 5, 9
    template = interp.build("histogram/dot-exact", T=T, L=L, d_model=d, p=1 + T)
    tensors = {name: p.detach().clone() for name, p in template.named_parameters()}
    u = torch.eye(d, dtype=torch.float64)
    tensors["embed.W_E"] = u[:T] + u[T]
    # Scores compare the tokens' own parts alone, [t = s]: x' = e_t + k e_t, and both kinds of neurons read k.
    compare = torch.diag(torch.cat([torch.ones(T), torch.zeros(1)])).double()[None] * d**0.25
    tensors["blocks.0.attn.W_Q"] = tensors["blocks.0.attn.W_K"] = compare
    tensors["unembed.W_in"] = torch.cat([u[T:].T, u[:T].T], 1)
    tensors["unembed.b_in"] = -torch.ones(1 + T, dtype=torch.float64)
    tensors["unembed.W_out"] = template.unembed.W_out.detach()[:1].repeat(1 + T, 1) / 2
    found = mechanism(interp.TaskModel(template.spec, template.task, tensors))
    assert found.accuracy == 1
    assert found.verdict == "mixed"
    assert "partly relation-based and partly inventory-based" in str(found)
    assert found.by_weights == pytest.approx(0.5, abs=0.2)
    assert found.by_contents == pytest.approx(0.5, abs=0.2)


def test_a_model_that_does_not_count():
    found = mechanism(interp.build(interp.build("histogram/dot-exact", T=8, L=5).spec.replace(origin=None)))
    assert found.verdict == "does not count"
    assert "It does not count" in str(found)
    with pytest.raises(interp.InterpError, match="nothing to count"):
        mechanism(interp.build("histogram/dot-exact", T=8, L=1))


def test_the_parts_add_up_and_the_weights_are_the_attention():
    counter = CountingModel.of(interp.build("histogram/bos-softmax-exact", T=8, L=5))
    run = counter.run(flat_sample(counter.task, 50, 0))
    parts = decompose(counter, run)
    torch.testing.assert_close(parts.own + parts.weights + parts.contents, run.mixed[run.read])
    to_bos = run.pattern[:, :, 0][run.read]
    mean = counter.embedding[:8].mean(0)
    expected = to_bos[:, None] * counter.embedding[8] + (1 - to_bos)[:, None] * mean
    torch.testing.assert_close(parts.weights, expected)


def test_scores():
    labels = torch.tensor([1, 1, 1, 2])
    assert balanced_accuracy(torch.tensor([1, 1, 1, 1]), labels) == 0.5
    assert squared_correlation(torch.tensor([1, 1, 1, 1]), labels) == 0
    assert squared_correlation(3 * labels + 1, labels) == pytest.approx(1)


def test_donors_have_the_same_token_and_everyone_gives_once():
    own = torch.randint(5, (200,), generator=torch.Generator().manual_seed(3))
    donors = others_of_the_token(own, 0)
    assert own[donors].equal(own)
    assert donors.sort().values.equal(torch.arange(200))
    assert int((donors == torch.arange(200)).sum()) < 20


def test_slopes():
    first, second = torch.randint(1, 9, (2, 500), generator=torch.Generator().manual_seed(1))
    assert slopes(2 * first - 3 * second + 7, first, second) == pytest.approx((2, -3, 1))
    assert slopes(torch.ones_like(first), first, second) == pytest.approx((0, 0, 0))


@pytest.mark.parametrize(("T", "L", "flat"), [(2, 2, True), (4, 2, True), (3, 3, False), (5, 3, False), (3, 4, True)])
def test_counts_are_drawn_evenly_where_the_sampler_cannot(T, L, flat, monkeypatch):
    """It gives all sequences of two tokens the same counts, and needs as many tokens as places."""
    drawn = []
    monkeypatch.setattr(relation_or_inventory, "flat_sample", lambda *given: drawn.append(1) or flat_sample(*given))
    assert mechanism(interp.build("histogram/dot-exact", T=T, L=L), n=60).verdict != "does not count"
    assert bool(drawn) == flat
