"""What is wrong with a figure, without drawing it: range, constant data, missing values, colors, titles, caption."""

import re
from collections.abc import Iterable, Iterator

import numpy as np
import plotly.graph_objects as go

from interp.report.reading import finding, instead, values_of
from interp.support.figures.theme import COLORS

HEX = re.compile(r"#[0-9A-Fa-f]{6}([0-9A-Fa-f]{2})?")
USED = 0.4
"""Share of a color scale that the data must span."""


def problems(figure: go.Figure, caption: str) -> list[str]:
    """Sentences, none where nothing is wrong."""
    found = [*_values(figure), *_ranges(figure), *_colors(figure), *_titles(figure), *_words(figure, caption)]
    if (sentence := instead(figure)) is not None:
        found.append(f"shows nothing: {sentence}")
    return found


def _numbers(values: object) -> np.ndarray | None:
    array = np.asarray(values_of(values))
    if array.dtype.kind == "O":
        try:
            array = array.astype(float)
        except (TypeError, ValueError):
            return None
    return array.astype(float) if array.dtype.kind in "fiu" else None


def _axis(figure: go.Figure, trace: object, letter: str) -> object:
    number = (getattr(trace, f"{letter}axis") or letter)[1:]
    return figure.layout[f"{letter}axis{number}"]


def _values(figure: go.Figure) -> Iterator[str]:
    """Every trace has finite values, and nothing that a logarithmic axis drops."""
    for trace in figure.data:
        if trace.hoverinfo == "skip":
            continue
        for letter in "zxy":
            values = getattr(trace, letter, None) if letter in trace else None
            array = None if values is None else _numbers(values)
            if array is None or not array.size:
                continue
            if not np.isfinite(array).any():
                yield f"{letter} of {trace.name!r} has no finite value"
            if np.isinf(array).any():
                yield f"{letter} of {trace.name!r} is infinite somewhere"
            if letter in "xy" and np.isnan(array).any():
                yield f"{letter} of {trace.name!r} is missing somewhere"
            if letter in "xy" and _axis(figure, trace, letter).type == "log" and (array <= 0).any():
                yield f"{letter} of {trace.name!r} has {int((array <= 0).sum())} values that its log axis cannot show"


def differing(figures: Iterable[go.Figure]) -> Iterator[str]:
    """Names in legends of one page that have different colors. A token counts by its name in quotes."""
    seen: dict[str, str] = {}
    for figure in figures:
        for trace in figure.data:
            if not trace.name or trace.showlegend is False:
                continue
            quoted = re.findall(r"'([^']+)'", trace.name)
            name = f"'{quoted[0]}'" if len(quoted) == 1 else trace.name
            color = trace.line.color if "lines" in (getattr(trace, "mode", None) or "") else trace.marker.color
            if not isinstance(color, str):
                continue
            if faded := re.fullmatch(r"rgba\((\d+), (\d+), (\d+), .*\)", color):
                color = "#" + "".join(f"{int(channel):02X}" for channel in faded.groups())
            if seen.setdefault(name, color) != color:
                yield f"{name} is {seen[name]} and {color}"
    tokens = [color for name, color in seen.items() if name.startswith("'")]
    if len(set(tokens)) < len(tokens) <= len(COLORS) + 1:
        yield f"tokens share colors: {seen}"


def _ranges(figure: go.Figure) -> Iterator[str]:
    """What is drawn lies within the ranges that were set, up to a marker's size."""
    for trace in figure.data:
        for letter in "xy":
            values = getattr(trace, letter, None)
            array = None if values is None else _numbers(values)
            axis = _axis(figure, trace, letter) if array is not None else None
            if (
                array is None
                or axis.range is None
                or axis.type == "category"
                or (trace.type == "bar" and letter == "x")
            ):
                continue
            low, high = sorted(map(float, axis.range))
            array = np.log10(array[array > 0]) if axis.type == "log" else array
            slack = 1e-3 * (high - low)
            if array.size and (np.nanmin(array) < low - slack or np.nanmax(array) > high + slack):
                yield f"{letter} of {trace.name!r} leaves the axis: {np.nanmin(array):.4g} to {np.nanmax(array):.4g}"


def _colors(figure: go.Figure) -> Iterator[str]:
    """Colors are colors, and color scales fit the data."""
    for text in re.findall(r'"(#[^"]*)"', figure.to_json(validate=False, engine="json")):
        if not HEX.fullmatch(text):
            yield f"{text!r} is no color"
    axis = figure.layout.coloraxis
    if axis.cmin is None:
        return
    shown = [
        _numbers(trace.z if trace.type == "heatmap" else trace.marker.color)
        for trace in figure.data
        if "coloraxis"
        in (trace.to_plotly_json().get("coloraxis"), (trace.to_plotly_json().get("marker") or {}).get("coloraxis"))
    ]
    values = np.concatenate([array.ravel() for array in shown if array is not None])
    values = values[np.isfinite(values)]
    low, high = float(axis.cmin), float(axis.cmax)
    if not low < high:
        yield f"the color scale runs from {low} to {high}"
    elif values.min() < low - 1e-6 * (high - low) or values.max() > high + 1e-6 * (high - low):
        yield f"the color scale from {low:.4g} to {high:.4g} cuts data from {values.min():.4g} to {values.max():.4g}"
    elif low == -high and np.abs(values).max() >= (1 - 1e-6) * high:
        return  # a color means the same in every figure: the scale diverges from 0 as far as the data do
    elif (low, high) != (0, 1) and np.ptp(values) < USED * (high - low):  # shares have one scale everywhere
        yield f"data from {values.min():.4g} to {values.max():.4g} use a sliver of the colors {low:.4g} to {high:.4g}"


def _titles(figure: go.Figure) -> Iterator[str]:
    """Axes have titles (a drawing without axes has none), and a legend above leaves those of small plots free."""
    drawing = list(figure.select_xaxes()) and all(axis.visible is False for axis in figure.select_xaxes())
    if not drawing and not any(axis.title.text for axis in figure.select_xaxes()):
        yield "no x axis has a title"
    shown = [trace for trace in figure.data if trace.name and trace.showlegend is not False]
    legend = figure.layout.showlegend is not False and len(shown) > 1
    names = [
        note for note in figure.layout.annotations if note.yref == "paper" and note.y is not None and note.y > 0.99
    ]
    if legend and names:
        inner = figure.layout.height - figure.layout.margin.t - figure.layout.margin.b
        if ((figure.layout.legend.y or 1.02) - 1) * inner < 20:
            yield "the legend lies over the titles of small plots"


def _words(figure: go.Figure, caption: str) -> Iterator[str]:
    """The caption speaks of what is drawn: lines, [BOS] and numbers."""
    drawn = figure.to_json(validate=False, engine="json")
    names = {trace.name for trace in figure.data}
    if "separator" in caption and not any(
        trace.name == "separator" and len(values_of(trace.x)) for trace in figure.data if trace.x is not None
    ):
        yield "the caption speaks of a separator, and none is drawn"
    if "BOS" in caption and "BOS" not in drawn and not any("BOS" in str(name) for name in names):
        yield "the caption speaks of [BOS], and there is none"
    if "whisker" in caption.lower() and not any(
        trace.type == "box" or trace.error_y.array is not None for trace in figure.data
    ):
        yield "the caption speaks of whiskers, and there are none"
    if not caption.strip():
        yield "no caption"
    if re.search(r"\b(nan|None|inf)\b", caption + finding(figure)):
        yield f"words that are no words: {caption} {finding(figure)}"
