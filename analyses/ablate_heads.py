"""Which heads does the whole model need? Accuracy with heads zeroed, or set to their mean, alone and in groups.

python analyses/ablate_heads.py count01/paper --out out/ablate [--quick | --smoke]

Single heads are the report's own section; beside it stand, in full, pairs and heads removed one after another from the
least to the most harmful. Quick: pairs. Smoke: single heads alone.
"""

from __future__ import annotations

import pandas as pd
from shared.script import Arguments, run

import interp
from interp.report import Report
from interp.support import figures as draw


def study(arguments: Arguments) -> Report:
    model = interp.load(arguments.checkpoint)
    n_heads = model.cfg.n_heads * model.cfg.n_layers
    groups = "singles" if arguments.mode == "smoke" or n_heads < 2 else "singles+pairs"
    report = interp.analyze(arguments.checkpoint, sections=["heads"])
    frames = {mode: interp.ablate_heads(model, groups, mode=mode).to_frame() for mode in ("zero", "mean")}
    both = pd.concat(frames.values(), ignore_index=True)
    report.heading("Groups of silenced heads")
    report.add_table(
        "ablations", both, "Accuracy of the whole model when a group is silenced; the first row is intact."
    )
    if arguments.mode == "full" and n_heads > 2:
        curve = pd.concat([_one_after_another(model, frames[mode], mode) for mode in frames], ignore_index=True)
        report.add_table("one_after_another", curve, "Heads silenced in the order of the harm they do alone.")
        report.add_figure(
            "one_after_another",
            draw.lines(curve, "silenced", "accuracy", "mode", x_title="number of silenced heads", y_title="accuracy"),
            "Heads silenced one after another, the least harmful first.",
        )
    singles = both[both["size"] == 1]
    worst = singles.loc[singles.groupby("mode")["change"].idxmin()].set_index("mode")
    report.verdict = f"Accuracy {frames['zero']['accuracy'][0]:.4f} with all heads. " + " ".join(
        f"{mode.capitalize()}-ablating head {row['heads'][0]} costs most: {-row['change']:.4f}."
        for mode, row in worst.iterrows()
    )
    return report


def _one_after_another(model: interp.TaskModel, frame: pd.DataFrame, mode: str) -> pd.DataFrame:
    singles = frame[frame["size"] == 1].sort_values("change", ascending=False)
    order = [group[0] for group in singles["heads"]]
    found = interp.ablate_heads(model, [tuple(order[: k + 1]) for k in range(len(order))], mode=mode).to_frame()
    return found.assign(silenced=found["size"])[["mode", "silenced", "heads", "accuracy", "change"]]


if __name__ == "__main__":
    run(study, __doc__, default="count01/paper")
