"""Print and ours, side by side: what four papers draw or tabulate, and what our runs at the same sizes give.

python analyses/print_and_ours.py --out out/print_and_ours

Figure 1 of Behrens et al. 2024 (1,176 cells), Table 1 of Zsámboki et al. 2025, Figures 3, 7 and 8 of Nowak et al. 2022,
and the 44 capacities of Dana et al. 2025. Published numbers are in analyses/published, ours in analyses/sweeps, whose
README says by which command each table was made and at what cost: nothing is trained here, and --quick and --smoke are
the same.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from claim_checks.base import kept
from claim_checks.count01 import chances
from claim_checks.counting import against_published
from shared.script import Arguments, run

from interp.report import Report
from interp.support import figures as draw

LANGUAGES = pd.read_csv(Path(__file__).parent / "published" / "nowak_learn.csv")
FIGURES = {"first": "Figure 3", "one": "Figure 3", "parity": "Figure 7", "palindrome": "Figure 8"}


def study(arguments: Arguments) -> Report:
    report = Report("Print and ours", "published numbers beside those of our runs, at the published sizes")
    parts = [_phase_diagrams(report), _table_1(report), _languages(report), _capacities(report)]
    report.verdict = " ".join(parts)
    return report


def _phase_diagrams(report: Report) -> str:
    """Mean accuracy of every cell: on the diagonal where it is the printed one."""
    cells = against_published()
    report.heading(
        "Counting: Figure 1, six models over d and p", "Behrens et al. 2024, T = 32, L = 10; five runs each."
    )
    named = cells.assign(cell=[f"{m}, d = {d}, p = {p}" for m, d, p in zip(cells["model"], cells["d"], cells["p"])])
    report.add_figure(
        "figure_1",
        draw.scatter(named, "published mean", "mean", "model", "cell", "printed mean accuracy (%)",
                     "our mean accuracy (%)", diagonal=True),
        "A point a cell; print is digitized from the heat map, to 0.39 percent. Maps: analyses/counting_phase.py.",
    )  # fmt: skip
    rows = [
        {
            "model": name, "cells": len(part),
            "printed mean": part["published mean"].mean(), "ours": part["mean"].mean(),
            "mean |difference|": (part["mean"] - part["published mean"]).abs().mean(),
            "within 2 standard errors": (part["z"].abs() <= 2).mean(), "beyond 3": int((part["z"].abs() > 3).sum()),
        }
        for name, part in [("all", cells), *cells.groupby("model", sort=False)]
    ]  # fmt: skip
    report.add_table("figure_1", pd.DataFrame(rows), "Accuracies in percent, means over the cells.")
    return (
        f"Figure 1 of counting: {100 * rows[0]['within 2 standard errors']:.1f}% of {len(cells):,} cells within two "
        f"standard errors, {rows[0]['beyond 3']} beyond three."
    )


def _table_1(report: Report) -> str:
    table, readings = kept("count01_table1"), kept("count01_table1_readings")
    report.heading(
        "Count01: Table 1, heads of dimension 1",
        "Zsámboki et al. 2025. Print states no optimizer, number of epochs or initialization; the second table is ours "
        "by other recipes.",
    )
    for kind, what in {"good": "s-acc of at least .98", "perfect": "s-acc of 1"}.items():
        half = (table[f"{kind} high"] - table[f"{kind} low"]) / 2
        sides = [
            table.assign(source="print", share=table[f"paper {kind}"], half=0.0),
            table.assign(source="ours", share=table[kind], half=half),
        ]
        report.add_figure(
            f"table_1_{kind}",
            draw.bars(pd.concat(sides), "row", "share", "source", "", f"share of heads with {what}", error="half"),
            f"Heads with {what}; whiskers are half of Wilson's 95% interval on either side.",
        )
    report.add_table(
        "table_1",
        table,
        "Shares of heads with s-acc of at least .98 (good) and of 1 (perfect); low, high: Wilson's 95% interval.",
    )
    report.add_table("table_1_readings", readings, "The same by other recipes, in at most 100 runs.")
    same = sum(min(chances(row)) >= 0.05 for _, row in table.iterrows())
    return f"Table 1 of Count01: {same} of {len(table)} rows agree with print by Fisher's exact test of both shares."


def _languages(report: Report) -> str:
    """Accuracy at the training length, against that length."""
    ours = kept("language_learning")
    report.heading(
        "Languages: Figures 3, 7 and 8, learned at the training length",
        "Nowak et al. 2022, ten runs each: FIRST and ONE (Figure 3) are learned, PARITY (7) and PALINDROME (8) are not."
        " Ours are the printed recipe at 10, 30 and 100 symbols.",
    )
    figure = draw.lines(
        LANGUAGES.assign(language=LANGUAGES["language"].str.upper()), "train_length", "accuracy_mean", "language",
        "training length (symbols)", "accuracy", "log", markers=True,
    )  # fmt: skip
    for trace in tuple(figure.data):
        mine = ours[ours["language"].str.upper() == trace.name]
        figure.add_scatter(
            x=mine["train_length"], y=mine["mean"], mode="markers", name=f"{trace.name}, ours",
            error_y={"array": mine["std"]}, marker={"color": trace.line.color, "size": 11, "symbol": "diamond-open"},
        )  # fmt: skip
    report.add_figure(
        "languages", figure.update_yaxes(range=(0.3, 1.05)), "Lines: print, means. Diamonds: ours, with std over seeds."
    )
    report.add_table(
        "languages",
        ours.assign(figure=ours["language"].map(FIGURES)),
        "Accuracy after training, over ten seeds, beside the published runs.",
        dict.fromkeys(("mean", "std", "min", "max", "published mean", "published std"), ".3f"),
    )
    gap = (ours["mean"] - ours["published mean"]).abs()
    return f"Learned languages: {len(ours)} means within {gap.max():.2f} of print, {gap.mean():.3f} on average."


def _capacities(report: Report) -> str:
    table = kept("memorization_capacity")
    report.heading(
        "Memorization: 44 capacities",
        "Dana et al. 2025 (arXiv 2411.10115), experiments 1, 2 and 6, five runs each; accuracy on the training sample.",
    )
    named = table.assign(experiment=[f"experiment {e}" for e in table["experiment"]])
    named["cell"] = [f"N = {n}, d = {d}, H = {h}" for n, d, h in zip(table["N"], table["d"], table["H"])]
    report.add_figure(
        "capacities",
        draw.scatter(named, "published", "on the sample", "experiment", "cell", "printed mean accuracy",
                     "our mean accuracy", diagonal=True),
        "A point a cell.",
    )  # fmt: skip
    columns = ["experiment", "N", "d", "d_h", "H", "seeds", "published", "on the sample", "accuracy", "std"]
    report.add_table("capacities", table[columns], "accuracy, std: over all contexts, ours.", max_rows=len(table))
    gap = table["on the sample"] - table["published"]
    return (
        f"Capacities: {len(table)} cells, ours minus print {gap.mean():+.3f} on average, {gap.abs().max():.3f} at most."
    )


if __name__ == "__main__":
    run(study, __doc__)
