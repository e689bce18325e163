"""How good is each head, pair and group of heads: s-acc, l-acc and ROC AUC (Zsámboki et al. 2025, Figures 3 and 4).

python analyses/head_metrics.py count01/paper --out out/head_metrics [--quick | --smoke]

Full: single heads, pairs, and 400 random groups of every other size. Quick: singles and pairs. Smoke: singles.
"""

from __future__ import annotations

import interp
from interp.measures.subsets import sample_subsets
from interp.report import Report
from interp.report import figures as draw
from interp.report.script import Arguments, run


def study(arguments: Arguments) -> Report:
    model = interp.load(arguments.checkpoint)
    n_heads = model.cfg.n_heads
    if arguments.mode == "full" and n_heads > 2:
        everything = 2**n_heads - 1
        groups = sample_subsets(n_heads, min(everything, 400 * n_heads), seed=0)
        groups = sorted(
            {*groups, *((i, j) for i in range(n_heads) for j in range(i + 1, n_heads))}, key=lambda g: (len(g), g)
        )
    else:
        groups = "singles" if arguments.mode == "smoke" else "singles+pairs"
    metrics = interp.head_metrics(model, groups)
    report = Report(f"Head metrics of {arguments.checkpoint}")
    report.section("Groups of heads")
    report.add_table("head_metrics", metrics, "One row for each group, measured on the test set.")
    if n_heads > 1 and arguments.mode != "smoke":
        for metric in ("s_acc", "l_acc", "roc_auc"):
            report.add_figure(
                metric, draw.heads_heatmap(metrics, metric), f"{metric} of single heads (diagonal) and pairs."
            )
    if arguments.mode == "full" and n_heads > 2:
        report.add_figure("by_size", draw.metrics_by_size(metrics), "Each metric by the size of the group (Figure 4).")
    means = metrics.groupby("size")[["s_acc", "l_acc", "roc_auc"]].mean()
    report.verdict = "Mean over the groups of a size: " + "; ".join(
        f"{size}: s-acc {row.s_acc:.3f}, l-acc {row.l_acc:.3f}, AUC {row.roc_auc:.3f}" for size, row in means.iterrows()
    )
    return report


if __name__ == "__main__":
    run(study, __doc__, default="count01/paper")
