"""All figures: functions from a tidy table to a plotly figure with named axes. Captions belong to the report."""

from interp.report.figures_answers import error_by_difference, error_frontier, logit_distributions
from interp.report.figures_curves import bars, history, lines, scatter
from interp.report.figures_heads import attention_ratios, heads_heatmap, intervention_curve, metrics_by_size
from interp.report.figures_matrices import circuit, heatmap

__all__ = [
    "attention_ratios",
    "bars",
    "circuit",
    "error_by_difference",
    "error_frontier",
    "heads_heatmap",
    "heatmap",
    "history",
    "intervention_curve",
    "lines",
    "logit_distributions",
    "metrics_by_size",
    "scatter",
]
