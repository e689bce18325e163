import numpy as np
import pandas as pd
import pytest

from interp.errors import InterpError
from interp.support.figures.cells import MISSING, cells, for_a_page, is_numeric


def column(values, **formats):
    return [row[0] for row in cells(pd.DataFrame({"a": pd.Series(values)}), formats)]


@pytest.mark.parametrize(("values", "expected"), [
    ([1, 20, -3], ["1", "20", "-3"]),
    ([0.5, 1.0, 0.98765], ["0.5000", "1.0000", "0.9877"]),
    ([12.5, 40.0], ["12.50", "40.00"]),
    ([0.0125, 158.3, 3.25, 0.0], ["0.0125", "158", "3.25", "0"]),  # spread over sizes: three digits each
    ([1e-6, 2e-5], ["1.000e-06", "2.000e-05"]), ([0.5, np.nan, np.inf], ["0.5000", MISSING, "inf"]),
    ([0.0, 0.0], ["0", "0"]), ([True, False], ["yes", "no"]), (["<b>", None], ["<b>", MISSING]),
    ([(0,), (1, 2)], ["(0,)", "(1, 2)"]),
])  # fmt: skip
def test_a_column_without_format(values, expected):
    assert column(values) == expected


def test_formats():
    assert column([0.12345], a=".2f") == ["0.12"]
    assert column([0.5], a=".1%") == ["50.0%"]
    assert column([3], a=lambda value: f"head {value}") == ["head 3"]
    with pytest.raises(InterpError, match="unknown column in formats 'aa'; known: a; did you mean 'a'"):
        column([1], aa=".2f")
    with pytest.raises(InterpError, match=r"format '\.2f' does not fit the column 'a'"):
        column(["word"], a=".2f")


def test_columns_of_the_same_name_are_both_written():
    frame = pd.DataFrame([[1, "x"]], columns=["a", "a"])
    assert cells(frame) == [["1", "x"]]
    assert is_numeric(frame) == [True, False]


def test_an_empty_frame_has_no_rows():
    assert cells(pd.DataFrame({"a": []})) == []


def test_heads_have_one_name_in_tables() -> None:
    alone = pd.DataFrame({"head": [3, 12], "s_acc": [0.5, 1.0]})
    assert for_a_page(alone)["head"].tolist() == ["0.3", "0.12"]
    layered = pd.DataFrame({"layer": [0, 1], "head": [3, 0]})
    assert for_a_page(layered).to_dict("list") == {"head": ["0.3", "1.0"]}
    assert for_a_page(pd.DataFrame({"heads": [(3,), (0, 1)]}))["heads"].tolist() == ["0.3", "0.0, 0.1"]
    named = pd.DataFrame({"head": ["1.2"], "layer": [1]})
    assert for_a_page(named).equals(named)


def test_columns_of_few_values_come_last() -> None:
    frame = pd.DataFrame({"part": ["a", "b", "c"], "rare": [None, None, 1.0], "none": None, "n": [1, 2, 3]})
    assert list(for_a_page(frame).columns) == ["part", "n", "rare"]
