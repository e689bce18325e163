"""Measures of histogram models, against brute force, the constructions' own formulas, and planted mistakes."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from closeness import close

import interp
from interp.errors import InterpError, UnsupportedError
from interp.families.histogram import Histogram
from interp.families.histogram.measures import counting
from interp.families.histogram.measures.relation_or_inventory import neuron_selectivity, tokens_per_neuron

MODELS = ("lin", "lin-softmax", "dot", "dot-softmax", "bos", "bos-softmax")


def build(name, **sizes):
    return interp.build(f"histogram/{name}-exact", **{"T": 8, "L": 6, **sizes})


def with_tensors(model, **changes):
    """The model with some parameters replaced."""
    tensors = {name: p.detach().clone() for name, p in model.named_parameters()}
    for name, change in changes.items():
        tensors[name.replace("__", ".")] = change
    return interp.TaskModel(model.spec, model.task, tensors)


@pytest.mark.parametrize("name", MODELS)
def test_the_parts_make_the_models_logits(name):
    model = build(name, zero_class=name == "dot")
    counter = counting.CountingModel.of(model)
    batch = model.task.sample(30)
    run = counter.run(batch)
    with torch.no_grad():
        torch.testing.assert_close(counter.logits(run.mixed), model(batch.tokens), rtol=0, atol=1e-9)
    assert counter.counts(run.mixed)[run.read].equal(batch.labels[run.read])
    rebuilt = counter.embedding[batch.tokens] + run.pattern @ counter.value[batch.tokens]
    torch.testing.assert_close(rebuilt, run.mixed)


def test_flat_samples():
    batch = counting.flat_sample(Histogram(T=12, L=6, bos=True), 4000, seed=1)
    shares = torch.bincount(batch.labels[batch.labels > 0], minlength=7)[1:] / (batch.labels > 0).sum()
    assert (shares - 1 / 6).abs().max() < 0.02
    assert counting.flat_sample(Histogram(T=2, L=5), 10, 0).tokens.shape == (10, 5)


@pytest.mark.parametrize("name", ["bos-softmax", "dot-softmax"])
def test_attention_by_relation_follows_the_formula(name):
    """A.2.2 and A.3.3: scores 1 for equal tokens and BOS, 0 for others."""
    table = counting.attention_by_relation(build(name), n=200)
    bos = name == "bos-softmax"
    for row in table.itertuples():
        k = row.count
        total = (k + bos) * math.e + 6 - k
        weight = (1 if row.relation == "different" else math.e) / total
        assert row.mean == pytest.approx(weight)
        assert row.std == pytest.approx(0, abs=1e-7)
        many = {"self": 1, "same": k - 1, "different": 6 - k, "BOS": 1}[row.relation]
        assert row.total == pytest.approx(many * weight)
    assert set(table["relation"]) == {"self", "same", "different"} | ({"BOS"} if bos else set())
    assert table.groupby("relation")["count"].apply(list)["same"] == [2, 3, 4, 5, 6]


def test_overlaps():
    table = counting.embedding_overlaps(build("bos")).set_index(["token", "other"])
    assert len(table) == 8 * 9
    assert table.loc[("1", "1"), "cosine"] == pytest.approx(1)
    assert table.loc[("1", "2"), "cosine"] == pytest.approx(0)
    assert table.loc[("1", "[BOS]"), "cosine"] == pytest.approx(1 / math.sqrt(8))
    assert table.loc[("1", "[BOS]"), "score"] == pytest.approx(1)
    assert table["relation"].value_counts().to_dict() == {"different": 56, "same": 8, "BOS": 8}
    assert counting.embedding_overlaps(build("lin"))["score"].isna().all()
    zero = counting.embedding_overlaps(build("bos", variant="bos-zero")).set_index("relation").loc["BOS"]
    assert (zero["cosine"] == 0).all()


def test_answers_of_a_model_wrong_on_one_count_and_one_token():
    model = build("dot")
    b_out = model.unembed.b_out.detach().clone()
    b_out[3] = -1e9  # count 4 is never answered
    table = counting.confusion(with_tensors(model, unembed__b_out=b_out), n=300)
    assert table.index.tolist() == [1, 2, 3, 4, 5, 6] == table.columns.tolist()
    off = table.to_numpy() - np.eye(6)
    assert np.abs(off[[0, 1, 2, 4, 5]]).max() == 0
    assert table.loc[4, 4] == 0
    assert table.loc[4].sum() == pytest.approx(1)
    assert counting.confusion(build("dot", zero_class=True), n=50).columns.tolist() == list(range(7))
    batch, _ = counting.predicted_counts(model, n=40)
    drawn = torch.randint(1, 7, batch.labels.shape, generator=torch.Generator().manual_seed(3))
    counted = pd.crosstab(batch.labels.flatten().numpy(), drawn.flatten().numpy(), normalize="index")
    np.testing.assert_allclose(counting.confusion(model, predicted=(batch, drawn)), counted, rtol=1e-12)

    inventory = build("lin")
    W_out = inventory.unembed.W_out.detach().clone()
    W_out[5] = 0  # token 5 is not read: always answered as 1
    broken = with_tensors(inventory, unembed__W_out=W_out)
    batch, answers = counting.predicted_counts(broken, n=400, seed=2)
    wrong = answers != batch.labels
    assert (batch.tokens[wrong] == 5).all()
    expected = {k: float((~wrong)[batch.labels == k].double().mean()) for k in range(1, 7)}
    by_count = counting.accuracy_by_count(broken, n=400, seed=2).set_index("count")
    assert by_count["accuracy"].to_dict() == pytest.approx(expected)
    assert by_count.loc[1, "accuracy"] == 1
    assert int(by_count["positions"].sum()) == 2400
    by_distinct = counting.accuracy_by_distinct(broken, n=400, seed=2).set_index("distinct")
    distinct = torch.tensor([len(set(row)) for row in batch.tokens.tolist()])
    for number in by_distinct.index:
        assert by_distinct.loc[number, "accuracy"] == pytest.approx(float((~wrong)[distinct == number].double().mean()))


def test_a_relation_s_two_token_probe_ignores_the_tokens():
    model = build("bos-softmax")
    probes = [counting.probe_two(model, own, other, steps=201) for own, other in [("1", "2"), ("5", "3"), ("0", "7")]]
    assert all((probe["answer"] == probes[0]["answer"]).all() for probe in probes)
    # the share of BOS that attention gives for k own tokens must be answered with k (A.2.2)
    alpha, answer = probes[0]["alpha"].to_numpy(), probes[0]["answer"].to_numpy()
    for k in range(1, 7):
        share = math.e / ((k + 1) * math.e + 6 - k)
        assert answer[np.abs(alpha - share).argmin()] == k
    assert (probes[0]["key"] == "[BOS]").all()


@pytest.mark.parametrize("name", ["lin", "lin-softmax", "dot-softmax"])
def test_probes_of_an_inventory_depend_on_the_own_share_alone(name):
    probe = counting.probe_three(build(name))
    assert len(probe) == 41 * 42 // 2
    assert (probe.groupby("own_share")["answer"].nunique() == 1).all()
    assert probe["answer"].nunique() == 6
    two = counting.probe_two(build(name), steps=13)
    assert two["answer"].is_monotonic_increasing
    assert (two["answer"].iloc[0], two["answer"].iloc[-1]) == (1, 6)


def test_spectrum_and_its_dip():
    diagonal = torch.tensor([3.0, 2.8, 2.6, 2.4, 2.2, 2.0, 1.9, 1.8, 0.1, 0.09])
    model = build("dot", d_model=10, p=10)
    spectrum = counting.readout_spectrum(with_tensors(model, unembed__W_in=torch.diag(diagonal).double()))
    assert spectrum.values.tolist() == pytest.approx(diagonal.tolist())
    assert spectrum.dip == pytest.approx(18.0)
    ratios = [3 / 2.8, 2.8 / 2.6, 2.6 / 2.4, 2.4 / 2.2, 2.2 / 2.0, 2.0 / 1.9, 1.9 / 1.8, 0.1 / 0.09]
    assert sorted(ratios)[3] == pytest.approx(spectrum.usual, rel=1e-6)
    assert spectrum.to_frame()["index"].tolist() == list(range(1, 11))
    assert math.isnan(counting.readout_spectrum(build("lin")).dip)


@pytest.mark.parametrize("name", MODELS)
def test_logits_by_count(name):
    model = build(name)
    table = counting.logits_by_count(model, tokens=("0", "4"))
    assert len(table) == 2 * 6 * 6
    for (token, count), part in table.groupby(["token", "count"]):
        assert int(part.loc[part["logit"].idxmax(), "answer"]) == count
        row = [token] * count + [part["other"].iloc[0]] * (6 - count)
        tokens = torch.tensor([model.task.parse(" ".join(["[BOS]"] * model.task.bos + row))])
        with torch.no_grad():
            expected = model(tokens)[0, int(model.task.bos)]
        close(part["logit"].to_numpy(), expected.numpy(), atol=1e-9)


def test_neurons_of_an_inventory_and_of_a_relation():
    inventory = neuron_selectivity(build("lin", p=10))
    assert inventory["tokens"].dropna().tolist() == pytest.approx([1.0] * 8)
    assert inventory["tokens"].isna().sum() == 2  # the two neurons that fill up
    assert (inventory["favorite"][:8] == inventory["neuron"][:8].astype(str)).all()
    assert tokens_per_neuron(inventory) == pytest.approx(1)
    assert neuron_selectivity(build("dot"))["tokens"][0] == pytest.approx(8, rel=1e-3)
    hidden = counting.hidden_by_count(build("dot"), n=300)
    assert hidden["activation"].to_numpy() == pytest.approx(hidden["count"].to_numpy())


def test_refusals():
    with pytest.raises(UnsupportedError, match="count each position's own token: task count01 declares no"):
        counting.confusion(interp.build("count01/minimal"))
    spec = build("dot").spec.replace(readout="linear", readout_width=None, origin=None)
    with pytest.raises(UnsupportedError, match="not one layer of one head"):
        counting.confusion(interp.build(spec))
    with pytest.raises(UnsupportedError, match="raw scores have no fixed sum"):
        counting.probe_two(build("dot"))
    with pytest.raises(InterpError, match="different tokens, not 1, 1"):
        counting.probe_two(build("lin"), "1", "1")
    with pytest.raises(InterpError, match=r"'\[BOS\]' is not a token of the alphabet"):
        counting.probe_two(build("bos-softmax"), "[BOS]", "1")


def test_attention_by_relation_by_hand():
    """A model with embeddings that differ: weights of one relation and count have a spread (over all of its keys)."""
    model, generator = build("dot-softmax"), torch.Generator().manual_seed(1)
    noise = torch.randn(model.embed.W_E.shape, generator=generator, dtype=torch.float64)
    broken = with_tensors(model, embed__W_E=model.embed.W_E.detach() + 0.3 * noise)
    table = counting.attention_by_relation(broken, n=20).set_index(["relation", "count"])
    run = counting.CountingModel.of(broken).run(counting.flat_sample(broken.task, 20, 0))
    found: dict[tuple[str, int], list[float]] = {}
    for tokens, labels, pattern in zip(run.tokens.tolist(), run.labels.tolist(), run.pattern.tolist()):
        for i, count in enumerate(labels):
            for j, weight in enumerate(pattern[i]):
                relation = "self" if i == j else "same" if tokens[i] == tokens[j] else "different"
                found.setdefault((relation, count), []).append(weight)
    assert set(table.index) == set(found)
    for key, weights in found.items():
        assert table.loc[key, "keys"] == len(weights)
        assert table.loc[key, "mean"] == pytest.approx(np.mean(weights))
        assert table.loc[key, "std"] == pytest.approx(np.std(weights), abs=1e-9)
    assert table["std"].max() > 0.01


def test_outputs_that_are_not_finite_are_no_counts() -> None:
    """The largest of NaNs was a count of 1."""
    model = build("dot")
    with torch.no_grad():
        model.unembed.b_out.fill_(float("inf"))
    with pytest.raises(InterpError, match="has outputs that are not finite, so they cannot be counts"):
        counting.confusion(model, n=50)
