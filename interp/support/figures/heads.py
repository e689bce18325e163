"""Matrices as colored cells (heat maps, circuits of heads), and metrics and attention ratios of Count01's heads.

The latter are Figures 3, 4, 5, 8 and 9 of the paper.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from numpy.typing import ArrayLike

from interp.errors import InterpError, check_one_of
from interp.support.figures import theme
from interp.support.figures.drawing import (
    Plot,
    color_axis,
    color_limits,
    compact,
    filled,
    head_name,
    is_lowest,
    labels,
    log_axis,
    panels,
)
from interp.support.figures.theme import plain
from interp.support.words import rounded

# Labels such as "0" are names here; plotly would read them as numbers.
GRID = {
    "type": "category",
    "showgrid": False,
    "showline": False,
    "tickcolor": theme.PAPER,
    "ticklen": 3,
    "constrain": "domain",
}

ROW, LABEL, FEW_COLUMNS, FEW_ROWS, MOST_NAMED = 16, 13, 6, 12, 40
"""Least height of a row, and of a label that others follow, in pixels; heat maps of fewer columns are narrower than the
page, and patterns of more rows have low ones; rows and columns up to MOST_NAMED are all named."""
LETTER, PHONE = 7, 340
"""Length of a letter, and width of a figure on a phone, in pixels."""
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
    written: ArrayLike | None = None,
    more: ArrayLike | None = None,
    fixed: bool = False,
) -> go.Figure:
    """Draw a matrix as colored cells, its first row on top.

    Args:
        matrix: numbers, with one row per label in y and one column per label in x; NaN leaves a cell empty.
        x, y: labels of the columns and rows.
        x_title, y_title: titles of the axes.
        color_title: title of the color scale, with units.
        center: value of the neutral color, usually 0: the scale diverges from it, whatever the data.
        ends: values to which the color scale is extended if the data still span half of it, such as 0 and 1 for shares.
        square: whether cells are as wide as they are high.
        show_values: whether to write the numbers into the cells, if the columns are few enough.
        written: texts to write into the cells instead. more: further lines of the tooltips.
        fixed: whether the color scale spans exactly the two `ends`, whatever the data.

    Raises:
        InterpError: the matrix is empty or does not fit the labels, or two labels of an axis are equal.
    """
    values = compact(matrix)
    if values.shape != (len(y), len(x)) or not values.size:
        raise InterpError(
            f"the heat map's matrix has shape {values.shape}; expected ({len(y)}, {len(x)}) from its labels"
        )
    low, high, diverging = (ends[0], ends[1], False) if fixed else color_limits(values, center, ends)
    cells = _cells(values, x, y, x_title, y_title, color_title, more)
    widths = {}
    texts = written if written is not None else _written(np.asarray(matrix, dtype=float)) if show_values else None
    if texts is not None and (written is not None or len(x) <= MOST_WRITTEN):
        shown = [[plain(text) for text in row] for row in np.asarray(texts)]
        cells.update(text=shown, texttemplate="%{text}", textfont={"size": 11})
        widths["min_width"] = 200 + 56 * len(x)
    height = max(min(620, max(200, 110 + 34 * len(y))), 110 + ROW * len(y))
    down = GRID | {"autorange": "reversed"} | _ticks(y)
    if not square:
        widths["min_height"] = max(min(height, 110 + ROW * len(y)), LETTER * len(color_title) + 90)
        height = max(height, widths["min_height"])  # the title of the colors stands upright
        if len(x) < FEW_COLUMNS:
            widths["most_width"] = 320 + 110 * len(x)
    else:
        down["scaleanchor"] = "x"
        widths["max_width"] = round(170 + len(x) * (height - 90) / len(y))
        widths["min_height"] = min(height, max(340, 90 + LABEL * min(len(y), MOST_NAMED)))
    least = 110 + LETTER * max(len(str(label)) for label in y) + LABEL * min(len(x), MOST_NAMED)
    if least > PHONE:
        widths["min_width"] = max(least, widths.get("min_width", 0))
    axis = color_axis(low, high, color_title, diverging)
    across = GRID | _ticks(x)
    return theme.figure(
        cells, x=x_title, y=y_title, height=height, coloraxis=axis, xaxis=across, yaxis=down, meta=widths
    )


def _ticks(labels: Sequence[object]) -> dict[str, object]:
    """Return settings of an axis that names every row or column, if they are not too many."""
    return {"dtick": 1} if len(labels) <= MOST_NAMED else {}


def circuit(
    frame: pd.DataFrame,
    rows: str | None = None,
    columns: str | None = None,
    value: str = "value",
    color_title: str | None = None,
    n_across: int = 4,
    shares: bool = False,
) -> go.Figure:
    """Draw a token-by-token matrix per head, all with one color scale, which is neutral at 0.

    Hovering over a cell names the head, both tokens and the value, and the largest values of its row.

    Args:
        frame: one row per head and cell: `head`, `query` and `key` (QK) or `source` and `logit` (OV), and `value`.
        rows, columns: names of the two token columns (default: those of QK or OV).
        color_title: title of the color scale (default: "attention score" for QK and "logit" for OV).
        shares: whether the values are shares of attention, whose color scale always spans 0 to 1.

    Raises:
        InterpError: a column is missing, or a head lacks a cell or has it twice.
    """
    is_ov = "source" in frame.columns
    rows, columns = rows or ("source" if is_ov else "query"), columns or ("logit" if is_ov else "key")
    color_title = color_title or ("logit" if is_ov else "attention score")
    theme.check_rows(frame, "circuit")
    heads = list(dict.fromkeys(frame["head"]))
    y, x = list(dict.fromkeys(frame[rows])), list(dict.fromkeys(frame[columns]))
    row_title = {"query": "query token", "source": "source token"}.get(rows, rows)
    column_title = {"key": "key token", "logit": "token of the logit"}.get(columns, columns)
    layout, places = panels(
        [f"head {head_name(head)}" for head in heads],
        n_across,
        gap=36,
        panel_height=max(140, (22 if len(y) <= FEW_ROWS else ROW) * len(y)),
    )
    known = dict(zip(zip(frame["head"], frame[rows], frame[columns]), frame[value]))
    plots = []
    for head, place in zip(heads, places):
        values = [known.get((head, *cell)) for cell in product(y, x)]
        n = int((frame["head"] == head).sum())
        if n != len(values) or None in values:
            raise InterpError(f"circuit: head {head} has {n} rows; expected one for each of {len(y)} x {len(x)} cells")
        # All heads have the same tokens: name them once per row and column of the grid.
        is_last, is_first = is_lowest(place, places), place[1] == 1
        across = {"title": {"text": column_title if is_last else ""}, "showticklabels": is_last}
        down = {"title": {"text": row_title if is_first else ""}, "showticklabels": is_first, "autorange": "reversed"}
        matrix = compact(np.array(values).reshape(len(y), len(x)))
        cells = _cells(matrix, x, y, column_title, row_title, color_title, _largest_of_rows(matrix, x))
        named = f"<extra>head {head_name(head)}</extra>"
        cells.update(hovertemplate=cells.hovertemplate.replace("<extra></extra>", named))
        plots.append(Plot([cells], GRID | across, GRID | down | _ticks(y)))
    low, high, diverging = (0.0, 1.0, False) if shares else color_limits(frame[value].to_numpy(float), center=0.0)
    axis = color_axis(low, high, color_title, diverging)
    height = layout["height"] - 32  # there is no legend above
    if len(y) <= MOST_NAMED:
        layout["meta"] = {"min_height": min(height, 110 + ROW * len(y))} | layout.get("meta", {})
    return filled(layout, plots, coloraxis=axis, height=height, margin=layout["margin"] | {"t": 32})


MOST_TOLD = 3
"""Number of the largest values of a row that a tooltip names."""


def _largest_of_rows(matrix: np.ndarray, x: Sequence[object]) -> list[list[str]]:
    """Return, for each cell, a line that names the largest values of its row, the largest first."""
    lines = []
    for row in matrix:
        order = [at for at in np.argsort(-row, kind="stable")[:MOST_TOLD] if np.isfinite(row[at])]
        largest = ", ".join(f"{plain(x[at])}: {row[at]:.3g}" for at in order)
        lines.append([f"largest of the row: {largest}" if len(x) > 1 else ""] * len(x))
    return lines


def _cells(
    values: np.ndarray,
    x: Sequence[object],
    y: Sequence[object],
    x_title: str,
    y_title: str,
    color_title: str,
    more: ArrayLike | None = None,
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
        customdata=None if more is None else np.asarray(more).tolist(),
        hovertemplate=f"{row}%{{y}}<br>{column}%{{x}}<br>{value} %{{z:.4g}}"
        f"{'' if more is None else '<br>%{customdata}'}<extra></extra>",
    )


def _written(matrix: np.ndarray) -> list[list[str]]:
    """Return the numbers in the cells of a heat map, all with as many decimals: three digits for the largest."""
    largest = np.nanmax(np.abs(matrix), initial=0.0)
    decimals = max(0, 2 - math.floor(math.log10(largest))) if 0 < largest < np.inf else 0
    return [["" if np.isnan(value) else rounded(float(value), decimals) for value in row] for row in matrix]


def _unless_said(title: str, labels: Sequence[object]) -> str:
    """Return an axis title to put before each label, or "" if the labels already begin with it ("head 0.3")."""
    return "" if any(str(label).startswith(f"{title} ") for label in labels) else f"{title} "


METRICS = {"s_acc": "separation accuracy", "l_acc": "learned accuracy", "roc_auc": "ROC AUC"}

RATIOS = {"w01": 1, "w02": 2}
"""Attention to the first counted token divided by attention to the second (w01) and to the third (w02)."""
CATEGORY_SYMBOLS = {"successful": "circle", "mixed": "square", "failed": "diamond"}

# Color t of the scale is at 1 - (1 - t)^2, so that colors change quickly near the upper end.
_FINE_NEAR_ONE = [[1 - (1 - place) ** 2, color] for place, color in theme.scale(theme.SEQUENTIAL)]

# A logarithmic axis cannot show 0 and infinity; such heads are at the edge, and the tooltip shows their ratio.
SMALLEST_RATIO, LARGEST_RATIO = 1e-12, 1e12


def heads_heatmap(frame: pd.DataFrame, metric: str, order: Sequence[object] | None = None) -> go.Figure:
    """Draw one metric of single heads (diagonal) and of pairs of heads (Figure 3).

    The color scale is finer near 1: .967, .981 and 1 have three different colors.

    Args:
        frame: one row per group: `heads` (a tuple of numbers or names), `size`, and the metric; groups of 3 or more are
            left out.
        order: the order of the heads, for example by category (default: by number).

    Raises:
        InterpError: the metric is unknown, a column is missing, or there are neither single heads nor pairs.
    """
    check_one_of("metric", metric, METRICS)
    theme.check_rows(frame, "heads_heatmap")
    small = frame[frame["size"].isin([1, 2])]
    heads = sorted({head for group in small["heads"] for head in group})
    if order is not None:
        heads.sort(key=list(order).index)
    if not heads:
        raise InterpError("heads_heatmap draws single heads and pairs, but the frame has only larger groups")
    place = {head: position for position, head in enumerate(heads)}
    matrix = np.full((len(heads), len(heads)), np.nan)
    for group, value in zip(small["heads"], small[metric]):
        matrix[place[group[0]], place[group[-1]]] = matrix[place[group[-1]], place[group[0]]] = value
    names = [head_name(head) for head in heads]
    drawn = heatmap(matrix, names, names, "head", "head", METRICS[metric], ends=(1.0,))
    drawn.update_layout(coloraxis_colorscale=_FINE_NEAR_ONE)
    return drawn


def metrics_by_size(frame: pd.DataFrame) -> go.Figure:
    """Draw the distribution of each metric over the groups of a size (Figure 4): median, quartiles, least and largest.

    Args:
        frame: one row per group: `size`, and one or more of `s_acc`, `roc_auc`, `l_acc`.
    """
    metrics = [metric for metric in ("s_acc", "roc_auc", "l_acc") if metric in frame.columns]
    theme.check_rows(frame, "metrics_by_size")
    drawn = theme.figure(x="number of heads in the group", y="value on the test set", boxmode="group")
    for metric, color in zip(metrics, theme.COLORS):
        quantiles = frame.groupby("size")[metric].quantile([0.0, 0.25, 0.5, 0.75, 1.0]).unstack()
        low, first, middle, third, high = (compact(quantiles[q]) for q in quantiles.columns)
        box = go.Box(x=compact(quantiles.index), lowerfence=low, q1=first, median=middle, q3=third, upperfence=high)
        box.update(name=METRICS[metric], marker_color=color, line_width=1.5, fillcolor=theme.fade(color, 0.3))
        drawn.add_trace(box)
    return drawn.update_xaxes(dtick=1)


def ratio_title(ratio: str, tokens: Sequence[str]) -> str:
    """Return the title of an axis of w01 or w02."""
    place = RATIOS[ratio]
    return f"w<sub>0{place}</sub>: attention to '{plain(tokens[0])}' over '{plain(tokens[place])}'"


def attention_ratios(frame: pd.DataFrame, tokens: Sequence[str] = ("0", "1", "2")) -> go.Figure:
    """Draw the attention ratios of the heads at the read position, with the lines w01 = 1 and w02 = 10 (Figure 5).

    Args:
        tokens: the three counted tokens.
        frame: one row per head: `head`, `w01`, `w02`, `s_acc`, `category` (successful, mixed or failed).
    """
    theme.check_rows(frame, "attention_ratios")
    drawn = (
        theme.figure(height=480, meta={"min_height": 400})
        .update_xaxes(title_text=ratio_title("w01", tokens))
        .update_yaxes(title_text=ratio_title("w02", tokens))
    )
    for category, part in frame.groupby("category", sort=True):
        texts = [
            f"head {head_name(head)}, {plain(category)}<br>"
            f"w01 {w01:.3g}, w02 {w02:.3g}<br>separation accuracy {s_acc:.4f}"
            for head, w01, w02, s_acc in zip(part["head"], part["w01"], part["w02"], part["s_acc"])
        ]
        dots = go.Scatter(
            x=_drawable(part["w01"]),
            y=_drawable(part["w02"]),
            mode="markers",
            name=plain(category),
            customdata=texts,
            ids=[head_name(head) for head in part["head"]],
            meta={"heads": "id"},
            hovertemplate="%{customdata}<extra></extra>",
            marker={
                "symbol": CATEGORY_SYMBOLS.get(str(category), "circle"),
                "size": 13,
                "color": compact(part["s_acc"]),
                "coloraxis": "coloraxis",
                "line": {"width": 1, "color": theme.INK},
            },
        )
        drawn.add_trace(dots.update(showlegend=False))
        # The legend's dot has its own color, because it is not on the color scale.
        alone = go.Scatter(x=[None], y=[None], mode="markers", name=plain(category), hoverinfo="skip")
        drawn.add_trace(alone.update(marker={"symbol": dots.marker.symbol, "size": 11, "color": theme.GREY}))
    x_range, y_range = _decades(frame["w01"], 1.0), _decades(frame["w02"], 10.0)
    y_range[1] += 0.12 * (y_range[1] - y_range[0])  # for the labels of the heads
    # One trace for both lines, with a gap between them.
    corners = {"x": [0, 0, None, *x_range], "y": [*y_range, None, 1, 1]}
    x, y = ([None if power is None else 10**power for power in corners[axis]] for axis in ("x", "y"))
    rule = {"color": theme.GREY, "width": 1.5, "dash": "dash"}
    drawn.add_trace(go.Scatter(x=x, y=y, mode="lines", name="w01 = 1 and w02 = 10", line=rule, hoverinfo="skip"))
    low, high, _ = color_limits(frame["s_acc"], ends=(1.0,))
    drawn.update_layout(coloraxis=color_axis(low, high, METRICS["s_acc"], diverging=False))
    places = np.log10(np.stack([_drawable(frame["w01"]), _drawable(frame["w02"])], axis=1).astype(float))
    for across, up, heads in labels(places, [head_name(head) for head in frame["head"]]):
        share = (across - x_range[0]) / (x_range[1] - x_range[0])
        side = "right" if share > 0.8 else "left" if share < 0.2 else "center"  # keep long labels inside
        drawn.add_annotation(
            x=across, y=up, text=heads, showarrow=False, yshift=15, font_size=11, xanchor=side,
            xshift={"right": 8, "left": -8}.get(side, 0),
        )  # fmt: skip
    drawn.update_xaxes(range=x_range, **log_axis(_drawable(frame["w01"])))
    return drawn.update_yaxes(range=y_range, **log_axis(_drawable(frame["w02"])))


def intervention_curve(frame: pd.DataFrame, x: str = "w01", tokens: Sequence[str] = ("0", "1", "2")) -> go.Figure:
    """Draw the separation accuracy of the heads when the attention at '=' is set by hand (Figures 8 and 9).

    Args:
        frame: one row per head and ratio: `head`, `ratio`, `s_acc`.
        x: the varied ratio, "w01" or "w02".
        tokens: the three counted tokens.

    Raises:
        InterpError: `x` is neither "w01" nor "w02", or a column is missing.
    """
    check_one_of("attention ratio", x, RATIOS)
    theme.check_rows(frame, "intervention_curve")
    by_ratio = frame.groupby("ratio")["s_acc"]
    mean, spread = by_ratio.mean(), by_ratio.std(ddof=0)
    ratios = compact(mean.index)
    drawn = theme.figure(y="separation accuracy").update_xaxes(title_text=ratio_title(x, tokens), **log_axis(ratios))
    edge = {"mode": "lines", "line": {"width": 0}, "hoverinfo": "skip", "legendgroup": "band"}
    drawn.add_trace(go.Scatter(x=ratios, y=compact(mean - spread), showlegend=False, **edge))
    band = go.Scatter(x=ratios, y=compact(np.minimum(mean + spread, 1.0)), name="one standard deviation", **edge)
    drawn.add_trace(band.update(fill="tonexty", fillcolor=theme.fade(theme.BLUE, 0.2)))
    mean_line = go.Scatter(x=ratios, y=compact(mean), mode="lines", name="mean of the heads")
    return drawn.add_trace(mean_line.update(line={"width": 2.5, "color": theme.BLUE}))


def _drawable(ratios: pd.Series) -> np.ndarray:
    return compact(np.clip(ratios.to_numpy(dtype=float), SMALLEST_RATIO, LARGEST_RATIO))


def _decades(ratios: pd.Series, reference: float) -> list[float]:
    """Return the range of a logarithmic axis, in powers of ten, that shows all ratios and the reference line."""
    powers = np.log10(np.append(_drawable(ratios), reference))
    powers = powers[np.isfinite(powers)]
    return [float(powers.min()) - 0.4, float(powers.max()) + 0.4]
