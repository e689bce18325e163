"""How large must a model be to learn to count reliably? Accuracy by number of heads and embedding dimension (Figure 2).

python analyses/count01_size.py --out out/size [--quick | --smoke]

Trains recipe A from scratch for each embedding dimension and number of heads (d_head = d / heads), all seeds of a cell
together. Full: 10 seeds, as in the paper, 100 epochs. Quick: 3 seeds, 50 epochs, ten cells. Smoke: 2 seeds, 1 epoch,
two cells.
The paper gives Figure 2 as a picture alone: its claim, that more heads and dimensions make learning more robust, can
be compared, its numbers cannot.
"""

from __future__ import annotations

import pandas as pd
from shared.script import Arguments, run

import interp
from interp.measures.heads import head_outputs
from interp.models.spec import Bias, Layer, Training
from interp.report import Report
from interp.support import figures as draw

FIRST_SEED = 3000
DIMENSIONS, HEADS = (4, 8, 16, 32), (1, 2, 4, 8, 16)
MAIN = (32, 16)
"""The paper's choice: "almost always reaches near perfect test accuracy" (section 5.1)."""
NEAR_PERFECT = 0.95


def study(arguments: Arguments) -> Report:
    numbers = HEADS[:: arguments.pick(1, 2, 4)]
    cells = [(d, heads) for d in DIMENSIONS for heads in numbers if heads <= d]
    test = interp.load("count01/paper").task.dataset("test")
    rows = []
    for d, heads in cells[: arguments.pick(len(cells), len(cells), 2)]:
        for model in _train(d, heads, arguments):
            rows.append({"d": d, "heads": heads, "seed": model.seed, "accuracy": _accuracy(model, test)})
    models = pd.DataFrame(rows)
    by_cell = models.groupby(["d", "heads"])["accuracy"].agg(
        mean="mean", std="std", worst="min", near_perfect=lambda column: (column >= NEAR_PERFECT).mean()
    )
    report = Report("Accuracy by number of heads and embedding dimension")
    report.heading("Accuracy at '=' on the test set (Figure 2)")
    report.add_table(
        "cells", by_cell.reset_index(), f"Over the seeds; near_perfect: share with accuracy of at least {NEAR_PERFECT}."
    )
    report.add_table("models", models, "One row a model.", max_rows=10)
    shown = by_cell.reset_index().assign(d=lambda frame: "d = " + frame["d"].astype(str))
    shown["heads"] = shown["heads"].astype(str)
    report.add_figure(
        "figure_2",
        draw.bars(shown, "heads", "mean", "d", x_title="number of heads", y_title="accuracy at '='", error="std"),
        "Mean over the seeds; the whiskers are one standard deviation.",
    )
    report.verdict = _verdict(by_cell)
    return report


def _train(d: int, heads: int, arguments: Arguments) -> list[interp.TaskModel]:
    spec = interp.load("count01/paper").spec
    recipe = Training(**{**spec.training.model_dump(), "epochs": arguments.pick(100, 50, 1)})
    layer = Layer(n_heads=heads, d_head=d // heads, scale=1.0, norm="pre", bias=Bias(o=True))
    seeds = range(FIRST_SEED, FIRST_SEED + arguments.pick(10, 3, 2))
    return interp.train(spec.replace(d_model=d, layers=(layer,), origin=recipe), seeds)


def _accuracy(model: interp.TaskModel, test: interp.Batch) -> float:
    outputs = head_outputs(model, test)
    right = outputs.logits(range(outputs.n_heads), with_skip=True).argmax(-1) == outputs.labels
    return float(right.double().mean())


def _verdict(by_cell: pd.DataFrame) -> str:
    one, most = by_cell.groupby("d")["mean"].first(), by_cell.groupby("d")["mean"].last()
    gains = "; ".join(f"d = {d}: {one[d]:.3f} with one head, {most[d]:.3f} with most" for d in one.index)
    sentences = [f"Mean accuracy {gains} (paper: more heads and dimensions make learning more robust)."]
    if MAIN in by_cell.index:
        mean, std, worst, good = by_cell.loc[MAIN]
        sentences.append(
            f"d = {MAIN[0]} with {MAIN[1]} heads: {mean:.3f} ± {std:.3f}, the worst {worst:.3f}, {good:.0%} of the "
            f"seeds at {NEAR_PERFECT} or above (paper: almost always near perfect)."
        )
    sentences.append("Figure 2's own numbers are not in the paper's text, so no cell is compared with them.")
    return " ".join(sentences)


if __name__ == "__main__":
    run(study, __doc__)
