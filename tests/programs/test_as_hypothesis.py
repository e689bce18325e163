"""The parts of a program as a hypothesis about the model that it is compiled to."""

import pytest
from shared.random_programs import random_program

import interp
from interp.programs.as_hypothesis import as_hypothesis
from interp.programs.language import NEVER, Head, Linear, Program, Table

BEFORE = tuple(tuple(0.0 if k == max(0, q - 1) else NEVER for k in range(4)) for q in range(4))
SAME = tuple(tuple(0.0 if k == q else NEVER for k in range(3)) for q in range(3))
EYE = tuple(tuple(float(k == q) for k in range(3)) for q in range(3))


def test_a_head_is_computed_from_the_heads_that_it_reads() -> None:
    """Induction: what another value of the first head must change is known from the second one's step."""
    steps = (
        Head("before", "position", "position", BEFORE, "token", "head 0.0"),
        Head("after", "token", "before", SAME, "token", "head 1.0"),
    )
    answer = Linear("answer", ("after",), (EYE,), (0.0, -0.1, -0.2), ("a", "b", "c"))
    program = Program(("a", "b", "c"), 4, True, steps, answer)
    hypothesis = as_hypothesis(program)
    assert [(one.name, one.at, one.of) for one in hypothesis.variables] == [
        ("token", (), ()),
        ("value of before (head 0.0)", ("head 0.0 @ each",), ()),
        ("value of after (head 1.0)", ("head 1.0",), ("token", "value of before (head 0.0)")),
    ]
    result = interp.evaluate_hypothesis(interp.compile(program), hypothesis)
    assert result.scrubbed.accuracy == pytest.approx(1.0)
    assert result.interchange["reason"].tolist() == ["", ""]
    assert result.interchange["changes"].tolist() == pytest.approx([1.0, 1.0])


def test_a_map_of_the_token_holds_at_every_read_position() -> None:
    """A row is read at several positions: what the map is computed from is the token at its own."""
    first = Head("first", "", "position", ((0.0, NEVER, NEVER),), "token", "head 0.0")
    same = Table("same", ("token", "first"), (1, 0, 0, 1), ("no", "yes"), "MLP 0")
    answer = Linear("answer", ("same",), (((1.0, 0.0), (0.0, 1.0)),), (0.0, 0.0), ("no", "yes"))
    program = Program(("a", "b"), 3, True, (first, same), answer, read="all")
    result = interp.evaluate_hypothesis(interp.compile(program), as_hypothesis(program))
    assert result.scrubbed.accuracy == 1.0


@pytest.mark.slow
def test_an_answer_that_reads_its_own_token_agrees_on_it() -> None:
    """How often the own token occurs: other tokens of the row may be any, and its weight is read at its own place."""
    model = interp.build("histogram/dot-softmax-exact")
    hypothesis = interp.explain(model).hypothesis
    assert hypothesis.of == ("token", "head 0.0")
    result = interp.evaluate_hypothesis(model, hypothesis, model.task.sample(60, seed=1), pairs=100)
    assert result.scrubbed.accuracy == 1.0
    assert result.interchange["changes"].tolist() == [1.0]
    without = interp.Hypothesis(hypothesis.variables, of=["head 0.0"])
    assert interp.evaluate_hypothesis(model, without, model.task.sample(60, seed=1)).scrubbed.accuracy < 0.6


def test_values_that_never_meet_have_the_programs_answer() -> None:
    """Each of the 8 rows has its own share of b, to which the last token adds: no other row has both values of a pair.

    Shares of b less those of a are 0.112, 0.447, 0.665 and 1 if the last token is b, and the opposite if it is a. The
    last token adds 0.3, so of another row, 3 of the 4 shares of the other sign change the answer; another last token
    changes it where the difference is 0.112.
    """
    mixed = Head("share", "", "position", ((0.0, 0.5, 1.2),), "token", "head 0.0")
    last = Head("last", "", "position", ((NEVER, NEVER, 0.0),), "token", "head 0.1")
    weights = (((1.0, 0.0), (0.0, 1.0)), ((0.3, 0.0), (0.0, 0.3)))
    program = Program(
        ("a", "b"), 3, True, (mixed, last), Linear("answer", ("share", "last"), weights, (0.0, 0.0), ("no", "yes"))
    )
    result = interp.evaluate_hypothesis(interp.compile(program), as_hypothesis(program))
    assert result.interchange["alone"].tolist() == [1.0, 0.0]
    assert result.interchange["changes_n"].tolist() == [8 * 3, 2 * 4]
    assert result.interchange["changes"].tolist() == [1.0, 1.0]


def test_an_answer_reads_the_position_where_it_is_given() -> None:
    """The first token, told apart from the second position on by a map of both, at each read position."""
    first = Head("first", "", "position", ((0.0, NEVER, NEVER),), "token", "head 0.0")
    weights = (((1.0, 0.0), (0.0, 1.0)), ((0.0, 2.0), (0.0, 0.0), (2.0, 0.0)))
    answer = Linear("answer", ("first", "position"), weights, (0.0, 0.0), ("no", "yes"))
    program = Program(("a", "b"), 3, True, (first,), answer, read="all")
    result = interp.evaluate_hypothesis(interp.compile(program), as_hypothesis(program))
    assert result.agreement == 1.0
    assert result.interchange["changes"].tolist() == [1.0]


@pytest.mark.slow
def test_tables_of_values_that_never_meet() -> None:
    """A head that sees its own token finds the first in an order: some of its values never meet some tokens."""
    model = interp.compile(random_program(6), decoys=4, rotate=6, seed=6)
    result = interp.evaluate_hypothesis(model, interp.explain(model).hypothesis)
    assert result.scrubbed.accuracy == 1.0
    assert result.interchange["stays"].tolist() == [1.0, 1.0]


@pytest.mark.slow
def test_heads_that_stand_in_for_each_other_are_both_there() -> None:
    """languages/parity: either of its last two heads is enough, and the readout adds them up."""
    found = interp.explain(interp.load("languages/parity"))
    assert found.hypothesis.of == ("head 1.0", "head 1.1")
    assert (
        "stand in for each other: with one of them at its mean, all of the answers stay; with both, 0.5"
        in found.sentence
    )
