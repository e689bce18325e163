"""PALINDROME in exact arithmetic by brute force, the hard strings, and the errata's table of number formats."""

import itertools
from fractions import Fraction

import pytest
import torch
from shared import palindrome_orders as P

from interp.errors import InterpError
from interp.families.languages.theory.values import exact_palindrome


def numerator(word: tuple[int, ...]) -> Fraction:
    return exact_palindrome(word) * (2 ** (len(word) + 2) - 1)


def test_the_numerator_is_left_minus_reversed_right_in_binary() -> None:
    for length in range(1, 11):
        sizes = set()
        for word in itertools.product((0, 1), repeat=length):
            marked = (0, *word, 0)
            n = len(marked)
            left = sum(marked[i] * 2**i for i in range(n) if 2 * i <= n - 1)
            right = sum(marked[i] * 2 ** (n - 1 - i) for i in range(n) if 2 * i >= n - 1)
            assert exact_palindrome(word) == Fraction(left - right, 2**n - 1)
            assert (left == right) == (word == word[::-1])
            sizes.add(abs(left - right))
        assert min(sizes - {0}, default=2) == 2


@pytest.mark.parametrize("length", [1, 2, 7, 12, 31])
def test_hard_strings_hold_what_they_promise(length: int) -> None:
    symbols = P.hard_strings(length)
    words = {tuple(row) for row in symbols.tolist()}
    assert P.is_palindrome(symbols).tolist() == [tuple(row) == tuple(row)[::-1] for row in symbols.tolist()]
    assert {(0,) * length, (1,) * length} <= words
    wrong = [w for w in words if w != w[::-1]]
    half = length // 2
    pairs = {tuple(i for i in range(half) if w[i] != w[-1 - i]) for w in wrong}
    assert {(i,) for i in range(half)} <= pairs  # every single flip
    if half > 2:
        assert any(len(p) > 2 and abs(numerator(w)) == 2 for w in wrong for p in [carry(w)])


@pytest.mark.parametrize("length", [7, 12, 31])
def test_hard_strings_err_in_one_run_of_carries(length: int) -> None:
    """Beyond the single flips: the places that differ are neighbors, and the numerator is the least that is not 0."""
    for word in map(tuple, P.hard_strings(length).tolist()):
        if len(places := carry(word)) > 1:
            assert places == tuple(range(places[0], places[-1] + 1))
            assert abs(numerator(word)) == 2 ** (places[0] + 1)


def carry(word: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(i for i in range(len(word) // 2) if word[i] != word[-1 - i])


@pytest.mark.parametrize("order", P.ORDERS)
def test_orders_agree_with_exact_arithmetic_where_they_can(order: str) -> None:
    value, total = P.ORDERS[order]
    symbols = P.hard_strings(20)
    n = 22
    scale = (2**n - 1) / total(n)
    wanted = [float(exact_palindrome(row)) * scale for row in symbols.tolist()]
    torch.testing.assert_close(
        value(symbols, torch.float64), torch.tensor(wanted, dtype=torch.float64), atol=1e-15, rtol=0
    )


ERRATA = {  # largest length without an error, tolerance half of the smallest |s|: float32, float64
    "two softmaxes (paper)": (42, 95),
    "one softmax, right half reversed": (46, 95),
    "base 2 by exp2": (48, 106),
    "one head, values +-1": (46, 95),
}


@pytest.mark.parametrize("order", P.ORDERS)
@pytest.mark.thinned(3)
def test_errata_table(order: str) -> None:
    """The exact power-of-two order gives the errata's numbers; the others depend on the exponential's last bits."""
    single, double = ERRATA[order]
    slack = 0 if order == "base 2 by exp2" else 3
    assert abs(P.largest_exact_length(order, torch.float32) - single) <= slack
    assert abs(P.largest_exact_length(order, torch.float64) - double) <= slack
    if not slack:
        assert P.largest_exact_length(order, torch.bfloat16) == 16
        assert P.largest_exact_length(order, torch.float16) == 22


def test_an_exact_zero_test_in_the_printed_order_fails_early() -> None:
    """Errata, after item 36: from length 9 in float32, 2 in float64."""
    assert P.largest_exact_length("two softmaxes (paper)", torch.float32, exact_zero=True) <= 10
    assert P.largest_exact_length("two softmaxes (paper)", torch.float64, exact_zero=True) <= 4


def test_refusals() -> None:
    with pytest.raises(InterpError, match="length = 0"):
        P.hard_strings(0)
    with pytest.raises(InterpError, match="unknown order"):
        P.accepts("kahan", P.hard_strings(3), torch.float64)
