"""Limits of the own weight for each value, and of sums where one value needs them, are read out of a readout."""

import torch
from plain_python import function

import interp
from interp.models.subject import Subject
from interp.programs.decompile import decompile, program_of
from interp.programs.explanations.engine import explain_subject
from interp.programs.language import Program, Sums
from interp.programs.read_limits import Points, ValueLimits, by_limits, cut
from interp.programs.reading import Reading
from interp.programs.running import Running
from interp.programs.words import answer_words
from interp.tasks.populations import everything


def planted() -> Subject:
    """Counts tokens, those of 1 from a higher limit on; a 1 is subtracted from the number of 0s, times .6."""
    model = interp.build("histogram/lin-softmax-exact", T=5, L=4)
    with torch.no_grad():
        model.unembed.W_in[1, 0] = -0.6
        model.unembed.b_in[1] = -1.2
    return Subject.of(model)


def read(subject: Subject) -> tuple[Reading, Program]:
    """What is read out of it, and the program by limits, which is always right."""
    population = everything(subject.task)
    reading = decompile(Running.of(subject, population.batch))
    program = by_limits(reading, population)
    assert program is not None
    assert reading.answered(program.answer, program.steps).share == 1.0
    return reading, program


def test_the_value_that_reads_others_has_sums() -> None:
    _, program = read(planted())
    sums = program.steps[-1]
    assert isinstance(sums, Sums)
    gates = torch.tensor(sums.weights[0])
    assert gates.nonzero()[:, 0].unique().tolist() == [0]  # the sums are about 0 alone
    n = len(sums.bias)
    assert 1 <= n <= 3
    said = f"{n} of these are limits of weighted sums" if n > 1 else "1 of these is one of a weighted sum"
    assert answer_words(program) == (
        "The answer follows from the weight of its own token in the value of head 0.0, by limits for each token; "
        f"{said} over the value of head 0.0."
    )
    row = ["0", "1", "0", "2"]
    assert function(program)(row) == program(row)
    assert Program.from_json(program.to_json()) == program


def test_answers_without_sums() -> None:
    reading, program = read(Subject.of(interp.build("histogram/lin-softmax-exact", T=5, L=4)))
    assert [type(step).__name__ for step in program.steps] == ["Head", "Product"]
    assert answer_words(program).endswith("by limits for each token.")
    assert program_of(reading) != program


def test_soft_attention_is_evened() -> None:
    """Its shares by themselves do not tell how often the own token occurs, since others have several weights."""
    subject = Subject.of(interp.build("histogram/dot-softmax-exact", T=5, L=4))
    assert explain_subject(subject, "exact").level == "explained"
    read(subject)


def test_a_limit_is_halfway_between_points() -> None:
    x = torch.tensor([0.0, 1.0, 2.0, 3.0, 3.0]).double()
    above = torch.tensor([False, True, False, True, True])
    assert float(cut(x, above, torch.ones(5).double())) in (0.5, 2.5)  # one is on the wrong side of either
    assert float(cut(x, above, torch.tensor([1.0, 3, 1, 1, 1]).double())) == 0.5
    assert float(cut(x, above, torch.tensor([1.0, 1, 3, 1, 1]).double())) == 2.5


def test_a_weight_may_fall_from_answer_to_answer() -> None:
    own = torch.linspace(-1, 0, 60).double()
    target = 5 + (own < -0.3).long() + (own < -0.6).long()
    points = Points(torch.zeros(60).long(), own, own[:, None].float(), target)
    found = ValueLimits.of(points)
    assert found.sign.tolist() == [-1.0]
    assert found.answers(points).equal(target)
    assert found.wrong(points) == []
