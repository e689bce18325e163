"""A random sample of the published phase diagrams (Figure 1): how close are its accuracies, how long do all cells take?

python analyses/counting_grid.py --out out/grid [--quick | --smoke]

Full: 6 cells of each of the six models, 5 seeds, 500 epochs, 180 runs of analyses/sweeps/histogram_T32.toml. Quick: 2
cells of each, 3 seeds, 300 epochs. Smoke: one cell of each, 1 seed, 2 epochs. Runs go to DIR/runs and are not done
twice, so the study can be interrupted and started again. One worker for each core that the process may use.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from shared.script import Arguments, run

import interp
from interp.models.spec import read_toml
from interp.report import Report
from interp.support import figures as draw
from interp.support.resources import cores
from interp.training.sweeps.grid import Cell, Grid, make_grid

HERE = Path(__file__).parent
GRID, PUBLISHED = HERE / "sweeps" / "histogram_T32.toml", HERE / "published"
SAMPLE_SEED = 0
BIN = 100 / 256
"""Width of a color of the published maps, in percent."""
TESTS, PUBLISHED_TESTS = 1000, 3000
"""Sequences that accuracies are measured on."""


def study(arguments: Arguments) -> Report:
    data = read_toml(GRID) | {"seeds": arguments.pick(5, 3, 1), "epochs": arguments.pick(500, 300, 2)}
    grid = make_grid(data, GRID.stem)
    sample = replace(grid, cells=_sample(grid, arguments.pick(6, 2, 1)))
    runs = interp.sweep(sample, arguments.out / "runs", workers=cores())
    cells, times = _against_published(runs), _times(runs, grid)
    report = Report("A sample of the phase diagrams of counting")
    report.heading("Against the published accuracies")
    names = [f"{m}, d = {d}, p = {p}" for m, d, p in zip(cells["model"], cells["d"], cells["p"])]
    report.add_figure(
        "means",
        draw.scatter(cells.assign(cell=names), "published mean", "mean", "model", "cell",
                     "published mean accuracy (%)", "our mean accuracy (%)", diagonal=True),
        "Each point a cell, each mean over the seeds.",
    )  # fmt: skip
    report.add_table("cells", cells, "A row a cell; accuracies in percent, last epoch. z: see below.", max_rows=60)
    report.add_text(
        "z is the difference of the means in standard errors: of five published runs and ours (both spreads), of the "
        "test sets (counted by sequence, as if all positions of a sequence were right or wrong together), and of the "
        "published color, which is a bin of 0.39 percent."
    )
    z = cells["z"]
    summary = pd.DataFrame([_distribution(name, part) for name, part in [("all", z), *z.groupby(cells["model"])]])
    report.add_table("z", summary, "The distribution of z over the cells: mean 0 and std 1 if the models are the same.")
    report.heading("How long the whole grid takes")
    report.add_table("times", times, "CPU time of a run of one thread, sampling and evaluation included.")
    report.add_table("runs", _plain(runs), "A row a run.", max_rows=20)
    hours, inside = times["hours"].sum(), int((z.abs() <= 2).sum())
    report.verdict = (
        f"{inside} of {len(cells)} cells lie within two standard errors of the published mean; z has mean "
        f"{z.mean():.2f} and std {z.std():.2f}. {len(runs)} runs took {runs['cpu_seconds'].mean():.2f} s of CPU time "
        f"each (wall time {runs['seconds'].mean():.2f} s); at the rates of the six models the grid's {grid.n_runs} "
        f"runs take {hours:.1f} core-hours, {hours / 2:.1f} h on two free cores."
    )
    return report


def _sample(grid: Grid, n: int) -> tuple[Cell, ...]:
    """n cells of each model, drawn uniformly."""
    generator = np.random.default_rng(SAMPLE_SEED)
    chosen = []
    for model in dict.fromkeys(cell.axes["model"] for cell in grid.cells):
        mine = [cell for cell in grid.cells if cell.axes["model"] == model]
        chosen += [mine[index] for index in sorted(generator.permutation(len(mine))[:n])]
    return tuple(chosen)


def _against_published(runs: pd.DataFrame) -> pd.DataFrame:
    """One row per cell: our mean and std beside the published ones."""
    read = {key: pd.read_csv(PUBLISHED / f"behrens_T32_L10_{key}.csv") for key in ("mean", "std")}
    published = read["mean"].merge(read["std"], on=["model", "d", "p"], suffixes=("_mean", "_std"))
    published["model"] = published["model"].str.replace("+sftm", "-softmax")
    published = published.set_index(["model", "d", "p"])[["value_mean", "value_std"]]
    rows = []
    for cell, mine in runs.groupby(["model", "d", "p"], sort=False):
        their_mean, their_std = published.loc[cell]
        ours = 100 * mine["accuracy"].to_numpy(float)
        spread = ours.std(ddof=1) if len(ours) > 1 else float("nan")
        share = np.clip((ours.mean() + their_mean) / 2, 0.5, 99.5)
        variance = (
            their_std**2 / 5
            + np.nan_to_num(spread) ** 2 / len(ours)
            + share * (100 - share) * (1 / TESTS + 1 / PUBLISHED_TESTS)
            + BIN**2 / 12
        )
        z = (ours.mean() - their_mean) / np.sqrt(variance)
        rows.append((*cell, len(ours), ours.mean(), spread, their_mean, their_std, z))
    columns = ["model", "d", "p", "seeds", "mean", "std", "published mean", "published std", "z"]
    return pd.DataFrame(rows, columns=columns)


def _distribution(name: object, z: pd.Series) -> dict[str, object]:
    inside = (z.abs() <= 2).mean()
    return {"model": name, "cells": len(z), "mean": z.mean(), "std": z.std(), "min": z.min(), "median": z.median(),
            "max": z.max(), "share within 2": inside}  # fmt: skip


def _times(runs: pd.DataFrame, grid: Grid) -> pd.DataFrame:
    """Of each model: the CPU time of its runs in the sample, and what all its runs in the grid take at that rate."""
    n_runs = pd.Series([cell.axes["model"] for cell in grid.cells]).value_counts() * len(grid.seeds)
    times = (
        runs.groupby("model", sort=False)["cpu_seconds"].agg(["count", "min", "median", "max", "mean"]).reset_index()
    )
    times = times.rename(columns={"count": "runs", **{n: f"{n} (s)" for n in ("min", "median", "max", "mean")}})
    times["runs in the grid"] = times["model"].map(n_runs)
    times["hours"] = times["runs in the grid"] * times["mean (s)"] / 3600
    return times


def _plain(runs: pd.DataFrame) -> pd.DataFrame:
    """The columns that differ between runs, and the versions."""
    versions = [name for name in runs.columns if name.startswith("version.")]
    return runs[["model", "d", "p", "seed", "accuracy", "best_accuracy", "loss", "epochs", "engine", "seconds",
                 "cpu_seconds",
                 "error", "spec_id", *versions]]  # fmt: skip


if __name__ == "__main__":
    run(study, __doc__)
