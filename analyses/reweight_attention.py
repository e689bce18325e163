"""Is a head's attention all that matters? s-acc of every head when its attention is set by hand (Figures 8 and 9).

python analyses/reweight_attention.py count01/paper --out out/reweight [--quick | --smoke]

Figure 8: no attention to '2', w01 from 0.001 to 1000. Figure 9: w01 = 1, w02 from 0.01 to 10,000.
Full: 25 ratios each; quick: 13; smoke: 3.
"""

from __future__ import annotations

import numpy as np
from shared.script import Arguments, run

import interp
from interp.report import Report


def study(arguments: Arguments) -> Report:
    points = arguments.pick(25, 13, 3)
    ratios = {"w01": tuple(np.logspace(-3, 3, points)), "w02": tuple(np.logspace(-2, 4, points))}
    report = interp.analyze(arguments.checkpoint, sections=["reweighting"], options={"reweighting": ratios})
    figure_8, figure_9 = (report.tables[f"intervention_{ratio}"] for ratio in ratios)
    healthy = figure_8[figure_8["w01"].between(0.1, 10)].groupby("head")["s_acc"].min()
    extreme = figure_8[~figure_8["w01"].between(0.1, 10)]["s_acc"]
    noisy, clean = (
        figure_9[figure_9["w02"] == bound]["s_acc"].mean() for bound in (figure_9.w02.min(), figure_9.w02.max())
    )
    report.verdict = (
        f"With no attention to '2' and w01 between 0.1 and 10, the worst of {len(healthy)} heads has s-acc "
        f"{healthy.min():.3f} (outside: down to {extreme.min():.3f}). At w01 = 1 mean s-acc rises from {noisy:.3f} to "
        f"{clean:.3f} as attention to '2' falls."
    )
    return report


if __name__ == "__main__":
    run(study, __doc__, default="count01/paper")
