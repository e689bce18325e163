"""What does a certificate cost? Seconds against T, L, p and mixing, for exact and for random models.

    python analyses/benchmarks/certificates.py [--quick] [--rounds 5] [--adders | --walks]

Exact models (all decided at the root) and, in the second table, exact models with noise on every weight and a time
limit of five seconds: how much of all sequences x positions is decided, with and without splitting. One thread, CPU
time where nothing is searched; min and median over the rounds. Adders of three digits (quick: two), right ones and ones
with noise: a proof by places against a run of every pair, and at how many positions their numbers of wrong answers
disagree. --adders: these alone.

--walks: the compiled walk over every multiset of other tokens, for random models, against a run of the model itself on
a part of them in batches, one after the other in each round. ns: CPU time per multiset; evaluated: evaluations
per multiset, fewer than 1 where bounds decide many at once, more where vectors are filled up; peak: their
multiplications and additions per second, against those of a float32 matrix product on the same core.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import pandas as pd
import torch
from threadpoolctl import threadpool_limits

import interp
from interp.certificates.places import certify_places
from interp.errors import InterpError
from interp.families.algorithmic import Addition
from interp.families.histogram import Histogram
from interp.families.histogram.certificates.tables import tables_of
from interp.families.histogram.certificates.walk import Walk, multisets_around
from interp.families.histogram.constructions.models import histogram_spec
from interp.models.architecture.task_model import TaskModel

KINDS = ("lin", "lin-softmax", "dot", "dot-softmax", "bos", "bos-softmax")


def cost(kind: str, T: int, L: int, p: int | None, rounds: int) -> dict[str, object] | None:
    """One row, or None if the construction does not have this size."""
    try:
        model = interp.build(f"histogram/{kind}-exact", T=T, L=L, p=p)
    except InterpError:
        return None
    seconds = []
    for _ in range(rounds):
        start = time.process_time()
        found = interp.certify(model)
        seconds.append(time.process_time() - start)
    width = model.spec.readout_width
    row = {"mixing": kind, "T": T, "L": L, "d": model.spec.d_model, "p": width, "sequences": f"{float(T) ** L:.1e}"}
    series = pd.Series(seconds)
    return {**row, "status": found.status, "min s": series.min(), "median s": series.median()}


def noisy(kind: str, T: int, L: int, size: float) -> TaskModel:
    model = interp.build(f"histogram/{kind}-exact", T=T, L=L, p=T)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(size * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return model


def searched(kind: str, T: int, L: int, size: float, budget: float) -> dict[str, object]:
    model = noisy(kind, T, L, size)
    row: dict[str, object] = {"mixing": kind, "T": T, "L": L, "p": T, "noise": size}
    for name, seconds in (("root", 0.0), ("split", budget)):
        found = interp.certify(model, seconds=seconds, samples=0)
        low, high = found.accuracy if isinstance(found.accuracy, tuple) else (found.accuracy, found.accuracy)
        row |= {f"{name}: status": found.status, f"{name}: undecided": high - low, f"{name}: s": found.seconds}
    return row


def adder(digits: int, size: float) -> dict[str, object]:
    """A proof by places against every pair, run: seconds of both, and what each says."""
    model = interp.build("algorithmic/addition-exact", digits=digits)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(size * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    start = time.process_time()
    found = certify_places(model)
    middle = time.process_time()
    task, wrong, wrong_pairs = Addition(digits=digits), torch.zeros(digits + 1, dtype=torch.long), 0
    with torch.no_grad():
        for batch in task.inputs(1 << 14):
            off = model(batch.tokens)[:, task.read_places].argmax(2) != batch.labels[:, task.read_places]
            wrong += off.sum(0)
            wrong_pairs += int(off.any(1).sum())
    answers, counted = found.tables["answers"], found.tables["inputs"].iloc[0]
    row = {"digits": digits, "noise": size, "pairs": found.n_inputs, "status": found.status}
    return row | {
        "answers": (digits + 1) * found.n_inputs,
        "wrong: proof": sum(answers["wrong"]),
        "wrong: run": int(wrong.sum()),
        "left open": sum(found.n_inputs - answers["right"] - answers["wrong"]),
        "positions that disagree": int(
            (answers["wrong"].to_numpy() > wrong.numpy()).sum()
            + (found.n_inputs - answers["right"].to_numpy() < wrong.numpy()).sum()
        ),
        "wrong pairs: proof": f"{counted['wrong at least']:,} to {counted['wrong at most']:,}",
        "wrong pairs: run": wrong_pairs,
        "proof s": middle - start,
        "run s": time.process_time() - middle,
    }


def walk(kind: str, T: int, L: int, p: int, rounds: int) -> dict[str, object]:
    """The walk around every token against a run of the model on sequences."""
    bos = kind.startswith("bos")
    spec = histogram_spec(kind, Histogram(T=T, L=L, bos=bos, zero_class=True), T, p, "float32")  # type: ignore[arg-type]
    model = interp.build(spec, seed=0)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    tables, task = tables_of(model), model.task
    assert isinstance(task, Histogram)
    zeros, rivals = np.zeros(tables.lead.shape[1]), np.ones(tables.lead.shape[1], bool)
    walks = [Walk(tables, token) for token in range(T)]
    walks[0].count(L, rivals, zeros, zeros)  # compiles
    rows = task.of_sequences(torch.randint(T, (20_000, L), generator=generator)).tokens
    square = torch.randn(1024, 1024)
    total = sum(multisets_around(T - 1, L - n) for n in range(1, L + 1)) * T
    times: dict[str, list[float]] = {"walk": [], "run": [], "product": []}
    for _ in range(rounds):
        start = time.process_time()
        evaluated = sum(found.evaluated for one in walks for n in range(1, L + 1)
                        if (found := one.count(n, rivals, zeros, zeros)) is not None)  # fmt: skip
        times["walk"].append((time.process_time() - start) / total)
        start = time.process_time()
        for part in rows.split(2_000):
            model.predict(part)
        times["run"].append((time.process_time() - start) / len(rows))
        start = time.process_time()
        for _ in range(10):
            square @ square
        times["product"].append((time.process_time() - start) / 10)
    least = {name: min(found) for name, found in times.items()}
    work = 2 * p * (tables.lead.shape[1] + 2)  # one neuron: a sum, and its part of every answer
    return {
        "mixing": kind, "T": T, "L": L, "p": p, "multisets": total, "evaluated": evaluated / total,
        "ns": 1e9 * least["walk"], "ns of a run": 1e9 * least["run"], "run / walk": least["run"] / least["walk"],
        "peak": work * evaluated / total / least["walk"] / (2 * 1024**3 / least["product"]),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="smaller sizes, under a minute")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--adders", action="store_true", help="only the table of adders")
    parser.add_argument("--walks", action="store_true", help="only the table of walks over multisets")
    arguments = parser.parse_args()
    if arguments.walks:
        sizes = [(16, 6, 16)] if arguments.quick else [(16, 6, 32), (32, 6, 32), (32, 8, 32), (32, 8, 8), (32, 8, 128)]
        with threadpool_limits(1):
            walks = [walk(kind, *size, arguments.rounds) for kind in KINDS[2:] for size in sizes]
        print(pd.DataFrame(walks).to_string(index=False, float_format="%.3g"))
        return
    if not arguments.adders:
        of_histograms(arguments)
    with threadpool_limits(1):
        rows = [adder(2 if arguments.quick else 3, size) for size in (0.0, 1e-4, 1e-3, 1e-2)]
    print(pd.DataFrame(rows).to_string(index=False, float_format="%.3g"))


def of_histograms(arguments: argparse.Namespace) -> None:
    sizes = (
        [(8, 5), (32, 10)] if arguments.quick else [(8, 5), (16, 10), (32, 5), (32, 10), (32, 20), (64, 10), (64, 15)]
    )
    with threadpool_limits(1):
        rows = [cost(kind, T, L, p, arguments.rounds) for kind in KINDS for T, L in sizes for p in (1, T, 2 * T)]
        print(pd.DataFrame([row for row in rows if row]).to_string(index=False, float_format="%.3f"), end="\n\n")
        noise = [(8, 5, 1e-3)] if arguments.quick else [(8, 5, 1e-3), (8, 5, 0.01), (32, 10, 1e-4), (32, 10, 0.01)]
        table = [searched(kind, T, L, size, 5.0) for kind in KINDS for T, L, size in noise]
    print(pd.DataFrame(table).to_string(index=False, float_format="%.3g"), end="\n\n")


if __name__ == "__main__":
    main()
