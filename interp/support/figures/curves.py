"""Lines, bars, dots and training histories."""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from interp.support.figures import theme
from interp.support.figures.cells import is_number
from interp.support.figures.drawing import color_axis, color_range, compact, labels, log_axis
from interp.support.figures.theme import plain

Axis = Literal["linear", "log"]
MOST_BESIDE, ENTRY = 4, 30
"""Most lines whose legend fits one row, and the height of a row, of which a phone has one for two lines, in pixels."""


def lines(
    frame: pd.DataFrame,
    x: str,
    y: str,
    color: str | None = None,
    x_title: str | None = None,
    y_title: str | None = None,
    x_type: Axis = "linear",
    y_type: Axis = "linear",
    markers: bool = False,
    spread: str | None = None,
    tokens: str | None = None,
    owner: str | None = None,
    colors: Mapping[str, str] | None = None,
) -> go.Figure:
    """Draw y against x, one line per value of `color`, each in the order of x.

    Lines of one `owner` (a column) have one color and differ in their dashes. `spread` is a column with the half-width
    of a band around each line. `tokens` is a column with the input that a click on a point loads; see
    interp.report.aim. `colors`: by the values of `color`.
    """
    theme.check_rows(frame, "lines")
    drawn = theme.figure(x=x_title or x, y=y_title or y, **({"legend_itemwidth": 44} if owner else {}))  # shows dashes
    owners: list[object] = []
    for position, (name, part) in enumerate(_groups(frame, color)):
        part = part.sort_values(x, kind="stable")
        dash, hue = position // len(theme.COLORS), (colors or {}).get(str(name), _color(position))
        if owner:
            mine = part[owner].iloc[0]
            dash, hue = owners.count(mine), _color(list(dict.fromkeys([*owners, mine])).index(mine))
            owners.append(mine)
        if spread:
            drawn.add_traces(_band(part, x, y, spread, hue, plain(name)))
        trace = go.Scatter(
            x=_positions(part[x]),
            y=compact(part[y]),
            name=plain(name),
            legendgroup=plain(name),
            mode="lines+markers" if markers else "lines",
            line={"width": 2, "color": hue, "dash": _DASHES[dash % len(_DASHES)]},
        )
        drawn.add_trace(trace.update(_inputs(part, tokens)))
    if (n := len(drawn.data)) > MOST_BESIDE:  # a legend has at most half of the height
        drawn.update_layout(meta={"min_height": min(400, max(320, 20 + 2 * ENTRY * -(-n // 2)))})
    return drawn.update_xaxes(**_axis(frame[x], x_type)).update_yaxes(**_axis(frame[y], y_type))


def bars(
    frame: pd.DataFrame,
    x: str,
    y: str,
    color: str | None = None,
    x_title: str | None = None,
    y_title: str | None = None,
    error: str | None = None,
    stacked: bool = False,
    tokens: str | None = None,
    colors: Mapping[str, str] | None = None,
) -> go.Figure:
    """Draw one bar per row; bars with the same x are side by side or stacked.

    `error` is a column with the half-length of each bar's whiskers. `tokens`: as in `lines`. `colors`: by the values of
    `color`; kinds of parts have their own.
    """
    theme.check_rows(frame, "bars")
    drawn = theme.figure(x=x_title or x, y=y_title or y, barmode="stack" if stacked else "group")
    for position, (name, part) in enumerate(_groups(frame, color)):
        whiskers = (
            {"type": "data", "array": compact(part[error]), "color": theme.INK, "thickness": 1.2} if error else None
        )
        trace = go.Bar(
            x=_positions(part[x]),
            y=compact(part[y]),
            name=plain(name),
            marker={"color": (colors or theme.KIND_COLORS).get(str(name), _color(position))},
            error_y=whiskers,
        )
        drawn.add_trace(trace.update(_inputs(part, tokens)))
    longest = 0 if is_number(frame[x]) else max(len(str(value)) for value in frame[x])
    if LETTER * longest * frame[x].nunique() > CARD:  # then the labels stand upright
        drawn.update_layout(meta={"min_height": round(LOWEST + LETTER * longest)})
    return drawn.update_xaxes(**_axis(frame[x], "linear"))


LETTER, CARD, LOWEST = 7, 300, 190
"""Width of a label's letter and of a figure on a phone, and least height of a figure without its labels, in pixels."""


def scatter(
    frame: pd.DataFrame,
    x: str,
    y: str,
    color: str | None = None,
    label: str | None = None,
    x_title: str | None = None,
    y_title: str | None = None,
    color_title: str | None = None,
    x_type: Axis = "linear",
    y_type: Axis = "linear",
    diagonal: bool = False,
    tokens: str | None = None,
    named: bool = False,
) -> go.Figure:
    """Draw one dot per row; a numeric `color` gives a color scale, any other a legend.

    `label` is a column of text for the tooltip and, if `named`, also next to each dot. `diagonal` adds the line y = x.
    `tokens`: as in `lines`.
    """
    theme.check_rows(frame, "scatter")
    drawn = theme.figure(x=x_title or x, y=y_title or y)
    if diagonal:
        low, high = color_range(np.concatenate([frame[x].to_numpy(float), frame[y].to_numpy(float)]))
        rule = {"color": theme.GREY, "width": 1, "dash": "dash"}
        drawn.add_trace(
            go.Scatter(x=[low, high], y=[low, high], mode="lines", line=rule, name="equal", hoverinfo="skip")
        )
    is_scale = color is not None and is_number(frame[color])
    for position, (name, part) in enumerate(_groups(frame, None if is_scale else color)):
        marker: dict[str, Any] = {"size": 9, "line": {"width": 1, "color": theme.PAPER}, "color": _color(position)}
        if is_scale:
            marker |= {"color": compact(part[color]), "coloraxis": "coloraxis"}
        trace = go.Scatter(
            x=compact(part[x]),
            y=compact(part[y]),
            mode="markers",
            marker=marker,
            name=plain(name),
            showlegend=bool(name),
        )
        trace.update(_inputs(part, tokens))
        if label:
            trace.update(text=[plain(value) for value in part[label]], hovertemplate="%{text}<br>%{x:.4g}, %{y:.4g}")
        drawn.add_trace(trace)
    if label and named:
        drawn.add_trace(_names(frame, x, y, label))
    if is_scale and color is not None:
        drawn.update_layout(coloraxis=color_axis(*color_range(frame[color]), color_title or color, diverging=False))
    return drawn.update_xaxes(**_axis(frame[x], x_type)).update_yaxes(**_axis(frame[y], y_type))


def history(frame: pd.DataFrame) -> go.Figure:
    """Draw the loss (logarithmic) and accuracy by epoch, one line per seed.

    Args:
        frame: one row per seed and epoch: `seed`, `epoch`, `loss` (in nats), `accuracy` (a share).
    """
    theme.check_rows(frame, "history")
    drawn = make_subplots(rows=1, cols=2, horizontal_spacing=0.12)
    drawn.update_layout(template=theme.template(), height=300, meta={"min_width": 620})
    for position, (seed, part) in enumerate(_groups(frame, "seed")):
        part = part.sort_values("epoch", kind="stable")
        for column, quantity in enumerate(("loss", "accuracy"), start=1):
            known = part.dropna(subset=[quantity])  # the loss before the first epoch is unknown
            trace = go.Scatter(
                x=compact(known["epoch"]),
                y=compact(known[quantity]),
                name=f"seed {plain(seed)}",
                legendgroup=str(seed),
                showlegend=column == 1,
                line={"width": 1.8, "color": _color(position)},
            )
            drawn.add_trace(trace, row=1, col=column)
    drawn.update_xaxes(title_text="epoch")
    drawn.update_yaxes(title_text="loss (nats)", **log_axis(frame["loss"]), row=1, col=1)
    drawn.update_yaxes(title_text="accuracy", row=1, col=2)
    return drawn


def _names(frame: pd.DataFrame, x: str, y: str, label: str) -> go.Scatter:
    """Return labels above dots; dots close to each other share one."""
    across, up, texts = zip(*labels(frame[[x, y]].to_numpy(float), [plain(text) for text in frame[label]]))
    names = go.Scatter(x=compact(np.array(across)), y=compact(np.array(up)), text=texts)
    names.update(mode="markers+text", marker={"size": 9, "opacity": 0})  # an unseen dot keeps its label above it
    names.update(textposition="top center", textfont_size=11, cliponaxis=False, hoverinfo="skip", showlegend=False)
    return names


def _inputs(part: pd.DataFrame, column: str | None) -> dict[str, Any]:
    return {"customdata": list(part[column]), "meta": {"inputs": "tokens"}} if column else {}


def _band(part: pd.DataFrame, x: str, y: str, spread: str, color: str, group: str) -> list[go.Scatter]:
    """Return two invisible lines with color between them."""
    edge: dict[str, Any] = {"mode": "lines", "line": {"width": 0}, "hoverinfo": "skip", "showlegend": False}
    low, high = part[y] - part[spread], part[y] + part[spread]
    lower = go.Scatter(x=_positions(part[x]), y=compact(low), legendgroup=group, **edge)
    upper = go.Scatter(x=_positions(part[x]), y=compact(high), legendgroup=group, **edge)
    return [lower, upper.update(fill="tonexty", fillcolor=theme.fade(color, 0.15))]


_DASHES = ("solid", "dash", "dot")


def _groups(frame: pd.DataFrame, column: str | None) -> list[tuple[object, pd.DataFrame]]:
    if column is None:
        return [("", frame)]
    return list(frame.groupby(column, sort=False))


def _positions(column: pd.Series) -> Any:
    return compact(column) if is_number(column) else [plain(value) for value in column]


def _axis(column: pd.Series, wanted: Axis) -> dict[str, Any]:
    if not is_number(column):
        return {"type": "category"}
    return log_axis(column) if wanted == "log" else {"type": "linear"}


def _color(position: int) -> str:
    return theme.COLORS[position % len(theme.COLORS)]
