"""Which formal languages do transformers learn at the length that they are trained on? (Figures 3, 7 and 8)

python analyses/language_learning.py --out out/learning [--quick | --smoke]

The published recipe, one string per step for 100 epochs of 100 strings, for FIRST (log-length scaling), ONE (strings of
varying length), PARITY and PALINDROME, beside the published accuracies; then a better recipe, batches of 32 with
warm-up, for short PARITY without positions and short PALINDROME with the position code of the exact model, and for
balanced brackets. Full: the 12 published lengths and 10 seeds (hours, nearly all for lengths from 300 on); quick:
lengths 10, 30 and 100, 10 seeds (a few minutes); smoke: length 10, 2 seeds, 2 epochs. The state of each run is kept in
OUT/runs: the same command goes on after an interruption.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pandas as pd
from shared.accuracy_over_lengths import accuracy_by_length, over_seeds
from shared.script import Arguments, run

import interp
from interp.families.languages import Dyck1, Dyck2, First, Language, One, Palindrome, Parity
from interp.families.languages.constructions.learned import BATCHES, PUBLISHED, learned_spec
from interp.report import Report
from interp.support import figures as draw

PUBLISHED_RUNS = Path(__file__).parent / "published" / "nowak_learn.csv"
LANGUAGES: dict[str, type[Language]] = {"first": First, "one": One, "parity": Parity, "palindrome": Palindrome}
POSITIONS = {"first": "first", "one": "fraction", "parity": "parity", "palindrome": "sinusoidal"}
FIGURES = {"first": "Figure 3", "one": "Figure 3", "parity": "Figure 7", "palindrome": "Figure 8"}
BETTER: tuple[tuple[type[Language], str, tuple[int, ...]], ...] = (
    (Parity, "none", (5, 10, 20)),
    (Palindrome, "halves", (8, 12)),
    (Dyck1, "fraction", (12,)),
    (Dyck2, "sinusoidal", (12,)),
)
"""Language, positions, lengths that are trained with real batches."""


def study(arguments: Arguments) -> Report:
    started = time.process_time()
    report = Report("Which formal languages are learned")
    table = published_recipe(report, arguments)
    better = better_recipe(report, arguments)
    report.verdict = verdict(table, better) + f" {time.process_time() - started:.0f} s of CPU."
    return report


def published_recipe(report: Report, arguments: Arguments) -> pd.DataFrame:
    """Train on one string per step at every length; return our accuracies next to the published ones."""
    published = pd.read_csv(PUBLISHED_RUNS)
    lengths = {"full": sorted(published["train_length"].unique()), "quick": [10, 30, 100], "smoke": [10]}[
        arguments.mode
    ]
    recipe = PUBLISHED.model_copy(update={"epochs": arguments.pick(100, 100, 2)})
    report.heading(
        "The published recipe",
        "Mean over the seeds of the accuracy on 100 strings after each epoch. The published runs share one "
        "initialization and differ in their data; ours differ in both. Marks at the end: the published means and "
        "standard deviations.",
    )
    finals = []
    for name, language in LANGUAGES.items():
        curves = []
        for length in map(int, lengths):
            task = language(length=length, shortest=2 if name == "one" else 0)
            spec = learned_spec(task, POSITIONS[name], "current" if name == "first" else "none", origin=recipe)
            models = trained(spec, arguments)
            curves.append(learning_curve(models).assign(trained_on=f"{length} symbols"))
            final = accuracy_by_length(models, [length], n=arguments.pick(1000, 1000, 100))
            finals.append(final.assign(language=name, train_length=length))
        figure = draw.lines(pd.concat(curves), "epoch", "accuracy", "trained_on", y_title="mean accuracy")
        theirs = published[published["language"] == name].set_index("train_length")
        for trace, length in zip(tuple(figure.data), lengths):
            figure.add_scatter(
                x=[recipe.epochs], y=[theirs.loc[length, "accuracy_mean"]], mode="markers",
                error_y={"array": [theirs.loc[length, "accuracy_std"]]}, name=f"published, {length} symbols",
                marker={"color": trace.line.color, "size": 10, "symbol": "diamond"},
            )  # fmt: skip
        report.add_figure(
            f"curve_{name}",
            figure.update_yaxes(range=(-0.03, 1.12)),
            f"{name.upper()}: accuracy at the training length ({FIGURES[name]}).",
        )
        report.add_figure(
            f"cross_entropy_{name}",
            draw.lines(pd.concat(curves), "epoch", "loss", "trained_on", y_title="cross-entropy (nats)", y_type="log"),
            f"{name.upper()}: cross-entropy of the training strings, mean over the seeds (lower panels of "
            f"{FIGURES[name]}). Always answering with the share of members has .69 where half of the strings are.",
        )
    ours = over_seeds(pd.concat(finals), ["language", "train_length"])
    theirs = published.rename(columns={"accuracy_mean": "published mean", "accuracy_std": "published std"})
    wanted = ["language", "train_length", "test_length", "published mean", "published std"]
    table = ours.merge(theirs[wanted], on=["language", "train_length"], how="left")
    report.add_table(
        "learnability",
        table,
        "Accuracy after training, at the training length; test_length: where the published runs were tested. perfect: "
        "how many seeds reach 0.999.",
        dict.fromkeys(("mean", "std", "min", "max", "published mean", "published std"), ".3f"),
    )
    table["run"] = table["language"].str.upper() + " " + table["train_length"].astype(str)
    sides = [
        table.rename(columns={"mean": "accuracy", "std": "spread"}).assign(source="ours"),
        table.rename(columns={"published mean": "accuracy", "published std": "spread"}).assign(source="published"),
    ]
    stacked = pd.concat([side[["run", "source", "accuracy", "spread"]] for side in sides])
    report.add_figure(
        "against_published",
        draw.bars(stacked, "run", "accuracy", "source", "language and training length", "accuracy", error="spread"),
        "Mean and standard deviation over the seeds, ours and the published ones.",
    )
    return table


def better_recipe(report: Report, arguments: Arguments) -> pd.DataFrame:
    """Real batches and warm-up on short strings of what the published recipe does not learn."""
    recipe = BATCHES.model_copy(update={"epochs": arguments.pick(200, 60, 3)})
    report.heading(
        "Real batches",
        f"Batches of 32, warm-up and a rate that falls to zero, {recipe.epochs * 3200:,} strings: the same models on "
        "short strings.",
    )
    finals, curves = [], []
    for language, positions, lengths in BETTER:
        for length in lengths[: arguments.pick(9, 9, 1)]:
            spec = learned_spec(language(length=length), positions, origin=recipe)
            models = trained(spec, arguments)
            run_name = f"{language.name.upper()} {length}"
            curves.append(learning_curve(models).assign(run=run_name))
            final = accuracy_by_length(models, [length], n=arguments.pick(1000, 1000, 100))
            finals.append(final.assign(run=run_name, positions=positions))
    report.add_figure(
        "curve_batches",
        draw.lines(pd.concat(curves), "epoch", "accuracy", "run", y_title="mean accuracy").update_yaxes(
            range=(-0.03, 1.05)
        ),
        "Accuracy at the training length after each epoch of 3,200 strings, mean over the seeds.",
    )
    table = over_seeds(pd.concat(finals), ["run", "positions"])
    report.add_table("batches", table, "Accuracy after training; perfect: how many seeds reach 0.999.")
    return table


def trained(spec: interp.ModelSpec, arguments: Arguments) -> list[interp.TaskModel]:
    """All seeds of a spec; runs are kept beside the results, so that an interrupted study goes on where it stopped."""
    seeds = arguments.pick(10, 10, 2)
    folder = arguments.out / "runs" / f"{spec.id}-{seeds}"
    folder.mkdir(parents=True, exist_ok=True)
    models = interp.train(spec, seeds=range(seeds), folder=folder, resume=True, progress=False)
    print(f"{spec.id}: {seeds} models trained", file=sys.stderr, flush=True)
    return models


def learning_curve(models: list[interp.TaskModel]) -> pd.DataFrame:
    """Mean loss and accuracy by epoch."""
    histories = pd.concat([model.history for model in models])
    return histories.groupby("epoch", as_index=False)[["loss", "accuracy"]].mean()


def verdict(table: pd.DataFrame, better: pd.DataFrame) -> str:
    parts = []
    for name, part in table.groupby("language", sort=False):
        learned = int(part["perfect"].sum())
        parts.append(f"{str(name).upper()} {part['mean'].mean():.3f} ({learned} of {part['seeds'].sum()} runs perfect)")
    short = [f"{row.run} {row.mean:.3f} +- {row.std:.3f} ({row.perfect} of {row.seeds})" for row in better.itertuples()]
    return (
        "With the published recipe, mean accuracy over the lengths: " + ", ".join(parts) + ". With real batches: "
        + ", ".join(short) + "."
    )  # fmt: skip


if __name__ == "__main__":
    run(study, __doc__)
