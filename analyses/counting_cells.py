"""Six cells of the phase diagrams, one of each model, against the published mean and std (Figures 1, 11).

python analyses/counting_cells.py --out out/cells [--quick | --smoke]

Full: 5 seeds and 500 epochs a cell, the published recipe. Quick: 3 seeds, 300 epochs. Smoke: 1 seed, 2 epochs.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

import interp
from interp.constructions.histogram_models import histogram_spec
from interp.report import Report
from interp.report import figures as draw
from interp.report.script import Arguments, run
from interp.spec import Training
from interp.tasks import Histogram
from interp.theory.ranges import MixingKind

PUBLISHED = Path(__file__).parent / "published"
CELLS: tuple[tuple[MixingKind, int, int], ...] = (
    ("lin", 32, 32),
    ("lin-softmax", 16, 32),
    ("dot", 8, 32),
    ("dot-softmax", 32, 16),
    ("bos", 32, 2),
    ("bos-softmax", 8, 8),
)
"""Model, d, p: cells in which the published accuracy is neither chance nor perfect."""
PUBLISHED_SEEDS = 5


def study(arguments: Arguments) -> Report:
    published = _published()
    rows = []
    for name, d, p in CELLS:
        theirs = published.loc[(name, d, p)]
        ours = np.array([100 * float(model.history["accuracy"].iloc[-1]) for model in _train(name, d, p, arguments)])
        spread = ours.std(ddof=1) if len(ours) > 1 else float("nan")
        # Means of few runs: the standard error of the difference, from the published spread alone.
        error = theirs["std"] * np.sqrt(1 / PUBLISHED_SEEDS + 1 / len(ours))
        rows.append((name, d, p, len(ours), ours.mean(), spread, theirs["mean"], theirs["std"],
                     (ours.mean() - theirs["mean"]) / error))  # fmt: skip
    columns = ["model", "d", "p", "seeds", "mean", "std", "published mean", "published std", "z"]
    table = pd.DataFrame(rows, columns=columns)
    report = Report("Six cells of the phase diagrams")
    report.section("Accuracy in percent, last epoch")
    report.add_table("cells", table, "z: the difference of the means in standard errors, from the published std.")
    both = table.melt(["model"], ["mean", "published mean"], "source", "accuracy")
    report.add_figure(
        "cells", draw.bars(both, "model", "accuracy", "source", y_title="mean accuracy (%)"), "Ours and the published."
    )
    inside = int((table["z"].abs() <= 2).sum())
    report.verdict = (
        f"{inside} of {len(table)} cells lie within two standard errors of the published mean; "
        f"z from {table['z'].min():.2f} to {table['z'].max():.2f}, mean {table['z'].mean():.2f}."
    )
    return report


def _published() -> pd.DataFrame:
    """Mean and std by model, d and p, with our spelling of the models."""
    read = {key: pd.read_csv(PUBLISHED / f"behrens_T32_L10_{key}.csv") for key in ("mean", "std")}
    both = read["mean"].merge(read["std"], on=["model", "d", "p"], suffixes=("_mean", "_std"))
    both["model"] = both["model"].str.replace("+sftm", "-softmax")
    both = both.rename(columns={"value_mean": "mean", "value_std": "std"})
    return both.set_index(["model", "d", "p"])[["mean", "std"]].sort_index()


def _train(name: MixingKind, d: int, p: int, arguments: Arguments) -> list[interp.TaskModel]:
    recipe = Training(
        epochs=arguments.pick(500, 300, 2), batch_size=32, data="fresh",
        samples_per_epoch=arguments.pick(10_000, 10_000, 1_000), betas=(0.9, 0.98), eps=1e-9, init="torch",
    )  # fmt: skip
    task = Histogram(bos=name.startswith("bos"), zero_class=True)
    return interp.train(histogram_spec(name, task, d, p, origin=recipe), seeds=range(arguments.pick(5, 3, 1)))


if __name__ == "__main__":
    run(study, __doc__)
