"""The encoder engine against the reference: the same strings, losses, gradients and models; where the label is read."""

import pytest
import torch
from torch import Tensor

import interp
from interp.families.languages import Parity, training
from interp.models.spec import MLP, Bias, Layer, ModelSpec, TaskRef, Training
from interp.tasks import IGNORED, Batch, make_task
from interp.training.data import targets
from interp.training.engines.reference import batch_loss
from interp.training.train import choose_engine, train


def published(task: str = "first", positions: str = "first", readout_at: str = "[CLS]", **layer: object) -> ModelSpec:
    """The published architecture and recipe, smaller."""
    plan = {"d_head": 6, "norm": "post", "bias": Bias(q=True, k=True, v=True, o=True), "mlp": MLP(d_mlp=12), **layer}
    return ModelSpec(
        task=TaskRef(name=task, parameters={"length": 9}), d_model=6, direction="bidirectional",
        layers=(Layer(**plan),) * 2, positions=positions, readout="scalar", readout_at=readout_at, decision="sigmoid",
        dtype="float64",
        origin=Training(epochs=3, batch_size=4, data="fresh", samples_per_epoch=10, learning_rate=1e-2, init="torch"),
    )  # fmt: skip


# ---------------------------------------------------------------- where the label is


@pytest.mark.parametrize("name", ["one", "palindrome"])
def test_the_label_stands_where_the_spec_reads(name: str) -> None:
    model = interp.TaskModel(published(name, readout_at="last"))
    batch = model.task.strings(7, 9, 3, seed=1)
    classes = targets(model.spec, model.task, batch)
    rows = torch.arange(7)
    assert (classes != IGNORED).sum(1).tolist() == [1] * 7
    assert torch.equal(classes[rows, batch.lengths - 1] == 1, batch.labels)
    out = model(batch.tokens)[rows, batch.lengths - 1, 0]
    wanted = torch.nn.functional.binary_cross_entropy_with_logits(out, batch.labels.double())
    assert float(batch_loss(model, batch).detach()) == pytest.approx(float(wanted.detach()), abs=1e-14)
    usual = interp.TaskModel(published(name))
    assert torch.equal(targets(usual.spec, usual.task, batch), usual.task.classes(batch))


def test_answers_that_only_the_task_can_place_are_refused() -> None:
    plain = ModelSpec(task=TaskRef(name="histogram"), d_model=4, direction="bidirectional", layers=(Layer(d_head=4),))
    model = interp.TaskModel(plain.replace(readout_at="last"))
    with pytest.raises(interp.InterpError, match="several answers per row"):
        batch_loss(model, model.task.sample(3, "train"))


# ---------------------------------------------------------------- models trained by either engine

SPECS = {
    "first": published(),
    "log length, two heads": published(n_heads=2, d_head=3, log_length="current"),
    "training length, eps 0.1": published(log_length=9, norm_eps=0.1, scale=0.3),
    "i/n": published("one", "fraction"),
    "no positions, read last": published("parity", "none", "last"),
    "sinusoids": published("palindrome", "sinusoidal", d_head=5),
}


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", SPECS)
def test_engines_train_the_references_models(name: str) -> None:
    spec = SPECS[name]
    task = make_task(TaskRef(name=spec.task.name, parameters={"length": 9, "shortest": 2}))
    spec = spec.replace(task=task.ref)
    fast, slow = train(spec, [0, 4], engine="encoder"), train(spec, [0, 4], engine="reference")
    for mine, its in zip(fast, slow):
        for (key, parameter), (_, wanted) in zip(mine.named_parameters(), its.named_parameters()):
            torch.testing.assert_close(parameter, wanted, rtol=1e-8, atol=1e-8, msg=key)
        assert mine.history["loss"].to_list()[1:] == pytest.approx(its.history["loss"].to_list()[1:], rel=1e-9)
        held_out = training.held_out_strings(spec, task)
        right = (mine.predict(held_out.tokens) == held_out.labels).double().mean()
        assert mine.history["accuracy"].iloc[-1] == pytest.approx(float(right), abs=1e-12)


def test_an_interrupted_run_continues_to_the_same_model(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("interp.training.train.SAVE_EVERY_SECONDS", 0.0)
    spec = published(norm_eps=0.1)

    def interrupt(done: int, total: int, loss: float) -> None:
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(spec, [0, 1], engine="encoder", folder=tmp_path, progress=interrupt)
    resumed = train(spec, [0, 1], engine="encoder", folder=tmp_path, resume=True, progress=False)
    for mine, its in zip(resumed, train(spec, [0, 1], engine="encoder", progress=False)):
        assert all(torch.equal(p, q) for p, q in zip(mine.parameters(), its.parameters()))
        assert mine.history["loss"].to_list()[1:] == its.history["loss"].to_list()[1:]


def test_a_model_does_not_depend_on_its_neighbors() -> None:
    """Up to 1e-13 to 1e-11, depending on the CPU: torch's product of many models at once rounds otherwise."""
    spec = published("one", "fraction")
    alone, together = (train(spec, seeds, engine="encoder", progress=False) for seeds in ([3], [1, 3, 7]))
    for mine, its in zip(alone[0].parameters(), together[1].parameters()):
        torch.testing.assert_close(mine, its, rtol=0.0, atol=1e-10)


def test_a_frozen_embedding_stays() -> None:
    spec = published().replace(embedding="frozen")
    (model,) = train(spec, [2], engine="encoder", snapshots=[0], progress=False)
    assert torch.equal(model.embed.W_E, model.snapshots[0].embed.W_E)
    assert not torch.equal(model.unembed.W_U, model.snapshots[0].unembed.W_U)


def test_engines_are_chosen_by_what_they_can_do() -> None:
    cpu, task = torch.device("cpu"), make_task("first")
    spec = published()
    assert choose_engine(spec, task, cpu).name == "encoder"
    learned = spec.replace(positions="learned", max_length=20)
    assert choose_engine(learned, task, cpu).name == "vmap"
    assert choose_engine(spec.replace(readout="linear", decision="argmax", n_out=2), task, cpu).name == "vmap"
    with pytest.raises(interp.InterpError, match="learned positions have no formula"):
        choose_engine(learned, task, cpu, "encoder")


def test_labels_in_other_units_are_counted_as_the_task_says() -> None:
    """A language whose yes is output 0: it was trained the wrong way round, and called right."""

    class Even(Parity):
        name = "encoder-test-even"

        def member(self, symbols: Tensor, lengths: Tensor) -> Tensor:
            return ~super().member(symbols, lengths)

        def classes(self, batch: Batch) -> Tensor:
            classes = super().classes(batch)
            return torch.where(classes == IGNORED, IGNORED, 1 - classes)

        def answers(self, classes: Tensor, tokens: Tensor) -> Tensor:
            return classes == 0

    task = Even(length=9)
    spec = published().replace(task=task.ref)
    fast, slow = (train(spec, [0], task=task, engine=one)[0] for one in ("encoder", "reference"))
    for (key, parameter), (_, wanted) in zip(fast.named_parameters(), slow.named_parameters()):
        torch.testing.assert_close(parameter, wanted, rtol=1e-8, atol=1e-8, msg=key)
    held_out = training.held_out_strings(spec, task)
    right = fast.predict(held_out.tokens) == task.batch(held_out.tokens).labels
    assert fast.history["accuracy"].iloc[-1] == pytest.approx(float(right.double().mean()), abs=1e-12)
