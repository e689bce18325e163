"""The weight of a position's own value: read out of MLPs and readouts, run, written as Python, and compiled."""

from typing import Any

import pytest
from plain_python import function

import interp
from interp.programs.language import Head, Linear, Product, Program
from interp.programs.words import answer_words, step_words

EVENLY = Head("shares", "", "", ((0.0,),), "token")
OWN = Product("own", ("token", "shares"))
LEVELS: Any = Linear("answer", ("own",), (((0.0, 1.0, 2.0),) * 3,), (0.0, -0.3, -1.0), ("once", "twice", "more"))
HOW_OFTEN = Program(("a", "b", "c"), 5, False, (EVENLY, OWN), LEVELS, read="all")


def test_how_often_the_own_token_occurs() -> None:
    for row in ("aabcc", "abcab", "ccccc"):
        wanted = [("once", "twice", "more", "more", "more")[row.count(one) - 1] for one in row]
        assert HOW_OFTEN([*row]) == wanted
        assert function(HOW_OFTEN)([*row]) == wanted
    assert Program.from_json(HOW_OFTEN.to_json()) == HOW_OFTEN
    assert HOW_OFTEN.constants == 1 + 2 + 2  # the head, the weights of two answers (of all tokens alike), their biases
    assert step_words(HOW_OFTEN, OWN) == "takes the weight of its own token in the value of shares"
    assert answer_words(HOW_OFTEN) == "The answer follows from the weight of its own token in the value of shares."


@pytest.mark.parametrize("hidden", [{}, pytest.param({"decoys": 2, "rotate": 1}, marks=pytest.mark.slow)])
def test_it_is_compiled_and_read_back(hidden: dict[str, int]) -> None:
    found = interp.explain(interp.compile(HOW_OFTEN, **hidden))
    assert (found.level, found.agreement.share) == ("explained", 1.0)
    assert found.program.steps[-1] == Product("MLP 0", ("token", "head 0.0"), "MLP 0")
    tested = interp.evaluate_hypothesis(interp.compile(HOW_OFTEN), found.hypothesis)
    assert tested.scrubbed.accuracy == 1.0


@pytest.mark.slow
def test_a_readout_of_neurons_compares_it() -> None:
    """The readout of this model has 32 neurons; one number with limits stands for it, and this compiles again."""
    model = interp.build("histogram/lin-softmax-exact")
    found = interp.explain(model)
    assert found.level == "explained"
    assert found.program.steps[-1] == Product("head 0.0 of its token", ("token", "head 0.0"))
    assert found.program.constants == 1 + 9 + 9  # a scale; limits and answers of the counts 1 to 10
    batch = model.task.sample(20, seed=3)
    assert isinstance(batch, interp.Batch)
    again = interp.compile(found.program)
    assert again.predict(batch.tokens).equal(model.predict(batch.tokens) - 1)


def test_refusals() -> None:
    with pytest.raises(interp.InterpError, match="two that have the same values"):
        Program(("a", "b"), 3, True, (Product("own", ("token", "position")),), LEVELS)
    other = Head("others", "", "token", ((0.0, 1.0, 2.0),), "token")
    shared = Program(("a", "b", "c"), 5, False, (EVENLY, other, Product("own", ("others", "shares"))), LEVELS)
    with pytest.raises(interp.InterpError, match="multiplies shares by shares"):
        interp.compile(shared)
    assert step_words(shared, shared.steps[-1]).startswith("takes the products of the weights that the value of others")
