"""Deciding: every rule against plain Python, and positions that are read."""

import math

import pytest
import torch

from interp.errors import InterpError
from interp.families.count01 import Count01
from interp.families.histogram import Histogram
from interp.families.languages import Parity
from interp.models.architecture.answers import Decision, decide, losses, margins, read_mask, right_classes

OUT = torch.tensor([[0.5, 2.0, -1.0], [3.0, 3.0, 1.0], [-1.0, -2.0, 0.0]], dtype=torch.float64)


def test_argmax_takes_the_first_of_equal_outputs() -> None:
    assert decide(OUT, Decision()).tolist() == [1, 0, 2]
    assert decide(OUT, Decision(among=(2, 0))).tolist() == [0, 0, 2]
    classes = torch.tensor([1, 1, 0])
    assert margins(OUT, classes, Decision()).tolist() == [1.5, 0.0, -1.0]
    expected = [math.log(sum(math.exp(x) for x in row)) - row[c] for row, c in zip(OUT.tolist(), classes.tolist())]
    assert losses(OUT, classes, Decision()).tolist() == pytest.approx(expected)


def test_among_leaves_the_other_outputs_out() -> None:
    rule, classes = Decision(among=(0, 2)), torch.tensor([0, 2, 0])
    assert margins(OUT, classes, rule).tolist() == [1.5, -2.0, -1.0]
    expected = [math.log(math.exp(a) + math.exp(b)) - (a, b)[c // 2] for (a, _, b), c in zip(OUT.tolist(), [0, 2, 0])]
    assert losses(OUT, classes, rule).tolist() == pytest.approx(expected)


def test_one_output_decides_by_sign_or_by_tolerance() -> None:
    s, classes = torch.tensor([[0.2], [-0.3], [0.0]], dtype=torch.float64), torch.tensor([1, 1, 0])
    assert decide(s, Decision("sigmoid")).tolist() == [1, 0, 0]
    assert margins(s, classes, Decision("sigmoid")).tolist() == [0.2, -0.3, 0.0]
    expected = [-math.log(1 / (1 + math.exp(-x))) for x in (0.2, -0.3)] + [math.log(2)]
    assert losses(s, classes, Decision("sigmoid")).tolist() == pytest.approx(expected)
    near = Decision("indicator", tolerance=0.25)
    assert decide(s, near).tolist() == [1, 0, 1]
    assert margins(s, classes, near).tolist() == pytest.approx([0.05, -0.05, -0.25])
    assert losses(s, classes, near) is None
    no = torch.tensor([0, 0, 1])  # the other answers: every margin changes its sign
    assert margins(s, no, Decision("sigmoid")).tolist() == [-0.2, 0.3, 0.0]
    assert margins(s, no, near).tolist() == pytest.approx([-0.05, 0.05, 0.25])


def test_rules_that_make_no_sense_are_refused() -> None:
    with pytest.raises(InterpError, match="only an indicator has one"):
        Decision("sigmoid", tolerance=1.0)
    with pytest.raises(InterpError, match="at least two different outputs"):
        Decision(among=(1, 1))
    with pytest.raises(InterpError, match="decides on one output"):
        decide(OUT, Decision("sigmoid"))


def test_where_answers_are_read() -> None:
    task = Count01()
    batch = task.sentences(torch.tensor([[1, 2, 0], [1, 0, 0]]))
    assert read_mask(task, batch, "=").nonzero().tolist() == [[0, 4], [1, 2]]
    assert read_mask(task, batch, "all").sum(1).tolist() == [2, 2]  # the answer, and [EOS] after it
    assert right_classes(task, batch, "=").tolist() == [5, 6]
    assert right_classes(task, batch, "all").tolist() == [5, 7, 6, 7]
    language = Parity(length=3)
    strings = language.encode(["01", "011"])
    assert right_classes(language, strings, "last").tolist() == [1, 0]  # labelled at [CLS], read elsewhere
    histogram = Histogram(T=3, L=3, bos=True)
    rows = histogram.of_sequences(torch.tensor([[0, 0, 1]]))
    assert read_mask(histogram, rows, "all").tolist() == [[False, True, True, True]]
    assert right_classes(histogram, rows, "all").tolist() == [1, 1, 0]
