"""Compact proofs of max-of-K models, head to head with Gross et al. 2024: bounds, exact errors, and what they cost.

python analyses/max_of_k_compact.py --out out/max_of_k_compact [--quick | --smoke]

Their recipe ("Compact Proofs of Model Performance via Mechanistic Interpretability", 2024): one layer and head, no
norm, no biases, learned positions, d_model = 32, 64 numbers, read at the last one, AdamW at 1e-3, batches of 128,
3,000 steps of uniform data. The number that is read asks, so all is done for each query q: with g(i, t) = e^score (what
number t at place i adds to the logits), the lead of the maximum m over another answer j, times the softmax's
denominator, is a sum over places. Inputs are split by q, m and the first place of m. On such a cell every other place
is at its worst by itself, so that one minimum per place decides all its inputs at once (bound 0). Where that fails, the
number at one more place is fixed (bound 1), the one whose numbers differ most first, and so on to the last place: then
errors are exact. A set of inputs is settled as soon as its least lead is positive, or its greatest over some answer
negative.

All parameters are taken exactly and evaluated in float64; a lead counts as positive above 1e-9 of the size of the terms
that it is a sum of, and what lies within that is counted apart. Operations: additions, multiplications and comparisons.
Full: 150 seeds of 4 numbers below 64, then 3 seeds each of 5 and 10 numbers below 64 and 128, with at most 1e10
operations a model; about half an hour of one core. Models are kept in DIR (rows are appended as models finish, and not
made twice). Quick: 2 seeds of 4 numbers; smoke: one model of 3 numbers below 8, 60 steps. The table of a full run is
analyses/sweeps/max_at_last.csv.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path

import numpy as np
import pandas as pd
from jaxtyping import Float

import interp
from interp.report import Report
from interp.report import figures as draw
from interp.report.script import Arguments, run
from interp.spec import Layer, ModelSpec, Training
from interp.tasks import MaxAtLast

SAFE = 1e-9
NUMBERS = 1 << 22
"""Leads that are looked at together."""
LARGER = [(5, 64, 3), (5, 128, 3), (10, 64, 3), (10, 128, 3)]
"""Numbers, how many there are, seeds."""
MOST = 1e10
"""Operations that a larger model may take."""
WHOLE = dict.fromkeys(("inputs", "errors", "near", "open"), object)
"""Columns whose whole numbers may have more than 64 bits."""
PUBLISHED = [
    {"source": "Gross et al. 2024", "K": 4, "numbers": 64, "proof": "brute force (exact)",
     "mean": 0.99916, "std": 0.0015, "least": 0.9915, "most": 0.99992, "seconds": "31 to 42"},
    {"source": "Gross et al. 2024", "K": 4, "numbers": 64, "proof": "cubic",
     "mean": 0.95317, "std": 0.0086, "least": 0.918, "most": 0.971, "seconds": "39"},
    {"source": "Gross et al. 2024", "K": 4, "numbers": 64, "proof": "best sub-cubic", "most": 0.838},
    {"source": "Gross et al. 2024", "proof": "5 and 10 numbers, 64 and 128",
     "least": 0.842, "most": 0.905, "seconds": "940 to 1,010"},
]  # fmt: skip
"""Of 150 models of theirs (the last row: single ones); the accuracy, or the bound of it that is proved."""


def spec_of(K: int, v: int, steps: int) -> ModelSpec:
    recipe = Training(
        init="normal", init_std=0.8 / 32**0.5, optimizer="adamw", weight_decay=0.01, learning_rate=1e-3, batch_size=128,
        data="fresh", samples_per_epoch=128 * steps, epochs=1,
    )  # fmt: skip
    return ModelSpec(
        task=MaxAtLast(K=K, v=v).ref, d_model=32, layers=(Layer(n_heads=1, d_head=32),), positions="learned",
        max_length=K, readout_bias=False, readout_at="last", origin=recipe,
    )  # fmt: skip


def added(model: interp.TaskModel) -> tuple[Float[np.ndarray, "query place number answer"], int]:
    """g: what each number at each place adds to each logit times the denominator, by query; and what it costs."""
    K, v = model.task.terms, model.task.base
    p = {name: value.detach().double().numpy() for name, value in model.named_parameters()}
    x = p["embed.W_E"][None] + p["pos_embed.W_pos"][:K, None]
    attn = {name: p[f"blocks.0.attn.W_{name}"][0] for name in "QKVO"}
    layer = model.spec.layers[0]
    scores = np.einsum("qe,pte->qpt", x[-1] @ attn["Q"], x @ attn["K"]) * layer.factor(model.spec.d_model)
    weight = np.exp(scores - scores.max((1, 2), keepdims=True))
    told = x @ attn["V"] @ attn["O"] @ p["unembed.W_U"]  # (place, number, answer)
    rest = x[-1] @ p["unembed.W_U"]  # the skip connection, which every key's share carries
    d, n = model.spec.d_model, K * v
    operations = 2 * d * (4 * n * d + n * v + v * v + v * n) + 3 * v * n + 2 * v * n * v
    return weight[..., None] * (told[None] + rest[:, None, None]), operations


@dataclass
class Books:
    """Inputs of one model as they are decided, by how many places more than the cell's were fixed until then."""

    right: list[int]
    wrong: int
    near: int
    operations: Float[np.ndarray, " depth"]

    def add(self, other: Books) -> None:
        """Take over its inputs."""
        self.right = [mine + theirs for mine, theirs in zip(self.right, other.right)]
        self.wrong, self.near = self.wrong + other.wrong, self.near + other.near


@dataclass(frozen=True)
class Cell:
    """Inputs of one query, maximum and first place of it: leads that are fixed, and those of every other place.

    tables: (number, rival) for each place; least, most: what the places from each on can add to a lead.
    """

    fixed: Float[np.ndarray, " rival"]
    tables: list[Float[np.ndarray, "number rival"]]
    safe: float

    @cached_property
    def least(self) -> list[Float[np.ndarray, " rival"]]:
        return self._from([table.min(0) for table in self.tables])

    @cached_property
    def most(self) -> list[Float[np.ndarray, " rival"]]:
        return self._from([table.max(0) for table in self.tables])

    def _from(self, ends: list[Float[np.ndarray, " rival"]]) -> list[Float[np.ndarray, " rival"]]:
        sums = [np.zeros(len(self.fixed))]
        for end in reversed(ends):
            sums.append(sums[-1] + end)
        return sums[::-1]

    @cached_property
    def sizes(self) -> list[int]:
        """Inputs for each choice at the places before each."""
        return [prod(map(len, self.tables[depth:])) for depth in range(len(self.tables) + 1)]

    def narrowed(self) -> Cell:
        """Only rivals that may win somewhere, and first the places where tokens differ most."""
        open_ = self.fixed + self.least[0] <= self.safe
        tables = sorted((table[:, open_] for table in self.tables), key=lambda table: -np.ptp(table, axis=0).max())
        return Cell(self.fixed[open_], tables, self.safe)

    def settle(self, books: Books, budget: float) -> int:
        """Decide all inputs, or as many as so many operations can; how many stay open."""
        stack, spent, left = [(0, self.fixed[None])], 0.0, 0
        while stack:
            depth, leads = stack.pop()
            if spent > budget:
                left += len(leads) * self.sizes[depth]
                continue
            lows = leads + self.least[depth]
            right = (lows > self.safe).all(1)
            wrong = (leads + self.most[depth] < -self.safe).any(1)
            books.right[depth] += int(right.sum()) * self.sizes[depth]
            books.wrong += int(wrong.sum()) * self.sizes[depth]
            books.operations[depth] += 4 * leads.size
            spent += 4 * leads.size
            leads = leads[~right & ~wrong]
            if depth == len(self.tables):
                books.near += len(leads)
            elif len(leads):
                table = self.tables[depth]
                for part in np.array_split(leads, -(-leads.size * len(table) // NUMBERS)):
                    stack.append((depth + 1, (part[:, None] + table[None]).reshape(-1, table.shape[1])))
                books.operations[depth + 1] += leads.size * len(table)
                spent += leads.size * len(table)
        return left


def cells(K: int, v: int, g: Float[np.ndarray, "query place number answer"]) -> Iterator[Cell]:
    for q, m in zip(*map(np.ndarray.tolist, np.triu_indices(v))):
        rivals = np.delete(np.arange(v), m)
        lead = g[q, :, : m + 1, m, None] - g[q][:, : m + 1][..., rivals]  # (place, number, rival)
        safe = SAFE * float(np.abs(g[q, :, : m + 1]).max((1, 2)).sum())
        for at in range(K) if q == m else range(K - 1):
            tables = [lead[i, : m if i < at else m + 1] for i in range(K - 1) if i != at]
            if all(map(len, tables)):  # nothing lies below 0
                yield Cell(lead[K - 1, q] + (lead[at, m] if at < K - 1 else 0.0), tables, safe)


def count(model: interp.TaskModel, most: float = math.inf) -> dict[str, object]:
    """Inputs proved right by each bound, the errors and what is too near to tell, with operations.

    most: operations that fix more places, about, shared among cells by how many inputs they have. What settled cells do
    not spend is left to the others, which begin again with more; what stays open then is counted as such.
    """
    started, (g, cost) = time.perf_counter(), added(model)
    K, v = model.task.terms, model.task.base
    books, left = Books([0] * K, 0, 0, np.zeros(K)), 0
    books.operations[0] = cost + 2 * sum(K * (m + 1) * (v - 1) for _, m in zip(*np.triu_indices(v)))
    again: dict[int, int] | None = None  # cells that their share did not settle, and how many inputs each has
    for last in (False, False, False, True):
        rest, unsettled = v**K if again is None else sum(again.values()), {}
        for number, cell in enumerate(cells(K, v, g)):
            if again is not None and number not in again:
                continue
            whole, share = cell.sizes[0], (most - float(books.operations[1:].sum())) * cell.sizes[0] / rest
            rest -= whole
            if again is None:
                books.operations[0] += (len(cell.tables) + 1) * v
            trial = Books([0] * K, 0, 0, np.zeros(K))
            if (cell.fixed + cell.least[0] > cell.safe).all():
                open_, trial.right[0] = 0, whole
            else:
                open_ = cell.narrowed().settle(trial, share)
            books.operations += trial.operations
            if open_ and not last:
                unsettled[number] = whole
                continue
            books.add(trial)
            left += open_
        again = unsettled
    total, right = v**K, np.cumsum(books.right)
    assert int(right[-1]) + books.wrong + books.near + left == total
    spent = np.cumsum(books.operations)
    return {
        "K": K, "v": v, "inputs": total, "errors": books.wrong, "near": books.near, "open": left,
        "accuracy": 1 - books.wrong / total if not left else float("nan"),
        **{f"bound {i}": float(right[i]) / total for i in (0, 1)}, "bound": float(right[-1]) / total,
        **{f"operations {i}": float(spent[i]) for i in (0, 1)}, "operations": float(spent[-1]),
        "seconds": time.perf_counter() - started,
    }  # fmt: skip


def brute_force(K: int, v: int, d: int) -> float:
    """Operations of running a model on every input: the last number's query, scores, values and logits."""
    return float(v**K) * (2 * d * d * (2 * K + 2) + 4 * K * d + 2 * d * v)


def rows_of(arguments: Arguments) -> pd.DataFrame:
    """A row for each model, trained where it is not kept; all that were made are in DIR/rows.csv."""
    folder, path = arguments.out / f"models-{arguments.mode}", arguments.out / f"rows-{arguments.mode}.csv"
    folder.mkdir(parents=True, exist_ok=True)
    rows = pd.read_csv(path, dtype=WHOLE).to_dict("records") if path.exists() else []
    done = {(row["K"], row["v"], row["seed"]) for row in rows}
    steps, first = arguments.pick(3000, 3000, 60), [arguments.pick((4, 64, 150), (4, 64, 2), (3, 8, 1))]
    for K, v, seeds in first + arguments.pick(LARGER, [], []):
        missing = [seed for seed in range(seeds) if not path_of(folder, K, v, seed).exists()]
        for start in range(0, len(missing), 16):
            some = tuple(missing[start : start + 16])
            for model in interp.train(spec_of(K, v, steps), seeds=some, engine="vmap", progress=False):
                interp.save(model, path_of(folder, K, v, model.seed))
        for seed in range(seeds):
            if (K, v, seed) not in done:
                most = math.inf if (K, v, seeds) in first else MOST
                rows.append({"seed": seed, **count(interp.load(path_of(folder, K, v, seed)), most)})
                pd.DataFrame(rows).to_csv(path, index=False)
                print(K, v, seed, rows[-1]["errors"], rows[-1]["bound"], f"{rows[-1]['seconds']:.1f} s", flush=True)
    return pd.DataFrame(rows)


def path_of(folder: Path, K: int, v: int, seed: int) -> Path:
    return folder / f"{K}-of-{v}-seed-{seed}.safetensors"


def summary(rows: pd.DataFrame) -> list[dict[str, object]]:
    """Mean and range of the exact accuracy (or the last bound) and of the first two bounds, per size."""
    found: list[dict[str, object]] = []
    for (K, v), part in rows.groupby(["K", "v"]):
        whole = (
            "all places: exact" if not (part["open"].astype(float) > 0).any() else f"all places, {MOST:.0e} operations"
        )
        for key, cost, proof in (
            ("bound", "operations", whole), ("bound 1", "operations 1", "cells, one more place"),
            ("bound 0", "operations 0", "cells"),
        ):  # fmt: skip
            found.append(
                {"source": f"here, {len(part)} models", "K": K, "numbers": v, "proof": proof, "mean": part[key].mean(),
                 "std": part[key].std(), "least": part[key].min(), "most": part[key].max(),
                 "operations": part[cost].mean(), "seconds": f"{part['seconds'].mean():.1f}" if key == "bound" else ""}
            )  # fmt: skip
    return found


def study(arguments: Arguments) -> Report:
    rows = rows_of(arguments)
    report = Report("Compact proofs of max-of-K, head to head")
    report.section(
        "Their bounds and ours",
        "Ours: inputs are split by query, maximum and its first place; then by the number at one more place; then at "
        f"all. To run a model of four numbers below 64 on every input takes {brute_force(4, 64, 32):.2g} operations. "
        "Seconds are for all proofs of a model together, on one core, with other work on the machine.",
    )
    table = pd.DataFrame([*PUBLISHED, *summary(rows)])
    report.add_table("head_to_head", table, "Accuracy that is proved, over all inputs.")
    report.add_table("rows", rows, "One row per model.", max_rows=200)
    for (K, v), part in rows.groupby(["K", "v"]):
        long = pd.concat([
            pd.DataFrame({"proof": name, "operations": part[cost], "accuracy that is proved": part[key]})
            for name, cost, key in (
                ("cells", "operations 0", "bound 0"), ("one more place", "operations 1", "bound 1"),
                ("all places", "operations", "bound"),
            )
        ])  # fmt: skip
        report.add_figure(
            f"bound_against_cost_{K}_{v}",
            draw.scatter(long, "operations", "accuracy that is proved", color="proof", x_type="log"),
            f"{K} numbers below {v}: a dot per model and proof, {len(part)} models.",
        )
    report.verdict = " ".join(said(K, v, part) for (K, v), part in rows.groupby(["K", "v"]))
    return report


def said(K: int, v: int, part: pd.DataFrame) -> str:
    errors = [int(n) for n in part["errors"]]
    text = f"{K} numbers below {v}, {len(part)} models: "
    if not any(int(n) for n in part["open"]):
        return text + (f"exact accuracy {part['accuracy'].mean():.5f} on average, from {part['accuracy'].min():.5f} to "
                       f"{part['accuracy'].max():.5f} ({min(errors):,} to {max(errors):,} errors), in "
                       f"{part['seconds'].mean():.1f} s each.")  # fmt: skip
    most = [1 - int(n) / v**K for n in part["errors"]]
    return text + (f"accuracy at least {part['bound'].min():.5f} to {part['bound'].max():.5f}, at most {min(most):.5f} "
                   f"to {max(most):.5f}, in {part['seconds'].mean():.1f} s each.")  # fmt: skip


if __name__ == "__main__":
    run(study, __doc__)
