"""Neurons of a readout that is an MLP: as few as will do, also where a head's value is that of another position."""

import torch
from plain_python import function

import interp
from interp.models.subject import Subject
from interp.programs.decompile import decompile
from interp.programs.interchange import FreshInputs, Interchanger
from interp.programs.language import Sums
from interp.programs.read_neurons import by_neurons, equal_once, fewest_neurons
from interp.programs.running import Running
from interp.programs.source import source
from interp.tasks.populations import everything, sample


def test_a_readout_by_its_neurons_is_the_model() -> None:
    model = interp.build("histogram/dot-softmax-exact", T=4, L=4)
    with torch.no_grad():
        model.unembed.W_out[2, :] = -1e-4
    subject = Subject.of(model)
    population = everything(subject.task)
    reading = decompile(Running.of(subject, population.batch))
    program = by_neurons(reading, population)
    assert program is not None
    assert reading.answered(program.answer, program.steps).share == 1.0
    sums = program.steps[-1]
    assert isinstance(sums, Sums)
    assert len(sums.bias) == 3  # one does next to nothing
    assert sums.weights[0] == sums.weights[1]  # of what is there and of what is read
    assert source(program).count("NEURONS_OF_THE_READOUT_WEIGHTS_1 = NEURONS_OF_THE_READOUT_WEIGHTS_0\n") == 1
    row = ["0", "1", "0", "2"]
    assert function(program)(row) == program(row)
    of = Interchanger(FreshInputs(subject, population), program, {})
    (head,) = (of.score(one) for one in of.variables)
    assert head.accuracy == 1.0
    assert head.changes.n > 100


def test_a_model_without_such_neurons_has_none() -> None:
    subject = Subject.of(interp.build("algorithmic/induction-exact"))
    population = sample(subject.task, 50)
    assert by_neurons(decompile(Running.of(subject, population.batch)), population) is None


def test_neurons_that_other_positions_show_are_kept() -> None:
    numbers = torch.rand(9000, 4, generator=torch.Generator().manual_seed(0)).double()
    numbers[:8960, 3] = 0.0
    numbers[8980:, 3] *= -1
    logits = numbers[:, :2] + numbers[:, 3:] * torch.tensor([1.0, -1.0]).double()
    assert fewest_neurons(numbers, logits, 8960)[0] == [0, 1, 3]
    assert fewest_neurons(numbers[:8960], logits[:8960], 8000)[0] == [0, 1]


def test_vectors_that_differ_by_rounding_are_one() -> None:
    one = torch.eye(3).double()
    first, second, third = equal_once([one, one + 1e-7, one + 0.1])
    assert second is first
    assert third is not first
