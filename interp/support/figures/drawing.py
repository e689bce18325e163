"""Helpers for several figures: number arrays, color axes, grids of small plots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import ArrayLike
from plotly.subplots import make_subplots

from interp.support.figures import theme
from interp.support.figures.theme import plain


def compact(values: ArrayLike) -> np.ndarray:
    """Return the numbers as float32, which plotly stores compactly in base64.

    If float32 would turn a number into 0, 1 or infinity, return float64: a logarithmic axis can show 1e-70, but not 0.
    """
    wide = np.ascontiguousarray(values, dtype=np.float64)
    with np.errstate(over="ignore", under="ignore"):
        narrow = wide.astype(np.float32)
    lost = (np.abs(narrow) < np.finfo(np.float32).tiny) & (wide != 0) | np.isinf(narrow) & np.isfinite(wide)
    return wide if lost.any() or ((narrow == 1) & (wide != 1)).any() else narrow


def color_range(values: ArrayLike, center: int | float | None = None) -> tuple[float, float]:
    """Return the least and largest finite value; with a center, a range that is symmetric around it."""
    finite = np.asarray(values, dtype=np.float64)
    finite = finite[np.isfinite(finite)]
    if not finite.size:
        return 0.0, 1.0
    low, high = float(finite.min()), float(finite.max())
    if center is not None:
        reach = max(high - center, center - low) or 1.0
        return center - reach, center + reach
    return (low, high) if high > low else (low - 0.5, high + 0.5)


MOSTLY = 0.5
"""A color scale is extended to a value outside the data only if the data then span at least this share of it."""


def color_limits(
    values: ArrayLike, center: int | float | None = None, ends: Sequence[int | float] = ()
) -> tuple[float, float, bool]:
    """Return the least and largest value of a color scale that fits the data, and whether it diverges from its center.

    It diverges from the center, if there is one, whatever the data, so that a color means the same in every figure.
    Otherwise it spans the data, and is extended to each end that leaves at most half of it unused.
    """
    low, high = color_range(values)
    if (finite := np.unique(values)[:1]).size and ends and np.all(np.asarray(values) == finite):
        low, high = min(float(finite[0]), *ends), max(float(finite[0]), *ends)
        return float(low if low < high else low - 0.5), float(high), False
    if center is not None:
        return *color_range(values, center), True
    span = high - low
    for end in sorted(ends, key=lambda end: max(low - end, end - high)):
        wider = min(low, end), max(high, end)
        if span >= MOSTLY * (wider[1] - wider[0]):
            low, high = wider
    return float(low), float(high), False


def log_axis(values: ArrayLike) -> dict[str, Any]:
    """Return a logarithmic axis with at most about five ticks: powers of ten, or 1, 2 and 5 on a short one."""
    numbers = np.asarray(values, dtype=np.float64)
    numbers = numbers[np.isfinite(numbers) & (numbers > 0)]
    low, high = (float(numbers.min()), float(numbers.max())) if numbers.size else (1.0, 1.0)
    decades = float(np.log10(high / low))
    few = [digit * 10.0 ** (np.floor(np.log10(low)) + power) for power in range(3) for digit in (1, 2, 5)]
    tick: dict[str, Any] = {}
    if decades > 1.5:
        tick = {"dtick": max(1, round(decades / 5))}
    elif sum(low <= place <= high for place in few) > 1:
        tick = {"tickvals": few, "ticktext": [f"{place:g}" for place in few]}
    return {"type": "log", "exponentformat": "power", "tickfont": {"size": 11}, **tick}


def color_axis(low: int | float, high: int | float, title: str, diverging: bool) -> dict[str, Any]:
    """Return the color axis that all traces of a figure with `coloraxis="coloraxis"` share."""
    colors = theme.DIVERGING if diverging else theme.SEQUENTIAL
    return {"cmin": low, "cmax": high, "colorscale": theme.scale(colors), "colorbar": {"title": {"text": plain(title)}}}


def head_name(head: object) -> str:
    """Return a head's name in tables and on axes: "0.3" for head 3 of the only layer, or a full name as it is."""
    return f"0.{head}" if isinstance(head, int | np.integer) else plain(head)


NEAR, LETTER = 0.1, 0.028
"""Share of the axes' length that a label takes: its height, and the width of each of its letters (on a phone)."""
MOST_LISTED = 3
"""Largest number of dots that a label names."""


def labels(places: np.ndarray, names: Sequence[str]) -> list[tuple[float, float, str]]:
    """Return labels that do not overlap, with their positions: dots that are close to each other share one, above the
    highest of them. places: (dots, 2)."""
    shares = (places - places.min(axis=0)) / (np.ptp(places, axis=0) + 1e-9)
    piles = [[int(number)] for number in np.lexsort(places.T)]

    def label(pile: list[int]) -> str:
        listed = ", ".join(names[dot] for dot in sorted(pile)[:MOST_LISTED])
        return listed if len(pile) <= MOST_LISTED else f"{listed} +{len(pile) - MOST_LISTED}"

    def at(of: np.ndarray, pile: list[int]) -> tuple[float, float]:
        return float(of[pile, 0].mean()), float(of[pile, 1].max())

    def overlap(pile: list[int], other: list[int]) -> bool:
        width = max(NEAR, LETTER * (len(label(pile)) + len(label(other))) / 2)
        (x, y), (left, down) = at(shares, pile), at(shares, other)
        return abs(x - left) < width and abs(y - down) < NEAR

    while pair := next((pair for pair in combinations(piles, 2) if overlap(*pair)), None):
        piles.remove(pair[1])
        pair[0].extend(pair[1])
    return [(*at(places, pile), label(pile)) for pile in piles]


TITLE_HEIGHT = 26
"""Height of a small plot's title, in pixels."""


def panels(
    titles: Sequence[str],
    n_across: int,
    panel_height: int,
    gap: int = 54,
    widths: Sequence[float] | None = None,
    left: bool = False,
) -> tuple[dict[str, Any], list[tuple[int, int]]]:
    """Return the layout of a grid of small plots with their titles, and the (row, column) of each, counted from 1.

    Args:
        panel_height, gap: height of a plot and of the space between two rows of them, in pixels.
        widths: relative widths of the columns, which are then closer together.
        left: whether all titles begin at the left of the grid, as they do if there is one column.
    """
    n_across = min(n_across, len(titles))
    n_down = -(-len(titles) // n_across)
    inner = n_down * panel_height + (n_down - 1) * gap
    layout = make_subplots(
        rows=n_down,
        cols=n_across,
        subplot_titles=[plain(title) for title in titles],
        horizontal_spacing=0.07 if widths else 0.24 / n_across,
        column_widths=widths,
        vertical_spacing=gap / inner,
    ).layout.to_plotly_json()
    # Above and below the plots: legend, titles and axis titles.
    layout |= {"template": theme.template(), "height": inner + 124, "margin": {"t": 64, "b": 60}}
    layout["legend"] = {"y": 1 + TITLE_HEIGHT / inner}  # above the titles of the plots
    least = {"min_width": 60 + 165 * n_across} if n_across > 1 else {}
    if n_down > 1:
        least["min_height"] = layout["height"]
    if least:
        layout["meta"] = least
    for title in layout["annotations"]:
        title["font"] = {"size": 13}
        if n_across == 1 or left:  # at the left, where a narrow page shows it
            title |= {"x": 0, "xanchor": "left"}
    return layout, [(1 + i // n_across, 1 + i % n_across) for i in range(len(titles))]


@dataclass(frozen=True)
class Plot:
    """The content of one small plot: traces, and properties of its axes."""

    traces: Sequence[Any]
    x: dict[str, Any] = field(default_factory=dict)
    y: dict[str, Any] = field(default_factory=dict)


def filled(layout: dict[str, Any], plots: Sequence[Plot], **more: Any) -> go.Figure:
    """Return a figure of a grid of `panels` with its plots, in their order. more: properties of the layout.

    All is set at once, because plotly takes milliseconds to set one property of an axis.
    """
    for number, plot in enumerate(plots):
        name = str(number + 1) if number else ""
        layout[f"xaxis{name}"] |= plot.x
        layout[f"yaxis{name}"] |= plot.y
        for trace in plot.traces:
            trace.update(xaxis=f"x{name}", yaxis=f"y{name}")
    return go.Figure([trace for plot in plots for trace in plot.traces], layout | more)


def is_lowest(place: tuple[int, int], places: Sequence[tuple[int, int]]) -> bool:
    """Return whether this is the lowest plot in its column, which gets the title of the axis."""
    return (place[0] + 1, place[1]) not in places
