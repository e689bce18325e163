"""How good is every group of heads, and do the heads compete or cooperate? All subsets of the heads (Figure 4).

python analyses/count01_subsets.py count01/paper/seed-{0,1,2,3} --out out/subsets [--quick | --smoke]

Full: every subset (65,535 for 16 heads). Quick: every subset of the first 8 heads, and 500 random subsets of all.
Smoke: every subset of the first 4. s-acc is solved to a proven optimum; Shapley values and synergies are exact.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pandas as pd
from shared.script import Arguments, run

import interp
from interp.families.count01.measures import pairwise_synergy, shapley
from interp.measures.heads import HeadOutputs, group_metrics, head_outputs
from interp.report import Report
from interp.support import figures as draw

METRICS = {"s_acc": "separation accuracy", "roc_auc": "ROC AUC", "l_acc": "learned accuracy"}
CHANCE = 0.5
NEAR = 0.98


@dataclass(frozen=True)
class Findings:
    """What one model's table says, in a row of the comparison."""

    model: str
    groups: int
    largest_gap: float
    s_acc_size: float
    roc_auc_size: float
    l_acc_size: float
    s_acc_synergy: float
    roc_auc_synergy: float
    l_acc_synergy: float


def study(arguments: Arguments) -> Report:
    report = Report("Every group of heads")
    rows = [_one(report, name, arguments) for name in arguments.checkpoints]
    table = pd.DataFrame([vars(row) for row in rows])
    report.heading("All models")
    report.add_table(
        "comparison",
        table,
        "largest_gap: the worst proven relative gap of a separator. *_size: heads needed until the median group of "
        "that size reaches .98. *_synergy: mean interaction index over the pairs of heads, in units of the metric.",
    )
    s_acc, roc_auc, l_acc = (_spread(table[f"{metric}_size"]) for metric in METRICS)
    report.verdict = (
        f"{int(table['groups'].sum()):,} groups of heads, relative gap at most {table['largest_gap'].max():.1e}. "
        f"Heads with which the median group reaches .98: {s_acc} in s-acc (paper: 3 to 4), {roc_auc} in ROC AUC "
        f"(paper: close behind), {l_acc} in l-acc (paper: most of them, all 16 for a perfect one). "
        f"Mean interaction of two heads: s-acc "
        f"{_spread(table['s_acc_synergy'], '+.4f')}, l-acc {_spread(table['l_acc_synergy'], '+.4f')}: "
        "below 0 one head replaces the other, as in an ensemble; above 0 they need each other. Shapley values and "
        "synergies are not in the paper."
    )
    return report


def _one(report: Report, name: str, arguments: Arguments) -> Findings:
    model = interp.load(name)
    fitted, tested = (head_outputs(model, model.task.dataset(split)) for split in ("train", "test"))
    report.heading(name)
    exact_heads = min(tested.n_heads, arguments.pick(tested.n_heads, 8, 4))
    whole = group_metrics(_first(fitted, exact_heads), _first(tested, exact_heads), "all")
    shown = whole
    if arguments.mode == "quick" and exact_heads < tested.n_heads:
        shown = group_metrics(fitted, tested, "all", sample=500)
    report.add_table(f"{name}/groups", shown, "One row a group of heads, small groups first.", max_rows=10)
    by_size = shown.groupby("size")[list(METRICS)].quantile([0.0, 0.25, 0.5, 0.75, 1.0]).unstack()
    by_size.columns = [f"{metric}_{quantile:g}" for metric, quantile in by_size.columns]
    report.add_table(f"{name}/sizes", by_size.reset_index(), "Quantiles of each metric over the groups of a size.")
    report.add_figure(
        f"{name}/figure_4",
        draw.metrics_by_size(shown),
        "Each metric over the groups of a size (Figure 4).",
    )
    _interactions(report, name, whole)
    synergy = {metric: pairwise_synergy(whole, metric, CHANCE)["interaction"].mean() for metric in METRICS}
    return Findings(
        name, len(shown), float(max(shown["relative_gap"].max(), whole["relative_gap"].max())),
        *(_size_reaching(shown, metric) for metric in METRICS), *(float(synergy[metric]) for metric in METRICS),
    )  # fmt: skip


def _interactions(report: Report, name: str, table: pd.DataFrame) -> None:
    """Shapley values and pairwise interaction of all heads in the table, for every metric."""
    values = pd.concat([shapley(table, metric, CHANCE).assign(metric=METRICS[metric]) for metric in METRICS])
    wide = values.pivot(index="head", columns="metric", values=["value", "shapley"])
    wide.columns = [f"{'alone' if kind == 'value' else 'Shapley'}: {metric}" for kind, metric in wide.columns]
    report.add_table(f"{name}/shapley", wide.reset_index(), "The head alone, and its mean gain over all orders.")
    report.add_figure(
        f"{name}/shapley",
        draw.bars(values, "head", "shapley", "metric", y_title="Shapley value (share of right answers)"),
        "What each head adds to a group, averaged over all orders in which the heads can join. The values of a metric "
        "add up to that of all heads, minus chance.",
    )
    n = int(table["size"].max())
    for metric, words in METRICS.items():
        pairs = pairwise_synergy(table, metric, CHANCE)
        matrix = pairs.pivot(index="head_a", columns="head_b", values="interaction").reindex(range(n), axis=0)
        matrix = matrix.reindex(range(n), axis=1)
        matrix = matrix.fillna(matrix.T)
        report.add_table(f"{name}/synergy_{metric}", pairs, f"Pairs of heads, {words}.", max_rows=10)
        report.add_figure(
            f"{name}/synergy_{metric}",
            draw.heatmap(matrix.to_numpy(), range(n), range(n), "head", "head", f"interaction, {words}", center=0.0),
            f"Interaction of two heads in {words}, averaged over all company: blue where one replaces the other.",
        )


def _first(outputs: HeadOutputs, n: int) -> HeadOutputs:
    """The first n heads as a model of their own."""
    return replace(outputs, z=outputs.z[:, :n], contributions=outputs.contributions[:, :n])


def _size_reaching(table: pd.DataFrame, metric: str) -> float:
    """Smallest size from which on the median group stays at .98 or above; NaN if none does."""
    good = table.groupby("size")[metric].median() >= NEAR
    stays = good[::-1].cummin()[::-1]
    return float(stays.index[stays].min()) if stays.any() else float("nan")


def _spread(column: pd.Series, form: str = ".0f") -> str:
    if column.isna().all():
        return "none"
    low, high = format(column.min(), form), format(column.max(), form)
    never = ", none in some models" if column.isna().any() else ""
    return (low if low == high else f"{low} to {high}") + never


if __name__ == "__main__":
    run(study, __doc__, default="count01/paper")
