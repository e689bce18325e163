"""Of models trained as published, what is the exact error rate? 100 small histogram models.

python analyses/counting_certified.py --out out/counting_certified [--quick | --smoke]

T = 32, L = 10, the recipe of analyses/sweeps/histogram_T32.toml; six models, d and p in {4, 8, 16, 32}, one seed of
each cell and a second one of the first four of dot. For each: certified, refuted by a sequence, or undecided, and its
errors as a whole number of the 11,258,999,068,426,240 answers. Beside it stand two samples of 3,000 sequences: a test
set as the published code draws it, and one drawn uniformly, whose interval should hold the exact number. Without linear
mixing every multiset of tokens is counted; with it, positions matter, and 10 s give an interval. Full: 500 epochs,
about an hour of one core; models and rows are kept in DIR and not made twice. Quick: 36 of them at random, 10 s each;
smoke: one, 2 epochs, .1 s. analyses/sweeps/counting_exact.csv is the table of a full run.
"""

from __future__ import annotations

import json
import random
from itertools import product
from typing import get_args

import pandas as pd
import torch
from shared.script import Arguments, run

import interp
from interp.certificates import certify_model
from interp.families.histogram import Histogram
from interp.families.histogram.constructions.models import histogram_spec
from interp.families.histogram.theory.ranges import MixingKind
from interp.measures.accuracy import Accuracy, accuracy_on
from interp.models.architecture.task_model import TaskModel
from interp.models.spec import Training
from interp.report import Report
from interp.support import figures as draw
from interp.support.files import write_atomically
from interp.tasks.populations import Population, sample

SIZES = (4, 8, 16, 32)
SECONDS = {"full": 900.0, "quick": 10.0, "smoke": 0.1}
MIXED_SECONDS = 10.0
"""With linear mixing, where no enumeration ends: as long as an interval is looked for."""
SAMPLED = 3000
"""Sequences of a sample; the published code tests on as many."""
Cell = tuple[MixingKind, int, int, int]


def cells(arguments: Arguments) -> list[Cell]:
    """Model, d, p and seed, in a random order, so that a run that is cut short is a sample."""
    every: list[Cell] = [(kind, d, p, 0) for kind in get_args(MixingKind) for d, p in product(SIZES, SIZES)]
    every += [("dot", 4, p, 1) for p in SIZES]
    random.Random(0).shuffle(every)
    return every[: arguments.pick(len(every), 36, 1)]


def trained(cell: Cell, arguments: Arguments) -> TaskModel:
    kind, d, p, seed = cell
    path = arguments.out / "models" / f"{kind}-d{d}-p{p}-seed{seed}.safetensors"
    if path.exists():
        return interp.load(path)
    recipe = Training(
        init="torch", learning_rate=1e-3, betas=(0.9, 0.98), eps=1e-9, batch_size=32, data="fresh",
        samples_per_epoch=10_000, epochs=arguments.pick(500, 500, 2),
    )  # fmt: skip
    task = Histogram(T=32, L=10, bos=kind.startswith("bos"), zero_class=True)
    (model,) = interp.train(histogram_spec(kind, task, d, p, "float32", origin=recipe), seeds=(seed,), progress=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    interp.save(model, path)
    return model


def row_of(cell: Cell, arguments: Arguments) -> dict[str, object]:
    """The certificate of one model, and what two samples say of it."""
    note = arguments.out / f"rows-{arguments.mode}" / f"{'-'.join(map(str, cell))}.json"
    if note.exists():
        return dict(json.loads(note.read_text()))
    model = trained(cell, arguments)
    mixed = cell[0].startswith("lin") and arguments.mode == "full"
    found = certify_model(model, seconds=MIXED_SECONDS if mixed else SECONDS[arguments.mode])
    low, high = found.accuracy if isinstance(found.accuracy, tuple) else (found.accuracy, found.accuracy)
    sums = {name: sum(map(int, found.tables["classes"][name])) for name in ("wrong", "close", "tied", "undecided")}
    tested = accuracy_on(model, sample(model.task, SAMPLED))
    uniform = uniformly(model)
    row: dict[str, object] = {
        **dict(zip(("model", "d", "p", "seed"), cell)), "status": found.status,
        "errors": None if sums["undecided"] else sums["wrong"],
        "close": sums["close"], "tied": sums["tied"], "undecided": sums["undecided"], "answers": found.n_answers,
        "low": low, "high": high, "test errors": round((1 - tested.accuracy) * tested.answers),
        "uniform": uniform.accuracy, "uniform low": uniform.low, "uniform high": uniform.high,
        "seconds": round(found.seconds, 2),
    }  # fmt: skip
    note.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(note, json.dumps(row))
    return row


def uniformly(model: TaskModel) -> Accuracy:
    """Accuracy on sequences drawn uniformly from all 32^10: the population of the exact number."""
    task = model.task
    assert isinstance(task, Histogram)
    drawn = torch.randint(task.T, (SAMPLED, task.L), generator=torch.Generator().manual_seed(0))
    return accuracy_on(model, Population("sample", task.of_sequences(drawn), task.T**task.L, "uniform", 0))


def study(arguments: Arguments) -> Report:
    rows = []
    for cell in cells(arguments):
        rows.append(row_of(cell, arguments))
        print(*cell, rows[-1]["status"], rows[-1]["errors"], f"{rows[-1]['seconds']:.1f} s", flush=True)
    table = pd.DataFrame(rows).astype({"errors": "Int64"})
    exact = table[table["errors"].notna()].copy()
    exact["error rate"] = exact["errors"].astype(float) / exact["answers"]
    exact["size"] = "d = " + exact["d"].astype(str)
    report = Report("Exact error rates of trained models")
    by_model = table.groupby("model", sort=False).apply(shares, include_groups=False).reset_index()
    report.heading(
        "Certificates",
        "Errors are a whole number of all answers. Close answers are right, but by less than float32 may move them; "
        "tied ones float64 cannot decide. Neither counts as an error. Low and high enclose the accuracy.",
    )
    report.add_table("by_model", by_model, "One row per kind of model; seconds: median.")
    report.add_table("certified", table, "One row per model.", max_rows=120)
    clean = exact[exact["test errors"] == 0]
    report.heading("Exact error rates", f"{len(exact)} models, all 32^10 sequences with ten positions each.")
    for kind, part in exact[exact["errors"] > 0].groupby("model", sort=True):
        report.add_figure(
            f"rates_{kind}",
            draw.scatter(part.sort_values("d"), "p", "error rate", color="size", y_type="log"),
            f"{kind}: exact error rate per model, {len(part)} models.",
        )
    report.heading(
        "What a perfect test hides",
        f"{len(clean)} models make no error on a test set of {SAMPLED:,} sequences drawn as the published code draws "
        "them, which never shows a sequence of ten equal tokens.",
    )
    if len(clean[clean["errors"] > 0]):
        report.add_figure(
            "no_error",
            draw.scatter(clean[clean["errors"] > 0], "p", "error rate", color="model", y_type="log"),
            f"Exact error rates of the models without an error on {SAMPLED:,} test sequences.",
        )
    report.verdict = said(table, exact, clean)
    return report


def said(table: pd.DataFrame, exact: pd.DataFrame, clean: pd.DataFrame) -> str:
    """The study in sentences."""
    total = shares(table)
    text = (f"Of {len(table)} models {total['certified']} are certified, {total['refuted']} refuted by a sequence, "
            f"{total['undecided']} undecided; {len(exact)} have an exact number of errors.")  # fmt: skip
    if len(exact):
        right = 1 - exact["error rate"]
        honest = ((exact["uniform low"] <= right) & (right <= exact["uniform high"])).sum()
        doubtful = (exact["close"] + exact["tied"]) / exact["answers"]
        text += (f" At most {doubtful.max():.1e} of a model's answers are close or tied. The 95% interval of "
                 f"{SAMPLED:,} uniform sequences holds the exact accuracy of {honest} of {len(exact)}.")  # fmt: skip
    wrong = clean.loc[clean["errors"] > 0, "error rate"]
    if len(wrong):
        text += (f" {len(clean)} models make no error on {SAMPLED:,} test sequences; {len(wrong)} of them err "
                 f"somewhere, at rates from {wrong.min():.1e} to {wrong.max():.1e}.")  # fmt: skip
    return text


def shares(table: pd.DataFrame) -> pd.Series:
    counts = {status: int((table["status"] == status).sum()) for status in ("certified", "refuted", "undecided")}
    exact = int(table["errors"].notna().sum())
    return pd.Series({**counts, "exact": exact, "seconds": float(table["seconds"].median())}, dtype=object)


if __name__ == "__main__":
    run(study, __doc__)
