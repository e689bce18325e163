"""Count01: outputs of heads at '=' in a plane, with value vectors and separators (section 5.3, Figures 6, 7 and 15)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from interp.measures.circuits import circuit_tables
from interp.measures.heads import HeadOutputs
from interp.measures.separation import fit_separator
from interp.models.subject import Model, Subject
from interp.support.figures import theme
from interp.support.figures.drawing import Plot, compact, filled, head_name, is_lowest, panels
from interp.support.figures.theme import plain

Separator = Sequence[float] | np.ndarray
"""(w1, w2, b) of the line w1 x + w2 y + b = 0."""

TOGETHER = 0.04
"""Share of an axis within which the labels of two vectors would overlap."""

SYMBOLS = ("circle", "cross-thin-open", "square-open", "diamond-open")


# ---------------------------------------------------------------- measured


@dataclass(frozen=True)
class HeadPlanes:
    """Head outputs and value vectors in a plane per head.

    points: head, x, y, label, one row per head and input. values: head, token, x, y of the tokens' value vectors.
    lines: (w1, w2, b) of each head's separator, fitted on the training outputs, if d_head is 1 or 2. Wider heads are
    shown in their two principal components, whose shares of the variance are in `variance`. If d_head is 1, y is the
    index of the answer among those that occur, and value vectors are drawn at middle height.
    """

    points: pd.DataFrame
    values: pd.DataFrame
    lines: dict[int, tuple[float, float, float]]
    variance: dict[int, tuple[float, float]]


def head_planes(
    model: Model, fitted: HeadOutputs, tested: HeadOutputs, tokens: Sequence[str] = ("0", "1", "2")
) -> HeadPlanes:
    """Compute the planes of all heads, with separators from `fitted` and points from `tested`."""
    subject = Subject.of(model)
    ids = [subject.task.token_id(token) for token in tokens]
    vectors = circuit_tables(subject).values[0, :, ids].numpy() if subject.count_space else None
    words = np.array(subject.task.answer_words)[tested.labels]
    row = np.unique(tested.labels.numpy(), return_inverse=True)[1]
    points, values = [], []
    lines: dict[int, tuple[float, float, float]] = {}
    variance: dict[int, tuple[float, float]] = {}
    for head in range(tested.n_heads):
        z, d_head = tested.z[:, head].numpy(), tested.z.shape[-1]
        its_values = np.zeros((0, d_head)) if vectors is None else vectors[head]
        if d_head > 2:
            middle = z.mean(0)
            _, size, axes = np.linalg.svd(z - middle, full_matrices=False)
            axes *= np.sign(axes[np.arange(len(axes)), np.abs(axes).argmax(1)])[:, None]  # else the sign is open
            z, its_values = (z - middle) @ axes[:2].T, (its_values - middle) @ axes[:2].T
            first, second = (float(share) for share in size[:2] ** 2 / (size**2).sum())
            variance[head] = first, second
        else:
            w, b = fit_separator(fitted.z[:, head].numpy(), fitted.labels.numpy())
            lines[head] = (float(w[0]), float(w[1]) if d_head == 2 else 0.0, b)
        if d_head == 1:
            middle = np.full((len(its_values), 1), row.max() / 2)
            z, its_values = np.hstack([z, row[:, None]]), np.hstack([its_values, middle])
        points.append(pd.DataFrame({"head": head, "x": z[:, 0], "y": z[:, 1], "label": words}))
        named = list(tokens)[: len(its_values)]
        values.append(pd.DataFrame({"head": head, "token": named, "x": its_values[:, 0], "y": its_values[:, 1]}))
    return HeadPlanes(pd.concat(points, ignore_index=True), pd.concat(values, ignore_index=True), lines, variance)


# ---------------------------------------------------------------- drawn


def head_plane(
    points: pd.DataFrame,
    values: pd.DataFrame,
    separator: Separator | None,
    head: int,
    variance: tuple[float, float] | None = None,
    max_points: int = 3000,
) -> go.Figure:
    """Draw the outputs of one head at '=', one dot per input (Figures 6 and 7).

    Args:
        points: one row per input: `x`, `y`, `label` ('4' or '5'), and optionally `split` and `input` (the numbers of
            its counted tokens; see interp.report.aim). With `input`, `attrs["counted"]` has the counted tokens.
        values: value vectors: `token`, `x`, `y`, in the same plane; may be empty.
        separator: (w1, w2, b) of the line that separates the classes, or None.
        head: index of the head, for the axis titles.
        variance: shares of the variance along the two axes, if they are principal components.
        max_points: largest number of dots; a larger frame is thinned evenly.

    Raises:
        InterpError: there are no points.
    """
    theme.check_rows(points, "head_plane")
    if len(values):
        theme.check_rows(values, "head_plane (value vectors)")
    if variance is None:
        x_title, y_title = (f"head {head_name(head)}: dimension {i}" for i in (1, 2))
    else:
        x_title, y_title = (
            f"head {head_name(head)}: component {i} ({v:.0%} of variance)" for i, v in zip((1, 2), variance)
        )
    drawn = theme.figure(x=x_title, y=y_title, height=480)
    x_range, y_range = _ranges(points, values, headroom=0.3)
    drawn.add_traces(_traces(_thin(points, max_points), values, separator, (x_range, y_range), size=5.0))
    return drawn.update_xaxes(range=x_range).update_yaxes(range=y_range)


DOTS_OF_A_HEAD = 400
"""More are thinned evenly."""


def head_planes_grid(
    points: pd.DataFrame,
    values: pd.DataFrame,
    separators: Mapping[int, Separator | None] | None = None,
    notes: Mapping[int, str] | None = None,
    order: Sequence[int] | None = None,
) -> go.Figure:
    """Draw a small `head_plane` of every head, each with its own axes (Figure 15).

    Args:
        points: as in `head_plane`, with a column `head`.
        values: as in `head_plane`, with a column `head`.
        separators: the line of each head.
        notes: a few words on each head, shown next to its number, e.g. its separation accuracy.
        order: the order of the heads (default: by number).
    """
    theme.check_rows(points, "head_planes_grid")
    if len(values):
        theme.check_rows(values, "head_planes_grid (value vectors)")
    heads = sorted(points["head"].unique().tolist())
    if order is not None:
        heads.sort(key=list(order).index)
    notes, separators = notes or {}, separators or {}
    titles = [f"head {head_name(head)}" + (f" · {notes[head]}" if head in notes else "") for head in heads]
    layout, places = panels(titles, 4, panel_height=160)
    plots: list[Plot] = []
    for head, place in zip(heads, places):
        own_points, own_values = points[points["head"] == head], values[values["head"] == head]
        across, down = _ranges(own_points, own_values, headroom=0.26)
        thin = _thin(own_points, DOTS_OF_A_HEAD)
        traces = _traces(thin, own_values, separators.get(head), (across, down), size=4.0, legend=not plots)
        ticks = {"nticks": 4, "tickfont": {"size": 10}}
        x_title, y_title = ("dimension 1" if is_lowest(place, places) else ""), ("dimension 2" if place[1] == 1 else "")
        x, y = ({"range": r, "title": {"text": text}, **ticks} for r, text in ((across, x_title), (down, y_title)))
        plots.append(Plot(traces, x, y))
    return filled(layout, plots)


def _traces(
    points: pd.DataFrame,
    values: pd.DataFrame,
    separator: Separator | None,
    ranges: tuple[list[float], list[float]],
    size: float,
    legend: bool = True,
) -> list[go.Scatter]:
    traces = []
    if separator is not None:
        ends = _clipped_line(separator, *ranges)
        line = {"color": theme.INK, "width": 2}
        traces.append(_scatter(ends, "lines", "separator", legend).update(line=line, hoverinfo="name"))
    splits = list(dict.fromkeys(points["split"])) if "split" in points.columns else [None]
    for label in sorted(points["label"].unique(), key=str):
        for split, symbol in zip(splits, cycle(SYMBOLS)):
            part = points[points["label"] == label]
            part = part if split is None else part[part["split"] == split]
            name = f"answer '{plain(label)}'" + (f", {plain(split)}" if len(splits) > 1 else "")
            color = theme.TOKEN_COLORS.get(str(label), theme.GREY)
            marker = {"size": size, "color": theme.fade(color, 0.65), "symbol": symbol, "line": {"width": 0}}
            if symbol != "circle":
                marker |= {"size": size + 1, "line": {"width": 1, "color": theme.fade(color, 0.65)}}
            traces.append(_scatter(part, "markers", name, legend).update(marker=marker, hoverinfo="name+x+y"))
            if "input" in part.columns:
                numbers = ", ".join(f"n<sub>{plain(token)}</sub>" for token in points.attrs["counted"])
                shown = f"{numbers} = %{{customdata}}<br>%{{x:.3g}}, %{{y:.3g}}<extra>{name}</extra>"
                traces[-1].update(customdata=list(part["input"]), meta={"inputs": "counts"}, hovertemplate=shown)
    if values.empty:
        return traces
    vectors = _scatter(values, "markers+text", "value vectors", legend).update(hoverinfo="text+x+y")
    vectors.update(text=_labels(values, ranges), hovertext=[plain(token) for token in values["token"]])
    vectors.update(textposition="top center", textfont={"size": 10 + size, "color": theme.INK}, cliponaxis=False)
    vectors.update(marker={"symbol": "diamond-open", "size": size + 5, "color": theme.INK, "line": {"width": 1.5}})
    return [vectors, *traces]  # below the dots, which may all lie on one vector


def _labels(values: pd.DataFrame, ranges: tuple[list[float], list[float]]) -> list[str]:
    """Return the tokens of vectors as labels. The first of vectors that lie together is labeled with all of them."""
    low, high = np.array(ranges).T
    places = (values[["x", "y"]].to_numpy(float) - low) / (high - low)
    first = [int((np.abs(places[: i + 1] - place) <= TOGETHER).all(1).argmax()) for i, place in enumerate(places)]
    tokens = [plain(token) for token in values["token"]]
    return [", ".join(token for token, other in zip(tokens, first) if other == i) for i in range(len(tokens))]


def _scatter(points: Any, mode: str, name: str, legend: bool) -> go.Scatter:
    return go.Scatter(
        x=compact(points["x"]), y=compact(points["y"]), mode=mode, name=name, legendgroup=name, showlegend=legend
    )


def _thin(points: pd.DataFrame, max_points: int) -> pd.DataFrame:
    """Return at most `max_points` rows, evenly spaced, so that the same frame always gives the same dots."""
    if len(points) <= max_points:
        return points
    return points.iloc[np.linspace(0, len(points) - 1, max_points).round().astype(int)]


def _ranges(points: pd.DataFrame, values: pd.DataFrame, headroom: float) -> tuple[list[float], list[float]]:
    """Return the box around all dots and value vectors, with a margin, and headroom for the labels of the vectors."""
    ranges = []
    for axis in ("x", "y"):
        everything = np.concatenate([points[axis].to_numpy(float), values[axis].to_numpy(float)])
        low, high = float(everything.min()), float(everything.max())
        size = (high - low) or 1.0
        ranges.append([low - 0.08 * size, high + (headroom if axis == "y" else 0.08) * size])
    return ranges[0], ranges[1]


def _clipped_line(separator: Separator, x_range: list[float], y_range: list[float]) -> dict[str, list[float]]:
    """Return the two points where the line meets the border of the box; no points if it misses the box."""
    w1, w2, b = map(float, separator)
    meetings = [(x, -(w1 * x + b) / w2) for x in x_range if w2] + [(-(w2 * y + b) / w1, y) for y in y_range if w1]
    slack = [1e-9 * (r[1] - r[0]) for r in (x_range, y_range)]
    inside = sorted(
        (x, y)
        for x, y in meetings
        if x_range[0] - slack[0] <= x <= x_range[1] + slack[0] and y_range[0] - slack[1] <= y <= y_range[1] + slack[1]
    )
    ends = [inside[0], inside[-1]] if len(inside) > 1 else []
    return {"x": [x for x, _ in ends], "y": [y for _, y in ends]}
