"""Does a head's attention decide how well it separates the answers? w01, w02 and s-acc of every head (Figures 5, 13).

python analyses/attention_ratios.py count01/paper count01/paper/seed-1 --out out/ratios [--quick | --smoke]

Takes several checkpoints of one task; their heads are pooled in the verdict. All modes measure the same.
"""

from __future__ import annotations

import pandas as pd
from shared.script import Arguments, run

import interp
from interp.report import Report


def study(arguments: Arguments) -> Report:
    report, frames = Report("Attention ratios at the answer"), []
    for name in arguments.checkpoints:
        page = interp.analyze(name, sections=["attention_ratios"])
        report.attach(page, prefix=name)
        frames.append(page.tables["attention_ratios"].assign(model=name))
    pooled = pd.concat(frames, ignore_index=True)
    report.heading("All heads")
    report.add_table("attention_ratios", pooled, "w01, w02: attention to '0' relative to '1' and '2'.")
    good = pooled[pooled["category"] == "successful"]
    if good.empty:
        report.verdict = f"None of {len(pooled)} heads is successful, so the paper's pattern cannot be looked for."
    else:
        between = good["w01"].between(0.8, 1.25).mean()
        report.verdict = (
            f"{len(good)} of {len(pooled)} heads are successful. Of these, {between:.0%} attend about equally to '0' "
            f"and '1' (w01 from {good['w01'].min():.2f} to {good['w01'].max():.2f}; paper: about 1), and "
            f"{(good['w02'] > 10).mean():.0%} have w02 above 10 (paper: all)."
        )
    return report


if __name__ == "__main__":
    run(study, __doc__, default="count01/paper")
