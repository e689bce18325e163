"""Every figure of every report on a shipped model: range, constant data, missing values, colors, titles, captions."""

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
from report.figure_checks import differing, problems
from report.shipped_reports import CLICKED, drawn, whole

import interp
from interp.report.items import FigureItem
from interp.support import figures


@pytest.mark.slow
@pytest.mark.parametrize("name", [str(name) for name in interp.list_models()["name"]])
def test_figures_of(name: str) -> None:
    try:
        interp.load(name)
    except interp.InterpError as error:
        pytest.skip(str(error))
    report = whole(name) if name in CLICKED else drawn(name)
    items = [item for item in report.items if isinstance(item, FigureItem)]
    assert len(items) >= 3
    found = [f"{item.key}: {problem}" for item in items for problem in problems(item.figure, item.caption)]
    found += differing(item.figure for item in items)
    assert not found, "\n".join(found)


def broken() -> list[tuple[str, go.Figure, str]]:
    """One figure for each thing that is looked for."""
    frame = pd.DataFrame({"x": [1.0, 2.0, 3.0], "y": [1.0, 2.0, 4.0]})
    fine = figures.lines(frame, "x", "y")
    cells = figures.heatmap([[0.0, 0.1], [0.2, 0.3]], "ab", "cd", "x", "y", "z")
    return [
        ("leaves the axis", go.Figure(fine).update_yaxes(range=[0, 3]), "A line."),
        ("log axis cannot show", go.Figure(fine).update_traces(y=[0.0, 1.0, 2.0]).update_yaxes(type="log"), "A line."),
        ("is missing somewhere", go.Figure(fine).update_traces(y=[np.nan, 1.0, 2.0]), "A line."),
        ("infinite", go.Figure(fine).update_traces(y=[np.inf, 1.0, 2.0]), "A line."),
        ("shows nothing", go.Figure(fine).update_traces(y=[1.0, 1.0, 1.0]), "A line."),
        ("is no color", go.Figure(fine).update_layout(meta={"color": "#12345"}), "A line."),
        ("sliver", go.Figure(cells).update_layout(coloraxis_cmax=2.0), "Cells."),
        ("cuts data", go.Figure(cells).update_layout(coloraxis_cmax=0.2), "Cells."),
        ("no x axis has a title", go.Figure(fine).update_xaxes(title_text=""), "A line."),
        ("separator", fine, "The line is the separator."), ("BOS", fine, "The weight on [BOS]."),
        ("whiskers", fine, "Whiskers are one standard deviation."), ("no caption", fine, " "),
        ("no words", fine, "The mean is nan."),
    ]  # fmt: skip


@pytest.mark.parametrize(("says", "figure", "caption"), broken(), ids=[one[0] for one in broken()])
def test_what_is_wrong_is_found(says: str, figure: go.Figure, caption: str) -> None:
    assert any(says in problem for problem in problems(figure, caption))


def test_a_name_has_one_color_on_a_page() -> None:
    frame = pd.DataFrame({"x": ["a", "b"], "y": [1.0, 2.0], "kind": ["MLP", "head"], "token": ["to '0'", "to '1'"]})
    kinds, alone = figures.bars(frame, "x", "y", "kind"), figures.bars(frame[1:], "x", "y", "kind")
    tokens, logit = (
        figures.bars(frame, "x", "y", "token"),
        figures.bars(frame[1:].replace("to '1'", "'1'"), "x", "y", "token"),
    )
    assert list(differing([kinds, alone, tokens])) == []
    assert list(differing([tokens, logit])) == ["'1' is #D55E00 and #0072B2"]


def test_what_is_fine_is_left_alone() -> None:
    frame = pd.DataFrame({"x": [1.0, 2.0, 3.0], "y": [1.0, 2.0, 4.0]})
    assert problems(figures.lines(frame, "x", "y"), "A line.") == []
