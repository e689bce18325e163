"""How good is each head, pair and group of heads: s-acc, l-acc and ROC AUC (Zsámboki et al. 2025, Figures 3 and 4).

python analyses/head_metrics.py count01/paper --out out/head_metrics [--quick | --smoke]

Single heads and all pairs, and random groups of every other size: 400 per head in full, else 320 in all.
"""

from __future__ import annotations

from shared.script import Arguments, run

import interp
from interp.report import Report


def study(arguments: Arguments) -> Report:
    groups = 400 * interp.load(arguments.checkpoint).cfg.n_heads if arguments.mode == "full" else 320
    report = interp.analyze(arguments.checkpoint, sections=["separation"], options={"separation": {"groups": groups}})
    heads = report.tables["separation"].assign(size=1)
    means = report.tables.get("groups", heads).groupby("size")[["s_acc", "l_acc", "roc_auc"]].mean()
    report.say(
        "Mean over the groups of a size: "
        + "; ".join(
            f"{size}: s-acc {row.s_acc:.3f}, l-acc {row.l_acc:.3f}, AUC {row.roc_auc:.3f}"
            for size, row in means.iterrows()
        )
        + "."
    )
    return report


if __name__ == "__main__":
    run(study, __doc__, default="count01/paper")
