"""How often does a head of dimension 1 learn to count, alone or among 64, and how good are untrained heads?

python analyses/count01_single_heads.py --out out/single_heads [--quick | --smoke]

Table 1 (trained heads of dimension 1, no layer norm) and the left half of Figure 14 (heads at initialization). The
runs of a row are trained together. Full: the paper's numbers of runs, 10,000 untrained heads for each initialization.
Quick: a tenth of both. Smoke: two runs of two rows for two epochs, 32 untrained heads.

The paper states no optimizer, number of epochs or initialization for Table 1. Ours: Adam at 1e-3, batches of 256, 100
epochs, torch.nn's default initialization; rows of more than one dimension also by two other recipes. Its row of
20 runs with 64 heads counts 1,920 heads; 20 x 64 = 1,280 (erratum 5).
"""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
import torch
from shared.script import Arguments, run

import interp
from interp.families.count01 import Count01
from interp.measures import heads
from interp.measures.heads import SUCCESSFUL
from interp.measures.separation import score_groups
from interp.models.architecture.parameters import initialize
from interp.models.architecture.reduced import CountedRows, heads_from_counts, token_tables
from interp.models.spec import Bias, Layer, Training
from interp.report import Report
from interp.support import figures as draw
from interp.tasks.counted import shape_of
from interp.tasks.scores import Score

TABLE_1 = (
    (32, 100, 1, 0.74, 0.17),
    (16, 100, 1, 0.54, 0.11),
    (8, 100, 1, 0.48, 0.09),
    (4, 100, 1, 0.22, 0.01),
    (2, 300, 1, 0.097, 0.017),
    (2, 100, 64, 0.020, 0.002),
    (1, 650, 1, 0.006, 0.0),
    (1, 20, 64, 0.003, 0.0),
)
"""Embedding dimension, runs, heads of a run, and the paper's shares of heads with s-acc of .98 and of 1."""
OURS = Training(init="torch", learning_rate=1e-3, batch_size=256, epochs=100)
READINGS: dict[str, dict[str, object]] = {
    "from normal(0, .02)": {"init": "normal", "init_std": 0.02},
    "25 epochs": {"epochs": 25},
}
"""What the paper may mean instead, as changes of ours."""
UNTRAINED = {
    "normal .02, layer norm": Training(init="normal", init_std=0.02),
    "normal .2, layer norm": Training(init="normal", init_std=0.2),
    "torch.nn default, layer norm": Training(init="torch"),
    "torch.nn default, no norm": Training(init="torch"),
}
PAPER_PERFECT = 0.013
TOGETHER = 16
"""Untrained models whose outputs are held at once (16 x 16 heads, 7000 rows: 60 MB)."""


def study(arguments: Arguments) -> Report:
    report = Report("Heads of dimension 1, and heads at initialization")
    trained = _table_1(arguments)
    report.heading("Trained heads of dimension 1 (Table 1)")
    report.add_table(
        "table_1", trained, "Shares of heads with s-acc of at least .98 and of 1, with Wilson's 95% intervals."
    )
    both = trained.melt(["row"], ["good", "paper good"], "source", "share")
    report.add_figure(
        "table_1", draw.bars(both, "row", "share", "source", y_title="share of heads with s-acc >= .98"),
        "Ours and the paper's.",
    )  # fmt: skip
    report.add_table(
        "readings", _readings(arguments), "The same by other recipes: ours, with the change that is named."
    )
    untrained = pd.concat([_untrained(name, recipe, arguments) for name, recipe in UNTRAINED.items()])
    report.heading("Heads at initialization (Figure 14, left)")
    by_init = untrained.groupby("initialization", sort=False)["s_acc"].agg(
        heads="size", mean="mean", good=lambda s: (s >= SUCCESSFUL).mean(), perfect=lambda s: (s == 1).mean()
    )
    report.add_table("untrained", by_init.reset_index(), "s-acc of untrained heads; the paper has 1.3% perfect ones.")
    report.add_figure("figure_14_left", draw.bars(
        _histogram(untrained), "s-acc", "share", "initialization", y_title="share of heads"
    ), "Distribution of s-acc over untrained heads.")  # fmt: skip
    report.verdict = _verdict(trained, by_init)
    return report


def _table_1(arguments: Arguments) -> pd.DataFrame:
    rows = []
    for d_model, runs, n_heads, good, perfect in TABLE_1[: arguments.pick(8, 8, 2)]:
        found = _trained(d_model, arguments.pick(runs, runs // 10, 2), n_heads, OURS, arguments)
        name = f"d={d_model}, {n_heads} head{'s' * (n_heads > 1)}"
        rows.append({"row": name, **found, "paper good": good, "paper perfect": perfect})
    return pd.DataFrame(rows)


def _readings(arguments: Arguments) -> pd.DataFrame:
    """The rows of more than one dimension by other recipes, in at most 100 runs."""
    rows = []
    for name, changes in READINGS.items():
        for d_model, runs, n_heads, good, perfect in TABLE_1[: arguments.pick(6, 6, 1)]:
            few = arguments.pick(min(runs, 100), 10, 2)
            found = _trained(d_model, few, n_heads, OURS.model_copy(update=changes), arguments)
            rows.append({"recipe": name, "d": d_model, **found, "paper good": good, "paper perfect": perfect})
    return pd.DataFrame(rows)


def _trained(d_model: int, runs: int, n_heads: int, recipe: Training, arguments: Arguments) -> dict[str, float]:
    """Shares of good and perfect heads over runs that are trained together, with Wilson's 95% intervals."""
    recipe = recipe.model_copy(update={"epochs": arguments.pick(recipe.epochs, recipe.epochs, 2)})
    spec = interp.ModelSpec(
        task=Count01().ref, d_model=d_model, readout_at="=", origin=recipe,
        layers=(Layer(n_heads=n_heads, d_head=1, scale=1.0, bias=Bias(o=True)),),
    )  # fmt: skip
    models = interp.train(spec, seeds=range(runs))
    sets = {split: models[0].task.dataset(split) for split in ("train", "test")}
    heads = np.concatenate([_s_acc(model, sets) for model in models])
    found: dict[str, float] = {"runs": runs, "heads": len(heads)}
    for kind, mask in {"good": heads >= SUCCESSFUL, "perfect": heads == 1}.items():
        ours = Score(len(heads), int(mask.sum()), len(heads))
        found |= {kind: ours.accuracy, f"{kind} low": ours.low, f"{kind} high": ours.high}
    print(f"d = {d_model}, {n_heads} heads, {runs} runs: {found}", file=sys.stderr, flush=True)
    return found


def _s_acc(model: interp.TaskModel, sets: dict[str, interp.Batch]) -> np.ndarray:
    """s-acc of every head of a model."""
    fitted, tested = (heads.head_outputs(model, sets[split]) for split in ("train", "test"))
    singles = [(head,) for head in range(tested.n_heads)]
    found = score_groups(fitted.z.numpy(), fitted.labels.numpy(), tested.z.numpy(), tested.labels.numpy(), singles)
    return found["s_acc"].to_numpy()


def _untrained(name: str, recipe: Training, arguments: Arguments) -> pd.DataFrame:
    """s-acc of the heads of fresh models with the main model's sizes, a few models at a time and never one of them."""
    task = Count01()
    layer = Layer(n_heads=16, d_head=2, scale=1.0, norm="none" if "no norm" in name else "pre", bias=Bias(o=True))
    spec = interp.ModelSpec(task=task.ref, d_model=32, readout_at="=", origin=recipe, layers=(layer,))
    rows, labels = {}, {}
    for split in ("train", "test"):
        query, counts, answers = shape_of(task).answer_rows(task.dataset_counts(split))
        rows[split], labels[split] = CountedRows(query[None], counts[None].double()), answers.numpy()
    found = []
    models = arguments.pick(625, 62, 2)
    for start in range(0, models, TOGETHER):
        fresh = [initialize(spec, task, seed, torch.float64) for seed in range(start, min(start + TOGETHER, models))]
        tables = token_tables(spec, {key: torch.stack([f[key] for f in fresh]) for key in fresh[0]})
        z = {split: heads_from_counts(tables, rows[split]).numpy() for split in rows}
        for train_z, test_z in zip(z["train"], z["test"]):
            singles = [(head,) for head in range(16)]
            found.append(score_groups(train_z, labels["train"], test_z, labels["test"], singles)["s_acc"])
    return pd.DataFrame({"initialization": name, "s_acc": np.concatenate(found)})


def _histogram(frame: pd.DataFrame) -> pd.DataFrame:
    edges = np.append(np.arange(0.2, 0.999, 0.05), [0.98, 0.99999, 1.01])
    parts = []
    for name, part in frame.groupby("initialization", sort=False):
        numbers, _ = np.histogram(part["s_acc"], edges)
        words = [*(f"{low:.2f}" for low in edges[:-3]), "≥ .98", "1"]
        parts.append(pd.DataFrame({"initialization": name, "s-acc": words, "share": numbers / len(part)}))
    return pd.concat(parts)


def _verdict(trained: pd.DataFrame, by_init: pd.DataFrame) -> str:
    inside = trained["paper good"].between(trained["good low"], trained["good high"])
    outside = ", ".join(trained["row"][~inside]) or "none"
    perfect = by_init["perfect"]
    return (
        f"Table 1: the paper's share of heads with s-acc >= .98 lies in our 95% interval in {int(inside.sum())} of "
        f"{len(trained)} rows (outside: {outside}). Untrained heads that separate perfectly: {perfect.min():.2%} to "
        f"{perfect.max():.2%} depending on the initialization (paper: {PAPER_PERFECT:.1%}, initialization not stated)."
    )


if __name__ == "__main__":
    run(study, __doc__)
