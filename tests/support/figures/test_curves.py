import numpy as np
import pandas as pd

from interp.support.figures.curves import bars, history, lines, scatter

FRAME = pd.DataFrame({"x": [2.0, 1.0, 1.0], "y": [20.0, 10.0, 5.0], "who": ["a", "a", "<b>"], "err": [1.0, 2.0, 3.0]})


def test_lines_run_in_the_order_of_x():
    figure = lines(FRAME, "x", "y", "who", y_title="loss (nats)", y_type="log")
    assert [trace.name for trace in figure.data] == ["a", "&lt;b&gt;"]
    assert figure.data[0].x.tolist() == [1, 2]
    assert figure.data[0].y.tolist() == [10, 20]
    assert figure.layout.yaxis.type == "log"
    assert (figure.layout.xaxis.title.text, figure.layout.yaxis.title.text) == ("x", "loss (nats)")


def test_lines_tell_many_groups_apart():
    many = pd.DataFrame({"x": 0.0, "y": 0.0, "who": range(20)})
    looks = [(trace.line.color, trace.line.dash) for trace in lines(many, "x", "y", "who").data]
    assert len(set(looks)) == 20


def test_bars_with_labels_and_whiskers():
    figure = bars(FRAME, "who", "y", "x", error="err", stacked=True)
    assert figure.layout.barmode == "stack"
    assert figure.layout.xaxis.type == "category"
    assert list(figure.data[1].x) == ["a", "&lt;b&gt;"]
    assert figure.data[1].error_y.array.tolist() == [2, 3]


def test_scatter_colors_by_scale_or_by_name():
    by_scale = scatter(FRAME, "x", "y", "err", label="who", diagonal=True)
    diagonal, dots = by_scale.data
    assert diagonal.x == diagonal.y == (1.0, 20.0)
    assert dots.marker.color.tolist() == [1, 2, 3]
    assert dots.text == ("a", "a", "&lt;b&gt;")
    assert by_scale.layout.coloraxis.colorbar.title.text == "err"
    assert [trace.name for trace in scatter(FRAME, "x", "y", "who").data] == ["a", "&lt;b&gt;"]
    assert not scatter(FRAME, "x", "y").data[0].showlegend
    assert len(scatter(FRAME, "x", "y", label="who").data) == 1


def test_dots_close_to_each_other_share_a_label():
    frame = pd.DataFrame({"x": [0.0, 1.0, 0.01], "y": [0.0, 1.0, 0.02], "who": ["a", "b", "c"]})
    labels = scatter(frame, "x", "y", label="who", named=True).data[-1]
    assert dict(zip(labels.text, labels.y.tolist())) == {"a, c": np.float32(0.02), "b": 1.0}
    assert not labels.showlegend


def test_history_has_a_line_per_seed_and_quantity():
    frame = pd.DataFrame({"seed": [1, 0, 0], "epoch": [0, 1, 0], "loss": [3.0, 1.0, 2.0], "accuracy": [0.1, 0.9, 0.5]})
    traces = history(frame).data
    assert [trace.name for trace in traces] == ["seed 1", "seed 1", "seed 0", "seed 0"]
    np.testing.assert_array_equal(traces[2].y, np.float32([2.0, 1.0]))
    np.testing.assert_array_equal(traces[3].y, np.float32([0.5, 0.9]))
    assert [trace.showlegend for trace in traces] == [True, False, True, False]
