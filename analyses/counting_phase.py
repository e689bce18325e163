"""Phase diagrams of the histogram models over d and p (Behrens et al. 2024, Figures 1, 2, 10, 11, 12, 13 and 14).

python analyses/counting_phase.py 1 12 13 14 --out out/phase [--quick | --smoke]

1: T = 32, L = 10 (mean, best and std are Figures 1, 10 and 11; accuracy against parameter count is Figure 2), with the
published values beside ours. 12: frozen embeddings against learned ones. 13: T = 64. 14: L = 15.
Full: all six models, the published grid, 5 seeds, 500 epochs: hours. Quick: four models, d and p in {8, 32}, 2 seeds,
60 epochs: minutes, so accuracies lie below the published ones. Smoke: two cells.
"""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import numpy as np
import pandas as pd

import interp
from interp.constructions.histogram_models import histogram_spec
from interp.errors import InterpError, one_of
from interp.report import Report
from interp.report import figures as draw
from interp.report.script import Arguments, run
from interp.spec import Training
from interp.tasks import Histogram
from interp.theory.ranges import MixingKind

PUBLISHED = Path(__file__).parent / "published"
SIZES = (1, 2, 3, 4, 6, 8, 11, 16, 23, 32, 45, 64, 91, 128)
POWERS = (2, 4, 8, 16, 32, 64, 128)
SETTINGS = {"1": (32, 10, SIZES), "12": (32, 10, SIZES), "13": (64, 10, POWERS), "14": (32, 15, SIZES)}
"""T, L and the values of d and p, by figure."""


def study(arguments: Arguments) -> Report:
    report, verdicts = Report("Phase diagrams of counting"), []
    for figure in arguments.checkpoints:
        if figure not in SETTINGS:
            raise InterpError(one_of("figure", figure, SETTINGS))
        T, L, _ = SETTINGS[figure]
        report.section(f"Figure {figure}: T = {T}, L = {L}" + (", frozen against learned" if figure == "12" else ""))
        cells = _cells(_runs(figure, arguments, frozen=False))
        if figure == "12":
            cells = _against_frozen(cells, _cells(_runs(figure, arguments, frozen=True)))
        if figure == "1":
            cells = _with_published(cells)
            _parameter_counts(report, cells)
        report.add_table(f"figure_{figure}", cells, "A row a cell; accuracies in percent, over the seeds, last epoch.")
        _maps(report, figure, cells)
        verdicts.append(_verdict(figure, cells))
    report.verdict = " ".join(verdicts)
    return report


def _grid(figure: str, arguments: Arguments) -> list[tuple[MixingKind, int, int]]:
    models: tuple[MixingKind, ...] = get_args(MixingKind)
    sizes = SETTINGS[figure][2]
    if arguments.mode == "quick":
        models, sizes = ("lin", "dot", "dot-softmax", "bos-softmax"), (8, 32)
    if arguments.mode == "smoke":
        return [("dot", 8, 8), ("bos-softmax", 8, 2)]
    return [(model, d, p) for model in models for d in sizes for p in sizes]


def _runs(figure: str, arguments: Arguments, frozen: bool) -> pd.DataFrame:
    """One row a run: model, d, p, parameters, seed, accuracy at the last epoch, best accuracy (percent)."""
    T, L, _ = SETTINGS[figure]
    recipe = Training(
        epochs=arguments.pick(500, 60, 2), batch_size=32, data="fresh",
        samples_per_epoch=arguments.pick(10_000, 10_000, 1_000), betas=(0.9, 0.98), eps=1e-9, init="torch",
    )  # fmt: skip
    rows = []
    for model, d, p in _grid(figure, arguments):
        task = Histogram(T=T, L=L, bos=model.startswith("bos"), zero_class=True)
        spec = histogram_spec(model, task, d, p, origin=recipe)
        spec = spec.replace(embedding="frozen") if frozen else spec
        for trained in interp.train(spec, seeds=range(arguments.pick(5, 2, 1))):
            accuracy = 100 * trained.history["accuracy"]
            size = sum(parameter.numel() for parameter in trained.parameters())
            rows.append((model, d, p, size, trained.seed, accuracy.iloc[-1], accuracy.max()))
    return pd.DataFrame(rows, columns=["model", "d", "p", "parameters", "seed", "accuracy", "best"])


def _cells(runs: pd.DataFrame) -> pd.DataFrame:
    grouped = runs.groupby(["model", "d", "p", "parameters"], sort=False)
    table = (
        grouped["accuracy"].agg(mean="mean", std="std").join(grouped["best"].max()).join(grouped.size().rename("seeds"))
    )
    return table.reset_index()


def _with_published(cells: pd.DataFrame) -> pd.DataFrame:
    """Published mean, std and best beside ours, and the difference of the means in standard errors."""
    for key in ("mean", "std", "best"):
        theirs = pd.read_csv(PUBLISHED / f"behrens_T32_L10_{key}.csv")[["model", "d", "p", "value"]]
        theirs["model"] = theirs["model"].str.replace("+sftm", "-softmax")
        cells = cells.merge(theirs.rename(columns={"value": f"published {key}"}), on=["model", "d", "p"], how="left")
    spread = np.sqrt(
        cells["published std"] ** 2 / 5 + cells["std"].fillna(cells["published std"]) ** 2 / cells["seeds"]
    )
    return cells.assign(z=(cells["mean"] - cells["published mean"]) / spread)


def _against_frozen(learned: pd.DataFrame, frozen: pd.DataFrame) -> pd.DataFrame:
    both = learned.merge(frozen[["model", "d", "p", "mean"]], on=["model", "d", "p"], suffixes=("", " frozen"))
    return both.assign(difference=both["mean frozen"] - both["mean"])


def _maps(report: Report, figure: str, cells: pd.DataFrame) -> None:
    """One map a model: p across, d up; Figure 12 shows the difference."""
    value, title = ("difference", "frozen minus learned (points)") if figure == "12" else ("mean", "mean accuracy (%)")
    for model, part in cells.groupby("model", sort=False):
        grid = part.pivot(index="d", columns="p", values=value).sort_index(ascending=False)
        if value == "mean":
            drawn = draw.heatmap(grid, list(grid.columns), list(grid.index), "p", "d", title, limits=(0.0, 100.0))
        else:
            drawn = draw.heatmap(grid, list(grid.columns), list(grid.index), "p", "d", title, center=0.0)
        report.add_figure(f"figure_{figure}_{model}", drawn, f"{model}: {title} over the seeds.")


def _parameter_counts(report: Report, cells: pd.DataFrame) -> None:
    drawn = draw.scatter(
        cells, "parameters", "mean", "model", x_title="parameters", y_title="mean accuracy (%)", x_type="log"
    )
    report.add_figure("figure_2", drawn, "Accuracy against the number of parameters, a dot a cell (Figure 2).")


def _verdict(figure: str, cells: pd.DataFrame) -> str:
    if figure == "12":
        better = int((cells["difference"] > 0).sum())
        mean = cells["difference"].mean()
        return f"Figure 12: frozen embeddings are better in {better} of {len(cells)} cells, on average by {mean:.1f}."
    text = f"Figure {figure}: {int((cells['mean'] >= 99).sum())} of {len(cells)} cells reach 99% on average."
    if "z" in cells:
        text += (
            f" Against the published means: median z {cells['z'].median():.2f}, "
            f"{(cells['z'].abs() <= 2).mean():.0%} of the cells within two standard errors."
        )
    return text


if __name__ == "__main__":
    run(study, __doc__, default="1", what="figures: 1, 12, 13, 14")
