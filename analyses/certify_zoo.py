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

import interp
from interp.architecture.task_model import TaskModel
from interp.certificates import Certificate, certify_model
from interp.constructions import registered_constructions
from interp.constructions.histogram_models import histogram_spec
from interp.errors import InterpError, UnsupportedError
from interp.measures.accuracy import sampled_accuracy
from interp.report import Report
from interp.report.script import Arguments, run
from interp.spec import Training
from interp.tasks import Histogram
from interp.theory.ranges import MixingKind

COLUMNS = ["name", "variant", "kind", "sampled", "status", "accuracy low", "accuracy high", "worst_margin",
           "rounding", "proved counts", "wrong counts", "domain", "seconds", "counterexample"]  # fmt: skip


def models(arguments: Arguments) -> Iterator[tuple[str, str, str, TaskModel]]:
    """Name, variant or checkpoint, kind and model of everything that is asked for."""
    table, asked = interp.list_models().set_index("name"), arguments.checkpoints
    names = list(table.index) if asked == ("all",) else list(asked)
    exact = registered_constructions()
    if asked == ("all",) and arguments.mode == "smoke":  # the first exact and the first trained one of each folder
        names = list({(name.split("/")[0], name in exact): name for name in reversed(names)}.values())
    for name in names:
        if name in exact:
            if pd.isna(table.loc[name, "parameters"]):
                continue  # built from a table of the user's own
            variants = tuple(v for v in exact[name].variants if v != "auto") or ("",)
            for variant in variants[:1] if arguments.mode == "smoke" else variants:
                yield name, variant, "exact", interp.build(name, variant=variant or None)
        elif name in table.index:
            seeds = table.loc[name, "seeds"]
            for seed in seeds[:1] if arguments.mode == "smoke" else seeds:
                yield name, f"seed-{seed}", "trained", interp.load(f"{name}/seed-{seed}")
        else:
            yield name, "", "trained", interp.load(name)


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


def certified(model: TaskModel, arguments: Arguments) -> Certificate | str:
    """The certificate, or why there is none."""
    budget = {"full": 10.0, "quick": 2.0, "smoke": 0.2}[arguments.mode]
    try:
        return certify_model(model, **({"budget_seconds": budget} if model.task.name == "histogram" else {}))
    except UnsupportedError as error:
        return str(error)


def row_of(
    name: str, variant: str, kind: str, model: TaskModel, found: Certificate | str, arguments: Arguments
) -> dict[str, object]:
    row: dict[str, object] = {"name": name, "variant": variant, "kind": kind}
    if kind != "exact":
        row["sampled"] = sampled_accuracy(model, arguments.pick(3000, 3000, 300)).accuracy
    if isinstance(found, str):
        return {**row, "status": "no method", "domain": found}
    low, high = found.accuracy if isinstance(found.accuracy, tuple) else (found.accuracy, found.accuracy)
    return {**row, **found.to_frame().iloc[0].to_dict(), "accuracy low": low, "accuracy high": high, **by_count(found)}


def by_count(found: Certificate) -> dict[str, str]:
    """Histogram models: which counts are right for every sequence, and which err?"""
    counts = found.tables.get("counts")
    if counts is None:
        return {}
    proved = counts.loc[counts["right"] == counts["inputs"], "count"]
    return {
        "proved counts": " ".join(map(str, proved)),
        "wrong counts": " ".join(map(str, counts.loc[counts["wrong"] > 0, "count"])),
    }


def study(arguments: Arguments) -> Report:
    rows = [certificate_row(*item, arguments) for item in models(arguments)]
    if not rows:
        raise InterpError("there is nothing to certify: no models found")
    table = pd.DataFrame(rows).reindex(columns=COLUMNS)
    report = Report("Right on every input?")
    report.section(
        "Certificates",
        "Accuracy is exact, or an interval: sound, or of the confidence that the certificate's notes state. "
        "Proved counts are right for every sequence in which a token occurs that often; wrong counts are known to err.",
    )
    report.add_table("certificates", table, "One row for each model; histogram domains hold every position.")
    exact, trained = table[table["kind"] == "exact"], table[table["kind"] == "trained"]
    report.verdict = f"Exact models: {said(exact)}. Trained models: {said(trained)}; {said_perfect(trained)}."
    if arguments.checkpoints == ("all",):
        small = pd.DataFrame([certificate_row(*item, arguments) for item in trained_here(arguments)])
        report.section(
            "Models trained here",
            "Small enough (T = 8, L = 5) for every certificate to be decided. The published sampler never shows a "
            "sequence of one token, the paper's does.",
        )
        report.add_table("trained_here", small.reindex(columns=COLUMNS), "One row for each model.", max_rows=120)
        for sampler in ("published", "paper"):
            part = small[small["name"].str.endswith(f"{sampler} sampler")]
            report.verdict += f" Trained here with the {sampler} sampler: {said(part)}; {said_perfect(part)}."
    return report


def said_perfect(table: pd.DataFrame) -> str:
    perfect = table[table["sampled"] == 1]
    return f"{len(perfect)} of them make no error on a sample, and of these {said(perfect)}"


def said(table: pd.DataFrame) -> str:
    counts = table["status"].value_counts()
    order = ("certified", "refuted", "undecided", "no method")
    return ", ".join(f"{counts[status]} {status}" for status in order if status in counts) or "none"


if __name__ == "__main__":
    run(study, __doc__, default="all")
