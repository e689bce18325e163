"""What the description of an MLP must say that the MLP reads."""

from dataclasses import replace

import pytest
import torch

import interp
from interp.measures.runs import Part
from interp.models.subject import Subject
from interp.programs import decompile, read_mlps, task
from interp.programs.language import Table
from interp.programs.running import Running
from interp.tasks.populations import everything

IS_A = replace(task.ENDS, steps=(task.FIRST, Table("same", ("first",), (1, 0), ("no", "yes"))))


def halved() -> interp.TaskModel:
    """Two heads each write half of the first letter; the MLP says whether it is an a."""
    one = interp.compile(IS_A)
    layer = one.spec.layers[0].model_copy(update={"n_heads": 2})
    tensors = dict(one.named_parameters())
    for name in ("W_Q", "W_K", "W_V", "b_Q", "b_K", "b_V", "W_O"):
        if (at := f"blocks.0.attn.{name}") in tensors:
            tensors[at] = torch.cat([tensors[at] / (2 if name == "W_O" else 1)] * 2)
    return interp.TaskModel(one.spec.model_copy(update={"layers": (layer,)}), one.task, tensors)


def test_of_values_that_are_as_near_the_first_is_taken() -> None:
    """Rounding, which another form of the same model has otherwise, decides nothing."""
    centers = torch.tensor([[0.0], [2.0], [9.0]])
    points = torch.tensor([[1.0], [1.0 + 1e-5], [1.0 - 1e-5], [1.1], [8.0]])
    assert read_mlps.nearest(points, centers).tolist() == [0, 0, 0, 1, 2]


def test_one_value_is_no_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kept apart for all neurons, the outputs may be one cluster: then there is nothing to look up."""
    subject, mlp = Subject.of(halved()), Part(0)
    monkeypatch.setattr(decompile, "describe_mlp", lambda reading, part: None)
    reading = decompile.decompile(Running.of(subject, everything(subject.task).batch))
    two = reading.quantized(mlp)
    one = replace(two, vectors=two.vectors[:1], code=two.code.clamp(max=0))
    asked: list[int] = []
    monkeypatch.setattr(reading, "quantized", lambda part, apart=False: one if apart else two, raising=False)
    monkeypatch.setattr(read_mlps, "exactly", lambda reading, part, values, *more: asked.append(values.size))
    monkeypatch.setattr(read_mlps, "describe_by_product", lambda *given: False)
    read_mlps.describe_mlp(reading, mlp)
    assert asked == [2]


@pytest.mark.parametrize("finer", [False, True])
def test_a_finer_reading_says_all_that_an_mlp_reads(finer: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two heads have one value on all rows, so either says what the MLP makes; but it reads both."""
    subject, mlp = Subject.of(halved()), Part(0)
    monkeypatch.setattr(decompile, "describe_mlp", lambda reading, part: None)
    reading = decompile.decompile(Running.of(subject, everything(subject.task).batch), finer=finer)
    step = read_mlps.as_sums(reading, mlp, reading.quantized(mlp), None, reading.enough(), exact=True)
    assert {"head 0.0", "head 0.1"} <= set(step.of) if finer else step.of == ("head 0.0",)
    assert read_mlps.reads_all(reading, mlp, ["head 0.0"]) == (not finer)
    assert read_mlps.reads_all(reading, mlp, step.of)
