"""The paper's facts about trained heads, side by side with ours (Figures 1, 3, 5 to 9, 11 to 13, 15; section 6.2).

python analyses/count01_heads.py count01/paper/seed-{0,1,2,3} --out out/heads [--quick | --smoke]

The first model has every section of a report that shows one of these figures, the others those of Figures 11 to 13.
Full: 25 ratios for Figures 8 and 9; quick: 9; smoke: 3, and only the first model's facts. Nothing is trained here; see
count01_recipes.py for fresh models.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from shared.count01_facts import compare, facts
from shared.script import Arguments, run

import interp
from interp.report import Report

READINGS = {"C = 1000": lambda n: 1000.0, "C = 1000 / (2n)": lambda n: 1000 / (2 * n)}
"""C of the squared hinges' sum over n sentences, as the paper may be read: Appendix C prints 1/n."""
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
    report.heading("Paper and ours", f"Mean, least and largest over {len(models)} models.")
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
    readings = pd.DataFrame([_reading(models, name, train, test) for name in READINGS])
    report.heading(
        "Two readings of the separator",
        "Appendix C prints 1/n in front of the sum of hinges and names C = 1000. Figures 8 and 9 hinge on whether that "
        "1/n is there. On the shipped models the effect of Figure 9 is as large as printed with it, and the share of "
        "successful heads as large as printed without it.",
    )
    report.add_table("readings", readings, "Means and standard deviations over all heads of the models.")
    report.verdict = _verdict(rows, skip) + " " + _reweighted(*(first.tables[f"intervention_{r}"] for r in ratios))
    report.verdict += " " + " ".join(map(_read, readings.to_dict("records")))
    return report


def _reading(models: dict[str, interp.TaskModel], name: str, train: interp.Batch, test: interp.Batch) -> dict[str, Any]:
    """Figures 8 and 9 and the share of successful heads with the separators of one reading of the objective."""
    C = READINGS[name](len(train))
    given: dict[str, Any] = {"train": train, "test": test, "C": C}
    reweight = partial(interp.reweight_attention, **given)
    figure_8 = pd.concat([reweight(model, w01=(1e-3, 0.1, 1.0, 10.0, 1e3)).to_frame() for model in models.values()])
    figure_9 = pd.concat([reweight(model, w01=1.0, w02=(0.01, 1e4)).to_frame() for model in models.values()])
    inside = figure_8["w01"].between(0.09, 11)
    low, high = (figure_9[figure_9["w02"] == w02]["s_acc"] for w02 in (0.01, 1e4))
    return {
        "reading": name, "C": C,
        "successful": float(pd.concat([facts(model, **given) for model in models.values()])["successful"].mean()),
        "w01 .1 to 10": figure_8[inside]["s_acc"].mean(), "w01 .001 and 1000": figure_8[~inside]["s_acc"].mean(),
        "w02 .01": low.mean(), "std at .01": low.std(ddof=0),
        "w02 10,000": high.mean(), "std at 10,000": high.std(ddof=0),
    }  # fmt: skip


def _read(row: dict[str, Any]) -> str:
    return (
        f"With {row['reading']}: successful {row['successful']:.2f}, Figure 8 {row['w01 .1 to 10']:.2f} inside and "
        f"{row['w01 .001 and 1000']:.2f} at the ends, Figure 9 {row['w02 .01']:.2f} ± {row['std at .01']:.2f} to "
        f"{row['w02 10,000']:.2f} ± {row['std at 10,000']:.3f}."
    )


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
