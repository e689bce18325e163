"""The theme of all figures: colors that color-blind readers can tell apart, scales, fonts and margins.

The hues are those of Okabe and Ito (2008). Figures are made in the light colors. If the reader prefers a dark page, the
report replaces each color by its partner in `DARK`, so a figure is stored once and never names a theme.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import pandas as pd

from interp.errors import InterpError

if TYPE_CHECKING:
    import plotly.graph_objects as go

BLUE, VERMILLION, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
ORANGE, SKY, GREY, INK, PAPER, GRID = "#E69F00", "#56B4E9", "#767C85", "#1B1F24", "#FFFFFF", "#E3E6EA"
COLORS = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, GREY)

# The same colors for the classes of the Count01 task in every figure.
TOKEN_COLORS = {"4": VERMILLION, "5": BLUE, "[EOS]": INK}
COUNTED_COLORS = (ORANGE, SKY, GREEN, BLUE, VERMILLION, PURPLE, GREY)
"""Colors of counted tokens, in this order: the first ones are not those of the classes."""
KIND_COLORS = {"embedding": BLUE, "positions": SKY, "head": VERMILLION, "MLP": GREEN, "biases": GREY}
"""Colors of the kinds of parts, whichever of them a model has."""


def token_colors(counted: Sequence[str], others: Iterable[str]) -> dict[str, str]:
    """Return the color of each token, as in the live panel: counted tokens in their order, then two for all others."""
    marks = {token: (PURPLE, GREY)[number % 2] for number, token in enumerate(others)}
    return marks | {token: COUNTED_COLORS[number % len(COUNTED_COLORS)] for number, token in enumerate(counted)}


SEQUENTIAL = ("#440154", "#482878", "#3E4A89", "#31688E", "#26828E", "#1F9E89", "#35B779", "#6DCD59", "#B4DE2C")
DIVERGING = ("#0B4F8A", "#4A90C4", "#F4F4F1", "#E58A4E", "#A33C00")

DARK = {
    BLUE: "#4FA8DD",
    VERMILLION: "#F0813A",
    GREEN: "#2FC79B",
    PURPLE: "#E29CC4",
    ORANGE: "#F5B83D",
    SKY: "#8FD0F5",
    GREY: "#98A1AB",
    INK: "#E6E8EB",
    PAPER: "#16191E",
    GRID: "#30363F",
    **dict(zip(DIVERGING, ("#6DB6EE", "#3B6C97", "#2A2F37", "#99552F", "#FF9A5C"))),
}

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"


@cache
def template() -> go.layout.Template:
    """Return the plotly template of every figure, in the light colors."""
    import plotly.graph_objects as go

    axis = {
        "automargin": True,
        "gridcolor": GRID,
        "linecolor": GREY,
        "zeroline": False,
        "ticks": "outside",
        "ticklen": 4,
        "tickcolor": GREY,
        "title": {"standoff": 8, "font": {"size": 13}},
    }
    bar = {"outlinewidth": 0, "thickness": 12, "ticklen": 3, "title": {"side": "right", "font": {"size": 13}}}
    layout = go.Layout(
        autosize=True,
        font={"family": FONT, "size": 13, "color": INK},
        paper_bgcolor=PAPER,
        plot_bgcolor=PAPER,
        colorway=list(COLORS),
        colorscale={"sequential": scale(SEQUENTIAL), "diverging": scale(DIVERGING)},
        coloraxis={"colorbar": bar},
        xaxis=axis,
        yaxis=axis,
        # Above the plot: a legend at the side would leave no room for the plot on a phone.
        legend={
            "orientation": "h",
            "x": 0,
            "xanchor": "left",
            "y": 1.02,
            "yanchor": "bottom",
            "itemsizing": "constant",
        },
        margin={"l": 56, "r": 16, "t": 24, "b": 48},
        hoverlabel={"font": {"family": FONT, "size": 12}},
        height=420,
    )
    # A label on a marker belongs to the plot, so it has the color of the text, not of the marker.
    data = {"scatter": [go.Scatter(textfont={"color": INK})], "heatmap": [go.Heatmap(colorbar=bar)]}
    return go.layout.Template(layout=layout, data=data)


def figure(*traces: Any, x: str = "", y: str = "", height: int | None = None, **layout: Any) -> go.Figure:
    """Return a figure in this theme with named axes.

    Args:
        x, y: titles of the axes, with units.
        height: in pixels.
        layout: further properties of the plotly layout.
    """
    import plotly.graph_objects as go

    for axis, title in (("xaxis", x), ("yaxis", y)):
        layout[axis] = {**layout.get(axis, {}), "title": {"text": plain(title)}}
    if height is not None:
        layout["height"] = height
    return go.Figure(list(traces), {"template": template(), **layout})


def scale(colors: Iterable[str]) -> list[list[Any]]:
    """Return a plotly color scale with the colors evenly spaced from 0 to 1."""
    steps = list(colors)
    return [[i / (len(steps) - 1), color] for i, color in enumerate(steps)]


def fade(color: str, opacity: int | float) -> str:
    """Return the color "#RRGGBB" with an opacity from 0 to 1, as "rgba(R, G, B, A)".

    All versions of plotly read this form; only plotly 7 reads "#RRGGBBAA". A dark page replaces the color by its
    partner and keeps the opacity.
    """
    channels = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({', '.join(map(str, channels))}, {opacity:g})"


def plain(text: object) -> str:
    """Escape text, because plotly would read "<s>" as a tag."""
    return html.escape(str(text), quote=False)


def check_rows(frame: pd.DataFrame, figure_name: str) -> None:
    """Raise InterpError if there is nothing to draw."""
    if frame.empty:
        raise InterpError(f"{figure_name} has nothing to draw: the frame has no rows")
