"""Which models are right on every input? All exact models in all their variants, and every trained checkpoint.

python analyses/certify_zoo.py --out out/certify_zoo [--quick | --smoke]
python analyses/certify_zoo.py histogram/dot histogram/lin --out out/certify_zoo

The verdict says how many trained models that make no error on a sample of their own test distribution (3000 sequences)
are certified, refuted or undecided. When all are asked for, small histogram models (T = 8, L = 5, 16 neurons) are
trained here too, with both samplers, so that there are models with no error on a sample: full 10 seeds for each mixing
and sampler and 200 epochs, quick 3 and 60, smoke 1 and 2. Full: 10 s for each histogram model where neurons change
sign; quick: 2 s; smoke: 0.2 s, and only the first variant or checkpoint of the first exact and the first trained model
in each folder.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

import pandas as pd
from shared.certified_models import certified, models, row_of
from shared.script import Arguments, run

import interp
from interp.errors import InterpError
from interp.families.histogram import Histogram
from interp.families.histogram.constructions.models import histogram_spec
from interp.families.histogram.theory.ranges import MixingKind
from interp.models.architecture.task_model import TaskModel
from interp.models.spec import Training
from interp.report import Report
from interp.support import figures as draw

COLUMNS = ["name", "variant", "kind", "sampled", "status", "accuracy low", "accuracy high", "worst_margin",
           "rounding", "proved counts", "wrong counts", "domain", "seconds", "counterexample"]  # fmt: skip


def trained_here(arguments: Arguments) -> Iterator[tuple[str, str, str, TaskModel]]:
    """Small histogram models of every mixing, trained with either sampler."""
    seeds, epochs = range(arguments.pick(10, 3, 1)), arguments.pick(200, 60, 2)
    for kind in get_args(MixingKind):
        for sampler in ("published", "paper"):
            task = Histogram(T=8, L=5, bos=kind.startswith("bos"), sampler=sampler)
            recipe = Training(epochs=epochs, batch_size=32, data="fresh", samples_per_epoch=10_000, init="torch")
            spec = histogram_spec(kind, task, 16, 16, origin=recipe)
            for model in interp.train(spec, seeds=seeds):
                yield f"{kind}, {sampler} sampler", f"seed-{model.seed}", "trained here", model


def certificate_row(name: str, variant: str, kind: str, model: TaskModel, arguments: Arguments) -> dict[str, object]:
    return row_of(name, variant, kind, model, certified(model, arguments), arguments)


def study(arguments: Arguments) -> Report:
    rows = [certificate_row(*item, arguments) for item in models(arguments)]
    if not rows:
        raise InterpError("there is nothing to certify: no models found")
    table = pd.DataFrame(rows).reindex(columns=COLUMNS)
    report = Report("Right on every input?")
    report.heading(
        "Certificates",
        "Accuracy is exact, or an interval: sound, or of the confidence that the certificate's notes state. "
        "Proved counts are right for every sequence in which a token occurs that often; wrong counts are known to err.",
    )
    report.add_table("certificates", table, "One row for each model; histogram domains hold every position.")
    exact, trained = table[table["kind"] == "exact"], table[table["kind"] == "trained"]
    report.verdict = f"Exact models: {said(exact)}. Trained models: {said(trained)}; {said_perfect(trained)}."
    if arguments.checkpoints == ("all",):
        small = pd.DataFrame([certificate_row(*item, arguments) for item in trained_here(arguments)])
        report.heading(
            "Models trained here",
            "Small enough (T = 8, L = 5) for every certificate to be decided. The published sampler never shows a "
            "sequence of one token, the paper's does.",
        )
        report.add_table("trained_here", small.reindex(columns=COLUMNS), "One row for each model.", max_rows=120)
        rates = hidden(small)
        if len(rates):
            report.add_figure(
                "hidden_errors",
                draw.scatter(rates, "rank", "error rate", color="sampler", y_type="log"),
                "Exact error rates, over all 8^5 sequences, of models that make no error on a sample, in order.",
            )
        for sampler in ("published", "paper"):
            part = small[small["name"].str.endswith(f"{sampler} sampler")]
            report.verdict += f" Trained here with the {sampler} sampler: {said(part)}; {said_perfect(part)}."
    return report


def hidden(table: pd.DataFrame) -> pd.DataFrame:
    """Exact error rates of the models that make no error on a sample and err somewhere, in order for each sampler."""
    clean = table[(table["sampled"] == 1) & (table["accuracy low"] == table["accuracy high"])]
    rates = clean.assign(
        sampler=clean["name"].str.split(", ").str[-1].str.removesuffix(" sampler"),
        **{"error rate": 1 - clean["accuracy low"].astype(float)},
    )
    rates = rates[rates["error rate"] > 0].sort_values("error rate")
    return rates.assign(rank=rates.groupby("sampler").cumcount() + 1)


def said_perfect(table: pd.DataFrame) -> str:
    perfect = table[table["sampled"] == 1]
    text = f"{len(perfect)} of them make no error on a sample, and of these {said(perfect)}"
    rates = hidden(perfect)["error rate"]
    return text + (f" (exact error rates {rates.min():.1e} to {rates.max():.1e})" if len(rates) else "")


def said(table: pd.DataFrame) -> str:
    counts = table["status"].value_counts()
    order = ("certified", "refuted", "undecided", "no method")
    return ", ".join(f"{counts[status]} {status}" for status in order if status in counts) or "none"


if __name__ == "__main__":
    run(study, __doc__, default="all")
