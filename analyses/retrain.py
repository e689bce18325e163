"""Does the code of today train the shipped checkpoints once more, bit for bit?

    python analyses/retrain.py [CHECKPOINT ...] --out out/retrain [--quick | --smoke]

Each named model is trained again from its own spec and seed by the fastest engine that takes it, and compared with its
checkpoint: which parameters have the same bits, how far the others lie apart (in units of the largest weight), loss and
accuracy then and now. Left out: one model of each family and engine. Quick: those of seconds; smoke: the shortest one.
Training is chaotic: once a bit has moved, parameters part ways, and only loss and accuracy say whether it matters.

Moved since they were saved: memorization/* (fewer and larger operations in the exact-kl engine, and torch's products
round differently with the number of models side by side), languages/* (trained by a compiled loop that is gone) and
count01/paper, by 3e-6 of the largest weight (the count-space loop has changed since, among others in how rows of a
query token are taken together).
"""

from __future__ import annotations

import time

import pandas as pd
import torch
from shared.script import Arguments, run

import interp
from interp.report import Report
from interp.training.train import choose_engine

SHORT = ("memorization/lookup", "count01/paper", "histogram/dot-softmax-p32-d32")
LONG = (*SHORT, "languages/parity-learned", "algorithmic/induction")
"""A model of each engine: exact-kl, count-space, fused, encoder, vmap."""


def study(arguments: Arguments) -> Report:
    names = arguments.checkpoints
    if names == ("all",):
        names = {"full": LONG, "quick": SHORT, "smoke": SHORT[:1]}[arguments.mode]
    rows = pd.DataFrame([_again(name) for name in names])
    report = Report("Shipped checkpoints, trained again")
    report.add_table("retrained", rows, "A row a checkpoint; apart: the largest difference of a parameter.")
    same = rows["same bits"] == rows["parameters"]
    moved = rows[~same]
    report.verdict = f"{int(same.sum())} of {len(rows)} checkpoints train again bit for bit."
    if len(moved):
        report.verdict += " Moved: " + "; ".join(
            f"{row['checkpoint']} (engine {row['engine']}; accuracy {row['accuracy then']:.4f}, now "
            f"{row['accuracy now']:.4f})"
            for _, row in moved.iterrows()
        )
    return report


def _again(name: str) -> dict[str, object]:
    """One checkpoint beside the model that its spec and seed give today."""
    shipped = interp.load(name)
    spec, task, seed = shipped.spec, shipped.task, int(shipped.seed or 0)
    engine = choose_engine(spec, task, torch.device("cpu")).name
    start = time.process_time()
    (trained,) = interp.train(spec, [seed], task=task, engine=engine, progress=False)
    seconds = time.process_time() - start
    pairs = [(mine.detach(), its.detach()) for mine, its in zip(trained.parameters(), shipped.parameters())]
    largest = max(float(its.abs().max()) for _, its in pairs)
    apart = max(float((mine - its).abs().max()) for mine, its in pairs)
    then, now = shipped.summary or {}, trained.summary or {}
    return {
        "checkpoint": name, "seed": seed, "engine": engine, "cpu_seconds": round(seconds, 1),
        "parameters": sum(its.numel() for _, its in pairs),
        "same bits": sum(int((mine == its).sum()) for mine, its in pairs), "apart": apart / largest,
        "loss then": then.get("loss"), "loss now": now.get("loss"),
        "accuracy then": then.get("accuracy"), "accuracy now": now.get("accuracy"),
    }  # fmt: skip


if __name__ == "__main__":
    run(study, __doc__, default="all")
