"""Messages of errors: how many problems they list, where they cut what is long, which names they show."""

from collections.abc import Callable
from pathlib import PurePosixPath

import pytest

from interp.errors import InterpError, SpecError, check_size, cut, first_few, one_of, quoted, short


@pytest.mark.parametrize(("found", "listed"), [(1, 1), (2, 2), (20, 20), (21, 1), (300, 1)])
def test_up_to_20_problems_are_listed_and_of_more_the_first(found: int, listed: int) -> None:
    error = SpecError([f"<{n}>" for n in range(found)], "here")
    assert len(error.problems) == min(found, 20)
    assert [n for n in range(found) if f"<{n}>" in str(error)] == [*range(listed)]


@pytest.mark.parametrize(("shorten", "most"), [(short, 60), (cut, 360), (lambda text: short(PurePosixPath(text)), 150)])
def test_only_what_is_longer_is_cut_in_its_middle(shorten: Callable[[str], str], most: int) -> None:
    text = "a" * most + "b"
    found = shorten(text)
    assert shorten(text[1:]) == text[1:]
    assert 0.9 * most < len(found) <= most
    assert (found[0], "..." in found, found[-1]) == ("a", True, "b")


def test_words_are_cut_out_as_a_whole() -> None:
    words = [f"word{n}-" + "a" * (n % 11) for n in range(100)]
    first, last = cut(" ".join(words)).split(" ... ")
    assert first.split() == words[: len(first.split())]
    assert last.split() == words[-len(last.split()) :]


@pytest.mark.parametrize(("names", "known", "listed"), [(4, 4, 8), (5, 4, 8), (8, 4, 8), (9, 4, 9), (10, 4, 8)])
def test_names_beyond_the_first_are_counted(names: int, known: int, listed: int) -> None:
    letters = "abcdefghij"[:names]
    for said, shown in ((first_few(letters), known), (one_of("part", "?", letters).split("known: ")[1], listed)):
        assert said == ", ".join(letters[:shown]) + (f" and {names - shown} more" if names > shown else "")


def test_of_no_names_none_is_meant() -> None:
    assert one_of("setting", "nonsense", []) == "unknown setting 'nonsense'; known: none"


@pytest.mark.parametrize(("value", "says"), [([0] * 99, "[0, 0"), ([0] * 100, "100 entries"), ([10**5000], "a list")])
def test_a_value_too_large_to_quote_is_named_by_its_type(value: object, says: str) -> None:
    assert says in quoted(value)


@pytest.mark.parametrize("value", [1, -3, True, 2.0, "2"])
def test_sizes_are_whole_numbers_from_the_least_on(value: object) -> None:
    assert check_size("n", 2, least=2) == 2
    with pytest.raises(InterpError, match="n = "):
        check_size("n", value, least=2)
