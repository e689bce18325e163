import numpy as np
import pandas as pd
import pytest

from interp.errors import InterpError
from interp.support.figures.heads import attention_ratios, heads_heatmap, intervention_curve, metrics_by_size


def test_heat_map_has_singles_on_the_diagonal_and_pairs_beside():
    frame = pd.DataFrame(
        {
            "heads": [(2,), (5,), (7,), (2, 5), (5, 7), (2, 5, 7)],
            "size": [1, 1, 1, 2, 2, 3],
            "s_acc": [0.6, 0.7, 0.8, 0.9, 0.95, 1.0],
        }
    )
    figure = heads_heatmap(frame, "s_acc")
    cells = figure.data[0]
    expected = [[0.6, 0.9, np.nan], [0.9, 0.7, 0.95], [np.nan, 0.95, 0.8]]
    np.testing.assert_array_equal(cells.z, np.array(expected, dtype=np.float32))
    assert list(cells.x) == list(cells.y) == ["0.2", "0.5", "0.7"]
    assert (figure.layout.coloraxis.cmin, figure.layout.coloraxis.cmax) == (np.float32(0.6), 1.0)


def test_heat_map_refuses_what_it_cannot_draw():
    frame = pd.DataFrame({"heads": [(0, 1, 2)], "size": [3], "s_acc": [1.0]})
    with pytest.raises(InterpError, match="unknown metric 's-acc'; known: s_acc, l_acc, roc_auc"):
        heads_heatmap(frame, "s-acc")
    with pytest.raises(InterpError, match="the frame has only larger groups"):
        heads_heatmap(frame, "s_acc")


def test_metrics_by_size_draws_quartiles():
    values = [0.1, 0.2, 0.4, 0.8, 0.9]
    frame = pd.DataFrame({"size": [1] * 5 + [2], "s_acc": [*values, 0.5], "roc_auc": 1.0})
    boxes = metrics_by_size(frame).data
    assert [box.name for box in boxes] == ["separation accuracy", "ROC AUC"]
    drawn = [getattr(boxes[0], name)[0] for name in ("lowerfence", "q1", "median", "q3", "upperfence")]
    np.testing.assert_allclose(drawn, values, rtol=1e-6)
    assert boxes[0].median[1] == 0.5


def test_ratios_that_a_logarithm_cannot_show_stand_at_the_edge():
    frame = pd.DataFrame(
        {
            "head": [0, 1, 2], "w01": [0.0, 1.0, 1e-6], "w02": [np.inf, 30.0, 30.0], "s_acc": [0.5, 1.0, 1.0],
            "category": ["failed", "successful", "successful"],
        }
    )  # fmt: skip
    figure = attention_ratios(frame)
    dots = {trace.name: trace for trace in figure.data if trace.x[0] is not None}  # the legend's have no place
    assert (dots["failed"].x[0], dots["failed"].y[0]) == (1e-12, 1e12)
    assert "w01 0, w02 inf" in dots["failed"].customdata[0]
    assert figure.layout.xaxis.range[0] < -12
    assert {label.text: label.xanchor for label in figure.layout.annotations} == {
        "0.0": "left",
        "0.1": "right",
        "0.2": "center",
    }  # a long label of several heads stays inside the picture
    rule = dots["w01 = 1 and w02 = 10"]
    assert (rule.x[0], rule.x[1]) == (1, 1)
    assert (rule.y[3], rule.y[4]) == (10, 10)


def test_band_is_one_standard_deviation_around_the_mean():
    frame = pd.DataFrame({"head": [0, 1, 0, 1], "ratio": [1.0, 1.0, 10.0, 10.0], "s_acc": [1.0, 1.0, 0.5, 0.7]})
    low, high, mean = intervention_curve(frame).data
    np.testing.assert_allclose(mean.y, [1.0, 0.6], rtol=1e-6)
    np.testing.assert_allclose(low.y, [1.0, 0.5], rtol=1e-6)
    np.testing.assert_allclose(high.y, [1.0, 0.7], rtol=1e-6)
    with pytest.raises(InterpError, match="unknown attention ratio 'w03'; known: w01, w02"):
        intervention_curve(frame, "w03")
