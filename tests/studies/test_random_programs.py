"""Random programs: what they promise, and that their compiled models give their answers, by a plain numpy forward."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy_forward import forward
from shared.random_programs import Shape, random_program

import interp
from interp.programs.language import Head, Product
from interp.programs.task import ProgramTask


def rows_of(task: ProgramTask, n: int) -> list[list[int]]:
    batch = task.sample(n, seed=1)
    return [row[:length].tolist() for row, length in zip(batch.tokens, batch.lengths.tolist())]


@pytest.mark.slow
@given(seed=st.integers(0, 10**6), layers=st.integers(1, 2), causal=st.booleans(), padding=st.booleans())
@settings(max_examples=6, deadline=None)
def test_compiled_models_give_the_answers(seed: int, layers: int, causal: bool, padding: bool) -> None:
    """Rotated and with decoys, against numpy; rows without their padding give the same as within a batch."""
    task = random_program(seed, Shape(layers=layers, heads=2, causal=causal, padding=padding))
    model = interp.compile(task, decoys=3, rotate=seed, seed=seed)
    weights = {name: parameter.detach().numpy() for name, parameter in model.named_parameters()}
    assert len(model.spec.layers) == layers
    for row in rows_of(task, 8):
        given_answers = task.program([task.vocabulary[token] for token in row])
        logits, _ = forward(model.spec, weights, row)
        found = [task.program.answers[at] for at in logits.argmax(-1)]
        at = {"first": 0, "last": -1}.get(task.readout)
        if task.readout == "all":
            assert found == given_answers
        else:
            assert found[row.index(task.token_id(task.readout)) if at is None else at] == given_answers


def test_products_are_drawn_if_asked_for() -> None:
    """They multiply the token with shares; the compiled model gives the answers."""
    task = random_program(3, Shape(maps=True, products=True))
    (own,) = (step for step in task.program.steps if isinstance(step, Product))
    assert own.of[0] == "token"
    batch = task.sample(50, seed=1)
    right = interp.compile(task).predict(batch.tokens)
    there = batch.labels >= 0
    assert right[there].equal(batch.labels[there])
    assert not any(isinstance(step, Product) for step in random_program(3, Shape(maps=True)).program.steps)


@pytest.mark.parametrize("seed", [3, 8])
def test_each_step_matters(seed: int) -> None:
    """With the values that a variable has in other rows, answers change; several answers are frequent."""
    task = random_program(seed, Shape(layers=2, padding=False))
    batch = torch.cat([one.tokens for one in task.inputs()])
    made, answers = task.program.run(batch), task.batch(batch).labels
    other = torch.randperm(len(batch), generator=torch.Generator().manual_seed(0))
    for step in task.program.steps:
        program = task.program
        mixed = program.run(batch, given={step.name: made[step.name][other]})
        classes = program.answer.sums(mixed).argmax(-1)
        found = classes if task.readout == "all" else classes.gather(1, program.reads(batch)[:, None])[:, 0]
        assert float((found != answers).double().mean()) > 0.01
    assert sum(share > 0.04 for share in np.bincount(answers.flatten().numpy()) / answers.numel()) >= 2


def test_seeds_and_shapes() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    shape = Shape(layers=1, maps=False, marks=True, causal=False, padding=True)
    one, again, other = (random_program(seed, shape) for seed in (7, 7, 8))
    assert one.program == again.program != other.program
    assert torch.get_rng_state().equal(before)
    assert all(isinstance(step, Head) for step in one.program.steps)
    assert not one.program.causal
    assert one.pad == "pad"
    assert any(one.ends)
