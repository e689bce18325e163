"""Of models trained as published, what does a certificate decide in seconds? 100 small histogram models.

python analyses/counting_certified.py --out out/counting_certified [--quick | --smoke]

T = 32, L = 10, the recipe of analyses/sweeps/histogram_T32.toml; six models, d and p in {4, 8, 16, 32}, one seed of
each cell and a second one of the first four of dot. For each: certified, refuted by a sequence, or undecided, how much
of the accuracy is left open, and which part of the work takes the time. Full: 500 epochs, a budget of 10 s; models and
rows are kept in DIR and not made twice. Quick: 36 of them at random, a budget of 1 s; smoke: one, 2 epochs, .1 s.
"""

from __future__ import annotations

import cProfile
import json
import pstats
import random
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import get_args

import pandas as pd

import interp
from interp.architecture.task_model import TaskModel
from interp.certificates import certify_model
from interp.constructions.histogram_models import histogram_spec
from interp.files import write_atomically
from interp.report import Report
from interp.report.script import Arguments, run
from interp.spec import Training
from interp.tasks import Histogram
from interp.theory.ranges import MixingKind

SIZES = (4, 8, 16, 32)
BUDGETS = {"full": 10.0, "quick": 1.0, "smoke": 0.1}
STAGES = {
    "_root": "bounds at the root", "_split": "splitting", "_refute": "looking for a counterexample",
    "_narrowed": "sampling what is open", "compare": "comparing with the model",
}  # fmt: skip
"""Functions of the certificate, and what they do."""
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
    """The certificate of one model, and the CPU seconds of its parts."""
    note = arguments.out / f"rows-{arguments.mode}" / f"{'-'.join(map(str, cell))}.json"
    if note.exists():
        return dict(json.loads(note.read_text()))
    model = trained(cell, arguments)
    profile, started = cProfile.Profile(time.process_time), time.process_time()
    profile.enable()
    found = certify_model(model, budget_seconds=BUDGETS[arguments.mode])
    profile.disable()
    spent = time.process_time() - started
    low, high = found.accuracy if isinstance(found.accuracy, tuple) else (found.accuracy, found.accuracy)
    classes = found.tables["classes"]
    row = {
        **dict(zip(("model", "d", "p", "seed"), cell)), "trained to": float(model.history["accuracy"].iloc[-1]),
        "status": found.status, "exact": not isinstance(found.accuracy, tuple), "low": low, "high": high,
        "open": float(classes["undecided"].sum() / classes["inputs"].sum()), "cpu_seconds": spent,
        **dict(stages(profile)),
    }  # fmt: skip
    note.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(note, json.dumps(row))
    return row


def stages(profile: cProfile.Profile) -> Iterator[tuple[str, float]]:
    """CPU seconds by stage."""
    stats = pstats.Stats(profile).stats  # type: ignore[attr-defined]
    for name, what in STAGES.items():
        times = [entry[3] for (file, _, function), entry in stats.items()
                 if function == name and Path(file).parent.name == "certificates"]  # fmt: skip
        yield what, sum(times)


def study(arguments: Arguments) -> Report:
    rows = []
    for cell in cells(arguments):
        rows.append(row_of(cell, arguments))
        print(*cell, rows[-1]["status"], rows[-1]["exact"], f"{rows[-1]['cpu_seconds']:.1f} s", flush=True)
    table = pd.DataFrame(rows)
    report = Report("What seconds decide")
    by_model = table.groupby("model", sort=False).apply(shares, include_groups=False).reset_index()
    report.section(
        "Certificates of trained models",
        f"A budget of {BUDGETS[arguments.mode]:g} s; CPU seconds. Exact: the accuracy is known to the last sequence.",
    )
    report.add_table("by_model", by_model, "One row for each of the six models.")
    report.add_table("certified", table.round(6), "One row for each model.", max_rows=120)
    spent = {what: table[what].sum() / table["cpu_seconds"].sum() for what in STAGES.values()}
    report.add_table("stages", pd.DataFrame(spent.items(), columns=["stage", "share of the time"]), "All models.")
    total = shares(table)
    most = max(spent, key=lambda what: spent[what])
    report.verdict = (
        f"With {BUDGETS[arguments.mode]:g} s, of {len(table)} models {total['certified']} are certified, "
        f"{total['refuted']} refuted by a sequence, {total['undecided']} undecided; {total['exact']} have an exact "
        f"accuracy. They take "
        f"{total['cpu_seconds']:.1f} CPU s each; {most} takes {spent[most]:.0%}."
    )
    return report


def shares(table: pd.DataFrame) -> pd.Series:
    counts = {status: int((table["status"] == status).sum()) for status in ("certified", "refuted", "undecided")}
    seconds = table["cpu_seconds"]
    return pd.Series({**counts, "exact": int(table["exact"].sum()), "cpu_seconds": float(seconds.mean())}, dtype=object)


if __name__ == "__main__":
    run(study, __doc__)
