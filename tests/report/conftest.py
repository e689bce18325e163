"""All figures of synthetic tables, a report that holds them, and one browser for all pages."""

from collections.abc import Iterator

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
from browser import Page, browser
from report.figure_calls import CALLS
from report.frames import make_frames

from interp.report import Report
from interp.support import figures


@pytest.fixture(scope="session")
def page() -> Iterator[Page]:
    with browser() as found:
        yield found


@pytest.fixture(scope="session")
def frames() -> dict[str, pd.DataFrame]:
    return make_frames()


@pytest.fixture(scope="session")
def made(frames: dict[str, pd.DataFrame]) -> dict[str, go.Figure]:
    """Every figure, made once: no test changes one."""
    return {name: call(frames) for name, call in CALLS.items()}


@pytest.fixture(scope="session")
def report(frames: dict[str, pd.DataFrame], made: dict[str, go.Figure]) -> Report:
    report = Report("count01/paper", "Is there a '1' more than there are '0's?", {"sha256": "9f2c" * 16, "seed": "0"})
    report.verdict = "Right on 99.90 % of all inputs.\n\n8 of 16 heads are successful."
    report.heading("Heads", "Each head measured alone, with all other heads switched off.")
    report.add_table("heads", frames["heads"], "One row per head.", formats={"s_acc": ".4f"})
    report.add_table("groups", frames["groups"], "Single heads and pairs.", max_rows=12)
    for name, figure in made.items():
        report.add_figure(name, figure, f"What {name} shows.")
    report.heading("Other ways to draw")
    heads, groups, history = (frames[name] for name in ("heads", "groups", "history"))
    matrix = np.random.default_rng(1).normal(size=(5, 9))
    for key, figure in {
        "heat": figures.heatmap(matrix, range(9), list("abcde"), "column", "row", "gain", 0.0, show_values=True),
        "log": figures.lines(history, "epoch", "loss", "seed", y_type="log", y_title="loss (nats)"),
        "whiskers": figures.bars(heads.assign(err=0.02), "head", "s_acc", "category", error="err"),
        "scale": figures.scatter(groups, "s_acc", "roc_auc", "l_acc", "heads", diagonal=True),
    }.items():
        report.add_figure(key, figure, "Numbers.")
    return report
