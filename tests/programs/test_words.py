"""Words of soft heads: positions are numbers, tokens are quoted, and long lists become what is left out of them."""

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from interp.programs.language import Program
from interp.programs.relations import compared
from interp.programs.steps import NEVER, Head, Linear, Table
from interp.programs.words import answer_words, plural, step_words

LETTERS = tuple("abcdefgh")


def said(weights: Sequence[float], key: str = "token", brief: bool = True) -> str:
    """How a head attends whose weight for each value of the key is given, 0 for none."""
    scores = tuple(math.log(weight) if weight else NEVER for weight in weights)
    head = Head("h", "", key, (scores,), "token", "head 0.0")
    program = Program(LETTERS, len(weights), True, (head,), Linear("answer", (), (), (0.0,), ("x",)))
    return step_words(program, head, brief).removeprefix("attends ").removesuffix("and reads the token").rstrip(" ,")


@pytest.mark.parametrize(("weights", "words"), [
    ((0.2, 1, 0.1, 0.1), "most to position 1"), ((1, 0.2, 0.1, 0.1), "most to the first position"),
    ((0.1, 1, 1, 0.1), "most to positions 1 and 2"), ((0.1, *[1] * 5, 0.1), "most to positions 1 to 5"),
    ((0.1, 1, 0.1, *[1] * 5), "most to 6 of 8 positions"), ((1, 0.6) * 5, "more to the even positions"),
    ((0.6, 1) * 5, "more to the odd positions"), ((0.7, 1, 0.7, 0.7), "more to position 1"),
])  # fmt: skip
def test_positions_are_not_quoted_like_tokens(weights: Sequence[float], words: str) -> None:
    assert said(weights, "position") == f"to positions by their position, {words}"


def test_weights_are_given_at_positions_and_of_tokens() -> None:
    assert said((0.2, 1, 0.1, 0.1), "position", False).endswith(
        "(weights 1 at position 1, 0.2 at position 0, 0.1 at position 2, 0.1 at position 3)"
    )
    assert said((0.2, 1, 0.1, 0, *[0.05] * 4), brief=False).endswith(
        "most to each 'b' (weights 'b' 1, 'a' 0.2, 'c' 0.1, 'e' 0.05, 4 more)"
    )
    assert said((0.5, *[1] * 6, 0.2), brief=False).endswith("(weights 'a' 0.5, 'h' 0.2, all others 1)")


@pytest.mark.parametrize(("weights", "words"), [
    ((1, 1, 1, 0.1, 0.1, 0.1, 0.1, 0.1), "to positions by their token, most to each 'a', 'b' or 'c'"),
    ((1, 1, 1, 1, 1, 1, 0.1, 0.1), "to positions by their token, least to each 'g' or 'h'"),
    ((1, 1, 1, 1, 1, 1, 1, 0.8), "to positions by their token, less to each 'h'"),
    ((1, 1, 1.02, 1, 1, 0.98, 1, 1), "almost evenly to all positions that it sees"),
    ((1, 1, 1, 1, 1, 1, 0.95, 0), "to positions by their token"),
])  # fmt: skip
def test_long_lists_say_what_is_left_out_of_them(weights: Sequence[float], words: str) -> None:
    assert said(weights) == words


def test_where_both_lists_are_long_their_lengths_are_said() -> None:
    letters = tuple(f"t{i}" for i in range(12))
    scores = tuple(0.0 if i < 7 else -3.0 for i in range(12))
    head = Head("h", "", "token", (scores,), "token", "head 0.0")
    program = Program(letters, 4, True, (head,), Linear("answer", (), (), (0.0,), ("x",)))
    assert "most to each of 7 of 12 values, and" in step_words(program, head, brief=True)


def test_a_variable_without_effect_in_a_table_is_not_said() -> None:
    table = Table("m", ("token", "position"), (0, 0, 1, 1), ("no", "yes"), "MLP 0")
    program = Program(("a", "b"), 2, True, (table,), Linear("answer", (), (), (0.0,), ("z",)))
    assert step_words(program, table) == "looks up the token in a table of 2 entries"


def by_table(rows: Sequence[Sequence[float]], name: str, causal: bool = True) -> str:
    """Where a head attends whose scores are a table over a variable of the query and of the key."""
    scores = tuple(tuple(row) for row in rows)
    head = Head("h", name, name, scores, "token", "head 0.0")
    program = Program(("a", "b", "[BOS]"), len(rows), causal, (head,), Linear("answer", (), (), (0.0,), ("x",)))
    return step_words(program, head, brief=True)


def test_a_query_that_changes_nothing_is_not_said() -> None:
    """All content asks alike; only the first token, which sees itself alone, does not."""
    rows = [[0.0, -3.0, -9.0], [0.0, -3.0, -9.0], [0.0, 1.0, 2.0]]
    said = "attends to positions by their token, most to each 'a', from '[BOS]' otherwise, and reads the token"
    assert by_table(rows, "token") == said
    late = [[0.0, -3.0, -9.0, -9.0]] * 3 + [[-9.0, -9.0, -9.0, 0.0]]
    assert "most to the first position, from position 3 otherwise, and reads" in by_table(late, "position")
    assert "their token and its own token" in by_table([[0.0, -3.0, -9.0], [1.0, -3.0, -9.0], [0.0, 1.0, 2.0]], "token")


def test_a_place_with_an_eighth_is_not_one_of_the_most() -> None:
    def rows(second: float) -> list[list[float]]:
        shares = {2: 0.0, 1: second, 0: -5.0}
        return [[shares.get(q - k, -6.0) for k in range(6)] for q in range(6)]

    assert by_table(rows(-2.1), "position").startswith("attends most to the position two before")
    assert not by_table(rows(-1.9), "position").startswith("attends most to the position two before")


def test_positions_that_are_never_seen_are_not_said() -> None:
    """A causal head with scores of later positions attends to what it sees; a relation must hold of most queries."""
    rows = [[0.0 if k == 0 or k > q else NEVER for k in range(5)] for q in range(5)]
    rows[4][4] = NEVER
    assert by_table(rows, "position") == "attends to the first position and reads the token"
    assert "later positions" in by_table(rows, "position", causal=False)
    graded = [[-8.0 * (k > 0) for k in range(5)] for q in range(5)]
    graded[1][1], graded[4][1], graded[0][2] = -0.4, -1.1, 0.0
    assert "minus" not in by_table(graded, "position")


@pytest.mark.parametrize(("first", "edge"), [(0.0, " (where there is none, to the first position)"), (NEVER, "")])
def test_the_first_position_may_see_itself(first: float, edge: str) -> None:
    rows = [[0.0 if k == q - 1 else NEVER for k in range(4)] for q in range(4)]
    rows[0][0] = first
    assert by_table(rows, "position") == f"attends to the position before{edge} and reads the token"


def test_which_of_a_few_values_is_said_before_more_variables() -> None:
    table = Table("m", ("token",), (0, 1, 2, 2), ("x", "y", "z"), "MLP 0")
    program = Program(("a", "b", "c", "d"), 2, True, (table,), Linear("answer", (), (), (0.0,), ("z",)))
    assert step_words(program, table) == "looks up which of 'a' and 'b' the token is (if any) in a table of 3 entries"


def test_an_order_is_that_of_numbers_or_of_the_vocabulary() -> None:
    """'m' is before 'a' in the vocabulary of m, z, a; in a row it may come after it."""
    numbers, letters = ("0", "1", "2"), ("m", "z", "a")
    assert compared("smaller", "the token", "its own token", numbers) == "the token is smaller than its own token"
    assert compared("at least", "the token", "its own token", numbers) == "the token is at least its own token"
    assert compared("equal", "the token", "its own token", numbers) == "the token equals its own token"
    before = "the token comes before its own token in the vocabulary"
    assert compared("smaller", "the token", "its own token", letters) == before
    assert compared("smaller", "the token", "its own token", numbers[::-1]) == before
    assert compared("different", "the token", "its own token", letters) == "the token differs from its own token"


def test_a_table_of_one_class_says_whether() -> None:
    table = Table("m", ("token",), (0, 1, 1), ("no", "yes"), "MLP 0")
    program = Program(("a", "b", "c"), 2, True, (table,), Linear("answer", (), (), (0.0,), ("z",)))
    assert step_words(program, table) == "says whether the token is 'a'"


def test_the_largest_share_is_among_the_answers() -> None:
    """A token that is no answer may have a larger one, on every input."""
    head = Head("h", "", "token", ((0.0, 0.0, 3.0),), "token", "head 0.0")
    same = ((1.0, 0.0), (0.0, 1.0), (0.0, 0.0))
    answer = Linear("answer", ("h",), (same,), (0.0, 0.0), ("a", "b"))
    said = "The answer is the token with the largest share of the attention of head 0.0"
    assert answer_words(Program(("a", "b", "?"), 4, True, (head,), answer)) == f"{said}, among those that are answers."
    head, answer = replace(head, scores=((0.0, 1.0),)), replace(answer, weights=(same[:2],))
    assert answer_words(Program(("a", "b"), 4, True, (head,), answer)) == f"{said}."
    head = replace(head, key="position", scores=((NEVER, 0.0),))
    assert answer_words(Program(("a", "b"), 2, True, (head,), answer)) == "The answer is the token that head 0.0 reads."


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ((0, 0, 0, 1), "looks up the token and the position in a table of 4 entries"),
        ((1, 0, 0, 1), "says whether the position equals the token"),
        ((1, 1, 0, 1), "says whether the position is at least the token"),
    ],
)
def test_a_table_is_a_relation_only_if_all_entries_are(entries: tuple[int, ...], said: str) -> None:
    """Of "both are the second", a token that is not gives one answer for all: this is not what the relation says."""
    table = Table("m", ("token", "position"), entries, ("no", "yes"), "MLP 0")
    program = Program(("0", "1"), 2, True, (table,), Linear("answer", (), (), (0.0,), ("z",)))
    assert step_words(program, table) == said


@pytest.mark.parametrize(
    ("same", "said"),
    [(1, "equals the token, and neither is '?'"), (0, "equals the token, and neither is '?'")],
)
def test_a_value_may_be_no_equal_of_itself(same: int, said: str) -> None:
    """A mark, say, that is never at both places."""
    entries = tuple(same if i == j < 3 else 1 - same for i in range(4) for j in range(4))
    one = Head("h", "", "position", ((0.0, NEVER),), "token", "head 0.0")
    table = Table("m", ("token", "h"), entries, ("no", "yes"), "MLP 0")
    program = Program(("a", "b", "c", "?"), 2, True, (one, table), Linear("answer", (), (), (0.0,), ("z",)))
    assert step_words(program, table) == f"says whether the value of h {said}"
    two = tuple(int(i == j == 0) for i in range(2) for j in range(2))
    short = Program(("a", "b"), 2, True, (one, replace(table, entries=two)), Linear("answer", (), (), (0.0,), ("z",)))
    assert step_words(short, short.step("m")) == "looks up the token and the value of h in a table of 4 entries"


def test_entries_are_counted_by_the_classes_that_are_told_apart() -> None:
    """Whether both tokens are 'a': four entries, not nine."""
    again = Head("h", "", "position", ((0.0, NEVER),), "token", "head 0.0")
    table = Table("m", ("token", "h"), (1, 0, 0, 0, 0, 0, 0, 0, 0), ("no", "yes"), "MLP 0")
    program = Program(("a", "b", "c"), 2, True, (again, table), Linear("answer", (), (), (0.0,), ("z",)))
    both = "whether the token is 'a' and whether the value of h is 'a'"
    assert step_words(program, table) == f"looks up {both} in a table of 4 entries"


def test_a_query_that_numbers_positions_is_said_as_a_number() -> None:
    """Not by the name of what it follows from: "where the position equals the previous token"."""
    number = Table("n", ("token",), (0, 2), ("0", "1", "2"), "MLP 0")
    head = Head("h", "n", "position", tuple(tuple(0.0 if i == k else NEVER for k in range(3)) for i in range(3)),
                "token", "head 1.0")  # fmt: skip
    program = Program(("a", "b"), 3, True, (number, head), Linear("answer", (), (), (0.0,), ("z",)))
    program = replace(program, words={"n": "the previous token"})
    where = "attends to the position whose number is the value of MLP 0 at its own position"
    assert step_words(program, head) == f"{where} and reads the token"


def test_fewer_values_are_listed() -> None:
    """Those with least attention, where most values have most of it."""
    head = Head("h", "", "token", ((0.0, -0.1, -0.2, -9.0),), "token", "head 0.0")
    program = Program(("a", "b", "c", "?"), 4, True, (head,), Linear("answer", (), (), (0.0,), ("x",)))
    assert "by their token, least to each '?'" in step_words(program, head, brief=True)


def test_places_in_relations_are_numbers_and_tokens_quoted() -> None:
    """From a token to the position that it names: the same words stand for both; one token selects a second place."""
    digits = ("0", "1", "2", "3")
    scores = tuple(tuple(0.0 if q == k or (q, k) == (0, 1) else NEVER for k in range(4)) for q in range(4))
    head = Head("h", "token", "position", scores, "token", "head 0.0")
    program = Program(digits, 4, False, (head,), Linear("answer", (), (), (0.0,), ("x",)))
    where = "attends to the position whose number is its own token, from '0' also to position 1"
    assert step_words(program, head) == f"{where} and reads the token"
    assert plural(where) == where.replace("attends", "attend").replace("its own", "their own")
