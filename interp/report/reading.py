"""Describe figures in words, for readers who cannot see them and to replace figures that would show nothing."""

from __future__ import annotations

import base64
import html
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.support.words import counted, number

if TYPE_CHECKING:
    import plotly.graph_objects as go

FEWEST = 3
"""Least number of bars, cells or points for a figure."""
ROUNDING = 1e-9
"""Rounding error of a number near 0 or 1."""
ALIKE = 1e-6
"""Values with a smaller relative difference look equal in any picture."""


@dataclass(frozen=True)
class DrawnValue:
    """The value and the place of one bar, cell, box or dot."""

    value: float
    where: str


def finding(figure: go.Figure) -> str:
    """Return one sentence on a figure: the number of marks, and the smallest and largest values with their places."""
    if (told := _told(figure)) is not None:
        return told
    traces = _traces(figure)
    kinds = {trace.type for trace in traces}
    marks = [mark for trace in traces for mark in _marks(trace)]
    if not marks:
        return "Nothing is drawn."
    if kinds == {"scatter"} and not any("lines" in (trace.mode or "lines") for trace in traces):
        return _dots(figure, traces)
    what = {"bar": "bar", "heatmap": "cell", "box": "median"}.get(next(iter(kinds)), "point")
    low, high = min(marks, key=lambda mark: mark.value), max(marks, key=lambda mark: mark.value)
    name = _title(figure, traces)
    if _alike(marks):
        exact = "all" if low.value == high.value else "all about"
        return f"{counted(len(marks), what)}, {exact} {number(high.value)}{name}."
    return (
        f"{counted(len(marks), what)}{name}: the least is {number(low.value)} ({low.where}), the largest "
        f"{number(high.value)} ({high.where})."
    )


def instead(figure: go.Figure) -> str | None:
    """Return a sentence that replaces a figure with one or two marks, or with equal values; otherwise None."""
    if _told(figure) is not None:
        return None
    traces = _traces(figure)
    marks = [mark for trace in traces for mark in _marks(trace)]
    if not marks:
        return "There is nothing to draw."
    if len(marks) < FEWEST and not any(trace.type == "box" for trace in traces):
        return "; ".join(f"{mark.where}: {number(mark.value, rounding=ROUNDING)}" for mark in marks) + "."
    if all(trace.type in ("bar", "heatmap") or _is_line(trace) for trace in traces) and _alike(marks):
        exact = len({mark.value for mark in marks}) == 1
        seen = "" if exact else ", as far as could be seen"
        return f"All {len(marks)} values{_title(figure, traces)} are {number(marks[0].value)}{seen}."
    return None


def _told(figure: go.Figure) -> str | None:
    """Return the description of a drawing without values: layout.meta["words"]."""
    meta = figure.layout.meta
    return str(meta["words"]) if isinstance(meta, dict) and "words" in meta else None


def values_of(values: Any) -> Any:
    """Return a trace's values as a sequence, unpacked if plotly stores them as {"dtype", "bdata", "shape"}."""
    if not (isinstance(values, dict) and "bdata" in values):
        return values
    array = np.frombuffer(base64.b64decode(values["bdata"]), dtype=np.dtype(values["dtype"]))
    return array.reshape([int(size) for size in str(values.get("shape", len(array))).split(",")])


def _alike(marks: list[DrawnValue]) -> bool:
    values = np.array([mark.value for mark in marks])
    return bool(np.ptp(values) <= ALIKE * np.abs(values).max())


def _is_line(trace: Any) -> bool:
    return trace.type == "scatter" and "lines" in (trace.mode or "lines")


def _traces(figure: go.Figure) -> list[Any]:
    """Return the traces with data; reference lines have no tooltip."""
    return [trace for trace in figure.data if trace.hoverinfo != "skip"]


def _marks(trace: Any) -> Iterator[DrawnValue]:
    """Return the finite values of a trace."""
    trace_name = trace.name  # plotly takes a while for each attribute
    name = f"{trace_name}, " if trace_name else ""
    if trace.type == "heatmap":
        values, rows, columns = np.asarray(values_of(trace.z), dtype=float), tuple(trace.y), tuple(trace.x)
        for row, column in zip(*np.nonzero(np.isfinite(values))):
            yield DrawnValue(float(values[row, column]), html.unescape(f"{name}{rows[row]}, {columns[column]}"))
        return
    heights = values_of(trace.median if trace.type == "box" else trace.y)
    if heights is None:
        return
    places = values_of(trace.x) if trace.x is not None else range(len(heights))
    for place, height in zip(places, heights):
        if height is not None and np.isfinite(float(height)):
            where = place if isinstance(place, str) else number(float(place))  # avoid repeating "head" in "head 0.1"
            label = where if trace_name and where.startswith(f"{trace_name} ") else f"{name}{where}"
            yield DrawnValue(float(height), html.unescape(label))


def _title(figure: go.Figure, traces: list[Any]) -> str:
    """Return " of NAME", with the title of the vertical axis or the color scale."""
    layout = figure.layout
    if len({trace.coloraxis for trace in traces if trace.type == "heatmap"}) > 1:
        return ""  # color scales of different quantities
    text = layout.coloraxis.colorbar.title.text if traces[0].type == "heatmap" else layout.yaxis.title.text
    return f" of {html.unescape(text)}" if text and text.strip() and "<" not in text else ""


def _dots(figure: go.Figure, traces: list[Any]) -> str:
    parts = []
    for axis in ("x", "y"):
        drawn = [np.asarray(values_of(getattr(trace, axis))) for trace in traces if getattr(trace, axis) is not None]
        if not drawn or any(values.dtype.kind not in "fiu" for values in drawn):
            continue
        numbers = np.concatenate([np.asarray(values, dtype=float) for values in drawn])
        numbers = numbers[np.isfinite(numbers)]
        title = getattr(figure.layout, f"{axis}axis").title.text or axis
        if numbers.size:
            title = title if "<" not in title else axis
            parts.append(f"{html.unescape(title)} from {number(numbers.min())} to {number(numbers.max())}")
    n = sum(len(values_of(trace.x)) for trace in traces if trace.x is not None)
    return f"{counted(n, 'dot')}; {', '.join(parts)}." if parts else f"{counted(n, 'dot')}."
