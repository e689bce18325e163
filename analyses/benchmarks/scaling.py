"""What do a training step and a certificate cost? Against the number of models, T, L, d and p, with the exponents.

    python analyses/benchmarks/scaling.py --out out/scaling [--quick | --smoke]

One size at a time moves away from T = 32, L = 10, d = p = 32 and 16 models; the fused and the vmap engine train
dot-softmax and lin. CPU time of a model's step, sampling included and evaluation left out, the least of several rounds
(other work on the machine only adds). An exponent is the slope of log time over log size, between the two largest
sizes and over all: at small sizes what does not grow hides what does. Beside it stands the exponent that the fused
loop's floating-point operations and its Adam predict between the two largest sizes.

The certificates are those of the exact models, which are decided at the root: one size moves away from T = 32, L = 10,
p = 128, and d is what the construction needs. There each own token, count and wrong class asks for the least of the
neurons' sums over all other tokens, and with linear mixing at each position: T^2 L^2 p, or T^2 L^3 p.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import torch

import interp
from interp.families.histogram import Histogram
from interp.families.histogram.constructions.models import histogram_spec
from interp.families.histogram.theory.ranges import MixingKind
from interp.models.spec import Training
from interp.report import Report
from interp.support import figures as draw
from interp.training.train import ENGINES

sys.path.append(str(Path(__file__).parents[1]))  # a benchmark is a script of a folder below
from shared.script import Arguments, run

BASE = {"models": 16, "T": 32, "L": 10, "d": 32, "p": 32}
SIZES: dict[str, Sequence[int]] = {
    "models": (1, 4, 16, 64, 256),
    "T": (16, 32, 64, 128, 256),
    "L": (4, 8, 16, 32),
    "d": (8, 32, 128, 512),
    "p": (8, 32, 128, 512),
}
CERTIFIED_BASE = {"T": 32, "L": 10, "p": 128}
CERTIFIED: dict[str, Sequence[int]] = {"T": (16, 32, 64, 128), "L": (4, 8, 16, 32), "p": (32, 128, 512, 2048)}
POWERS = {"dot-softmax": {"T": 2, "L": 2, "p": 1}, "lin": {"T": 2, "L": 3, "p": 1}}
"""Sizes of certified models, and the powers with which the work at the root grows."""
KINDS: tuple[MixingKind, ...] = ("dot-softmax", "lin")
TITLES = {"models": "models trained side by side", "T": "T, size of the alphabet", "L": "L, length of the sequences",
          "d": "d, dimensions of the residual stream", "p": "p, neurons of the readout"}  # fmt: skip
BATCH = 32


def study(arguments: Arguments) -> Report:
    torch.set_num_threads(1)
    rounds, steps = arguments.pick(5, 2, 1), arguments.pick(64, 32, 2)
    report = Report("What a training step and a certificate cost")
    trained = pd.DataFrame(
        (size, value, f"{engine}, {kind}", _microseconds(engine, kind, size, value, steps, rounds))
        for size, values in SIZES.items()
        for engine in ("fused", "vmap")
        for kind in KINDS
        for value in (values if arguments.mode != "smoke" else values[:2])
    )
    certified = pd.DataFrame(
        (size, value, f"certificate, {kind}", _certified(kind, size, value, rounds))
        for size, values in CERTIFIED.items()
        for kind in KINDS
        for value in (values if arguments.mode != "smoke" else values[:2])
    )
    times = pd.concat([trained, certified], ignore_index=True)
    times.columns = pd.Index(["size", "value", "what", "us"])
    exponents = pd.DataFrame([_exponents(part) for _, part in times.groupby(["size", "what"], sort=False)])
    report.add_table(
        "exponents", exponents, "Time grows as size to this power: between the two largest sizes, and over all; "
        "predicted: between the two largest, from the operations of a fused step, or of a certificate at its root.",
        {"last": ".2f", "all": ".2f", "predicted": ".2f"},
    )  # fmt: skip
    for what, part in (("step", trained), ("certificate", certified)):
        part.columns = times.columns
        for size, some in part.groupby("size", sort=False):
            report.heading(f"A {what}: {TITLES[str(size)]}")
            title = "CPU time of a model's step (us)" if what == "step" else "CPU time of a certificate (us)"
            figure = draw.lines(some, "value", "us", "what", TITLES[str(size)], title, "log", "log", markers=True)
            note = f"Both axes logarithmic; elsewhere {_elsewhere(str(size), what)}."
            report.add_figure(f"{what}_{size}", figure, note)
    report.heading("Times")
    report.add_table("times", times, "Microseconds of a model's step, and of a certificate.", max_rows=100)
    report.verdict = " ".join(
        f"{text} grows, between the two largest sizes, with "
        + ", ".join(f"{row['size']}^{row['last']:.2f} (predicted {row['predicted']:.2f})"
                    for _, row in exponents[exponents["what"] == what].iterrows() if row["size"] != "models") + "."
        for what, text in (("fused, dot-softmax", "The fused engine's step of dot-softmax"),
                           ("certificate, dot-softmax", "The certificate of the exact model"))
    )  # fmt: skip
    return report


def _elsewhere(size: str, what: str) -> str:
    base = BASE if what == "step" else CERTIFIED_BASE
    return ", ".join(f"{name} = {value}" for name, value in base.items() if name != size)


def _certified(kind: MixingKind, size: str, value: int, rounds: int) -> float:
    """The least CPU time of a certificate of the exact model, in microseconds."""
    model = interp.build(f"histogram/{kind}-exact", **(CERTIFIED_BASE | {size: value}))
    times = []
    for _ in range(rounds + 1):
        start = time.process_time()
        interp.certify(model)
        times.append(time.process_time() - start)
    return 1e6 * min(times)


def _microseconds(engine: str, kind: MixingKind, size: str, value: int, steps: int, rounds: int) -> float:
    sizes = BASE | {size: value}
    recipe = Training(batch_size=BATCH, data="fresh", samples_per_epoch=BATCH * steps, init="torch")
    task = Histogram(T=max(sizes["T"], sizes["L"]), L=sizes["L"], zero_class=True)
    spec = histogram_spec(kind, task, sizes["d"], sizes["p"], origin=recipe)
    trainer = ENGINES[engine](spec, task, range(sizes["models"]), torch.device("cpu"), torch.float32)
    trainer.run_epoch(1)  # compiles, allocates
    best = float("inf")
    for epoch in range(2, 2 + rounds):
        start = time.process_time()
        trainer.run_epoch(epoch)
        middle = time.process_time()
        trainer.evaluate()
        best = min(best, 2 * middle - start - time.process_time())
    return 1e6 * best / steps / sizes["models"]


ADAM = 88
"""Operations of a matrix product in the time in which Adam updates a parameter: 16 parameters take a division and a
square root of vectors, about 22 cycles, and at its peak a core does 64 operations a cycle."""


def _predicted(size: str, what: str) -> float:
    """The slope of the log of a certificate's or a model-step's work between the two largest sizes."""
    name, kind = what.split(", ")
    if name == "certificate":
        return POWERS[kind][size]
    values = SIZES[size][-2:]
    work = [_work(kind, **(BASE | {size: value})) for value in values]
    return float(np.log(work[1] / work[0]) / np.log(values[1] / values[0]))


def _work(kind: str, models: int, T: int, L: int, d: int, p: int) -> float:
    """Operations of the products of a step, forward and backward, and of Adam's."""
    tokens = Histogram(T=max(T, L), L=L, zero_class=True).sample(1000, "train", seed=0).tokens
    distinct = np.array([len(set(sequence)) for sequence in tokens.tolist()])
    dot, vocabulary = kind.startswith("dot"), max(T, L)
    rows = BATCH * (distinct.mean() if dot else L)
    pairs = BATCH * ((distinct**2).mean() if dot else L * distinct.mean())
    tables = vocabulary * d * (p + (2 * d if dot else 0)) + (vocabulary**2 * d if dot else 0)
    parameters = vocabulary * d + d * p + p * (L + 1) + (2 * d * d if dot else L * L)
    return float(6 * (tables + rows * p * (L + 1) + pairs * p) + ADAM * parameters)


def _exponents(part: pd.DataFrame) -> dict[str, object]:
    """Slopes of log time over log size, for one size and engine or certificate, and what is predicted."""
    x, y = np.log(part["value"].to_numpy(float)), np.log(part["us"].to_numpy(float))
    last, every = (y[-1] - y[-2]) / (x[-1] - x[-2]), np.polyfit(x, y, 1)[0]
    size, what = part["size"].iloc[0], part["what"].iloc[0]
    return {"size": size, "what": what, "last": last, "all": every, "predicted": _predicted(size, what)}


if __name__ == "__main__":
    run(study, __doc__)
