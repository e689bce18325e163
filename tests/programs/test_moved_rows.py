"""Rows with variables of other rows: whose they are, what the model then answers, what descriptions gain by them."""

from dataclasses import replace

import pytest
import torch
from shared.random_programs import Shape, random_program

import interp
from interp.measures.runs import Part
from interp.models.subject import Subject
from interp.programs import read_heads, task
from interp.programs.decompile import decompile, given, program_of
from interp.programs.interchange import FreshInputs, Interchanger, interchanged
from interp.programs.language import Program
from interp.programs.moved_rows import COPIES, described_on_moved_rows, other_rows, with_copies
from interp.programs.reading import Reading
from interp.programs.running import Running
from interp.tasks.populations import everything


def running_of(model: interp.TaskModel) -> Running:
    subject = Subject.of(model)
    return Running.of(subject, everything(subject.task).batch)


def test_each_copy_has_one_variable_of_a_row_of_its_length() -> None:
    lengths = torch.tensor([2, 3, 3, 2, 3]).repeat(1 + COPIES)
    parts = [Part(0, 0), Part(0), Part(1, 0)]
    found = torch.stack([*other_rows(lengths, parts).values()])
    moved = found != torch.arange(len(lengths))
    assert not bool(moved[:, :5].any())  # the rows as they are
    assert int(moved.sum(0).max()) == 1
    assert int(moved.sum()) >= 3
    assert int(found[moved].max()) < 5
    assert torch.equal(lengths[found], lengths.expand_as(found))


def test_answers_are_the_models_with_the_variable_moved() -> None:
    model = interp.compile(task.ENDS, rotate=1, seed=1)
    before = running_of(model)
    running = with_copies(before)
    n, head, reads = len(before.batch), Part(0, 0), running.reads
    reading = Reading(running, others=other_rows(running.batch.lengths, [head]))
    reading.made, reading.matter = given(running), list(running.parts)
    read_heads.describe_head(reading, head)
    rows = reading.others[head]
    moved = (rows != torch.arange(len(rows)))[reads.rows]
    # By hand: the model's head in a moved row has the output that it has in the other row.
    z: list[torch.Tensor] = []
    name = "blocks.0.attn.hook_z"
    with torch.no_grad(), model.hooks(fwd_hooks=[(name, lambda value, hook: z.append(value.clone()))]):
        model(running.batch.tokens)
    with torch.no_grad(), model.hooks(fwd_hooks=[(name, lambda value, hook: head_from(value, z[0], rows))]):
        wanted = running.decided(running.subject.columns(model(running.batch.tokens)[reads.rows, reads.positions]))
    own = before.answers.repeat(1 + COPIES)
    assert torch.equal(reading.running.answers, wanted)
    assert bool((wanted != own)[moved].any())
    assert torch.equal(wanted[~moved], own[~moved])
    assert reading.running.kept({}).share == 1.0
    shares = reading.made["head 0.0"][n:]
    assert torch.equal(shares, reading.made["head 0.0"][rows[n:]])


def head_from(value: torch.Tensor, source: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    return torch.cat([source[rows][:, :, :1], value[:, :, 1:]], 2)


def test_rows_as_they_are_count_alone_too() -> None:
    running = with_copies(running_of(interp.compile(task.ENDS)))
    n = running.moved.first
    wrong = 1 - running.answers[:n]
    running = replace(running, moved=replace(running.moved, answers=torch.cat([wrong, running.answers[n:]])))
    assert running.kept({}).share == 0.0  # and not COPIES / (1 + COPIES)


@pytest.mark.slow
def test_limits_of_a_sum_that_no_input_shows() -> None:
    model = interp.compile(random_program(114, Shape()), decoys=1, rotate=114, seed=114)
    plain = decompile(running_of(model))
    program = program_of(plain)
    assert program is not None
    reading, other = described_on_moved_rows(plain)
    assert other is not None
    assert len(reading.running.batch) == len(plain.running.batch)
    found = [accuracies(model, one) for one in (program, other)]
    assert min(found[0]) < 0.96
    assert min(found[1]) == 1.0


def accuracies(model: interp.TaskModel, program: Program) -> list[float]:
    subject = Subject.of(model)
    of = Interchanger(FreshInputs(subject, everything(subject.task)), program, {})
    return [score.changes.right / score.changes.n for _, score in interchanged(of) if score.changes.n]
