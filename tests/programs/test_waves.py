"""Waves of sums: their numbers, their Python and words, and models that add modulo p read as waves."""

from dataclasses import replace
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from plain_python import function

import interp
from interp.models.constructions import construct
from interp.programs import read_waves, words
from interp.programs.language import NEVER, Head, Program
from interp.programs.waves import Cosines, Waves

NUMBERS = tuple(map(str, range(7)))
UNEVEN = Head("head 0.0", "", "position", ((0.0, 1.0, NEVER),), "token", "head 0.0")
SUM = Waves("m", ("head 0.0",), 7, (1, 3), 2, part="MLP 0")
ADDS = Program((*NUMBERS, "="), 3, True, (UNEVEN, SUM), Cosines("answer", ("m",), (1, 3), (1.0, 0.5), NUMBERS))


@pytest.mark.parametrize("fading", [False, True])
def test_waves_of_the_sum_of_what_is_read(fading: bool) -> None:
    """cos and sin of 2 pi k (x + y) / 7 whatever the shares of x and y, and where they are equal; no waves of "="."""
    program = replace(ADDS, steps=(UNEVEN, replace(SUM, fading=fading)))
    rows = torch.tensor([[x, y, 7] for x, y in product(range(7), repeat=2)])
    x, y = rows[:, :2].double().T
    made = program.run(rows)["m"]
    for at, k in enumerate((1, 3)):
        turn = 2 * torch.pi * k / 7
        size = (turn / 2 * (x - y)).cos().abs() if fading else torch.ones(49).double()
        wanted = torch.stack([size * (turn * (x + y)).cos(), size * (turn * (x + y)).sin()], 1)
        torch.testing.assert_close(made[:, 2, 2 * at : 2 * at + 2], wanted, rtol=0, atol=1e-9)
    assert not program.run(torch.full((1, 3), 7))["m"].any()


@pytest.mark.parametrize("fading", [False, True])
def test_python_adds_modulo_the_period(fading: bool) -> None:
    program = replace(ADDS, steps=(UNEVEN, replace(SUM, fading=fading)))
    python = function(program)
    for x, y in product(range(7), repeat=2):
        assert python([str(x), str(y), "="]) == program([str(x), str(y), "="]) == str((x + y) % 7)
    assert Program.from_json(program.to_json()) == program


def test_words_of_waves() -> None:
    assert words.step_words(ADDS, SUM) == (
        "makes cos and sin of 2πk(x + y)/7, for k = 1 and 3, where x and y are the numbers that head 0.0 reads"
    )
    assert words.answer_words(ADDS) == (
        "The answer is the number c with the largest sum of the waves a cos(2πk(x + y − c)/7) for k = 1 and 3, and "
        "relative amplitudes a = 1 and 0.5."
    )


def test_waves_that_do_not_fit_are_refused() -> None:
    with pytest.raises(interp.InterpError, match="m needs variables with 9 numbers"):
        replace(ADDS, steps=(UNEVEN, replace(SUM, period=9)))
    with pytest.raises(interp.InterpError, match="answer needs one variable of 2 numbers, and 1 amplitudes"):
        replace(ADDS, answer=replace(ADDS.answer, frequencies=(1,), amplitudes=(1.0,)))
    with pytest.raises(interp.InterpError, match="m holds numbers: only programs"):
        interp.compile(ADDS)


def test_a_model_that_adds_is_read_as_waves() -> None:
    """The frequencies of the construction, and its amplitudes, which depend on x - y; no other constants."""
    model = construct("algorithmic/modular-addition-fourier", p=29, frequencies="3 8 11").model()
    found = interp.explain(model)
    assert found.level == "explained"
    waves = found.program.step("MLP 0")
    assert isinstance(waves, Waves)
    assert (waves.fading, waves.frequencies) == (True, (3, 8, 11))
    assert found.program.constants == 1 + 5 + 7
    answer = found.program.answer
    assert isinstance(answer, Cosines)
    assert max(answer.amplitudes) < 1.0001 * min(answer.amplitudes)
    assert "for k = 3, 8 and 11, where x and y are the numbers that head 0.0 reads" in found.sentence


@pytest.mark.parametrize("second", [0.0, 2.0])
def test_a_head_attends_by_the_fewest_waves_that_do(second: float) -> None:
    """Scores of one or two waves of 29 numbers become these: with one of two alone, another value is read."""
    vocabulary = (*map(str, range(29)), "=")
    turns = 2 * torch.pi * torch.arange(29).double() / 29
    numbers = 3 * (5 * turns).cos() + second * (11 * turns).sin()
    head = Head("head 0.0", "", "token", ((*numbers.tolist(), -1.0),), "token", "head 0.0")
    rows = torch.tensor([[3, 17, 29], [28, 1, 29], [9, 9, 29]])
    made, seen = {"token": torch.eye(30).double()[rows]}, torch.ones(3, 3, 3).bool().tril()
    mean = torch.randn(30, 4, generator=torch.Generator().manual_seed(0)).double()
    true = (head.applied(made, seen) @ mean).float()
    reading: Any = SimpleNamespace(
        variable=lambda waves, head: head.applied({**made, waves.name: waves.mapped(made)}, seen),
        task=SimpleNamespace(cyclic={"x": vocabulary[:29]}, vocabulary=vocabulary), made=made, seen=seen,
        spread=lambda found, value: value, stays=lambda part, value: float(torch.allclose(value, true, atol=1e-4)),
    )  # fmt: skip
    found: Any = SimpleNamespace(part="head 0.0")
    waves, attends = read_waves.attention_by_waves(reading, found, head, mean, 1.0)
    assert waves == Waves("head 0.0 key", ("token",), 29, (0, 5, 11) if second else (0, 5))
    assert isinstance(attends, Head)
    assert attends.scores[0][2:] == pytest.approx((3, 0, 0, second) if second else (3, 0), abs=1e-6)


@pytest.mark.slow
def test_the_trained_model_attends_and_adds_by_the_same_waves() -> None:
    """Four frequencies in its MLP, scores of heads by some of them, and Python that adds without the model."""
    found = interp.explain("algorithmic/modular-addition")
    assert found.level == "explained"
    waves = [step for step in found.program.steps if isinstance(step, Waves)]
    heads = [step for step in found.program.steps if isinstance(step, Head)]
    assert waves[-1].frequencies == (16, 21, 29, 36)
    assert not waves[-1].fading
    assert [head.key for head in heads] == [step.name for step in waves[:-1]] == [f"head 0.{i} key" for i in range(4)]
    assert {0} < {k for step in waves[:-1] for k in step.frequencies} <= {0, 16, 21, 29, 36}
    assert found.program.constants < 100
    assert words.step_words(found.program, heads[3], brief=True) == (
        "attends to positions by waves of their token and reads the token"
    )
    python = function(found.program)
    assert [python([str(x), str(112 - x), "="]) for x in (0, 56, 99)] == ["112"] * 3
    assert [python([str(x), str(x + 9), "="]) for x in (7, 60)] == ["23", "16"]
