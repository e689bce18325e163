"""What a head would read with even attention: how often each value occurs, from the shares of a soft head."""

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
from plain_python import function

import interp
from interp.errors import InterpError
from interp.programs.language import NEVER, Evened, Head, Linear, Product, Program
from interp.programs.words import answer_words, step_words

SCORES = ((0.0, 2.0, -1.0), (0.5, 0.0, 3.0), (1.0, -2.0, 0.0))
HEAD = Head("head 0.0", "token", "token", SCORES, "token", "head 0.0")
EVEN = Evened("even", ("token", "head 0.0"), SCORES)
OWN = Product("own", ("token", "even"))
LEVELS: Any = Linear("answer", ("own",), (((0.0, 1.0, 2.0),) * 3,), (0.0, -0.3, -1.0), ("once", "twice", "more"))
HOW_OFTEN = Program(("a", "b", "c"), 5, False, (HEAD, EVEN, OWN), LEVELS, read="all")


def test_how_often_is_known_from_soft_attention() -> None:
    for row in ("aabcc", "abcab", "ccccc"):
        wanted = [("once", "twice", "more", "more", "more")[row.count(one) - 1] for one in row]
        assert HOW_OFTEN([*row]) == wanted
        assert function(HOW_OFTEN)([*row]) == wanted
    assert Program.from_json(HOW_OFTEN.to_json()) == HOW_OFTEN
    assert HOW_OFTEN.constants == 9 + 2 + 2  # the scores are the head's, and not counted again


def test_shares_are_those_of_even_attention() -> None:
    tokens = torch.tensor([*product(range(3), repeat=3)])
    made = replace(HOW_OFTEN, length=3).run(tokens)
    shares = torch.stack([(tokens == token).double().mean(1) for token in range(3)], 1)
    assert torch.allclose(made["even"], shares[:, None].expand(-1, 3, -1))


def test_a_head_without_query_and_values_never_read() -> None:
    head = Head("h", "", "token", ((0.0, NEVER, 1.0),), "token")
    steps = (head, Evened("even", ("h",), head.scores))
    answer = Linear("answer", ("even",), (((1.0, 0.0), (0.0, 0.0), (0.0, 1.0)),), (0.0, 0.0), ("a", "c"))
    program = Program(("a", "b", "c"), 4, False, steps, answer)
    for row in ("abbb", "acab", "cbca", "accb", "cccb"):
        assert function(program)([*row]) == program([*row]) == ("c" if row.count("c") > row.count("a") else "a")
    assert steps[1].mapped({"h": torch.zeros(1, 1, 3).double()}).tolist() == [[[0.0] * 3]]


def test_words() -> None:
    even = "what head 0.0 would read with even attention"
    assert step_words(HOW_OFTEN, EVEN) == f"divides the value of head 0.0 by the weights of its scores: {even}"
    assert answer_words(HOW_OFTEN) == f"The answer follows from the weight of its own token in {even}."


@pytest.mark.parametrize("wrong", [
    (HEAD, replace(EVEN, scores=((0.0,) * 3,) * 3), OWN), (HEAD, replace(EVEN, of=("head 0.0",)), OWN),
    (replace(HEAD, total=True), EVEN, OWN), (replace(HEAD, scaled=True), EVEN, OWN),
    (replace(HEAD, key="", scores=((0.0,),) * 3), replace(EVEN, scores=((0.0,),) * 3), OWN),
])  # fmt: skip
def test_only_soft_heads_that_read_their_keys(wrong: Any) -> None:
    with pytest.raises(InterpError, match="even must have the scores of a head with softmax that reads its keys"):
        replace(HOW_OFTEN, steps=wrong)


def test_it_does_not_compile() -> None:
    with pytest.raises(InterpError, match="even holds numbers"):
        interp.compile(HOW_OFTEN)
