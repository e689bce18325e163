"""Phase diagrams of the histogram models over d and p (Behrens et al. 2024, Figures 1, 2, 10, 11, 12, 13 and 14).

python analyses/counting_phase.py 1 [TABLE ...] --out out/phase [--quick | --smoke]

1: T = 32, L = 10 (mean, best and std are Figures 1, 10 and 11; accuracy against parameter count is Figure 2), with the
published values and the difference beside ours, z of every cell, and the bounds of the constructions. It reads the runs
of analyses/sweeps/histogram_T32.toml: from TABLE, a folder of `interp sweep` or several that are parts of it, or a CSV;
else from those of analyses/sweeps. A table of part of the grid gives part of the diagrams, and the verdict says so.
12: frozen embeddings against learned ones. 13: T = 64. 14: L = 15. These are trained here, 5 seeds, 500 epochs: hours.
Quick: four models, d and p in {8, 32}, 2 seeds, 60 epochs: minutes, so accuracies lie below the published ones. Smoke:
two cells.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from scipy import stats
from shared.script import Arguments, run

import interp
from interp.errors import InterpError, one_of
from interp.families.histogram import Histogram
from interp.families.histogram.constructions.models import histogram_spec
from interp.families.histogram.theory.bounds import feasibility
from interp.families.histogram.theory.ranges import MixingKind
from interp.models.spec import Training
from interp.report import Report
from interp.support import figures as draw
from interp.support.figures import theme
from interp.support.figures.drawing import Plot, color_axis, filled, panels
from interp.training.sweeps.table import read_runs

HERE = Path(__file__).parent
PUBLISHED, SWEEPS = HERE / "published", HERE / "sweeps"
TABLES = sorted(SWEEPS.glob("histogram_T32_seed*.csv"))
"""The runs of the grid, seed by seed."""
MODELS: tuple[MixingKind, ...] = get_args(MixingKind)
SIZES = (1, 2, 3, 4, 6, 8, 11, 16, 23, 32, 45, 64, 91, 128)
POWERS = (2, 4, 8, 16, 32, 64, 128)
SETTINGS = {"1": (32, 10, SIZES), "12": (32, 10, SIZES), "13": (64, 10, POWERS), "14": (32, 15, SIZES)}
"""T, L and the values of d and p, by figure."""
KEPT = ["model", "d", "p", "seed", "accuracy", "best_accuracy", "loss", "cpu_seconds"]
"""What is kept of a run of the whole grid (the spec and the versions are those of the sweep)."""
SEEDS, BIN, TESTS, PUBLISHED_TESTS = 5, 100 / 256, 1000, 3000
"""Published runs of a cell; width of a published color in percent; sequences that accuracies were measured on."""


def study(arguments: Arguments) -> Report:
    figures = [name for name in arguments.checkpoints if name in SETTINGS]
    tables = [Path(name) for name in arguments.checkpoints if name not in SETTINGS]
    if unknown := [path for path in tables if not path.exists()]:
        raise InterpError(one_of("figure, or file or folder of runs", str(unknown[0]), SETTINGS))
    report, verdicts = Report("Phase diagrams of counting"), []
    for figure in figures or ["1"]:
        T, L, _ = SETTINGS[figure]
        report.heading(f"Figure {figure}: T = {T}, L = {L}" + (", frozen against learned" if figure == "12" else ""))
        verdicts.append(_figure_1(report, tables) if figure == "1" else _trained(report, figure, arguments))
    report.verdict = " ".join(verdicts)
    return report


# ---------------------------------------------------------------- Figure 1, from a table of runs


def _figure_1(report: Report, tables: Sequence[Path]) -> str:
    runs = _read(tables or TABLES)
    cells = _against_published(_cells(runs))
    z = cells["z"]
    for model in [model for model in MODELS if model in set(cells["model"])]:
        some = cells[cells["model"] == model]
        caption = f"{model}: mean accuracy over {_seeds(some)}, last epoch. {MARKS}"
        caption += " Blank cells were not run." * (len(some) < len(SIZES) ** 2)
        report.add_figure(f"map_{model}", _three_maps(model, some), caption)
    for key, (number, what) in SIX.items():
        some = cells[cells[key].notna()]
        if len(some):  # one seed has no spread
            caption = f"{what} over {_seeds(some)}, all models, in percent, ours (Figure {number})."
            caption += " Blank cells have no second run." * (len(some) < len(cells))
            report.add_figure(f"figure_{number}", _six_maps(some, key), caption)
    by_model = [("all", cells), *cells.groupby("model", sort=False)]
    report.add_table("z", pd.DataFrame([_spread(name, part) for name, part in by_model]), Z_CAPTION)
    far = cells[z.abs() > 3].assign(why=lambda some: [_why(row, runs) for _, row in some.iterrows()])
    report.add_table("beyond_3", far.sort_values("z"), "Every cell whose z lies beyond 3, and what speaks to it.")
    report.add_table("figure_1", cells, "A row a cell; accuracies in percent, over the seeds, last epoch.")
    _parameter_counts(report, cells)
    report.add_table("runs", runs[KEPT].round({"loss": 5, "cpu_seconds": 1}), "A row a run.", max_rows=5)
    return _verdict_1(cells, runs, far)


def _read(tables: Sequence[Path]) -> pd.DataFrame:
    """The runs of one grid without error, in the order of model, d, p and seed."""
    folders = [path for path in tables if path.is_dir()]
    parts = [read_runs(*folders)] if folders else []
    parts += [pd.read_csv(path, keep_default_na=False) for path in tables if not path.is_dir()]
    runs = pd.concat(parts, ignore_index=True)
    if missing := [name for name in KEPT if name not in runs]:
        raise InterpError(f"{tables[0]} has no column {missing[0]}: give runs of analyses/sweeps/histogram_T32.toml")
    if "error" in runs:
        runs = runs[runs["error"] == ""]
    runs = runs.drop_duplicates(["model", "d", "p", "seed"])
    runs[["accuracy", "best_accuracy", "loss"]] = runs[["accuracy", "best_accuracy", "loss"]].astype(float)
    order = runs["model"].map(MODELS.index)
    return runs.assign(order=order).sort_values(["order", "d", "p", "seed"]).drop(columns="order")


def _cells(runs: pd.DataFrame) -> pd.DataFrame:
    """One row a cell, in percent."""
    grouped = runs.groupby(["model", "d", "p"], sort=False)
    cells = 100 * grouped["accuracy"].agg(mean="mean", std="std").join(grouped["best_accuracy"].max().rename("best"))
    return cells.assign(seeds=grouped.size()).reset_index()


def _published(key: str) -> pd.DataFrame:
    """Columns model, d, p and "published KEY", in percent."""
    theirs = pd.read_csv(PUBLISHED / f"behrens_T32_L10_{key}.csv")[["model", "d", "p", "value"]]
    theirs["model"] = theirs["model"].str.replace("+sftm", "-softmax")
    return theirs.rename(columns={"value": f"published {key}"})


def _seeds(cells: pd.DataFrame) -> str:
    """How many seeds a cell has, in words."""
    low, high = int(cells["seeds"].min()), int(cells["seeds"].max())
    return f"{low} to {high} seeds" if low < high else "one seed" if high == 1 else f"{high} seeds"


def _against_published(cells: pd.DataFrame) -> pd.DataFrame:
    """Published mean, std and best beside ours; the difference of the means, in points and in standard errors.

    The standard error is that of the runs (both spreads), of the test sets (counted by sequence, as if all positions of
    a sequence were right or wrong together), and of the published color, a bin of 0.39 percent. z_runs leaves out that
    of the test sets, which the spread of the runs already has a part of.
    """
    for key in ("mean", "std", "best"):
        cells = cells.merge(_published(key), on=["model", "d", "p"])
    share = ((cells["mean"] + cells["published mean"]) / 2).clip(0.5, 99.5)
    runs = cells["published std"] ** 2 / SEEDS + cells["std"].fillna(cells["published std"]) ** 2 / cells["seeds"]
    runs += BIN**2 / 12
    variance = runs + share * (100 - share) * (1 / TESTS + 1 / PUBLISHED_TESTS)
    difference = cells["mean"] - cells["published mean"]
    return cells.assign(difference=difference, z=difference / np.sqrt(variance), z_runs=difference / np.sqrt(runs))


Z_CAPTION = (
    "z: the difference of the means in standard errors: of five published runs and ours (both spreads), of the test "
    "sets (by sequence), and of the published color. Spreads of five runs are themselves uncertain, so z follows "
    "Student's t with about 8 degrees of freedom where five runs each decide: 1.7% of the cells beyond 3 with equal "
    "models, and more with fewer runs. A cell with one run is given the published spread. z_runs leaves out the error "
    "of the test sets, which the spread of the runs has a part of already."
)


def _spread(name: object, cells: pd.DataFrame) -> dict[str, object]:
    z = cells["z"]
    return {
        "model": name, "cells": len(z), "mean z": z.mean(), "std of z": z.std(),
        "share within 2": (z.abs() <= 2).mean(), "beyond 3": int((z.abs() > 3).sum()),
        "std of z_runs": cells["z_runs"].std(), "z_runs beyond 3": int((cells["z_runs"].abs() > 3).sum()),
        "mean difference": cells["difference"].mean(),
        "mean |difference|": cells["difference"].abs().mean(),
    }  # fmt: skip


def _why(cell: pd.Series, runs: pd.DataFrame) -> str:
    """What speaks to the difference of a cell's means: our runs of it, or what is printed of it and its neighbors."""
    mine = runs[(runs["model"] == cell["model"]) & (runs["d"] == cell["d"]) & (runs["p"] == cell["p"])]
    ours = np.sort(100 * mine["accuracy"].to_numpy())
    gaps = np.diff(ours)
    if abs(cell["difference"]) < 1:
        return f"{abs(cell['difference']):.1f} points: runs that hardly differ make a small error of the mean"
    among = ours.min() <= cell["published mean"] <= ours.max()
    if len(gaps) and gaps.max() > 10 and among:
        low = int(gaps.argmax()) + 1
        return (
            f"our seeds end in two groups, {low} at {ours[:low].mean():.0f}% and {len(ours) - low} at "
            f"{ours[low:].mean():.0f}%: five runs do not say how often each occurs"
        )
    if cell["published std"] > 10:
        return f"the published runs differ widely (std {cell['published std']:.0f}): five do not say how often they do"
    if among:
        return "the published mean lies among our runs"
    if cell["z"] < 0 and cell["best"] >= cell["published mean"]:
        return "our best epoch reaches the published mean"
    return _uneven(cell) or "not explained"


def _uneven(cell: pd.Series) -> str | None:
    """Says that the published mean lies further from ours than those of both its neighbors along d or p do."""
    printed, theirs = cell["published mean"], _published("mean")
    for axis, other in (("d", "p"), ("p", "d")):
        line = theirs[(theirs["model"] == cell["model"]) & (theirs[other] == cell[other])].sort_values(axis)
        place = int(np.flatnonzero(line[axis] == cell[axis])[0])
        beside = line["published mean"].to_numpy()[[i for i in (place - 1, place + 1) if 0 <= i < len(line)]]
        word, beyond = ("more", beside < printed) if cell["z"] < 0 else ("less", beside > printed)
        if len(beside) == 2 and beyond.all():
            low, high = f"{beside[0]:.0f}%", f"{beside[1]:.0f}%"
            return f"print is uneven: {printed:.0f}%, {word} than at both neighbors along {axis} ({low} and {high})"
    return None


MARKS = (
    "Marks: the smallest d at which a construction is right (star), the published bound (cross) and the corrected one "
    "(ring), at p = 1 and p = T."
)


def _map(cells: pd.DataFrame, column: str, **more: Any) -> go.Heatmap:
    """A column of cells, one value for each (d, p)."""
    place = {size: index for index, size in enumerate(SIZES)}
    grid = np.full((len(SIZES), len(SIZES)), np.nan, np.float32)
    grid[cells["d"].map(place), cells["p"].map(place)] = cells[column]
    return go.Heatmap(
        z=grid, x=[f"p = {p}" for p in SIZES], y=[f"d = {d}" for d in SIZES], xgap=1, ygap=1,
        hovertemplate="%{y}, %{x}<br>%{z:.1f}<extra></extra>", **more,
    )  # fmt: skip


def _sizes(every: int, title: str = "") -> dict[str, Any]:
    """The axis of a map, with a label at each `every`-th size."""
    places = list(range(1 if every > 1 else 0, len(SIZES), every))
    axis = {"tickvals": places, "ticktext": [str(SIZES[place]) for place in places], "showgrid": False}
    return axis | {
        "range": [-0.5, len(SIZES) - 0.5],
        "tickangle": 0,
        "tickfont": {"size": 10},
        "title": {"text": title},
    }


def _three_maps(model: MixingKind, cells: pd.DataFrame) -> go.Figure:
    """Ours, the published map, and ours minus it; p across, d up, both by their places in the grid."""
    titles = ("ours", "published", "ours - published")
    layout, _ = panels(titles, 3, panel_height=330, widths=[1.0, 1.0, 1.0])
    theirs = _published("mean")
    theirs = theirs[theirs["model"] == model]
    plots, marks = [], list(layout["annotations"])
    for number, (title, name) in enumerate(zip(titles, ("mean", "published mean", "difference")), 1):
        color = "coloraxis2" if name == "difference" else "coloraxis"
        drawn = _map(theirs if title == "published" else cells, name, name=title, coloraxis=color)
        plots.append(Plot([drawn], _sizes(2, "p"), _sizes(1, "d" if number == 1 else "")))
        marks += _bounds(model, number)
    maps, difference = color_axis(0, 100, "%", False), color_axis(-25, 25, "points", True)
    maps["colorbar"] |= {"x": 1.0, "len": 0.5, "y": 0.78}
    difference["colorbar"] |= {"x": 1.0, "len": 0.5, "y": 0.22}
    more = {"coloraxis": maps, "coloraxis2": difference, "annotations": marks, "meta": {"min_width": 720}}
    return filled(layout, plots, showlegend=False, **more)


SIX = {
    "mean": (1, "Mean accuracy"),
    "best": (10, "Best accuracy"),
    "std": (11, "Spread of the accuracy"),
}
"""The columns of the published pictures, with their numbers and words."""


def _six_maps(cells: pd.DataFrame, key: str) -> go.Figure:
    """A map for each model with one color scale, as the published pictures; p across, d up."""
    models = [model for model in MODELS if model in set(cells["model"])]
    layout, places = panels(models, 3, panel_height=230)
    plots = [
        Plot(
            [_map(cells[cells["model"] == model], key, coloraxis="coloraxis")],
            _sizes(3, "p" if row == places[-1][0] else ""),
            _sizes(3, "d" if column == 1 else ""),
        )
        for model, (row, column) in zip(models, places)
    ]
    low, high = (0.0, 100.0) if key != "std" else (0.0, float(np.nanmax([1.0, cells[key].max()])))
    return filled(layout, plots, coloraxis=color_axis(low, high, "%", False), showlegend=False)


def _bounds(model: MixingKind, number: int) -> list[dict[str, Any]]:
    """Marks of plot `number` where the theory speaks of p = 1 and p = T."""
    T, L, _ = SETTINGS["1"]
    axis, marks = str(number) if number > 1 else "", []
    for _, bound in feasibility(model, T, L).iterrows():
        for kind, symbol in (("printed", "×"), ("corrected", "○"), ("verified", "★")):
            if not pd.isna(bound[kind]):
                y = float(np.interp(np.log(int(bound[kind])), np.log(SIZES), range(len(SIZES))))
                x = SIZES.index(1 if bound["p"] == "1" else T)
                marks.append({
                    "x": x, "y": y, "text": symbol, "hovertext": f"{kind}: d = {bound[kind]}", "showarrow": False,
                    "font": {"size": 18, "color": theme.VERMILLION}, "xref": f"x{axis}", "yref": f"y{axis}",
                })  # fmt: skip
    return marks


def _parameter_counts(report: Report, cells: pd.DataFrame) -> None:
    """Figure 2: embeddings, mixing, readout."""
    T, L, _ = SETTINGS["1"]
    d, p = cells["d"], cells["p"]
    mixing = np.where(cells["model"].str.startswith("lin"), L * L, 2 * d * d)
    size = (T + cells["model"].str.startswith("bos")) * d + mixing + d * p + p + (p + 1) * (L + 1)
    drawn = draw.scatter(
        cells.assign(parameters=size), "parameters", "mean", "model", x_title="parameters",
        y_title="mean accuracy (%)", x_type="log",
    )  # fmt: skip
    report.add_figure("figure_2", drawn, "Accuracy against the number of parameters, a dot a cell (Figure 2).")


def _verdict_1(cells: pd.DataFrame, runs: pd.DataFrame, far: pd.DataFrame) -> str:
    whole = len(MODELS) * len(SIZES) ** 2
    z = cells["z"]
    expected = 2 * float(stats.t.sf(3, 8)) * len(cells)
    part = "" if len(runs) == SEEDS * whole else (
        f"This is a part of the grid: {len(runs)} of {SEEDS * whole} runs, {len(cells)} of {whole} cells. "
    )  # fmt: skip
    return (
        f"{part}Figure 1: {int((cells['mean'] >= 99).sum())} of {len(cells)} cells reach 99% on average. Against the "
        f"published means z has mean {z.mean():.2f} and std {z.std():.2f}; {(z.abs() <= 2).mean():.1%} of the cells "
        f"lie within 2, {len(far) or 'none'} beyond 3 ({expected:.0f} expected of equal models with five runs each)."
    )


# ---------------------------------------------------------------- Figures 12 to 14, trained here


def _trained(report: Report, figure: str, arguments: Arguments) -> str:
    cells = _cells(_runs(figure, arguments, frozen=False))
    if figure == "12":
        frozen = _cells(_runs(figure, arguments, frozen=True))[["model", "d", "p", "mean"]]
        cells = cells.merge(frozen, on=["model", "d", "p"], suffixes=("", " frozen"))
        cells["difference"] = cells["mean frozen"] - cells["mean"]
    report.add_table(f"figure_{figure}", cells, "A row a cell; accuracies in percent, over the seeds, last epoch.")
    _maps(report, figure, cells)
    if figure == "12":
        better, mean = int((cells["difference"] > 0).sum()), cells["difference"].mean()
        return f"Figure 12: frozen embeddings are better in {better} of {len(cells)} cells, on average by {mean:.1f}."
    return f"Figure {figure}: {int((cells['mean'] >= 99).sum())} of {len(cells)} cells reach 99% on average."


def _grid(figure: str, arguments: Arguments) -> list[tuple[MixingKind, int, int]]:
    models, sizes = MODELS, SETTINGS[figure][2]
    if arguments.mode == "quick":
        models, sizes = ("lin", "dot", "dot-softmax", "bos-softmax"), (8, 32)
    if arguments.mode == "smoke":
        return [("dot", 8, 8), ("bos-softmax", 8, 2)]
    return [(model, d, p) for model in models for d in sizes for p in sizes]


def _runs(figure: str, arguments: Arguments, frozen: bool) -> pd.DataFrame:
    """One row a run: model, d, p, seed, accuracy at the last epoch, best accuracy."""
    T, L, _ = SETTINGS[figure]
    recipe = Training(
        epochs=arguments.pick(500, 60, 2), batch_size=32, data="fresh",
        samples_per_epoch=arguments.pick(10_000, 10_000, 1_000), betas=(0.9, 0.98), eps=1e-9, init="torch",
    )  # fmt: skip
    rows = []
    for model, d, p in _grid(figure, arguments):
        task = Histogram(T=T, L=L, bos=model.startswith("bos"), zero_class=True)
        spec = histogram_spec(model, task, d, p, origin=recipe)
        if frozen:  # as the published code draws them: N(0, 1/d), plus noise of .001
            origin = recipe.model_copy(update={"embedding_std": math.sqrt(1 / d + 1e-6)})
            spec = spec.replace(embedding="frozen", origin=origin)
        for trained in interp.train(spec, seeds=range(arguments.pick(5, 2, 1))):
            accuracy = trained.history["accuracy"]
            rows.append((model, d, p, trained.seed, accuracy.iloc[-1], accuracy.max()))
    return pd.DataFrame(rows, columns=["model", "d", "p", "seed", "accuracy", "best_accuracy"])


def _maps(report: Report, figure: str, cells: pd.DataFrame) -> None:
    """One map a model: p across, d up; Figure 12 shows the difference."""
    value, title = ("difference", "frozen minus learned (points)") if figure == "12" else ("mean", "mean accuracy (%)")
    for model, part in cells.groupby("model", sort=False):
        grid = part.pivot(index="d", columns="p", values=value).sort_index(ascending=False)
        if value == "mean":
            drawn = draw.heatmap(grid, list(grid.columns), list(grid.index), "p", "d", title, ends=(0.0, 100.0))
        else:
            drawn = draw.heatmap(grid, list(grid.columns), list(grid.index), "p", "d", title, center=0.0)
        report.add_figure(f"figure_{figure}_{model}", drawn, f"{model}: {title} over the seeds.")


if __name__ == "__main__":
    run(study, __doc__, default="1", what="figures: 1, 12, 13, 14; and tables of runs for 1")
