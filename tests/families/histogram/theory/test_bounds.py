"""The feasibility table: printed, corrected, necessary, verified. That the last can be built: tests/constructions."""

import math

import pandas as pd
import pytest

from interp.errors import InterpError
from interp.families.histogram import feasibility
from interp.families.histogram.theory.frames import simplex_dimension, welch_bound


def values(model, column, T=32, L=10):
    table = feasibility(model, T, L).set_index("p")
    return [None if pd.isna(x) else int(x) for x in table.loc[["1", "T"], column]]


@pytest.mark.parametrize(("model", "printed", "corrected", "necessary", "verified"), [
    ("lin", [None, 29], [None, 29], [None, 28], [None, 29]),
    ("lin+sftm", [None, 29], [None, 29], [None, 28], [None, 29]),
    ("dot", [30, 12], [30, 8], [29, 8], [30, 8]),
    ("bos", [30, 12], [30, 8], [29, 8], [30, 8]),
    ("bos+sftm", [8, 8], [7, 7], [3, 3], [3, 3]),
    ("dot+sftm", [None, 8], [None, None], [None, None], [None, 6]),
])  # fmt: skip
@pytest.mark.thinned(2)
def test_frontier_at_the_published_size(model, printed, corrected, necessary, verified):
    """Section 5.2 prints 29, 30, 12 and 8; the frontier of the errata's section D."""
    assert values(model, "printed") == printed
    assert values(model, "corrected") == corrected
    assert values(model, "necessary") == necessary
    assert values(model, "verified") == verified


def test_integer_fraction_is_floor_plus_one():
    """Erratum 12: T = 10, L = 3 prints 5, corrected 6; a one-sided frame reaches 5 after all (its bound)."""
    assert values("lin", "printed", 10, 3)[1] == 5
    assert values("lin", "corrected", 10, 3)[1] == 6
    assert values("lin", "necessary", 10, 3)[1] == 5


def test_the_formula_is_not_the_limit():
    """Erratum 14: at T = 64 simplices give 58 (L = 10) and 60 (L = 15), the formula 53 and 59; so do frames."""
    assert (simplex_dimension(64, 10), simplex_dimension(64, 15)) == (58, 60)
    assert [values("lin", "verified", 64, L)[1] for L in (10, 15)] == [53, 59]
    assert values("lin", "verified", 16, 6)[1] == 13 < values("lin", "corrected", 16, 6)[1]


@pytest.mark.parametrize("model", ["lin", "lin-softmax", "dot", "dot-softmax", "bos", "bos-softmax"])
@pytest.mark.thinned(2)
def test_columns_agree_with_each_other(model):
    for T, L in ((2, 2), (5, 3), (12, 4), (16, 20), (33, 7)):
        table = feasibility(model, T, L)
        assert list(table["p"]) == ["1", "T"]
        known = table.dropna(subset=["verified"])
        assert (known["verified"] <= T).all()
        assert (known["necessary"].fillna(0) <= known["verified"]).all()
        assert (known["variant"] != "").all()
        assert (known["verified_source"] != "").all()


def test_welch_bound_behind_the_printed_formula():
    """Eq. 50 is where the Welch bound falls below 1/(2L - 3); checked from the definition."""
    for T, L in ((32, 10), (64, 15), (20, 4)):
        first = next(d for d in range(1, T + 1) if welch_bound(T, d) < 1 / (2 * L - 3))
        assert values("lin", "corrected", T, L)[1] == first
        squared = next(d for d in range(1, T + 1) if welch_bound(T, d) < 1 / math.sqrt(L - 1))
        assert values("dot", "corrected", T, L)[1] == squared


def test_bad_input_is_one_sentence():
    with pytest.raises(InterpError, match="unknown histogram model 'linear'"):
        feasibility("linear")
    with pytest.raises(InterpError, match="T >= 2 tokens and a length L >= 2, got T=32, L=1"):
        feasibility("dot", 32, 1)


def test_where_a_frame_saves_no_width_embeddings_are_orthonormal():
    """T = 3, L = 2: the simplex needs 2, with a counter 3 = T. T = 4, L = 2: the squared frame needs as much as T."""
    counter = feasibility("dot", 3, 2).set_index("p").loc["1"]
    assert (counter["verified"], counter["variant"]) == (3, "orthogonal")
    plain = feasibility("lin", 3, 2).set_index("p").loc["T"]
    assert (plain["verified"], plain["variant"]) == (2, "simplex")
    scores = feasibility("dot", 4, 2).set_index("p")
    assert scores.loc["T", "verified"] == scores.loc["1", "verified"] == 3
    assert scores.loc["T", "variant"] == scores.loc["1", "variant"] != "frame"
