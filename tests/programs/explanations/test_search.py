"""Which quantities decide answers: on answers that are planted, so that the rule is known."""

import math

import numpy as np
import pytest

from interp.programs.explanations.bench import OutOfSteps, Setting, Steps
from interp.programs.explanations.quantities import Quantity
from interp.programs.explanations.search import Data, nearest, search

SETTING = Setting(("0", "1"), (), False, ("no", "yes"))
ZEROS, ONES, FIRST = (
    Quantity(SETTING, "count", ("0",)), Quantity(SETTING, "count", ("1",)), Quantity(SETTING, "place", (0,)),
)  # fmt: skip
DRAWN = np.random.default_rng(0)
VALUES = [DRAWN.integers(0, 8, 4_000), DRAWN.integers(0, 8, 4_000), DRAWN.integers(0, 2, 4_000)]


def data(answers: np.ndarray, values: list[np.ndarray] = VALUES, exact: bool = False) -> Data:
    return Data.made([ZEROS, ONES, FIRST], values, [0, 0, 0], answers.astype(np.int64), np.arange(4_000), exact)


@pytest.mark.parametrize(
    ("answers", "kinds"),
    [
        (VALUES[1] >= 3, [("count", "1")]),
        (VALUES[2] == 1, [("place", 0)]),
        ((VALUES[0] == 0) & (VALUES[1] == 0), [("count", "0"), ("count", "1")]),
        (VALUES[0] - VALUES[1] >= 2, [("count", "0"), ("count", "1")]),
    ],
    ids=["a step", "a token", "both", "a weighted sum"],
)
def test_planted_rules_are_found(answers: np.ndarray, kinds: list[tuple[object, ...]]) -> None:
    good = search(data(answers), 0.99, 12)
    assert good
    assert good[0].share == 1.0
    assert sorted((one.kind, one.arguments[0]) for one in good[0].rule.quantities) == sorted(kinds)


def test_an_exception_by_either_number_is_found() -> None:
    """The answer is the number, which comes second in one order, except where the other quantity has a value."""
    setting = Setting(("0", "1", "2"), (), False, tuple(map(str, range(9))))
    of = [Quantity(setting, "place", (0,)), Quantity(setting, "count", ("0",))]
    values = [DRAWN.integers(0, 3, 4_000), VALUES[1]]
    answers = np.where((values[0] == 2) & (values[1] == 3), 8, values[1]).astype(np.int64)
    for order in ((0, 1), (1, 0)):
        made = Data.made([of[n] for n in order], [values[n] for n in order], [0, 0], answers, np.arange(4_000), False)
        found = made.fitted([0, 1], 20)
        assert (found.rule.form, found.share) == ("except", 1.0)
        assert [one.kind for one in found.rule.quantities] == ["count", "place"]


def test_random_answers_have_no_rule() -> None:
    assert search(data(np.random.default_rng(1).integers(0, 2, 4_000)), 0.9, 200) == []


def test_a_rule_for_nearly_all_inputs_misses_the_rare() -> None:
    """Where 1 of 200 answers is "yes" at random, "never" is right on .995 of them and explains nothing."""
    assert search(data(np.random.default_rng(2).random(4_000) < 0.005), 0.99, 200) == []


def test_rules_are_judged_on_answers_they_were_not_fitted_to() -> None:
    """Answers that turn round on the other half are no rule; where all inputs are at hand, both halves are read."""
    odd = np.arange(4_000) % 2
    turned = np.where(odd, VALUES[1] < 3, VALUES[1] >= 3)
    split = data(turned)
    assert set(split.fit % 2) == {0}
    assert set(split.judge % 2) == {1}
    found = nearest(split, 12)
    assert found is None or found.share < 0.5
    assert np.array_equal(data(turned, exact=True).fit, data(turned, exact=True).judge)


def test_constant_and_equal_quantities_are_left_out() -> None:
    same = data(VALUES[1] >= 3, [VALUES[0], VALUES[0].copy(), np.zeros(4_000, dtype=np.int64)])
    assert len(same.quantities) == 1


def test_a_table_of_nearly_all_inputs_is_no_rule() -> None:
    names = np.arange(4_000)
    listed = data(np.random.default_rng(3).integers(0, 2, 4_000), [names, VALUES[0], VALUES[1]])
    assert listed.potential([0]) == -1.0
    assert 0.4 < listed.potential([1]) < 0.7


def test_the_nearest_rule_is_named_with_its_share() -> None:
    """A step that one answer in ten breaks."""
    broken = (VALUES[1] >= 3) ^ (np.random.default_rng(4).random(4_000) < 0.1)
    found = nearest(data(broken), 12)
    assert 0.87 < found.share < 0.93
    assert "the number of 1s" in found.rule.words


def test_a_search_without_steps_left_says_so() -> None:
    late = data(VALUES[1] >= 3)
    late.steps.left = 1
    with pytest.raises(OutOfSteps):
        search(late, 0.99, 12)
    assert Steps().left == math.inf


@pytest.mark.slow
def test_a_rule_over_three_quantities_is_found_among_many() -> None:
    """The number that three of seventy bits write: those that tell more alone are tried first as a third."""
    rng = np.random.default_rng(3)
    bits = [rng.integers(0, 2, 4_000) for _ in range(70)]
    setting = Setting(("0", "1"), (), False, tuple(map(str, range(8))))
    quantities = [Quantity(setting, "place", (place,)) for place in range(70)]
    number = bits[67] + 2 * bits[68] + 4 * bits[69]
    found = search(Data.made(quantities, bits, [0] * 70, number, np.arange(4_000), False), 0.99, 40)
    assert found[0].share == 1.0
    assert {quantity.arguments[0] for quantity in found[0].rule.quantities} == {67, 68, 69}
