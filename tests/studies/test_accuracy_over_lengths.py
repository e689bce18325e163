"""Stacked recognizers against one model after another."""

import pytest
import torch
from shared.accuracy_over_lengths import accuracy_by_length, over_seeds, stacked_logits

import interp
from interp.families.languages.measures import answer_logits, errors
from interp.models.constructions import construct
from interp.models.spec import MLP, Bias, Layer, ModelSpec, TaskRef, Training


def recognizer(positions: str = "first") -> ModelSpec:
    return ModelSpec(
        task=TaskRef(name="one"), d_model=8, direction="bidirectional",
        layers=(Layer(d_head=8, mlp=MLP(d_mlp=8), norm="post", bias=Bias(o=True), log_length="current"),) * 2,
        positions=positions, readout="scalar", readout_at="[CLS]", decision="sigmoid", dtype="float64",
        origin=Training(init="torch"),
    )  # fmt: skip


@pytest.mark.parametrize("positions", ["first", "fraction"])
def test_each_model_answers_as_it_does_alone(positions: str) -> None:
    models = [interp.TaskModel(recognizer(positions), seed=seed) for seed in (3, 8)]
    batch = models[0].task.strings(70, 30, 2, seed=1)
    wanted = torch.stack([answer_logits(model, batch.tokens) for model in models])
    torch.testing.assert_close(stacked_logits(models, batch), wanted, rtol=1e-10, atol=1e-12)


def test_accuracy_is_that_of_one_model_and_is_summed_up() -> None:
    models = [interp.TaskModel(recognizer(), seed=seed) for seed in range(3)]
    frame = accuracy_by_length(models, [5, 12], n=100, seed=4)
    assert frame["seed"].tolist() == [0, 1, 2, 0, 1, 2]
    for row in frame.itertuples():
        alone = errors(models[row.seed], models[0].task.strings(100, row.length, seed=4))
        assert row.accuracy == pytest.approx(alone["accuracy"], abs=1e-12)
        assert (row.false_accepts, row.false_rejects) == (alone["false_accepts"], alone["false_rejects"])
        assert row.cross_entropy_bits == pytest.approx(alone["cross_entropy_bits"])
    members = models[0].task.strings(100, 5, seed=4).labels.double().mean()
    assert frame["baseline"][0] == pytest.approx(max(members, 1 - members))
    summed = over_seeds(frame, ["length"])
    five = frame[frame["length"] == 5]["accuracy"]
    assert summed["mean"].tolist() == pytest.approx(frame.groupby("length")["accuracy"].mean().tolist())
    assert summed["std"][0] == pytest.approx(((five - five.mean()) ** 2).sum() ** 0.5 / 2**0.5)
    assert (summed["seeds"].tolist(), summed["perfect"].tolist()) == ([3, 3], [0, 0])


def test_exact_models_are_right_and_mixed_ones_refused() -> None:
    exact = construct("languages/one").model()
    assert over_seeds(accuracy_by_length([exact], [4, 40]), ["length"])["perfect"].tolist() == [1, 1]
    with pytest.raises(interp.InterpError, match="models of one spec"):
        stacked_logits([exact, interp.TaskModel(recognizer())], exact.task.strings(2, 4))
    with pytest.raises(interp.InterpError, match="models is empty"):
        stacked_logits([], exact.task.strings(2, 4))
