"""Programs run as written, against plain Python; broken ones and broken files are refused in a sentence."""

import json
from dataclasses import replace
from itertools import pairwise, product

import pytest
import torch

from interp.errors import InterpError
from interp.programs import steps
from interp.programs.language import NEVER, Head, Linear, Program, Sums, Table
from interp.programs.steps import without_rounding

WORDS = ("a", "b", "=")
BEFORE = tuple(tuple(0.0 if k == q - 1 else NEVER for k in range(4)) for q in range(4))
SAME = tuple(int(x == y) for x in range(3) for y in range(3))
YES = Linear("answer", ("same",), (((1.0, 0.0), (0.0, 1.0)),), (0.0, 0.0), ("no", "yes"))
REPEATS = Program(
    WORDS, 4, True,
    (Head("before", "position", "position", BEFORE, "token", "head 0.0"),
     Table("same", ("token", "before"), SAME, ("no", "yes"), "MLP 0")),
    YES, read="all",
)  # fmt: skip


def test_hard_selection_and_a_table() -> None:
    for row in product("ab", repeat=4):
        # Where nothing is selected (position 0), attention is even over what is seen: itself.
        expected = ["yes"] + ["yes" if x == y else "no" for x, y in pairwise(row)]
        assert REPEATS(row) == expected


def test_soft_shares_and_a_threshold_under_padding() -> None:
    """Majority: even attention to the tokens that are no padding; more a's than b's, ties are no."""
    evenly = Head("shares", "", "", ((0.0,),), "token")
    more = Linear("answer", ("shares",), (((0.0, 1.0), (0.0, -1.0), (0.0, 0.0)),), (1e-9, 0.0), ("no", "yes"))
    program = Program(("a", "b", "pad"), 5, False, (evenly,), more, read="first", pad="pad")
    for n in range(1, 6):
        for row in product("ab", repeat=n):
            expected = "yes" if row.count("a") > row.count("b") else "no"
            assert program([*row, *["pad"] * (5 - n)]) == expected


def test_of_equal_shares_the_first_value_is_read() -> None:
    """Rounding alone must not decide: 0.1 + 0.2 is not 0.3."""
    for shares, first in (([0.3, 0.1 + 0.2], 0), ([0.1 + 0.2, 0.3], 0), ([0.3, 0.300001], 1)):
        made = {"token": torch.tensor([[shares]], dtype=torch.float64)}
        largest = Linear("l", ("token",), (((1.0, 0.0), (0.0, 1.0)),), (0.0, 0.0), WORDS[:2])
        for step in (Table("t", ("token",), (0, 1), ("x", "y")), largest):
            assert step.mapped(made).argmax().item() == first


def test_weights_that_rounding_makes_are_0() -> None:
    rounded = without_rounding(replace(YES, weights=(((1.0, 3e-17), (-4e-6, 0.5)),), bias=(6e-5, 2e-2)))
    assert rounded == replace(YES, weights=(((1.0, 0.0), (0.0, 0.5)),), bias=(0.0, 2e-2))
    graded = replace(YES, weights=(((1.0, 1e-1), (1e-2, 1e-3)),), bias=(1e-4, 1e-5))  # no gap
    small = replace(YES, weights=(((1.0, 0.0), (2e-2, 0.0)),), bias=(0.0, 0.0))  # and not below a hundredth
    tie = replace(YES, weights=(((1.0, 3e-17), (-4e-17, 0.5)),), bias=(1e-3, 0.0))
    assert without_rounding(tie).bias == (0.0, 0.0)
    assert without_rounding(tie, 1) == replace(tie, weights=(((1.0, 0.0), (0.0, 0.5)),))
    assert without_rounding(tie, 5) == tie
    assert [without_rounding(step) for step in (graded, small)] == [graded, small]
    assert without_rounding(REPEATS.steps[0]) == REPEATS.steps[0]


def test_the_pattern_of_a_soft_head() -> None:
    """Scores 0 and ln 3 over two positions give 1/4 and 3/4."""
    scores = ((0.0, torch.tensor(3.0).log().item(), NEVER),)
    program = Program(WORDS, 2, False, (Head("h", "", "token", scores, "token"),),
                      Linear("answer", (), (), (0.0,), ("x",)))  # fmt: skip
    found = program.run(torch.tensor([[0, 1]]))["h"][0, 0]
    assert torch.allclose(found, torch.tensor([0.25, 0.75, 0.0], dtype=torch.float64), atol=1e-7)


def test_files() -> None:
    assert Program.from_json(REPEATS.to_json()) == REPEATS
    data = json.loads(REPEATS.to_json())
    data["steps"][1]["entries"] = [5] * 9
    missing = {name: one for name, one in data.items() if name != "answer"}
    for text, said in (
        (json.dumps(data), "entries below 2"), ("[1", "this is not a program: Expecting"),
        ("{}", "this is not a program: it has no entry 'schema'"), ("[]", "it has no entry 'schema'"),
        (json.dumps(missing), "this is not a program: it has no entry 'answer'"),
        (json.dumps({**data, "schema": 99}), "a program of schema 99 is not known; this version knows 1"),
    ):  # fmt: skip
        with pytest.raises(InterpError, match=said):
            Program.from_json(text)
    assert REPEATS.constants == 1 + 4 + 2  # one relation of positions, three equal pairs and a default, two answers


def test_a_program_that_reads_no_positions_runs_on_any_length() -> None:
    """One that is read from rows that hold equal tokens once is about longer rows, too."""
    ever = Linear("answer", ("all",), (((1.0, 0.0), (0.0, 1.0), (0.0, 0.0)),), (0.0, 0.0), ("a", "b"))
    any_length = Program(WORDS, 2, True, (Head("all", "", "", ((0.0,),), "token"),), ever)
    tokens = torch.tensor([[0, 1, 1, 1, 1]])
    assert torch.allclose(any_length.run(tokens)["all"][0, -1], torch.tensor([0.2, 0.8, 0.0], dtype=torch.float64))


def test_refusals() -> None:
    with pytest.raises(InterpError, match="no earlier step makes"):
        Program(WORDS, 4, True, (), YES)
    with pytest.raises(InterpError, match="at most 4"):
        REPEATS(["a"] * 5)
    with pytest.raises(InterpError, match="unknown token 'c'; known: a, b, ="):
        REPEATS(["c"])
    with pytest.raises(InterpError, match="a row without tokens has no answer"):
        REPEATS([])


@pytest.mark.parametrize("at_once", [1, 40, 10_000])
def test_rows_read_the_same_however_many_are_held_at_once(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of no rows; of the same numbers as a softmax by hand."""
    monkeypatch.setattr(steps, "PATTERNS", at_once)
    head = Head("h", "q", "k", ((1.0, 0.0), (0.0, 1.0)), "v")
    for rows in (0, 1, 7):
        made = {name: torch.randn(rows, 4, 2, dtype=torch.float64) for name in "qkv"}
        scores = made["q"] @ made["k"].transpose(1, 2)
        scores = scores.masked_fill(torch.ones(4, 4).triu(1).bool(), -torch.inf)
        found = head.applied(made, steps.visible(torch.ones(rows, 4), causal=True))
        assert torch.allclose(found, scores.softmax(-1) @ made["v"], atol=1e-12)


def test_a_head_without_softmax_adds_up_its_weights() -> None:
    """Weights by the query's and the key's token, over the positions that are seen; kept in files."""
    head = Head("h", "token", "token", ((2.0, 0.5), (0.0, -1.0)), "token", total=True)
    answer = Linear("answer", ("h",), (((1.0, 0.0), (0.0, 1.0)),), (0.0, 0.0), ("a", "b"))
    program = Program(("a", "b"), 3, True, (head,), answer)
    made = program.run(torch.tensor([[0, 1, 0]]))["h"]
    assert made[0].tolist() == [[2.0, 0.0], [0.0, -1.0], [4.0, 0.5]]
    assert Program.from_json(program.to_json()) == program
    assert '"total"' not in Program.from_json(program.to_json().replace(', "total": true', "")).to_json()


def test_a_weight_that_most_pairs_have_counts_once() -> None:
    def constants(*rows: tuple[float, ...]) -> int:
        return Head("h", "token", "token", rows, "token", total=True).constants

    assert constants((1.0, 0.5, 0.5), (0.5, 1.0, 0.5)) == 3
    assert constants((1.0, 0.5), (0.5, 1.0)) == 4


def test_equal_weights_are_counted_once() -> None:
    rows = ((1.0, 2.0), (3.0, 4.0))
    assert Sums("sums", ("token", "head"), (rows, rows), (5.0, 6.0)).constants == 4 + 2
    assert Sums("sums", ("token", "head"), (rows, rows[::-1]), (5.0, 6.0)).constants == 4 + 4 + 2


def test_pairs_without_attention_are_no_constants() -> None:
    soft = Head("h", "token", "token", ((0.0, -1.0, NEVER), (NEVER, 0.0, -1.0)), "token")
    assert soft.constants == 4
    assert replace(soft, scores=((0.0, -1.0, -1.0), (-1.0, 0.0, NEVER))).constants == 3
    assert replace(soft, scores=((0.0, NEVER, 0.0), (NEVER, NEVER, 0.0))).constants == 3


def test_scores_that_rounding_tells_apart_are_one_constant() -> None:
    """A model in another form had one constant more."""
    plain = Head("head", "", "token", ((-1.386266, 0.0, -1.386266),), "token")
    assert plain.constants == replace(plain, scores=((-1.3862661, 0.0, -1.386266),)).constants == 2
    assert replace(plain, scores=((-1.39, 0.0, -1.38),)).constants == 3
    small = replace(plain, scores=((1e-4, 3e-4, 2e-4),), total=True)  # of attention that is no softmax
    assert (small.constants, replace(small, scores=((1e-4, 1e-4, 2e-4),)).constants) == (3, 2)
