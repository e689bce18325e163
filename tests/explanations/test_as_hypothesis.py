"""An explanation as a hypothesis, which causal scrubbing tests: a true one keeps the answers, a false one does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

import interp
from interp.errors import InterpError
from interp.explanations import Explanation

MODEL = interp.build("algorithmic/max-of-k-exact", K=3, v=8)


@pytest.fixture(scope="module")
def found() -> Explanation:
    return interp.explain(MODEL, seconds=30.0)


def test_what_was_found_survives_scrubbing(found: Explanation) -> None:
    guess = found.hypothesis
    assert [one.at for one in guess.variables] == [("head 0.0",)]
    test = interp.evaluate_hypothesis(MODEL, guess, MODEL.task.sample(300, seed=1))
    assert test.scrubbed.accuracy > 0.99


def test_a_false_quantity_does_not(found: Explanation) -> None:
    wrong = (replace(found.parts[0], quantities=(("extreme", "smallest", 1),)),)
    test = interp.evaluate_hypothesis(MODEL, replace(found, parts=wrong).hypothesis, MODEL.task.sample(300, seed=1))
    assert test.scrubbed.accuracy < 0.7


def test_without_explained_parts_there_is_none(found: Explanation) -> None:
    with pytest.raises(InterpError, match=r"no part of .* was explained"):
        _ = replace(found, parts=()).hypothesis
