"""Which algorithm models learned: accuracy by algorithm, and phase diagrams."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from interp.support.figures import theme
from interp.support.figures.drawing import compact

NONE_COLOR = "#9aa0a6"
MOST_ACROSS = 9
"""Models of one algorithm that stand side by side."""


def colors_of(algorithms: pd.Series) -> dict[str, str]:
    """Return one color for each algorithm, in order of names; "none" is gray."""
    names = sorted({*algorithms} - {"none"}, key=lambda name: (len(name), name))
    return {name: theme.COLORS[at % len(theme.COLORS)] for at, name in enumerate(names)} | {"none": NONE_COLOR}


def accuracies(frame: pd.DataFrame) -> go.Figure:
    """Draw the accuracy of each model, in a column for each algorithm. frame: columns model, algorithm, accuracy."""
    theme.check_rows(frame, "accuracies")
    colors = colors_of(frame["algorithm"])
    drawn = theme.figure(x="algorithm", y="accuracy")
    shown = [name for name in colors if name in set(frame["algorithm"])]
    for name in shown:
        part = frame[frame["algorithm"] == name]
        across = min(len(part), MOST_ACROSS)
        spread = [(at % across - (across - 1) / 2) / (MOST_ACROSS + 3) for at in range(len(part))]
        place = shown.index(name)
        drawn.add_trace(go.Scatter(
            x=[place + shift for shift in spread], y=compact(part["accuracy"]), mode="markers", name=name,
            text=part["model"], marker={"color": colors[name], "size": 7}, hovertemplate="%{text}: %{y:.4f}",
        ))  # fmt: skip
    columns = {"tickvals": [*range(len(shown))], "ticktext": shown, "range": [-0.5, len(shown) - 0.5]}
    return drawn.update_xaxes(showgrid=False, **columns)


def phases(frame: pd.DataFrame, x: str, y: str) -> go.Figure:
    """Draw a grid of two axes with a mark for each model, colored by algorithm. frame: also algorithm and model."""
    theme.check_rows(frame, "phases")
    colors = colors_of(frame["algorithm"])
    xs, ys = (sorted(frame[name].unique()) for name in (x, y))
    drawn = theme.figure(x=x, y=y)
    cell = frame.groupby([x, y]).cumcount()
    most = max(1, int(cell.max()))
    for name, color in colors.items():
        part = frame[frame["algorithm"] == name]
        if len(part):
            drawn.add_trace(go.Scatter(
                x=[xs.index(value) + 0.6 * (at / most - 0.5) for value, at in zip(part[x], cell[part.index])],
                y=[ys.index(value) for value in part[y]], mode="markers", name=name, text=part["model"],
                marker={"color": color, "size": 11, "symbol": "square"}, hovertemplate="%{text}",
            ))  # fmt: skip
    drawn.update_xaxes(tickvals=[*range(len(xs))], ticktext=[str(value) for value in xs])
    return drawn.update_yaxes(tickvals=[*range(len(ys))], ticktext=[str(value) for value in ys])
