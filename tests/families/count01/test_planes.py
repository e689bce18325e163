from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from closeness import close

import interp
from interp.families.count01.planes import head_plane, head_planes, head_planes_grid
from interp.measures.heads import HeadOutputs

ROOT = Path(__file__).resolve().parents[3]
POINTS = pd.DataFrame({"x": [0.0, 1.0, 0.2], "y": [0.0, 1.0, 0.1], "label": ["4", "5", "4"]})
VALUES = pd.DataFrame({"token": ["0", "1", "2"], "x": [0.0, 2.0, -1.0], "y": [3.0, 0.0, 1.0]})


def by_name(figure):
    return {trace.name: trace for trace in figure.data}


@pytest.mark.parametrize("separator", [(1.0, 2.0, -1.0), (1.0, 0.0, -0.5), (0.0, -3.0, 1.0), np.array([5.0, 1.0, 0.0])])
def test_separator_is_the_part_of_the_line_inside_the_box(separator):
    figure = head_plane(POINTS, VALUES, separator, 0)
    line = by_name(figure)["separator"]
    w1, w2, b = separator
    close(w1 * line.x + w2 * line.y + b, 0, atol=1e-5)
    (x0, x1), (y0, y1) = figure.layout.xaxis.range, figure.layout.yaxis.range
    at_border = np.isclose(line.x, x0) | np.isclose(line.x, x1) | np.isclose(line.y, y0) | np.isclose(line.y, y1)
    assert len(line.x) == 2
    assert at_border.all()
    assert (line.x[0], line.y[0]) != (line.x[1], line.y[1])


@pytest.mark.parametrize("separator", [(1.0, 1.0, 100.0), (0.0, 0.0, 1.0)])
def test_a_line_outside_the_box_is_not_drawn(separator):
    assert len(by_name(head_plane(POINTS, VALUES, separator, 0))["separator"].x) == 0


def test_points_wear_the_color_of_their_answer():
    traces = by_name(head_plane(POINTS, VALUES, None, 7, variance=(0.9, 0.1)))
    assert traces["answer '4'"].x.tolist() == pytest.approx([0.0, 0.2])
    assert traces["answer '5'"].x.tolist() == [1.0]
    assert traces["answer '4'"].marker.color != traces["answer '5'"].marker.color
    assert traces["value vectors"].text == ("0", "1", "2")
    assert "separator" not in traces


def test_value_vectors_that_lie_together_have_one_label():
    values = VALUES.assign(x=[0.0, 1.0, 0.01], y=[0.5, 0.5, 0.5])
    vectors = next(t for t in head_plane(POINTS, values, None, 7).data if t.name == "value vectors")
    assert vectors.text == ("0, 2", "1", "")
    assert vectors.hovertext == ("0", "1", "2")


def test_axes_say_which_components_they_are():
    layout = head_plane(POINTS, VALUES, None, 7, variance=(0.9, 0.1)).layout
    assert layout.xaxis.title.text == "head 0.7: component 1 (90% of variance)"
    assert layout.yaxis.title.text == "head 0.7: component 2 (10% of variance)"


def test_splits_differ_by_symbol():
    figure = head_plane(POINTS.assign(split=["train", "test", "test"]), VALUES, None, 0)
    symbols = {trace.name: trace.marker.symbol for trace in figure.data}
    assert symbols["answer '4', train"] != symbols["answer '4', test"]


def test_many_points_are_thinned_evenly():
    many = pd.DataFrame({"x": np.arange(1000.0), "y": 0.0, "label": "4"})
    drawn = by_name(head_plane(many, VALUES, None, 0, max_points=11))["answer '4'"].x
    close(drawn, np.linspace(0, 999, 11), atol=0.5)


def test_points_that_coincide_get_a_box():
    same = pd.DataFrame({"x": [1.0], "y": [1.0], "label": ["4"]})
    figure = head_plane(same, same.rename(columns={"label": "token"}), None, 0)
    assert figure.layout.xaxis.range[0] < 1 < figure.layout.xaxis.range[1]


def test_grid_has_a_plot_for_each_head():
    points = pd.concat([POINTS.assign(head=head) for head in (3, 1)])
    values = pd.concat([VALUES.assign(head=head) for head in (3, 1)])
    figure = head_planes_grid(points, values, {3: (1.0, 2.0, -1.0)}, {1: "0.98"})
    assert [note.text for note in figure.layout.annotations] == ["head 0.1 · 0.98", "head 0.3"]
    assert [trace.xaxis for trace in figure.data if trace.name == "separator"] == ["x2"]
    assert sum(bool(trace.showlegend) for trace in figure.data) == 3


def test_a_head_of_one_number_is_drawn_beside_its_answer():
    """Heights are the indices of the answers that occur; value vectors are at half of the highest."""
    z = torch.tensor([[[0.1]], [[0.9]], [[0.4]]])
    outputs = HeadOutputs(z, torch.zeros(3, 1, 3), torch.zeros(3), torch.zeros(3, 3), torch.tensor([0, 2, 0]))
    spec = interp.ModelSpec.from_toml(ROOT / "models/count01/paper/model.toml")
    layer = spec.layers[0].model_copy(update={"n_heads": 1, "d_head": 1})
    planes = head_planes(interp.TaskModel(spec.model_copy(update={"layers": (layer,)})), outputs, outputs)
    close(planes.points.x, [0.1, 0.9, 0.4], atol=1e-6)
    assert planes.points.y.tolist() == [0.0, 1.0, 0.0]
    assert set(planes.values.y) == {0.5}
