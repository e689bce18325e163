"""Which description of a head is taken."""

from dataclasses import replace

import pytest
import torch

import interp
from interp.measures.runs import Part
from interp.models.subject import Subject
from interp.programs import read_heads, task
from interp.programs.decompile import decompile
from interp.programs.language import Head, Sums
from interp.programs.relevance import Kinds
from interp.programs.running import Running
from interp.tasks.populations import everything


@pytest.mark.parametrize(("same", "kind"), [(0.98, Sums), (1.0, Head)])
def test_sums_follow_a_table_that_fails_in_other_rows(same: float, kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of attention and values gives way to sums if with its values in other rows the answers differ."""
    monkeypatch.setattr(read_heads, "same_elsewhere", lambda reading, part, value: same)
    subject = Subject.of(interp.compile(task.ENDS))
    reading = decompile(Running.of(subject, everything(subject.task).batch))
    assert isinstance(reading.steps[0], kind)
    assert isinstance(reading.step(str(Part(0, 0))), Head)


def test_equal_weights_are_exceptions_together() -> None:
    """Rounding would say otherwise which of them are."""
    weights = torch.tensor([[0.0, 0.0, 0.0, 0.5], [0.0, 0.0, 1.0, -0.5 - 1e-6]])
    seen = torch.ones(2, 4).bool()
    found = [int((read_heads.alike(weights, seen, n) != 0).sum()) for n in range(4)]
    assert found == [0, 1, 3, 3]
    pattern = read_heads.Pattern("position", "token", weights, seen, 0.0)
    for needed, same in ((1, 1), (2, 3), (4, 3)):
        new = read_heads.fewest_exceptions(pattern, weights, lambda table, n=needed: int((table != 0).sum()) >= n)
        assert int((new != 0).sum()) == same
    weights[0, :2] = 0.5  # five of eight are alike: too many exceptions
    assert read_heads.fewest_exceptions(pattern, weights, lambda table: int((table != 0).sum()) >= 4).equal(weights)


def test_a_head_matters_where_other_values_change_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reading that is not strict describes it where its mean changes some; its attention is compared here, too."""
    subject = Subject.of(interp.compile(task.ENDS))
    reading = decompile(Running.of(subject, everything(subject.task).batch), strict=False)
    part = reading.matter[0]
    where = reading.needed[str(part)]
    assert bool(where.any())
    assert read_heads.matters_at(reading, part).equal(where)
    reading.needed[str(part)] = nowhere = torch.zeros_like(where)
    found = read_heads.matters_at(reading, part)
    assert (found & where).equal(where)
    assert not bool((found & ~reading.running.mask).any())
    assert read_heads.matters_at(replace(reading, strict=True), part).equal(nowhere)
    monkeypatch.setattr(Kinds, "shuffled", lambda self, value, kinds: value)
    assert read_heads.matters_at(reading, part).equal(nowhere)
