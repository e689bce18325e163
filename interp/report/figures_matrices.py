"""Matrices as colored cells: heat maps of any kind, and the circuits of heads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from interp.errors import InterpError
from interp.report import theme
from interp.report.drawing import Plot, color_axis, color_limits, compact, filled, head_name, is_lowest, panels
from interp.report.theme import plain
from interp.words import rounded

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

# Labels such as "0" are names here; plotly would read them as numbers.
GRID = {
    "type": "category",
    "showgrid": False,
    "showline": False,
    "tickcolor": theme.PAPER,
    "ticklen": 3,
    "constrain": "domain",
}


MOST_GAPS, MOST_WRITTEN = 30, 17
"""Largest number of rows or columns with gaps between the cells (gaps would cover smaller cells), and of columns whose
numbers fit on a page."""


def heatmap(
    matrix: ArrayLike,
    x: Sequence[object],
    y: Sequence[object],
    x_title: str,
    y_title: str,
    color_title: str,
    center: int | float | None = None,
    ends: Sequence[int | float] = (),
    square: bool = True,
    show_values: bool = False,
) -> go.Figure:
    """Draw a matrix as colored cells, its first row on top.

    Args:
        matrix: numbers, with one row per label in y and one column per label in x; NaN leaves a cell empty.
        x, y: labels of the columns and rows.
        x_title, y_title: titles of the axes.
        color_title: title of the color scale, with units.
        center: value of the neutral color, usually 0; the scale diverges if the data lie on both sides of it.
        ends: values to which the color scale is extended if the data still span half of it, such as 0 and 1 for shares.
        square: whether cells are as wide as they are high.
        show_values: whether to write the numbers into the cells, if the columns are few enough.

    Raises:
        InterpError: the matrix is empty or does not fit the labels, or two labels of an axis are equal.
    """
    values = compact(matrix)
    if values.shape != (len(y), len(x)) or not values.size:
        raise InterpError(
            f"the heat map's matrix has shape {values.shape}; expected ({len(y)}, {len(x)}) from its labels"
        )
    low, high, diverging = color_limits(values, center, ends)
    cells = _cells(values, x, y, x_title, y_title, color_title)
    widths = {}
    if show_values and len(x) <= MOST_WRITTEN:
        cells.update(text=_written(np.asarray(matrix, dtype=float)), texttemplate="%{text}", textfont={"size": 11})
        widths["min_width"] = 200 + 56 * len(x)
    height = min(620, max(260, 150 + 34 * len(y)))
    down = GRID | {"autorange": "reversed"}
    if square:
        down["scaleanchor"] = "x"
        widths["max_width"] = round(170 + len(x) * (height - 90) / len(y))
        widths["min_height"] = min(height, 340)
    axis = color_axis(low, high, color_title, diverging)
    return theme.figure(cells, x=x_title, y=y_title, height=height, coloraxis=axis, xaxis=GRID, yaxis=down, meta=widths)


def circuit(
    frame: pd.DataFrame,
    rows: str | None = None,
    columns: str | None = None,
    value: str = "value",
    color_title: str | None = None,
    n_across: int = 4,
) -> go.Figure:
    """Draw a token-by-token matrix per head, all with one color scale, which is neutral at 0 if there are both signs.

    Args:
        frame: one row per head and cell: `head`, `query` and `key` (QK) or `source` and `logit` (OV), and `value`.
        rows, columns: names of the two token columns (default: those of QK or OV).
        color_title: title of the color scale (default: "attention score" for QK and "logit" for OV).

    Raises:
        InterpError: a column is missing, or a head lacks a cell or has it twice.
    """
    is_ov = "source" in frame.columns
    rows, columns = rows or ("source" if is_ov else "query"), columns or ("logit" if is_ov else "key")
    color_title = color_title or ("logit" if is_ov else "attention score")
    theme.check_frame(frame, ["head", rows, columns, value], "circuit")
    heads = list(dict.fromkeys(frame["head"]))
    y, x = list(dict.fromkeys(frame[rows])), list(dict.fromkeys(frame[columns]))
    row_title = {"query": "query token", "source": "source token"}.get(rows, rows)
    column_title = {"key": "key token", "logit": "token of the logit"}.get(columns, columns)
    layout, places = panels(
        [f"head {head_name(head)}" for head in heads], n_across, panel_height=max(140, 22 * len(y)), gap=36
    )
    known = dict(zip(zip(frame["head"], frame[rows], frame[columns]), frame[value]))
    plots = []
    for head, place in zip(heads, places):
        found = [known.get((head, *cell)) for cell in product(y, x)]
        n = int((frame["head"] == head).sum())
        if n != len(found) or None in found:
            raise InterpError(f"circuit: head {head} has {n} rows; expected one for each of {len(y)} x {len(x)} cells")
        # All heads have the same tokens: name them once per row and column of the grid.
        is_last, is_first = is_lowest(place, places), place[1] == 1
        across = {"title": {"text": column_title if is_last else ""}, "showticklabels": is_last}
        down = {"title": {"text": row_title if is_first else ""}, "showticklabels": is_first, "autorange": "reversed"}
        cells = _cells(compact(np.array(found).reshape(len(y), len(x))), x, y, column_title, row_title, color_title)
        plots.append(Plot([cells], GRID | across, GRID | down))
    axis = _axis_of(frame[value].to_numpy(), color_title)
    # There is no legend above.
    return filled(layout, plots, coloraxis=axis, height=layout["height"] - 32, margin=layout["margin"] | {"t": 32})


def _axis_of(values: np.ndarray, title: str) -> dict[str, Any]:
    low, high, diverging = color_limits(compact(values), center=0.0)
    return color_axis(low, high, title, diverging)


def _cells(
    values: np.ndarray, x: Sequence[object], y: Sequence[object], x_title: str, y_title: str, color_title: str
) -> go.Heatmap:
    if len(set(map(str, x))) < len(x) or len(set(map(str, y))) < len(y):
        raise InterpError(f"the labels of a heat map must differ; they are {list(map(str, x))} and {list(map(str, y))}")
    row, column = plain(_unless_said(y_title, y)), plain(_unless_said(x_title, x))
    value = plain(color_title)
    gap = int(max(len(x), len(y)) <= MOST_GAPS)
    return go.Heatmap(
        z=values,
        x=[plain(label) for label in x],
        y=[plain(label) for label in y],
        coloraxis="coloraxis",
        xgap=gap,
        ygap=gap,
        hovertemplate=f"{row}%{{y}}<br>{column}%{{x}}<br>{value} %{{z:.4g}}<extra></extra>",
    )


def _written(matrix: np.ndarray) -> list[list[str]]:
    """Return the numbers in the cells of a heat map, all with as many decimals: three digits for the largest."""
    largest = np.nanmax(np.abs(matrix), initial=0.0)
    decimals = max(0, 2 - math.floor(math.log10(largest))) if 0 < largest < np.inf else 0
    return [["" if np.isnan(value) else rounded(float(value), decimals) for value in row] for row in matrix]


def _unless_said(title: str, labels: Sequence[object]) -> str:
    """Return an axis title to put before each label, or "" if the labels already begin with it ("head 0.3")."""
    return "" if any(str(label).startswith(f"{title} ") for label in labels) else f"{title} "
