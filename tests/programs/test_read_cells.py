"""Cells of tables that no input reaches, on compiled models whose answers to them are known."""

import torch
from shared.random_programs import random_program

import interp
from interp.programs.language import NEVER, Head, Linear, Program, Table
from interp.programs.steps import Step

FIRST = Head("first", "", "position", ((0.0, NEVER, NEVER),), "token", "head 0.0")
IS_B = Table("is b", ("first",), (0, 1, 0), ("no", "yes"), "MLP 0")
EITHER = Linear(
    "answer", ("first", "is b"), (((0.0, 2.0), (0.0, 0.0), (0.0, -2.0)), ((0.0, 1.0), (0.0, -1.0))), (0.0, 0.5),
    ("no", "yes"),
)  # fmt: skip
"""The sums are 3.5, 1.5 and -0.5 of a, b and c without "is b", and 1.5, -0.5 and -2.5 with it."""


def result(program: Program) -> Step:
    found = interp.explain(interp.compile(program, rotate=1))
    assert found.level == "explained"
    assert found.program is not None
    return found.program.step("result")


def test_the_readout_is_asked_for_combinations_that_never_occur() -> None:
    """Inputs have (a, no), (b, yes) and (c, no); of the others, two are "yes", although most answers are "no"."""
    step = result(Program(("a", "b", "c"), 3, True, (FIRST, IS_B), EITHER))
    assert isinstance(step, Table)
    assert step.of == ("head 0.0", "MLP 0")  # whose values are others and b
    assert [step.values[entry] for entry in step.entries] == ["yes", "yes", "yes", "no", "no", "no"]


def test_where_an_mlp_matters_not_its_table_says_what_it_gives() -> None:
    """At the last position, what MLP 0 gives changes no answer; a head reads it there, too."""
    program = random_program(146).program
    found = interp.explain(interp.compile(program))
    assert found.level == "explained"
    assert found.program is not None
    made, true = found.program.step("MLP 0"), program.step("m0")
    assert isinstance(made, Table)
    assert isinstance(true, Table)
    assert (made.of, true.of) == (("position", "head 0.0"), ("h00", "position"))
    pairs = {*zip(made.entries, torch.tensor(true.entries).view(4, 4).T.flatten().tolist(), strict=True)}
    assert len(pairs) == 3  # each value is one of the true values, at the last position, too
