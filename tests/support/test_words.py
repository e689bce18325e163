"""Numbers in words: only exact 0 and 1 print as '0' and '1'."""

import pytest

from interp.support.words import at_least, at_most, counted, number, number_at_most, portion, ranges, share


@pytest.mark.parametrize(
    ("value", "said"),
    [(1.0, "1"), (0.0, "0"), (0.98, "0.9800"), (1 - 3e-8, "0.99999997"), (0.99996, "0.99996"), (4e-7, "0.0000004"),
     (0.5, "0.5000"), (0.99994, "0.9999")],
)  # fmt: skip
def test_shares(value: float, said: str) -> None:
    assert share(value) == said


def test_the_largest_number_below_one_is_not_one() -> None:
    assert float(share(1 - 2**-53)) < 1


@pytest.mark.parametrize(
    ("value", "low", "high"),
    [(299 / 300, "0.9966", "0.9967"), (0.98, "0.9800", "0.9800"), (1.0, "1", "1"), (0.0, "0", "0"),
     (0.99996, "0.9999", "0.99996"), (1 - 3e-8, "0.9999", "0.99999997"), (4e-7, "0.0000004", "0.0001")],
)  # fmt: skip
def test_bounds_are_rounded_so_that_they_hold(value: float, low: str, high: str) -> None:
    assert (at_least(value), at_most(value)) == (low, high)


def test_numbers_as_bounds_from_above() -> None:
    assert [number_at_most(x, 2) for x in (0.01231, 0.0, 1e-9, 0.04)] == ["0.013", "0", "1e-09", "0.04"]


def test_what_arithmetic_moved_is_said_as_it_is() -> None:
    assert [share(x, 3, rounding=1e-9) for x in (1 + 2e-16, 1 - 2e-16, -1e-17, 0.5, 1 - 2e-9)] == [
        "1", "1", "0", "0.500", "0.999999998",
    ]  # fmt: skip


def test_portions_of_something() -> None:
    assert [f"{portion(x)} of the answers" for x in (1.0, 0.0, 0.25)] == [
        "all of the answers", "none of the answers", "0.2500 of the answers",
    ]  # fmt: skip


def test_counted() -> None:
    assert [counted(n, "head") for n in (0, 1, 2)] == ["0 heads", "1 head", "2 heads"]
    assert counted(1200, "index", "indices") == "1,200 indices"


def test_a_number_within_rounding_of_a_whole_one() -> None:
    assert number(1.0000000000002, 3) == "1.0000000000002"
    assert number(1.0000000000002, 3, 1e-9) == "1"
    assert number(-1e-12, 3, 1e-9) == "0"
    assert number(1.01, 3, 1e-9) == "1.01"


def test_numbers_in_a_row_are_runs() -> None:
    assert [ranges(numbers) for numbers in ([5], [1, 2, 3, 4, 6, 9], range(24))] == ["5", "1 to 4, 6 and 9", "0 to 23"]
