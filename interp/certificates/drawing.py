"""The figure of a certificate: what is proved right, proved wrong and undecided, or how far answers are from wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from interp.support import figures as draw
from interp.support.figures import theme
from interp.tasks.task import Task

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

COLORS = {"right": theme.GREEN, "wrong": theme.VERMILLION, "undecided": theme.GREY}


def draw_tables(
    tables: Mapping[str, pd.DataFrame], accuracy: float | tuple[float, float], n_inputs: int, task: Task | None
) -> Figure:
    """Draw the errors by difference of two counts, the margins by length, or the shares that are right and wrong."""
    if "difference" in tables.get("errors", ()) and task is not None and task.contrast is not None:
        return draw.error_by_difference(tables["errors"], tokens=task.counted, answers=task.contrast)
    if "lengths" in tables and len(margins := by_length(tables["lengths"])):
        return margins_by_length(margins)
    for table in tables.values():
        if {"right", "wrong"} <= set(table.columns):
            return shares(table)
    low, high = (accuracy,) * 2 if isinstance(accuracy, float) else accuracy
    whole = pd.DataFrame({"inputs": [f"all {n_inputs:,} inputs"], "right": [low], "wrong": [1 - high]})
    return shares(whole.assign(undecided=high - low))


def by_length(lengths: pd.DataFrame) -> pd.DataFrame:
    """Return the sizes that a logarithmic axis can show, one row per length and quantity."""
    both = lengths.melt("length", ["smallest_margin", "rounding"], "quantity", "value")
    both["quantity"] = both["quantity"].str.replace("_", " ")
    return both[np.isfinite(both["value"]) & (both["value"] > 0)]


def margins_by_length(margins: pd.DataFrame) -> Figure:
    """Draw the smallest margin, and how much rounding can change it, by the length of the strings."""
    return draw.lines(margins, "length", "value", "quantity", "symbols", "size of the logit", y_type="log")


def shares(table: pd.DataFrame) -> Figure:
    """Draw the shares of each row that are proved right, proved wrong and undecided."""
    parts = table[[name for name in ("right", "wrong", "undecided", "open", "close", "tied") if name in table]]
    counts = pd.DataFrame({"right": parts["right"], "wrong": parts["wrong"]}).astype(float)
    counts["undecided"] = parts.drop(columns=["right", "wrong"]).astype(float).sum(axis=1)
    of_all = counts.div(counts.sum(axis=1).where(lambda total: total > 0), axis=0)
    label = str(table.columns[0])
    named = of_all.assign(**{label: table[label].astype(str)})
    long = named.melt([label], list(COLORS), "proved", "share")
    return draw.bars(long, label, "share", "proved", y_title="share of the inputs", stacked=True, colors=COLORS)
