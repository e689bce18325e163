import numpy as np
import pytest

from interp.support.figures.drawing import color_limits, color_range, compact, is_lowest, labels, log_axis, panels


@pytest.mark.parametrize(("values", "center", "expected"), [
    ([1.0, np.nan, 3.0, np.inf], None, (1.0, 3.0)), ([2.0, 2.0], None, (1.5, 2.5)), ([np.nan], None, (0.0, 1.0)),
    ([-1.0, 3.0], 0, (-3.0, 3.0)), ([0.0, 0.0], 0, (-1.0, 1.0)),
])  # fmt: skip
def test_color_range(values, center, expected):
    assert color_range(values, center) == expected


@pytest.mark.parametrize(
    ("values", "step"),
    [([1, 1e3], 1), ([1e-6, 1e8], 3), ([1, 20], None), ([0, -1, np.nan], None), ([0.1, np.inf, 10], 1)],
)
def test_log_axis_ticks(values, step):
    assert log_axis(np.array(values, dtype=float)).get("dtick") == step


def test_short_log_axes_have_ticks_at_1_2_and_5():
    assert log_axis([3.0, 25.0])["ticktext"][1:5] == ["2", "5", "10", "20"]
    assert "tickvals" not in log_axis([0.6, 0.7])


def test_panels_fill_rows_from_the_left():
    layout, places = panels(["a", "b", "c", "d", "<e>"], n_across=2, panel_height=100)
    assert places == [(1, 1), (1, 2), (2, 1), (2, 2), (3, 1)]
    assert [is_lowest(place, places) for place in places] == [False, False, False, True, True]
    assert [note["text"] for note in layout["annotations"]] == ["a", "b", "c", "d", "&lt;e&gt;"]
    assert layout["meta"]["min_width"] > 300


def test_dots_close_to_each_other_share_a_label():
    places = np.array([[0.0, 0.0], [0.01, 0.02], [0.5, 1.0], [1.0, 0.0]])
    assert labels(places, ["a", "b", "c", "d"]) == [(0.005, 0.02, "a, b"), (1.0, 0.0, "d"), (0.5, 1.0, "c")]
    assert labels(np.zeros((5, 2)), list("abcde")) == [(0.0, 0.0, "a, b, c +2")]


def test_labels_do_not_overlap():
    """Each is as wide as its letters on a phone, so long ones join where short ones do not."""
    places = np.array([[0.0, 0.0], [0.3, 0.0], [1.0, 1.0]])
    assert [text for *_, text in labels(places, ["0.1", "0.2", "0.3"])] == ["0.1", "0.2", "0.3"]
    assert [text for *_, text in labels(places, ["a long name", "another name", "c"])] == [
        "a long name, another name",
        "c",
    ]


def test_one_panel_needs_no_width():
    layout, places = panels(["a"], n_across=4, panel_height=100)
    assert places == [(1, 1)]
    assert "meta" not in layout


@pytest.mark.parametrize(("values", "center", "ends", "expected"), [
    ([0.1, 0.9], None, (0.0, 1.0), (0.0, 1.0, False)),
    ([0.96, 1.0], None, (0.0, 1.0), (0.96, 1.0, False)),  # 0 would leave a sliver for the data
    ([2.0, 5.0], 0.0, (), (-5.0, 5.0, True)),  # a color means the same whatever the data
    ([-1.0, 3.0], 0.0, (), (-3.0, 3.0, True)),
    ([0.7, 0.7], None, (1.0,), (0.7, 1.0, False)),
    ([1.0, 1.0], None, (1.0,), (0.5, 1.0, False)),
])  # fmt: skip
def test_color_scales_fit_the_data(values, center, ends, expected):
    assert color_limits(values, center, ends) == expected


def test_numbers_are_packed_without_loss_of_their_size():
    assert compact([1.0, 0.5]).dtype == np.float32
    assert compact([1e-70, 1.0])[0] == 1e-70
    assert compact([1e200])[0] == 1e200
    assert compact([0.0, np.nan, np.inf]).dtype == np.float32
