"""Values of other rows: against swaps by hand on a compiled model, of which each value is known."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import interp
from interp.measures.runs import Part
from interp.models.subject import Subject
from interp.programs.decompile import decompile
from interp.programs.other_rows import as_often, as_swapped, same_elsewhere, same_when_swapped
from interp.programs.running import Running
from interp.programs.task import ENDS
from interp.tasks.populations import everything


def test_a_part_that_reads_one_source_of_another_row() -> None:
    """The MLP says whether the first letter, which head 0.0 reads, is the last one, the token; here every other
    row has the first letter of another row, and the rest its last one. The position is the same in all rows."""
    subject = Subject.of(interp.compile(ENDS))
    batch = everything(subject.task).batch
    reading = decompile(Running.of(subject, batch))
    assert as_swapped(reading, Part(0)) == []  # none are asked for
    reading = replace(reading, of_other_rows=True)
    found = as_swapped(reading, Part(0))
    first, last = batch.tokens[:, 0], batch.tokens[:, -1]
    for one, (rows, _) in zip(found, reading.tried.other_rows, strict=True):
        other = rows[:, 0] // batch.tokens.shape[1]
        turn = torch.arange(len(batch)) % 2  # 0: the token, 1: head 0.0
        assert one.source.equal(turn)
        said = torch.where(turn == 1, first[other], first) == torch.where(turn == 0, last[other], last)
        assert one.answers.tolist() == said.long().tolist()
        assert one.features["head 0.0"][turn == 1].equal(reading.made["head 0.0"][other][turn == 1])
        assert one.features["head 0.0"][turn == 0].equal(reading.made["head 0.0"][turn == 0])
    step = reading.step("MLP 0")
    vectors = reading.vectors["MLP 0"]
    described = [step], vectors, (reading.made["MLP 0"] @ vectors.double()).float()
    assert same_when_swapped(reading, described, found) == 1.0
    assert same_when_swapped(reading, ([replace(step, of=("token", "token"))], *described[1:]), found) < 1.0


def test_of_several_sources_the_one_of_fewest_answers_counts() -> None:
    """Of two answers with either source moved, one of the second is wrong; a read without another row is none."""
    step: Any = SimpleNamespace(name="sums", applied=lambda made, seen: torch.zeros(5, 1, 1).double())
    given, zeros = torch.tensor([0, 0, 0, 1, 1]), torch.zeros(5).long()
    running = SimpleNamespace(answers=zeros, answers_with=lambda edits: given)
    reading: Any = SimpleNamespace(variable=lambda *steps: torch.zeros(5, 1, 1).double(), seen=None, running=running)
    source = torch.tensor([0, 0, 1, 1, -1])
    one: Any = SimpleNamespace(part=Part(0), features={}, answers=zeros, source=source)
    described = [step], torch.ones(1, 1), torch.zeros(5, 1, 1)
    assert same_when_swapped(reading, described, [one]) == 0.5
    assert same_when_swapped(reading, described, []) == 1.0


def test_a_head_of_which_the_value_is_another_rows() -> None:
    """Of four rows, three take the value of another one; what is described differs from it in one of these."""
    value = torch.tensor([1.0, -1.0, 1.0, -1.0])[:, None, None]
    other = value * torch.tensor([-1.0, 1.0, 1.0, 1.0])[:, None, None]
    reading: Any = SimpleNamespace(
        of_other_rows=True,
        running=SimpleNamespace(
            value=lambda head: value, answers_with=lambda edits: (edits[Part(0, 0)] > 0).flatten(),
            answers=torch.ones(4).bool(),
        ),
        tried=SimpleNamespace(
            other_rows=((torch.tensor([1, 2, 0, 3])[:, None], torch.tensor([True, True, True, False])),)
        ),
    )  # fmt: skip
    assert same_elsewhere(reading, Part(0, 0), other) == 0.5  # of two answers that stay; the one that changes is right
    reading.of_other_rows = False
    assert same_elsewhere(reading, Part(0, 0), other) == 1.0


def test_a_description_must_give_changed_answers_and_others() -> None:
    before, model = torch.tensor([0, 0, 0, 0, 0, 0]), torch.tensor([1, 1, 0, 0, 0, 0])
    assert as_often(model, model, before) == 1.0
    assert as_often(model, before, before) == 0.0  # it says that nothing changes
    assert as_often(model, torch.tensor([1, 1, 0, 0, 0, 1]), before) == pytest.approx(0.75)
    assert as_often(before, before, before) == 1.0
