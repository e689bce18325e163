import numpy as np
import pandas as pd
import pytest

from interp.support.figures.answers import error_by_difference, error_frontier, logit_distributions


def test_boxes_hold_percentiles_per_context_head_and_token():
    values = np.arange(101.0)
    rows = [
        pd.DataFrame({"head": head, "current": current, "next": following, "token": token, "logit": values + shift})
        for head in [10, 2, "model"]
        for current, following, shift in [("4", "[EOS]", 1000.0), ("=", "5", 0.0)]
        for token in ["[EOS]", "4"]
    ]
    figure = logit_distributions(pd.concat(rows))
    assert [note.text for note in figure.layout.annotations] == [
        "after '=', when '5' follows",
        "after '4', when '[EOS]' follows",
    ]
    # Two contexts, the heads and the model, two tokens.
    assert [(trace.xaxis, len(trace.x)) for trace in figure.data] == [
        (axis, n) for axis, n in [("x", 2), ("x2", 1), ("x3", 2), ("x4", 1)] for _ in "ab"
    ]
    first, last = figure.data[0], figure.data[-1]
    assert list(first.x) == ["0.2", "0.10"]
    assert list(last.x) == ["model"]
    assert sum(trace.showlegend for trace in figure.data) == 2
    assert first.name == "logit of '4'"
    assert last.name == "logit of '[EOS]'"
    assert [first.lowerfence[0], first.q1[0], first.median[0], first.q3[0], first.upperfence[0]] == [5, 25, 50, 75, 95]
    assert last.median[0] == 1050


@pytest.mark.parametrize(("head", "name"), [(3, "0.3"), ("model", "model")])
def test_heads_alone_or_the_model_alone_fill_the_figure(head, name):
    frame = pd.DataFrame({"head": head, "current": "=", "next": "4", "token": "4", "logit": [1.0, 2.0]})
    (box,) = logit_distributions(frame).data
    assert list(box.x) == [name]


def test_error_shares_near_the_boundary():
    frame = pd.DataFrame({"difference": range(-50, 51), "inputs": 200, "errors": 0})
    frame.loc[frame["difference"] == 2, "errors"] = 50
    zeros, ones = error_by_difference(frame, margin=3).data
    assert zeros.x.tolist() == [-3, -2, -1, 0]
    assert ones.x.tolist() == [1, 2, 3, 4, 5]
    assert ones.y.tolist() == [0, 0.25, 0, 0, 0]
    assert ones.customdata[1] == "50 of 200 inputs"


def test_no_errors_are_said_in_words():
    frame = pd.DataFrame({"difference": [-1, 0, 1], "inputs": [1000, 500, 0], "errors": 0})
    assert error_by_difference(frame).layout.annotations[0].text == "no errors on 1,500 inputs"
    frame = pd.DataFrame({"n2": [0, 1], "min_difference": np.nan, "max_difference": np.nan})
    assert error_frontier(frame).layout.annotations[0].text == "no errors"


def test_frontier_spans_all_wrong_differences():
    frame = pd.DataFrame({"n2": [2, 0, 1], "min_difference": [1, np.nan, -2], "max_difference": [3, np.nan, 1]})
    (span,) = error_frontier(frame).data
    assert span.x.tolist() == [0, 1, 2]
    assert span.base[1:].tolist() == [-2.5, 0.5]
    assert (span.base + span.y)[1:].tolist() == [1.5, 3.5]
    assert np.isnan(span.y[0])
    assert list(span.customdata) == ["no errors", "from -2 to 1", "from 1 to 3"]


def test_bars_with_no_inputs_stay_empty():
    frame = pd.DataFrame({"difference": [0, 1], "inputs": [0, 4], "errors": [0, 1]})
    zeros, ones = error_by_difference(frame).data
    assert np.isnan(zeros.y[0])
    assert ones.y[0] == pytest.approx(0.25)
