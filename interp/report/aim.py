"""Links from points of a figure to heads and inputs: a click loads the input, and marks the head in all figures.

Heads are found by their names, "head 0.3" (or "head 3" for a single layer), in axis labels, trace names and titles of
small plots. So every figure that names heads is clickable automatically. Inputs are set with `inputs`. Both are stored
in the `meta` of each trace:

    head    the trace's head, such as "0.3", or
    heads   where to find a point's head: "x", "y" or "id"
    input   the trace's input, as a part of a live panel's state ("tokens:0.1.1.4", "counts:160,170,20"), or
    inputs  "tokens" or "counts": each point's customdata is the rest of that part
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import plotly.graph_objects as go

Content = Mapping[str, Any]
"""A figure, its traces or its layout as plain data, as in plotly's JSON."""

_HEAD = re.compile(r"\bhead (?:(\d+)\.)?(\d+)\b")
_LABEL = re.compile(r"(?:head )?(?:(\d+)\.)?(\d+)\b")


def tokens(ids: Sequence[int]) -> str:
    """Return an input in the form of "tokens:...": [0, 1, 1, 4] is "0.1.1.4"."""
    return ".".join(str(int(token)) for token in ids)


def counts(numbers: Sequence[int]) -> str:
    """Return an input in the form of "counts:...", in the order of the task's counted tokens."""
    return ",".join(str(int(number)) for number in numbers)


def inputs(figure: go.Figure, kind: Literal["tokens", "counts"], pieces: str | Sequence[Any]) -> go.Figure:
    """Set the inputs of every trace of a figure: one for all points, or one per point (for cells, rows of them)."""
    for trace in figure.data:
        if isinstance(pieces, str):
            trace.meta = {**(trace.meta or {}), "input": f"{kind}:{pieces}"}
        else:
            trace.update(meta={**(trace.meta or {}), "inputs": kind}, customdata=pieces)
    return figure


def aimed(content: dict[str, Any]) -> dict[str, Any]:
    """Add heads to a figure's traces; the tooltip names the head of a whole trace."""
    traces = []
    for trace in content.get("data", []):
        meta = {**_head_of(trace, content.get("layout", {})), **(trace.get("meta") or {})}
        if meta and trace.get("hoverinfo") != "skip":
            trace = {**trace, "meta": meta}
            template = trace.get("hovertemplate", "")
            if "head" in meta and template.endswith("<extra></extra>") and "head" not in template:
                trace["hovertemplate"] = template.replace("<extra></extra>", f"<extra>head {meta['head']}</extra>")
        traces.append(trace)
    return {**content, "data": traces}


def _head_of(trace: Content, layout: Content) -> dict[str, str]:
    if match := _HEAD.search(str(trace.get("name") or "")):
        return {"head": _name(match)}
    axes = {letter: _axis(trace, layout, letter) for letter in "yx"}
    for letter, axis in axes.items():
        labels = trace.get(letter)
        strings = labels if isinstance(labels, list | tuple) else []
        if any(_HEAD.match(str(label)) for label in strings):
            return {"heads": letter}
        title = _title(axis, layout, letter)
        of_heads = title.split(" ")[0] == "head" and not _HEAD.match(title)
        if of_heads and (not strings or any(_LABEL.match(str(label)) for label in strings)):
            return {"heads": letter}
    for text in (_subplot(axes["x"], axes["y"], layout), *(_title(axes[letter], layout, letter) for letter in "xy")):
        if match := _HEAD.search(text):
            return {"head": _name(match)}
    return {}


def _name(match: re.Match[str]) -> str:
    return f"{match[1]}.{match[2]}" if match[1] else match[2]


def _axis(trace: Content, layout: Content, letter: str) -> Content:
    axis: Content = layout.get(f"{letter}axis{(trace.get(f'{letter}axis') or letter)[1:]}") or {}
    return axis


def _title(axis: Content, layout: Content, letter: str) -> str:
    """Return the title of an axis or, in a grid of small plots, the shared title."""
    title = (axis.get("title") or {}).get("text")
    if title is not None:
        return str(title)
    all_axes = [layout[name] for name in layout if name.startswith(f"{letter}axis")]
    return next((text for other in all_axes if (text := (other.get("title") or {}).get("text"))), "")


def _subplot(x: Content, y: Content, layout: Content) -> str:
    """Return the title of the small plot with these axes."""
    left, right = x.get("domain") or (0, 1)
    top = (y.get("domain") or (0, 1))[1]
    for note in layout.get("annotations") or ():
        above = note.get("yref") == "paper" and abs(note.get("y", -1) - top) < 1e-3
        across = note.get("xref") == "paper" and left - 1e-3 <= note.get("x", -1) <= right + 1e-3
        if above and across:
            return str(note.get("text") or "")
    return ""
