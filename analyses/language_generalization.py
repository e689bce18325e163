"""Do learned recognizers of FIRST and ONE generalize to strings of 1000 symbols? (Figures 4 and 5)

python analyses/language_generalization.py --out out/generalization [--quick | --smoke]

Trains the published models on strings of 10, 30, 100 and 300 symbols with and without log-length scaling, and what the
paper claims without data: ONE with FIRST positions and strings of varying length, also with real batches and warm-up.
The published means and deviations (../analyses/published) stand beside ours. Full: 20 seeds and 1000 epochs for what is
published, 10 seeds and 400 epochs for the rest (about an hour of one core); quick: 5 seeds, 200 epochs; smoke: 2
seeds, 3 epochs. The state of each run is kept in OUT/runs: the same command goes on after an interruption.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from shared.accuracy_over_lengths import accuracy_by_length, over_seeds
from shared.script import Arguments, run

import interp
from interp.families.languages import First, One
from interp.families.languages.constructions.learned import BATCHES, PUBLISHED, learned_spec
from interp.models.spec import Training
from interp.report import Report
from interp.support import figures as draw

PUBLISHED_RUNS = Path(__file__).parent / "published" / "nowak_generalize.csv"
TEST_LENGTH = 1000


@dataclass(frozen=True)
class Setting:
    """One kind of run: which language, scaling, lengths and recipe."""

    language: str
    log: bool
    variable: bool
    recipe: str
    train_length: int

    @property
    def group(self) -> str:
        """What a figure shows together: everything but the training length."""
        parts = [self.language.upper(), "varying lengths" if self.variable else "fixed length"]
        parts += ["log-length scaling"] * self.log + ["real batches"] * (self.recipe == "batches")
        return ", ".join(parts)

    @property
    def is_published(self) -> bool:
        return self.recipe == "published" and not self.variable and (self.language == "first" or not self.log)


def settings(arguments: Arguments) -> list[Setting]:
    lengths = (10, 100) if arguments.mode == "smoke" else (10, 30, 100, 300)
    found = [Setting("first", log, False, "published", n) for log in (False, True) for n in lengths]
    found += [Setting("one", False, False, "published", n) for n in lengths]
    found += [Setting("one", log, True, "published", n) for log in (False, True) for n in lengths[:3]]
    return found + [Setting("one", log, True, "batches", 100) for log in (False, True)]


def study(arguments: Arguments) -> Report:
    curves, finals, started = [], [], time.process_time()
    for setting in settings(arguments):
        models = train(setting, arguments)
        facts = {"group": setting.group, "train_length": setting.train_length}
        histories = pd.concat([model.history for model in models]).query("epoch > 0")
        curve = histories.groupby("epoch", as_index=False)[["loss", "accuracy"]].mean()
        curves.append(curve.assign(**facts, trained_on=f"{setting.train_length} symbols"))
        lengths = sorted({10, 30, 100, 300, TEST_LENGTH}) if arguments.mode != "smoke" else [10, TEST_LENGTH]
        finals.append(accuracy_by_length(models, lengths, n=arguments.pick(1000, 500, 100)).assign(**facts))
    final = pd.concat(finals, ignore_index=True)
    table = compared(final, arguments)
    report = Report("Generalization of learned recognizers to longer strings")
    add_curves(report, pd.concat(curves, ignore_index=True), table)
    add_finals(report, final, table)
    report.verdict = verdict(table, time.process_time() - started)
    return report


def train(setting: Setting, arguments: Arguments) -> list[interp.TaskModel]:
    language = {"first": First, "one": One}[setting.language]
    shortest = 2 if setting.variable else 0
    task = language(length=setting.train_length, shortest=shortest, test_length=TEST_LENGTH)
    if setting.recipe == "batches":
        recipe, seeds = _shortened(BATCHES, arguments.pick(30, 10, 3)), arguments.pick(10, 5, 2)
    else:
        epochs = 1000 if setting.is_published else 400
        recipe = _shortened(PUBLISHED, arguments.pick(epochs, 200, 3))
        seeds = arguments.pick(20 if setting.is_published else 10, 5, 2)
    spec = learned_spec(task, "first", "current" if setting.log else "none", origin=recipe)
    # Kept beside the results, so that a study that was interrupted goes on where it stopped.
    folder = arguments.out / "runs" / f"{spec.id}-{seeds}"
    folder.mkdir(parents=True, exist_ok=True)
    models = interp.train(spec, seeds=range(seeds), folder=folder, resume=True, progress=False)
    print(f"{setting.group}, {setting.train_length} symbols: {seeds} models trained", file=sys.stderr, flush=True)
    return models


def _shortened(recipe: Training, epochs: int) -> Training:
    return recipe.model_copy(update={"epochs": epochs})


def compared(final: pd.DataFrame, arguments: Arguments) -> pd.DataFrame:
    """Accuracy at 1000 symbols over the seeds, beside the published mean and deviation if there are any."""
    at_end = over_seeds(final.query("length == @TEST_LENGTH"), ["group", "train_length"])
    published = pd.read_csv(PUBLISHED_RUNS)
    rows = []
    for setting in settings(arguments):
        if setting.is_published:
            theirs = published.query(
                "language == @setting.language and train_length == @setting.train_length and "
                "log_length_scaled == @setting.log"
            ).iloc[0]
            rows.append((setting.group, setting.train_length, theirs["accuracy_mean"], theirs["accuracy_std"]))
    columns = ["group", "train_length", "published mean", "published std"]
    return at_end.merge(pd.DataFrame(rows, columns=columns), on=["group", "train_length"], how="left")


def add_curves(report: Report, curves: pd.DataFrame, table: pd.DataFrame) -> None:
    report.heading(
        "Learning curves",
        "Mean over the seeds of the accuracy on strings of 1000 symbols after each epoch, by training length. Whoever "
        "always says no is right on .500 of the strings of FIRST and on .665 of those of ONE. The marks at the end are "
        "the published means and standard deviations after 1000 epochs.",
    )
    for number, (group, part) in enumerate(curves.groupby("group", sort=False)):
        # Every epoch of a thousand is more than a line can show.
        step = max(1, int(part["epoch"].max()) // 200)
        shown = part[part["epoch"] % step == 0]
        figure = draw.lines(shown, "epoch", "accuracy", "trained_on", y_title="accuracy at 1000 symbols")
        for trace, (_, row) in zip(tuple(figure.data), table[table["group"] == group].iterrows()):
            if row["published mean"] == row["published mean"]:  # not NaN
                figure.add_scatter(
                    x=[float(part["epoch"].max())], y=[row["published mean"]], mode="markers",
                    error_y={"array": [row["published std"]]}, name=f"published, {row['train_length']} symbols",
                    marker={"color": trace.line.color, "size": 10, "symbol": "diamond"},
                )  # fmt: skip
        report.add_figure(
            f"curve_{number}",
            figure.update_yaxes(range=(-0.03, 1.12)),
            f"{group} ({'Figure 4' if str(group).startswith('FIRST') else 'Figure 5'}).",
        )
        report.add_figure(
            f"cross_entropy_{number}",
            draw.lines(shown, "epoch", "loss", "trained_on", y_title="cross-entropy (nats)", y_type="log"),
            f"{group}: cross-entropy of the training strings after each epoch, mean over the seeds.",
        )


def add_finals(report: Report, final: pd.DataFrame, table: pd.DataFrame) -> None:
    report.heading("After training")
    report.add_table(
        "at_1000_symbols",
        table,
        "Accuracy at 1000 symbols over the seeds; perfect: how many seeds reach 0.999.",
        dict.fromkeys(("mean", "std", "min", "max", "published mean", "published std"), ".3f"),
    )
    both = table.dropna(subset=["published mean"]).copy()
    both["run"] = both["group"].str.replace(", fixed length", "") + ", " + both["train_length"].astype(str)
    theirs = {"published mean": "accuracy", "published std": "spread"}
    sides = [
        both.rename(columns={"mean": "accuracy", "std": "spread"}).assign(source="ours"),
        both.rename(columns=theirs).assign(source="published"),
    ]
    stacked = pd.concat([side[["run", "source", "accuracy", "spread"]] for side in sides])
    report.add_figure(
        "against_published",
        draw.bars(stacked, "run", "accuracy", "source", "", "accuracy at 1000 symbols", error="spread"),
        "Mean and standard deviation over the seeds, ours and the published ones.",
    )
    by_length = over_seeds(final, ["group", "train_length", "length"])
    for number, (group, part) in enumerate(by_length.groupby("group", sort=False)):
        part = part.assign(trained_on=part["train_length"].astype(str) + " symbols")
        report.add_figure(
            f"length_{number}",
            draw.lines(
                part, "length", "mean", "trained_on", "symbols", "mean accuracy", "log", markers=True
            ).update_yaxes(range=(-0.03, 1.05)),
            f"{group}: accuracy after training against the length of the tested strings.",
        )
    report.add_table("by_length", by_length, "The same as numbers.", max_rows=20)


def verdict(table: pd.DataFrame, seconds: float) -> str:
    parts = []
    known = table.dropna(subset=["published mean"])
    gap = (known["mean"] - known["published mean"]).abs()
    parts.append(
        f"Our means lie {gap.mean():.3f} from the {len(known)} published ones on average, {gap.max():.3f} at most."
    )
    varying = table[table["group"].str.contains("varying")]
    for group, part in varying.groupby("group", sort=False):
        best = part.loc[part["mean"].idxmax()]
        parts.append(
            f"{group}: at best (trained on up to {best['train_length']} symbols) {best['mean']:.3f} +- "
            f"{best['std']:.3f}, {best['perfect']} of {best['seeds']} seeds perfect."
        )
    return " ".join(parts) + f" {seconds:.0f} s of CPU."


if __name__ == "__main__":
    run(study, __doc__)
