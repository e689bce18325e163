"""The encoder engine against the reference: the same strings, losses, gradients and models; where the label is read."""

from __future__ import annotations

import pytest
import torch

from interp.architecture.task_model import TaskModel
from interp.errors import InterpError
from interp.spec import MLP, Bias, Layer, ModelSpec, TaskRef, Training
from interp.tasks import IGNORED
from interp.training.reference import batch_loss, targets


def published(task: str = "first", positions: str = "first", readout_at: str = "[CLS]", **layer: object) -> ModelSpec:
    """The published architecture and recipe, smaller."""
    plan = {"norm": "post", "bias": Bias(q=True, k=True, v=True, o=True), "mlp": MLP(d_mlp=12), **layer}
    return ModelSpec(
        task=TaskRef(name=task, parameters={"length": 9}),
        d_model=6,
        direction="bidirectional",
        layers=(Layer(d_head=6, **plan),) * 2,
        positions=positions,
        readout="scalar",
        readout_at=readout_at,
        decision="sigmoid",
        dtype="float64",
        origin=Training(epochs=3, batch_size=4, data="fresh", samples_per_epoch=10, learning_rate=1e-2, init="torch"),
    )


# ---------------------------------------------------------------- where the label is


@pytest.mark.parametrize("name", ["one", "palindrome"])
def test_the_label_stands_where_the_spec_reads(name: str) -> None:
    model = TaskModel(published(name, readout_at="last"))
    batch = model.task.strings(7, 9, 3, seed=1)
    classes = targets(model, batch)
    rows = torch.arange(7)
    assert (classes != IGNORED).sum(1).tolist() == [1] * 7
    assert torch.equal(classes[rows, batch.lengths - 1] == 1, batch.labels)
    out = model(batch.tokens)[rows, batch.lengths - 1, 0]
    wanted = torch.nn.functional.binary_cross_entropy_with_logits(out, batch.labels.double())
    assert float(batch_loss(model, batch).detach()) == pytest.approx(float(wanted.detach()), abs=1e-14)
    usual = TaskModel(published(name))
    assert torch.equal(targets(usual, batch), usual.task.classes(batch))


def test_answers_that_only_the_task_can_place_are_refused() -> None:
    plain = ModelSpec(task=TaskRef(name="histogram"), d_model=4, direction="bidirectional", layers=(Layer(d_head=4),))
    model = TaskModel(plain.replace(readout_at="last"))
    with pytest.raises(InterpError, match="several answers a row"):
        batch_loss(model, model.task.sample(3, "train"))
