"""Neurons give the values of a map at each point that occurs, exactly, and between thresholds with room to spare."""

import pytest
import torch

from interp.errors import InterpError
from interp.programs.language import Head, Linear, Program, Table
from interp.programs.neurons import Observed, neurons
from interp.programs.task import ProgramTask

EVENLY = Head("shares", "", "", ((0.0,),), "token")
LEVELS = Linear("map", ("shares",), (((0.0, 1.0, 2.0), (0.0, 0.0, 0.0)),), (0.0, -0.3, -1.2), ("0", "1", "2"))
"""Limits of the share of a's at .3 and .9; of four tokens, 0 and 1/4, 1/2 and 3/4, and 1 occur."""
MIXED = Table("map", ("token", "shares"), (0, 1, 2, 0), ("x", "y", "z"))
EITHER = Table("map", ("token", "position"), (0, 1, 0, 1, 1, 1, 0, 1), ("x", "y"))


def observed(step: Table | Linear, length: int = 4) -> Observed:
    n = len(step.values)
    answer = Linear("answer", ("map",), (tuple(tuple(float(i == j) for j in range(n)) for i in range(n)),),
                    (0.0,) * n, tuple("pqr"[:n]))  # fmt: skip
    program = Program(("a", "b"), length, False, (EVENLY, step), answer, read="all")
    return Observed(ProgramTask(program=program.to_json()), program)


@pytest.mark.parametrize("step", [LEVELS, MIXED, EITHER])
def test_values_at_all_points_that_occur(step: Table | Linear) -> None:
    found = observed(step)
    points, classes = found.of(step)
    made = neurons(step, found)
    values = (points @ made.into + made.shift).relu() @ made.out + made.base
    assert torch.allclose(values, torch.eye(len(step.values)).double()[classes], atol=1e-12)


def test_how_many_neurons() -> None:
    """Two for each of two steps; four combinations of eight beside the most frequent value, less what it covers."""
    assert neurons(LEVELS, observed(LEVELS)).shift.shape == (4,)
    assert neurons(EITHER, observed(EITHER)).shift.shape == (3,)


def test_thresholds_have_room() -> None:
    """Shares that are off by a tenth of the distance between those that occur have the same values."""
    found = observed(LEVELS)
    made = neurons(LEVELS, found)
    points, classes = found.of(LEVELS)
    for off in (-0.02, 0.02):
        near = points + torch.tensor([off, -off]).double()
        values = (near @ made.into + made.shift).relu() @ made.out + made.base
        assert torch.allclose(values, torch.eye(3).double()[classes], atol=1e-12)


def test_what_has_no_exact_form() -> None:
    plane = Linear("map", ("shares", "token"), (((1.0, 0.0, 0.0), (0.0, 1.0, 0.0)),) * 2, (0.0, 0.0, 0.9), tuple("xyz"))
    assert neurons(plane, observed(plane)).base.shape == (3,)  # shares of two values are one number
    three = Head("three", "", "", ((0.0,),), "token")
    most = Linear("map", ("three",), (((1.0, 0.0, 0.1), (0.0, 1.1, 0.0), (0.05, 0.0, 1.2)),), (0.0,) * 3, tuple("xyz"))
    answer = Linear("answer", ("map",), (((1.0, 0.0), (0.0, 1.0), (0.0, 1.0)),), (0.0, 0.0), ("p", "q"))
    program = Program(("a", "b", "c"), 3, False, (three, most), answer)
    with pytest.raises(InterpError, match="several sums of shares"):
        neurons(most, Observed(ProgramTask(program=program.to_json()), program))
