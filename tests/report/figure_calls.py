"""A call of every figure, on the synthetic tables of conftest.py."""

from interp.families.count01.planes import head_plane, head_planes_grid
from interp.support import figures

CALLS = {
    "attention_ratios": lambda f: figures.attention_ratios(f["heads"]),
    "bars": lambda f: figures.bars(f["heads"], "head", "s_acc"),
    "circuit": lambda f: figures.circuit(f["qk"]),
    "error_by_difference": lambda f: figures.error_by_difference(f["errors"]),
    "error_frontier": lambda f: figures.error_frontier(f["frontier"]),
    "head_plane": lambda f: head_plane(f["points"], f["values"], (1.0, 1.0, 0.0), 3),
    "head_planes_grid": lambda f: head_planes_grid(f["points"], f["values"]),
    "heads_heatmap": lambda f: figures.heads_heatmap(f["groups"], "s_acc"),
    "history": lambda f: figures.history(f["history"]),
    "intervention_curve": lambda f: figures.intervention_curve(f["curve"], "w02"),
    "lines": lambda f: figures.lines(f["history"], "epoch", "loss", "seed"),
    "logit_distributions": lambda f: figures.logit_distributions(f["logits"]),
    "metrics_by_size": lambda f: figures.metrics_by_size(f["groups"]),
    "scatter": lambda f: figures.scatter(f["heads"], "w01", "w02"),
}
FRAMES = ["heads", "groups", "points", "values", "curve", "logits", "errors", "frontier", "history", "qk"]
