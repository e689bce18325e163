"""Count01: heads during training (Figure 14, right)."""

import pandas as pd
import plotly.graph_objects as go

from interp.report import theme
from interp.report.drawing import compact, head_name

THINNEST, THICKEST = 0.8, 5.0
"""Widths of the lines of the heads with the least and the most weight, in pixels."""


def head_evolution(frame: pd.DataFrame) -> go.Figure:
    """Draw the separation accuracy of every head by epoch, with lines as wide as its mean weight (Figure 14, right).

    Args:
        frame: one row per head and epoch: `head`, `epoch`, `s_acc`, `weight` (share in the readout).

    A line has the color of the head's last category: successful, failed or in between.
    """
    theme.check_frame(frame, ["head", "epoch", "s_acc", "weight"], "head_evolution")
    drawn = theme.figure(x="epoch", y="separation accuracy", height=460)
    weights = frame.groupby("head")["weight"].mean()
    span = float(weights.max() - weights.min()) or 1.0
    shown: set[str] = set()
    for head, part in frame.groupby("head"):
        part = part.sort_values("epoch", kind="stable")
        last = float(part["s_acc"].iloc[-1])
        name, color = (
            ("ends above .98", theme.BLUE) if last >= 0.98
            else ("ends at .6 or below", theme.VERMILLION) if last <= 0.6
            else ("ends in between", theme.GREY)
        )  # fmt: skip
        width = THINNEST + (THICKEST - THINNEST) * float(weights[head] - weights.min()) / span
        line = go.Scatter(x=compact(part["epoch"]), y=compact(part["s_acc"]), mode="lines", name=name, legendgroup=name)
        said = f"head {head_name(head)}, weight {weights[head]:.3f}"
        line.update(
            line={"width": width, "color": theme.fade(color, 0.75)},
            showlegend=name not in shown,
            meta={"head": head_name(head)},
            hovertemplate=f"{said}<br>epoch %{{x}}: %{{y:.4f}}<extra></extra>",
        )
        shown.add(name)
        drawn.add_trace(line)
    return drawn
