"""What holds for every figure."""

import json

import numpy as np
import pandas as pd
import pytest
from report.figure_calls import CALLS, FRAMES
from report.frames import make_frames

from interp.errors import InterpError
from interp.support import figures
from interp.support.figures import theme


def test_every_figure_is_called_here():
    drawn = {name for name, value in vars(figures).items() if callable(value)}
    assert {*CALLS, "heatmap"} == {*drawn, "head_plane", "head_planes_grid"}


@pytest.mark.parametrize("name", CALLS)
def test_axes_are_named(made, name):
    figure = made[name]
    titled = {"x": 0, "y": 0}
    for axis in [*figure.select_xaxes(), *figure.select_yaxes()]:
        titled[axis.plotly_name[0]] += bool(axis.title.text)
    assert min(titled.values()) >= 1


@pytest.mark.parametrize("name", CALLS)
def test_the_caption_is_left_to_the_report(made, name):
    assert not made[name].layout.title.text


@pytest.mark.parametrize("name", CALLS)
def test_an_empty_frame_is_refused(frames, name):
    with pytest.raises(InterpError, match=f"{name}.* has nothing to draw: the frame has no rows"):
        CALLS[name]({key: frames[key].iloc[:0] for key in FRAMES})


def test_the_caller_keeps_his_table(frames, made):
    assert made
    for key, frame in make_frames().items():
        pd.testing.assert_frame_equal(frames[key], frame)


@pytest.mark.parametrize("name", sorted(set(CALLS) - {"error_by_difference", "bars"}))
def test_numbers_are_stored_as_four_bytes(made, name):
    kinds = set()

    def collect(value):
        if isinstance(value, dict):
            if "bdata" in value:
                kinds.add(value["dtype"])
            for item in value.values():
                collect(item)
        elif isinstance(value, list):
            assert len(value) < 40 or not isinstance(value[0], float), "a list of numbers"
            for item in value:
                collect(item)

    collect(json.loads(made[name].to_json())["data"])
    assert kinds == {"f4"}


def test_colors_of_every_figure_have_a_partner_in_the_dark(made):
    known = {*theme.DARK, *theme.SEQUENTIAL}
    faded = {theme.fade(color, 0.5).rpartition(",")[0] for color in known}

    def check(value, name):
        if isinstance(value, dict):
            for item in value.values():
                check(item, name)
        elif isinstance(value, list | tuple):
            for item in value:
                check(item, name)
        elif isinstance(value, str) and value.startswith("#"):
            assert value in known, name  # with an opacity: theme.fade
        elif isinstance(value, str) and value.startswith("rgba("):
            assert value.rpartition(",")[0] in faded, name

    for name in CALLS:
        figure = made[name].to_plotly_json()
        figure["data"] = [{k: v for k, v in trace.items() if not isinstance(v, np.ndarray)} for trace in figure["data"]]
        check(figure, name)
