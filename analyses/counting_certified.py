"""Of models trained as published, what is the exact error rate? 100 small histogram models.

python analyses/counting_certified.py --out out/counting_certified [--quick | --smoke]

T = 32, L = 10, the recipe of analyses/sweeps/histogram_T32.toml; six models, d and p in {4, 8, 16, 32}, one seed of
each cell and a second one of the first four of dot. For each: certified, refuted by a sequence, or undecided, and its
errors as a whole number of the 11,258,999,068,426,240 answers where it is exact. Without linear mixing every multiset
of tokens can be counted; with it, positions matter, and an interval is what there is. Full: 500 epochs, as long as a
certificate takes; models and rows are kept in DIR and not made twice. Quick: 36 of them at random, 10 s; smoke: one,
2 epochs, .1 s. Beside these, rows of analyses/sweeps/counting_exact.csv are drawn: runs of the same models, kept.
"""

from __future__ import annotations

import json
import random
from itertools import product
from pathlib import Path
from typing import get_args

import pandas as pd
from scipy.stats import beta

import interp
from interp.architecture.task_model import TaskModel
from interp.certificates import certify_model
from interp.constructions.histogram_models import histogram_spec
from interp.files import write_atomically
from interp.report import Report
from interp.report import figures as draw
from interp.report.script import Arguments, run
from interp.spec import Training
from interp.tasks import Histogram
from interp.theory.ranges import MixingKind

SIZES = (4, 8, 16, 32)
SECONDS = {"full": None, "quick": 10.0, "smoke": 0.1}
KEPT = Path(__file__).parent / "sweeps" / "counting_exact.csv"
SAMPLED = 3000
"""Sequences of a test set, as the published code draws them."""
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
    """The certificate of one model."""
    note = arguments.out / f"rows-{arguments.mode}" / f"{'-'.join(map(str, cell))}.json"
    if note.exists():
        return dict(json.loads(note.read_text()))
    model = trained(cell, arguments)
    found = certify_model(model, seconds=SECONDS[arguments.mode])
    low, high = found.accuracy if isinstance(found.accuracy, tuple) else (found.accuracy, found.accuracy)
    classes = found.tables["classes"]
    row = {
        **dict(zip(("model", "d", "p", "seed"), cell)), "trained to": float(model.history["accuracy"].iloc[-1]),
        "status": found.status, "exact": found.n_errors is not None, "errors": found.n_errors, "low": low, "high": high,
        "close": int(classes["close"].sum()), "open": float(classes["undecided"].sum() / classes["inputs"].sum()),
        "seconds": found.seconds,
    }  # fmt: skip
    note.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(note, json.dumps(row))
    return row


def kept() -> pd.DataFrame:
    """One row for each model of the kept rows: exact errors, and the share of inputs that they are."""
    rows = pd.read_csv(KEPT)
    names = ["model", "d", "p", "seed"]
    whole = rows.groupby(names, sort=False).agg(
        inputs=("inputs", "sum"), errors=("wrong", "sum"), close=("close", "sum"), tied=("tied", "sum"),
        seconds=("cpu_seconds", "first"),
    ).reset_index()  # fmt: skip
    whole["error rate"] = whole["errors"] / whole["inputs"]
    whole["size"] = "d = " + whole["d"].astype(str)
    return whole


def study(arguments: Arguments) -> Report:
    rows = []
    for cell in cells(arguments):
        rows.append(row_of(cell, arguments))
        print(*cell, rows[-1]["status"], rows[-1]["errors"], f"{rows[-1]['seconds']:.1f} s", flush=True)
    table = pd.DataFrame(rows)
    report = Report("Exact error rates of trained models")
    by_model = table.groupby("model", sort=False).apply(shares, include_groups=False).reset_index()
    report.section("Certificates", "Exact: the errors are known to the last sequence.")
    report.add_table("by_model", by_model, "One row for each kind of model.")
    report.add_table("certified", table, "One row for each model.", max_rows=120)
    rates = kept()
    report.section(
        "What an accuracy of 100% hides",
        f"Exact errors of {len(rates)} of the models without linear mixing, of 32^10 sequences with ten positions "
        f"each. A test set of {SAMPLED:,} sequences shows no error where the rate is far below 1 in 30,000: it then "
        f"says, with 95% confidence, that it is below {beta.ppf(0.95, 1, 10 * SAMPLED):.1e} if positions were "
        "independent, whatever it is. Close answers are right by less than float32 may move them.",
    )
    for kind, part in rates.groupby("model", sort=True):
        report.add_figure(
            f"rates_{kind}",
            draw.scatter(
                part[part["error rate"] > 0], "p", "error rate", color="size", x_title="p", x_type="log", y_type="log"
            ),
            f"{kind}: exact error rate.",
        )
    columns = ["model", "d", "p", "seed", "errors", "error rate", "close", "tied", "seconds"]
    report.add_table("rates", rates[columns].sort_values("error rate"), "Exact errors.", max_rows=120)
    total, perfect = shares(table), rates[rates["error rate"] < 5e-5]
    report.verdict = (
        f"Of {len(table)} models {total['certified']} are certified, {total['refuted']} refuted by a sequence, "
        f"{total['undecided']} undecided; {total['exact']} have an exact accuracy, in {total['seconds']:.1f} s each. "
        f"Of {len(rates)} kept models {len(perfect)} round to 100.00%: their exact error rates lie between "
        f"{perfect['error rate'].min():.1e} and {perfect['error rate'].max():.1e}."
    )
    return report


def shares(table: pd.DataFrame) -> pd.Series:
    counts = {status: int((table["status"] == status).sum()) for status in ("certified", "refuted", "undecided")}
    return pd.Series(
        {**counts, "exact": int(table["exact"].sum()), "seconds": float(table["seconds"].mean())}, dtype=object
    )


if __name__ == "__main__":
    run(study, __doc__)
