"""The paper's facts about trained heads, side by side with ours (Figures 1, 3, 5 to 9, 11 to 13, 15; section 6.2).

python analyses/count01_heads.py count01/paper/seed-{0,1,2,3} --out out/heads [--quick | --smoke]

The first model is shown in every figure, the others in Figures 11 to 13. Full: 25 ratios for Figures 8 and 9; quick:
9; smoke: 3, and only the first model's facts. Nothing is trained here; see count01_recipes.py for fresh models.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

import interp
from interp.measures.attention import attention_ratios
from interp.measures.count01_facts import compare, facts
from interp.measures.heads import category, head_outputs, logit_distributions
from interp.measures.planes import head_planes
from interp.report import Report
from interp.report import figures as draw
from interp.report.script import Arguments, run

METRICS = {"l_acc": "Learned accuracy", "roc_auc": "ROC AUC", "s_acc": "Separation accuracy"}


def study(arguments: Arguments) -> Report:
    names = arguments.checkpoints[: arguments.pick(99, 99, 1)]
    models = {name: interp.load(name) for name in names}
    report = Report("The paper's facts about trained heads")
    train, test = (models[names[0]].task.dataset(split) for split in ("train", "test"))
    measured = [facts(model, train=train, test=test).assign(model=name) for name, model in models.items()]
    rows = pd.concat(measured, ignore_index=True)
    report.section("Paper and ours", f"Mean, least and largest over {len(models)} models.")
    report.add_table("facts", compare(rows), "Every fact that the paper states about one trained model.")
    report.add_table("models", rows, "Model by model.")
    with_skip = [facts(model, train=train, test=test, with_skip=True) for model in models.values()]
    skip = pd.concat(with_skip, ignore_index=True)
    kept = ["chance_singles", "good_pairs", "eos_singles", "eos_pairs"]
    both = pd.DataFrame({"fact": kept, "without skip": rows[kept].mean().to_numpy(), "with skip": skip[kept].mean()})
    report.add_table("skip", both, "Learned accuracies with the skip connection and projection bias kept (erratum 4).")
    _figures_of_all(report, models)
    first = next(iter(models))
    _logits(report, models[first], first)
    _planes(report, models[first], first)
    reweighted = _interventions(report, models[first], first, arguments.pick(25, 9, 3))
    report.verdict = _verdict(rows, skip) + " " + reweighted
    return report


def _figures_of_all(report: Report, models: dict[str, interp.TaskModel]) -> None:
    """Metrics of single heads and pairs (Figures 3, 11, 12), and attention ratios (Figures 5 and 13)."""
    for number, (name, model) in enumerate(models.items()):
        metrics = interp.head_metrics(model, "singles+pairs")
        report.section(name)
        for metric, words in METRICS.items():
            if number and metric == "roc_auc":
                continue
            figure = {"l_acc": "Figures 3a and 11", "roc_auc": "Figure 3b", "s_acc": "Figures 3c and 12"}[metric]
            report.add_figure(
                f"{name}/{metric}", draw.heads_heatmap(metrics, metric),
                f"{words} of single heads (diagonal) and of pairs ({figure}).",
            )  # fmt: skip
        singles = metrics[metrics["size"] == 1].reset_index(drop=True)
        heads = attention_ratios(model).assign(s_acc=singles["s_acc"], category=singles["s_acc"].map(category))
        report.add_figure(
            f"{name}/ratios", draw.attention_ratios(heads), "Attention ratios at '=', a dot a head (Figures 5 and 13)."
        )
        report.add_table(f"{name}/heads", heads.join(singles[["l_acc", "roc_auc"]]), "The heads.")


def _logits(report: Report, model: interp.TaskModel, name: str) -> None:
    report.section("Logits of single heads", f"{name}.")
    report.add_figure(
        "figure_1", draw.logit_distributions(logit_distributions(model)),
        "Logits of '4', '5' and [EOS] by each head alone and by the model, by current and true next token (Figure 1).",
    )  # fmt: skip


def _planes(report: Report, model: interp.TaskModel, name: str) -> None:
    fitted, tested = (head_outputs(model, model.task.dataset(split)) for split in ("train", "test"))
    planes = head_planes(model, fitted, tested)
    s_acc = interp.head_metrics(model)["s_acc"]
    report.section("Head outputs", f"{name}: a dot is a test sentence, diamonds are value vectors.")
    chosen = s_acc.sort_values(ascending=False).index
    for figure, heads in ((6, chosen[:2]), (7, chosen[-2:])):
        for head in map(int, heads):
            mine, values = (frame[frame["head"] == head] for frame in (planes.points, planes.values))
            report.add_figure(
                f"figure_{figure}_head_{head}", draw.head_plane(mine, values, planes.lines.get(head), head),
                f"Head {head}, s-acc {s_acc[head]:.3f} (as in Figure {figure}).",
            )  # fmt: skip
    notes = {head: f"s-acc {value:.3f}" for head, value in s_acc.items()}
    grid = draw.head_planes_grid(planes.points, planes.values, planes.lines, notes)
    report.add_figure("figure_15", grid, "Every head (Figure 15).")


def _interventions(report: Report, model: interp.TaskModel, name: str, points: int) -> str:
    """Figures 8 and 9, under both readings of the separators' objective; returns what they say.

    The paper prints 1/n before the sum of errors: read literally, C = 1000 / (2 n) for n training rows. The figures
    hinge on it.
    """
    n = len(model.task.dataset("train").tokens)
    words = []
    for reading, C in (("C = 1000", 1000.0), ("C = 1000 / (2n)", 1000 / (2 * n))):
        report.section(
            f"Attention set by hand, {reading}", f"{name}: everything but the attention at '=' stays as it was trained."
        )
        swept = {
            8: ("w01", interp.reweight_attention(model, w01=np.logspace(-3, 3, points), C=C)),
            9: ("w02", interp.reweight_attention(model, w02=np.logspace(-2, 4, points), C=C)),
        }
        for figure, (ratio, frame) in swept.items():
            key = f"figure_{figure}" if C == 1000 else f"figure_{figure}_printed_objective"
            drawn = draw.intervention_curve(frame.rename(columns={ratio: "ratio"}), x=ratio, per_head=True)
            report.add_figure(key, drawn, f"s-acc by {ratio}: mean and standard deviation (Figure {figure}).")
            report.add_table(key, frame, "One row for each head and ratio.", max_rows=10)
        words.append(f"{reading}: " + _what_they_say(swept[8][1], swept[9][1]))
    return " ".join(words)


def _what_they_say(w01: pd.DataFrame, w02: pd.DataFrame) -> str:
    healthy = w01[w01["w01"].between(0.1, 10)]["s_acc"]
    extreme = w01[w01["w01"].isin([w01["w01"].min(), w01["w01"].max()])]["s_acc"]
    low, high = (w02[w02["w02"] == bound]["s_acc"] for bound in (w02["w02"].min(), w02["w02"].max()))
    return (
        f"With no attention to '2' and w01 from .1 to 10, s-acc of the heads is {_spread(healthy)}, at least "
        f"{healthy.min():.3f} (paper: near perfect); at w01 = .001 and 1000 {_spread(extreme)} (paper: a sharp drop). "
        f"At w01 = 1 it is {_spread(low)} with w02 = .01 and {_spread(high)} with 10,000 (paper: a huge effect, and "
        "less variance at large w02)."
    )


def _spread(values: pd.Series) -> str:
    return f"{values.mean():.3f} ± {values.std(ddof=0):.3f}"


def _verdict(rows: pd.DataFrame, skip: pd.DataFrame) -> str:
    mean, kept = rows.drop(columns="model").mean(), skip.mean()
    number = f"{len(rows)} models" if len(rows) > 1 else "One model"
    return (
        f"{number}: successful heads {mean['successful']:.2f} (paper .5), failed {mean['failed']:.2f} (.4); "
        f"w01 of successful heads {rows['w01_low'].min():.2f} to {rows['w01_high'].max():.2f} (about 1), w02 above 10 "
        f"in {mean['w02_above_10']:.2f} of them (all). l-acc near .5: {mean['chance_singles']:.2f} of single heads "
        f"(.94); above .8: {mean['good_pairs']:.2f} of pairs (.017, not reproduced). [EOS] by single heads "
        f"{mean['eos_singles']:.2f} (.46), by pairs {mean['eos_pairs']:.2f} (.50); with the skip connection kept "
        f"{kept['eos_singles']:.2f} and {kept['eos_pairs']:.2f}."
    )


if __name__ == "__main__":
    run(study, __doc__, default="count01/paper")
