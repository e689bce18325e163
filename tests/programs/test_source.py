"""The Python of a program gives its answers, and says what steps do."""

import math
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
from plain_python import function as run
from shared.random_programs import random_program

import interp
from interp.programs import task
from interp.programs.language import NEVER, Head, Linear, Normed, Program, Sums, Table
from interp.programs.source import source
from interp.programs.words import answer_words, parts_words, step_words


@pytest.mark.parametrize("seed", [0, 3, 5, 8])
def test_python_gives_the_answers(seed: int) -> None:
    task = random_program(seed)
    function, batch = run(task.program), task.sample(40, seed=2)
    assert isinstance(batch, interp.Batch)
    for row, length in zip(batch.tokens.tolist(), batch.lengths.tolist()):
        words = [task.vocabulary[token] for token in row[:length]]
        assert function(words) == task.program(words)


def test_a_table_reads_the_first_of_equal_shares() -> None:
    """The first in the order of the values, not of the row: "ba" has as much of both."""
    letters = ("a", "b", "c")
    eye = tuple(tuple(float(i == j) for j in range(3)) for i in range(3))
    answer = Linear("answer", ("most",), (eye,), (0.0,) * 3, letters)
    even = Head("even", "", "", ((0.0,),), "token")
    program = Program(letters, 2, False, (even, Table("most", ("even",), (0, 1, 2), letters)), answer, read="first")
    for row in product(letters, repeat=2):
        assert run(program)(list(row)) == program(list(row)) == min(row)
    first = replace(even, key="position", scores=((0.0, NEVER),))
    assert "in_order" not in source(replace(program, steps=(first, program.steps[1])))


def test_the_answer_comes_first_and_helpers_and_numbers_after_it() -> None:
    lines = source(random_program(0).program).splitlines()
    defined = [line.split("(")[0] for line in lines if line.startswith("def ")]
    assert defined[:2] == ["def answer", "def select"]
    assert min(lines.index(line) for line in lines if line.startswith("PAD =")) > lines.index("def most(weights):")


@pytest.mark.parametrize("shift", [0, 1])
def test_matrices_that_are_mostly_zero_are_written_in_short(shift: int) -> None:
    words = tuple(map(str, range(40)))
    rows = tuple(tuple(float(j == (i + shift) % 40) for j in range(40)) for i in range(40))
    program = Program(words, 3, True, (), Linear("answer", ("token",), (rows,), (0.0,) * 40, words), read="last")
    assert len(source(program)) < 5_000
    names: dict[str, Any] = {}
    exec(source(program), names)
    assert names["ANSWER_WEIGHTS_0"] == dict(zip(words, rows))
    assert names["answer"](["3", "39", "7"]) == program(["3", "39", "7"]) == str(7 + shift)
    dense = tuple(tuple(1.0 + weight for weight in row) for row in rows)
    assert "sparse" not in source(replace(program, answer=replace(program.answer, weights=(dense,))))


def test_words() -> None:
    before = tuple(tuple(0.0 if k == q - 1 else NEVER for k in range(3)) for q in range(3))
    mirror = tuple(tuple(0.0 if k == 2 - q else NEVER for k in range(3)) for q in range(3))
    equal = tuple(tuple(0.0 if k == q else NEVER for k in range(2)) for q in range(2))
    steps = (
        Head("p", "position", "position", before, "token", "head 0.0"),
        Head("s", "token", "p", equal, "token", "head 1.0"),
        Head("e", "", "", ((0.0,),), "token"), Head("w", "", "token", ((0.0, -0.6931471805599453),), "token"),
        Head("f", "", "position", ((0.0, NEVER, 0.0),), "token"),
        Head("o", "", "position", ((NEVER, 0.0, NEVER),), "p"),
        Head("k", "token", "p", ((0.0, 0.0), (0.0, NEVER)), "token"),
        Head("m", "position", "position", mirror, "token"),
        Table("t", ("token", "p"), (0, 1, 1, 0), ("x", "y"), "MLP 1"),
    )  # fmt: skip
    program = Program(("a", "b"), 3, True, steps, Linear("answer", ("t",), (((1.0, 0.0), (0.0, 1.0)),), (0.0, 0.0),
                                                          ("x", "y")), words={"p": "the token before"})  # fmt: skip
    assert [step_words(program, step) for step in steps] == [
        "attends to the position before and reads the token",
        "attends to positions where the token before (head 0.0) equals its own token and reads the token",
        "attends evenly to all positions that it sees and reads the token",
        "attends to positions by their token, more to each 'a' (weights 'a' 1, 'b' 0.5), and reads the token",
        "attends evenly to positions 0 and 2 and reads the token",
        "attends to position 1 and reads the token before (head 0.0)",
        "attends to positions where the token before (head 0.0) fits its own token (a table of 3 pairs) and reads the "
        "token",
        "attends to position 2 minus its own position and reads the token",
        "says whether the token before (head 0.0) differs from the token",
    ]
    assert answer_words(program) == "The answer follows from the value of t."
    most = Linear("answer", ("w",), (((1.0, 0.0), (0.0, 1.0)),), (0.0, 0.0), ("a", "b"))
    assert answer_words(replace(program, answer=most)) == (
        "The answer is the token with the largest share of the attention of w."
    )
    assert parts_words(["head 0.3", "head 0.12", "MLP 1"]) == "heads 0.3 and 0.12 and MLP 1"


def test_places_are_relative_where_the_key_is_the_position() -> None:
    """A position that a head has read is compared by its value; where nothing is selected, a place still has a name."""
    before = tuple(tuple(0.0 if k == q - 1 else NEVER for k in range(4)) for q in range(4))
    mirror = tuple(tuple(0.0 if k == 2 - q else NEVER for k in range(4)) for q in range(4))
    equal = tuple(tuple(0.0 if k == q else NEVER for k in range(4)) for q in range(4))
    read = Head("p", "position", "position", before, "position", "head 0.0")
    heads = [replace(read, name="h", key=key, scores=scores, value="token", part="head 1.0")
             for key, scores in (("position", mirror), ("p", equal), ("p", before))]  # fmt: skip
    answer = Linear("answer", ("token",), (((1.0, 0.0), (0.0, 1.0)),), (0.0, 0.0), ("a", "b"))
    program = Program(("a", "b"), 4, True, (read,), answer)
    assert [step_words(program, head, brief=True).partition(" and reads")[0] for head in heads] == [
        "attends to position 2 minus its own position",
        "attends to positions where the value of p equals its own position",
        "attends to positions where the value of p fits its own position (a table of 3 pairs)",
    ]


def test_several_places_relative_to_the_own_one() -> None:
    """Two before and one before where both are there; with a pair missing, some of them; four are all earlier ones."""
    both = [[0.0 if q - k in (1, 2) else NEVER for k in range(5)] for q in range(5)]
    fewer = [[NEVER if (q, k) == (4, 3) else score for k, score in enumerate(row)] for q, row in enumerate(both)]
    around = [[0.0 if q - k in (-1, 1, 3) else NEVER for k in range(5)] for q in range(5)]
    more = [[0.0 if q - k in (1, 2, 3, 4) else NEVER for k in range(5)] for q in range(5)]
    answer = Linear("answer", ("token",), (((1.0, 0.0), (0.0, 1.0)),), (0.0, 0.0), ("a", "b"))
    heads = [Head("h", "position", "position", tuple(map(tuple, rows)), "token", "head 0.0")
             for rows in (both, fewer, around, more)]  # fmt: skip
    said = [
        step_words(Program(("a", "b"), 5, False, (head,), answer), head).partition(" and reads")[0] for head in heads
    ]
    assert said == [
        "attends evenly to the positions 2 and 1 before its own",
        "attends to one or more of the positions 2 and 1 before its own",
        "attends evenly to the positions 3 and 1 before and 1 after its own",
        "attends evenly to all earlier positions",
    ]


def test_graded_places_are_not_said_to_be_even() -> None:
    """Twice the weight for one of two places; and more, or less, to the own place."""
    answer = Linear("answer", ("token",), (((1.0, 0.0), (0.0, 1.0)),), (0.0, 0.0), ("a", "b"))

    def said(own: float, before: float, two: float, other: float = NEVER) -> str:
        near = {0: own, 1: before, 2: two}
        rows = tuple(tuple(near.get(q - k, other) for k in range(5)) for q in range(5))
        head = Head("h", "position", "position", rows, "token", "head 0.0")
        return step_words(Program(("a", "b"), 5, False, (head,), answer), head, brief=True).partition(" and reads")[0]

    assert said(NEVER, 0.0, -0.7) == "attends most to the positions 2 and 1 before its own"
    assert said(0.0, -0.7, -0.7, -0.7) == "attends more to its own position"
    assert said(-0.7, 0.0, 0.0, 0.0) == "attends less to its own position"


def test_the_place_of_most_attention_is_said() -> None:
    """Scores of places where the one before has most of the attention, of positions that see it, and no other half."""
    answer = Linear("answer", (), (), (0.0,), ("x",))

    def said(before: float, brief: bool = False, level: float = 0.0) -> str:
        scores = tuple(
            tuple(level + (before if k == q - 1 else 0.01 * (q * k % 3)) for k in range(6)) for q in range(6)
        )
        head = Head("h", "position", "position", scores, "token")
        return step_words(Program(("a", "b"), 6, True, (head,), answer), head, brief).partition("scores")[2]

    shares = {}
    for shift in range(6):  # by plain numbers
        rows = [[math.exp(2 if k == q - 1 else 0.01 * (q * k % 3)) for k in range(q + 1)] for q in range(6)]
        shares[shift] = sum(row[q - shift] / sum(row) for q, row in enumerate(rows) if q >= shift) / 6
    assert f"{shares[1]:.4f} of it; to no other more than {shares[0]:.4f}" in said(2.0)
    assert said(2.0, brief=True) == ", most to the position before) and reads the token"
    assert said(0.5) == ") and reads the token"
    for level in (-900.0, 900.0):  # softmax does not depend on it, but exp has no such numbers
        assert said(2.0, brief=True, level=level) == said(2.0, brief=True)


def test_scores_that_say_whether_two_tokens_are_equal() -> None:
    """Twice the weight, half of it, and without softmax the two weights; any third score makes it a table."""
    answer = Linear("answer", ("h",), (((1.0, 0.0), (0.0, 1.0)),), (0.0, 0.0), ("a", "b"))

    def said(equal: float, other: float, last: float, total: bool = False) -> str:
        head = Head("h", "token", "token", ((equal, other), (other, last)), "token", "head 0.0", total)
        return step_words(Program(("a", "b"), 3, True, (head,), answer), head).partition("itions ")[2]

    assert said(0.0, -math.log(2), 0.0) == (
        "where the token equals its own token (2 times the weight of others) and reads the token"
    )
    assert said(-math.log(2), 0.0, -math.log(2)).endswith("token (0.5 times the weight of others) and reads the token")
    assert said(0.0, -0.7, -0.1) == "by their token and its own token (a table of scores) and reads the token"
    assert said(2.0, 0.5, 2.0, total=True) == (
        "that it sees, with weight 2 where the token equals its own token, and 0.5 elsewhere"
    )


def test_weights_without_softmax_in_python_and_in_words() -> None:
    head = Head("h", "token", "token", ((2.0, 0.5), (-3.0, 1.0)), "token", "head 0.0", total=True)
    answer = Linear("answer", ("h",), (((1.0, 0.0), (0.0, 1.0)),), (0.0, 0.3), ("a", "b"))
    program = Program(("a", "b"), 3, True, (head,), answer, read="all")
    function = run(program)
    rows = list(product("ab", repeat=3))
    assert [function(row) for row in rows] == [program(row) for row in rows]
    assert len({tuple(program(row)) for row in rows}) > 2
    over = "adds up the token over the positions that it sees"
    assert step_words(program, head) == f"{over}, weighted by their token and its own token"
    alike = replace(head, query="", key="", scores=((1.0,),))
    assert step_words(program, alike) == f"{over}, all with one weight"


def test_scores_that_grow_with_the_length() -> None:
    """At ln 3 (length 3), a b has a score of -ln 3, and so a third of the weight of an a."""
    head = Head("h", "", "token", ((0.0, -1.0, NEVER),), "token", "head 0.0", scaled=True)
    answer = Linear("answer", ("h",), (((1.0, 0.0), (0.0, 2.5), (0.0, 0.0)),), (0.0, 0.0), ("a", "b"))
    program = Program(("a", "b", "[PAD]"), 4, False, (head,), answer, pad="[PAD]")
    made = program.run(torch.tensor([[0, 1, 1, 2], [0, 1, 1, 1]]))["h"][:, 0]
    assert torch.allclose(made, torch.tensor([[3 / 5, 2 / 5, 0.0], [4 / 7, 3 / 7, 0.0]]).double())
    function = run(program)
    rows = [row for n in range(1, 5) for row in product("ab", repeat=n)]
    assert [function(row) for row in rows] == [program(row) for row in rows]
    assert Program.from_json(program.to_json()) == program
    assert step_words(program, head) == (
        "attends to positions by their token, with powers of the length as weights ('a' 1, 'b' n^-1, with n tokens) "
        "and reads the token"
    )
    with pytest.raises(interp.InterpError, match="grow with the length"):
        interp.compile(program)


def test_numbers_in_python_and_in_words() -> None:
    """Sums, ramps and normed variables: the Python gives the program's answers, also where a head reads positions."""
    steps = (
        Sums("query", ("token",), (((1.0, -1.0), (0.5, 2.0)),), (0.1, -0.2)),
        Normed("token by query", ("token",), "query"),
        Sums("key", ("token by query", "position"), (((0.3, 1.0), (2.0, 0.0), (0, -1.0)), ((0, 0.2),) * 3), (0.0, 0.5)),
        Head("h", "query", "key", ((1.0, 0.0), (0.0, 1.0)), "position", "head 0.0"),
        Sums("m", ("h", "token"), (((1.0, 2.0), (-1.0, 0.3), (0.5, -2.0)), ((0.2, 0.0), (0.0, 0.1))), (-0.3, 0.1), True,
             "MLP 0"),
    )  # fmt: skip
    answer = Linear("answer", ("m",), (((1.0, 0.0), (0.0, 1.3)),), (0.0, 0.01), ("a", "b"))
    program = Program(("a", "b"), 3, False, steps, answer, read="all")
    function = run(program)
    for row in product("ab", repeat=3):
        assert function(row) == program(row)
    assert Program.from_json(program.to_json()) == program
    assert [step_words(program, step) for step in (steps[1], *steps[3:])] == [
        "divides the token by the length of 2 weighted sums over the token",
        "attends to positions by 2 products, each of a weighted sum over the token and the position "
        "(normalized) there and one over the token at its own position and reads the position",
        "makes 2 weighted sums over the value of h and the token, or 0 where they are negative",
    ]


def test_a_part_with_a_line_break_stays_in_its_comment() -> None:
    """A program from a file may name parts as it likes."""
    program = task.ENDS
    head = next(step for step in program.steps if isinstance(step, Head))
    odd = replace(head, part="head 0.0\n    raise SystemExit\n    #")
    steps = tuple(odd if one is head else one for one in program.steps)
    names: dict[str, Any] = {}
    exec(source(replace(program, steps=steps)), names)
    assert names["answer"](list("aaa")) == program(list("aaa"))


@pytest.mark.parametrize("name", ["if", "not", "max", "len", "range", "sum", "x²", "2", "None", "answer", "found"])
def test_steps_may_be_called_as_python_s_own_words(name: str) -> None:
    head = Head(name, "", "position", ((0.0, NEVER, NEVER),), "token")
    same = Table("same", ("token", name), (1, 0, 0, 1), ("no", "yes"))
    answer = Linear("answer", ("same",), (((1.0, 0.0), (0.0, 1.0)),), (0.0, 0.0), ("no", "yes"))
    program = Program(("a", "b"), 3, True, (head, same), answer)
    assert run(program)(list("abb")) == program(list("abb"))
