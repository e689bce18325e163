"""What is read out of a compiled model against the truth: true, merged, split and wrong variables of one program."""

from dataclasses import replace

import torch
from shared.compiled_truth import edges_scored, kind_of_edge, known, labels, matters, partition, removed

import interp
from interp.programs.language import NEVER, Head, Linear, Program, Table

COLORS = ("a", "b", "c")
FIRST = Head("first", "", "position", ((0.0, NEVER),), "token")
SUM = Table("sum", ("token", "first"), tuple((i + j) % 4 for i in range(3) for j in range(3)), tuple("0123"))
ANSWER = Linear("answer", ("sum",), (((1.0, 0.0), (0.0, 1.0), (1.0, 0.0), (0.0, 1.0)),), (0.0, 0.0), ("even", "odd"))
MODEL = interp.compile(Program(COLORS, 2, True, (FIRST, SUM), ANSWER), decoys=2)
TASK = MODEL.task
TOKENS = torch.cat([batch.tokens for batch in TASK.inputs()])


def read(entries: tuple[int, ...]) -> str:
    """How a table in the place of the sum compares."""
    table = replace(SUM, entries=entries, values=tuple(map(str, range(9))), part="MLP 0")
    answer = replace(ANSWER, of=("first", "sum"), weights=(((0.0, 0.0),) * 3, ((0.0, 0.0),) * 9))
    return partition(TASK, "MLP 0", Program(COLORS, 2, True, (FIRST, table), answer), TOKENS)


def test_where_variables_matter() -> None:
    """Read at the last position only; the first token there decides whether the sum is odd."""
    for name in ("first", "sum"):
        assert matters(TASK, name, TOKENS).tolist() == [[False, True]] * 9


def test_true_merged_split_and_wrong() -> None:
    sums = [(i + j) % 4 for i in range(3) for j in range(3)]
    assert read(tuple(sums)) == "same"
    assert read(tuple((3 - s) % 4 for s in sums)) == "same"  # other names of the same values
    assert read(tuple(s % 2 for s in sums)) == "equivalent"  # all that the answer depends on
    assert read(tuple(s // 2 for s in sums)) == "coarser"
    assert read(tuple(range(9))) == "finer"
    assert read((0, 0, 0, 1, 1, 1, 2, 2, 2)) == "other"
    assert partition(TASK, "head 0.0", TASK.program, TOKENS) == "same"


def test_points_are_equal_up_to_rounding() -> None:
    points = torch.tensor([[0.2, 0.8], [0.3, 0.7], [0.2 + 1e-6, 0.8 - 1e-6], [0.3, 0.7]], dtype=torch.float64)
    found = labels(points).tolist()
    assert found[0] == found[2] != found[1] == found[3]


def test_what_is_known() -> None:
    one, two = torch.tensor([0, 0, 1, 1]), torch.tensor([2, 2, 0, 1])
    assert (known(two, one), known(one, two), known(one, torch.tensor([0, 1, 0, 1]))) == (1.0, 0.75, 0.5)


def test_removal() -> None:
    """With the mean of the sums of all rows, the answer is the same everywhere; 5 of 9 sums are even."""
    assert removed(MODEL, [], TOKENS) == removed(MODEL, ["head 0.1"], TOKENS) == 1.0
    assert abs(removed(MODEL, ["MLP 0"], TOKENS) - 5 / 9) < 1e-12


def test_edges_through_mlps_are_scored_by_kind() -> None:
    """The true edges of this model have the largest effects, and its decoys none; head -> head has no true edge."""
    found = edges_scored(MODEL)
    assert kind_of_edge("head 0.1", "MLP 0") == "head -> MLP"
    assert found["largest"] == found["head -> MLP"] == found["embedding -> head"] == 1.0
    assert "head -> head" not in found
