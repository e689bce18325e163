"""Interchange intervention accuracy: cases where the answer changes and where it stays, and what counts as shown."""

import math

import pytest
import torch

from interp.measures.interchange import FEW, LOWEST, UNDECIDED, Cases, Interchange, split
from interp.tasks.scores import wilson


def test_cases_split_by_what_the_causal_model_says() -> None:
    """One whose answer changes to what the model gave anyway is in neither: no effect would be right there."""
    wanted, own, before = (torch.tensor(row) for row in ([1, 1, 0, 2], [0, 0, 0, 1], [0, 1, 0, 1]))
    changes, stays = split(wanted, own, before)
    assert changes.tolist() == [True, False, False, True]
    assert stays.tolist() == [False, False, True, False]
    found = Interchange.of(torch.tensor([1, 0, 0, 1]), wanted, own, before, torch.arange(4))
    assert (found.changes.n, found.changes.right) == (2, 1)
    assert (found.stays.n, found.stays.right) == (1, 1)
    assert found.accuracy == 0.5


def test_without_an_answer_nothing_is_compared() -> None:
    wanted = torch.tensor([1, UNDECIDED, UNDECIDED, 0])
    found = Interchange.of(torch.tensor([1, 1, 0, 0]), wanted, torch.zeros(4), torch.zeros(4), torch.arange(4))
    assert (found.changes.n, found.stays.n, found.undecided, found.tried) == (1, 1, 2, 4)
    both = found + Interchange.none()
    assert (both.undecided, both.tried) == (2, 4)


def test_the_interval_counts_base_inputs() -> None:
    assert Cases(1_000, 990, 100).interval == wilson(0.99, 100)
    assert Cases(1_000, 990, 100, exact=True).interval == (0.99, 0.99)
    assert math.isnan(Cases(0, 0, 0).accuracy)


@pytest.mark.parametrize(("n", "right", "exact", "shown"), [
    (1_000, 951, False, True), (1_000, 949, False, False), (100, 96, False, True), (50, 48, False, False),
    (FEW, FEW, False, True), (FEW - 1, FEW - 1, False, True), (FEW - 1, FEW - 2, False, False),
    (20, 19, True, True), (20, 18, True, False),
])  # fmt: skip
def test_what_is_shown(n: int, right: int, exact: bool, shown: bool) -> None:
    """0.95 of the cases, and 0.9 at the lower end of the interval; of few, all."""
    assert Cases(n, right, n, exact).shown == shown


def test_few_is_where_the_interval_can_first_end_there() -> None:
    assert wilson(1.0, FEW)[0] >= LOWEST > wilson(1.0, FEW - 1)[0]


def test_a_variable_that_never_changes_an_answer_is_not_shown() -> None:
    many, few = Cases(500, 500, 500), Cases(FEW - 1, FEW - 1, FEW - 1)
    assert Interchange(many, many).shown
    assert not Interchange(Cases(0, 0, 0), many).shown
    assert not Interchange(few, many).shown
    assert Interchange(many, few).shown
    assert Interchange(Cases(3, 3, 3, exact=True), many).shown
    assert math.isnan(Interchange(Cases(0, 0, 0), many).accuracy)


@pytest.mark.parametrize(("n", "right", "exact", "verdict"), [
    (100, 100, False, "shown"), (1_000, 949, False, "refuted"), (1_000, 951, False, "shown"),
    (20, 20, False, "too few cases"), (20, 18, False, "too few cases"), (20, 5, False, "refuted"),
    (50, 48, False, "too few cases"), (FEW, FEW - 3, False, "refuted"), (20, 18, True, "refuted"),
    (3, 3, True, "shown"), (0, 0, False, "too few cases"),
])  # fmt: skip
def test_few_cases_are_neither_shown_nor_refuted(n: int, right: int, exact: bool, verdict: str) -> None:
    assert Interchange(Cases(n, right, n, exact), Cases(500, 500, 500)).verdict == verdict


def test_a_variable_is_refuted_where_answers_must_stay() -> None:
    assert Interchange(Cases(100, 100, 100), Cases(100, 50, 100)).verdict == "refuted"


@pytest.mark.parametrize(("n", "right", "exact", "shown"), [
    (0, 0, False, True), (FEW - 1, FEW - 1, False, True), (FEW - 1, FEW - 2, False, False), (20, 19, True, True),
    (20, 18, True, False), (FEW, FEW, False, True), (200, 191, False, True), (FEW, FEW - 1, False, False),
])  # fmt: skip
def test_few_cases_must_all_be_right(n: int, right: int, exact: bool, shown: bool) -> None:
    assert Cases(n, right, n, exact).shown == shown
