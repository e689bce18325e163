"""The paper's facts about trained heads, side by side with ours (Figures 1, 3, 5 to 9, 11 to 13, 15; section 6.2).

python analyses/count01_heads.py count01/paper/seed-{0,1,2,3} --out out/heads [--quick | --smoke]

The first model has every section of a report that shows one of these figures, the others those of Figures 11 to 13.
Full: 25 ratios for Figures 8 and 9; quick: 9; smoke: 3, and only the first model's facts. Nothing is trained here; see
count01_recipes.py for fresh models.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

import interp
from interp.measures.count01_facts import compare, facts
from interp.report import Report
from interp.report.script import Arguments, run

OF_ALL = ("separation", "attention_ratios")
"""Figures 3, 5 and 11 to 13."""
OF_THE_FIRST = ("head_logits", "head_planes", "reweighting")
"""Figures 1, 6 to 9 and 15."""


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
    points = arguments.pick(25, 9, 3)
    ratios = {"w01": tuple(np.logspace(-3, 3, points)), "w02": tuple(np.logspace(-2, 4, points))}
    first = interp.analyze(names[0], sections=[*OF_ALL, *OF_THE_FIRST], options={"reweighting": ratios})
    report.attach(first, prefix=names[0])
    for name in names[1:]:
        report.attach(interp.analyze(name, sections=OF_ALL), prefix=name)
    report.verdict = _verdict(rows, skip) + " " + _reweighted(*(first.tables[f"intervention_{r}"] for r in ratios))
    return report


def _reweighted(w01: pd.DataFrame, w02: pd.DataFrame) -> str:
    """What Figures 8 and 9 say."""
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
