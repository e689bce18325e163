"""Measures of language models: against counts by hand, the proofs, and plain patterns."""

import math

import pandas as pd
import pytest
import torch
from shared.palindrome_orders import share_of_false_accepts

import interp
from interp.errors import UnsupportedError
from interp.families.languages import measures
from interp.models.constructions import construct
from interp.models.spec import MLP, Layer, ModelSpec, TaskRef


def trained_like(**layer) -> interp.TaskModel:
    """A random model of the published shape."""
    spec = ModelSpec(
        task=TaskRef(name="one"),
        d_model=16,
        direction="bidirectional",
        layers=(Layer(d_head=16, mlp=MLP(d_mlp=8), norm="post", **layer),) * 2,
        positions="first", readout="scalar", readout_at="[CLS]", decision="sigmoid",
    )  # fmt: skip
    return interp.TaskModel(spec, seed=3)


def test_length_curve_of_an_exact_model() -> None:
    model = construct("languages/parity").model()
    frame = measures.length_curve(model, [5, 40], ["float32", "float64"], n=50)
    assert frame["accuracy"].tolist() == [1.0] * 4
    assert frame[["false_accepts", "false_rejects"]].to_numpy().sum() == 0
    assert frame[["length", "dtype"]].to_numpy().tolist() == [
        [5, "float32"], [40, "float32"], [5, "float64"], [40, "float64"]
    ]  # fmt: skip
    s = 0.839 / 41**2
    assert frame["smallest_logit"].iloc[3] == pytest.approx(s, rel=0.05)
    assert frame["cross_entropy_bits"].iloc[3] == pytest.approx(1 - s / 2 / math.log(2), abs=1e-5)


def test_length_curve_tells_the_two_errors_apart() -> None:
    """Published tolerance and base: every error is a false accept (erratum 34)."""
    made = construct("languages/palindrome", "binary", c=1 / math.sqrt(6), tolerance=1e-7)
    frame = measures.length_curve(made.model(), [36, 50, 90], n=400, seed=1)
    assert frame["false_rejects"].sum() == 0
    assert frame["cross_entropy_bits"].isna().all()
    for row in frame.itertuples():
        batch = made.task.strings(400, row.length, seed=1)
        predicted = share_of_false_accepts(row.length, math.exp(1 / math.sqrt(6)), 1e-7)
        assert row.accuracy == pytest.approx(1 - predicted, abs=0.06)
        assert row.false_accept_rate == row.false_accepts / int((~batch.labels).sum())
    assert frame["accuracy"].iloc[0] == 1.0


def test_published_curve_is_predicted_by_tolerance_and_base() -> None:
    """Erratum 34: 38 .948, 40 .92, 42 .862 in their samples of 500; the prediction is exact up to sampling."""
    base = math.exp(1 / math.sqrt(6))
    for length, published in ((36, 1.0), (38, 0.948), (40, 0.92), (42, 0.862)):
        assert 1 - share_of_false_accepts(length, base, 1e-7) == pytest.approx(published, abs=0.03)
    assert share_of_false_accepts(22, 2.0, 1e-7) == 0 < share_of_false_accepts(23, 2.0, 1e-7)


@pytest.mark.parametrize("name", ["one", "first", "parity", "palindrome"])
def test_values_are_the_proofs(name: str) -> None:
    made = construct(f"languages/{name}")
    frame = measures.value_against_proof(made.model(), made.task.strings(40, 30, 2, seed=2))
    assert frame["error"].abs().max() < 1e-15
    assert (frame["s"] != 0).any()
    wrong = made.model()
    with torch.no_grad():
        wrong.blocks[-1].attn.W_O.mul_(1.1)
    assert measures.value_against_proof(wrong, made.task.strings(40, 30, 2, seed=2))["error"].abs().max() > 1e-8


def test_attention_from_cls_equals_the_pattern() -> None:
    for model in (construct("languages/parity").model(), trained_like(), trained_like(log_length="current")):
        tokens = model.task.strings(3, 9, 4, seed=1).tokens
        frame = measures.attention_from_answer(model, tokens)
        _, cache = model.run_with_cache(tokens)
        for (row, layer, head), part in frame.groupby(["row", "layer", "head"]):
            pattern = cache[f"blocks.{layer}.attn.hook_pattern"][row, head, 0]
            wanted = pattern[torch.tensor(part["position"].tolist())].tolist()
            assert part["weight"].tolist() == pytest.approx(wanted, abs=1e-6)
            assert part["weight"].sum() == pytest.approx(1, abs=1e-6)
            assert [model.task.vocabulary[t] for t in tokens[row][: len(part)]] == part["token"].tolist()


def test_a_causal_answer_attends_to_itself_and_earlier_tokens() -> None:
    model = interp.build("count01/minimal")
    tokens = model.task.sample(4, seed=1).tokens
    frame = measures.attention_from_answer(model, tokens)
    _, cache = model.run_with_cache(tokens)
    for (row, layer, head), part in frame.groupby(["row", "layer", "head"]):
        last = int((tokens[row] == model.task.token_id("=")).nonzero()[0])
        assert part["position"].tolist() == list(range(last + 1))
        wanted = cache[f"blocks.{layer}.attn.hook_pattern"][row, head, last, : last + 1].tolist()
        assert part["weight"].tolist() == pytest.approx(wanted, abs=1e-6)


def test_sensitivity_falls_like_one_over_n() -> None:
    """ONE moves by 1/n at most, whatever changes; FIRST by its whole e^c/(e^c + n - 1) at the first symbol."""
    frame = measures.sensitivity(construct("languages/first").model(), [10, 100, 400])
    c = 1 / math.sqrt(6)
    wanted = [math.exp(c) / (math.exp(c) + n - 1) for n in frame["n"]]
    assert frame["max_change"].tolist() == pytest.approx(wanted, rel=1e-9)
    assert frame["max_at"].tolist() == [1, 1, 1]
    one = measures.sensitivity(construct("languages/one").model(), [10, 50], strings=20)
    assert one["max_change_times_n"].tolist() == pytest.approx([1.0, 1.0])


def test_components_in_words() -> None:
    frame = measures.components_read(construct("languages/first").model())
    circuits = {tuple(row) for row in frame[["layer", "head", "circuit", "source", "target"]].to_numpy().tolist()}
    assert circuits == {(1, 0, "QK", "[CLS]", "[i=1]"), (1, 0, "OV", "[i=1, w=1]", "s"), (1, 0, "OV", "[i=1]", "s")}
    doubled = measures.components_read(construct("languages/parity", layer_norm=True).model())
    plain = measures.components_read(construct("languages/parity", c=1 / math.sqrt(10)).model())
    ov = ["layer", "head", "source", "target", "coefficient"]
    pd.testing.assert_frame_equal(
        doubled.query("circuit == 'OV'")[ov].reset_index(drop=True),
        plain.query("circuit == 'OV'")[ov].reset_index(drop=True),
    )


def test_measures_leave_the_limit_in_place_and_refuse() -> None:
    made = construct("languages/palindrome", "mirror")
    model = made.model(dtype="float32")
    measures.sensitivity(model, [4100], strings=1, places=1)
    assert model.length_limit is made.weights.length_limit
    with pytest.raises(UnsupportedError, match="not its value"):
        measures.value_against_proof(model, made.task.strings(2, 5))
    with pytest.raises(UnsupportedError, match="not exact"):
        measures.value_against_proof(trained_like(), made.task.strings(2, 5))
    with pytest.raises(UnsupportedError, match="does not recognize"):
        measures.answer_logits(construct("count01/minimal").model(), torch.zeros(1, 4, dtype=torch.long))
