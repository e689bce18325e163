"""Compact proofs of max-of-K models, head to head with Gross et al. 2024: bounds, exact errors, and what they cost.

python analyses/max_of_k_compact.py --out out/max_of_k_compact [--quick | --smoke]

Their recipe ("Compact Proofs of Model Performance via Mechanistic Interpretability", 2024): one layer and head, no
norm, no biases, learned positions, d_model = 32, 64 numbers, read at the last one, AdamW at 1e-3, batches of 128,
3,000 steps of uniform data. The number that is read asks, so all is done for each query q: with g(i, t) = e^score (what
number t at place i adds to the logits), the lead of the maximum m over another answer j, times the softmax's
denominator, is a sum over places. Inputs are split by q, m and the first place of m. Three proofs, each after the last:

cells   every other place is at its worst by itself, so that one minimum per place decides all inputs of a cell at once
tails   at most sum over j of min over s of e^(-s lead of what is known) prod over places sum over t e^(-s lead of t)
        inputs of a cell are not right (Chernoff's inequality, as a count)
places  the number at one more place is fixed, and so on to the last place, where errors are exact. A set of inputs is
        settled as soon as its least lead is positive, or its greatest over some answer negative. Operations go where
        the tails are; where they run out, the tail of each set that is left is what may still be wrong.

All parameters are taken exactly and evaluated in float64; a lead counts as positive above 1e-9 of the size of the terms
that it is a sum of, and what lies within that is counted apart. Operations: additions, multiplications, comparisons;
an exponential counts as ten. Full: 150 seeds of 4 numbers below 64 to the end, then 3 seeds each of 5 and 10 numbers
below 64 and 128, with about 2e10 operations a model for places; half an hour of one core. Models are kept in DIR
(rows are appended as models finish, and not made twice). Quick: 2 seeds of 4 numbers; smoke: one model of 3 numbers
below 8, 60 steps. The table of a full run is analyses/sweeps/max_at_last.csv.
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
from jaxtyping import Float, Int
from shared.script import Arguments, run

import interp
from interp.families.algorithmic import MaxAtLast
from interp.models.spec import Layer, ModelSpec, Training
from interp.report import Report
from interp.support import figures as draw

SAFE = 1e-9
RATES = 2.0 ** np.arange(9)
"""At which the tails of sums are bounded, times the reciprocal of the largest lead."""
TAIL = 3 * len(RATES) + 10
"""Operations of a tail for each rival (an exponential counts as 10)."""
PASSES = (0.25, 0.5, 0.5, 1.0)
"""Shares of what is left that are spent each time: what a cell does not spend goes to those that it did not settle."""
NUMBERS = 1 << 20
"""Leads that are looked at together."""
Shares = Float[np.ndarray, " row"]
LARGER = [(5, 64, 3), (5, 128, 3), (10, 64, 3), (10, 128, 3)]
"""Numbers, how many there are, seeds."""
MOST = 2e10
"""Operations for the places of a larger model."""
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
    """Inputs of one model as they are decided. open: those of which it is known how many there are at most."""

    right: int = 0
    wrong: int = 0
    near: int = 0
    open: int = 0
    operations: float = 0.0

    def add(self, other: Books) -> None:
        """Take over its inputs."""
        for key in ("right", "wrong", "near", "open"):
            setattr(self, key, getattr(self, key) + getattr(other, key))

    def leave(self, tails: Float[np.ndarray, " row"], size: int) -> None:
        """Rows of so many inputs each stay, with at most so many that are not right."""
        open_ = sum(min(math.ceil(tail), size) for tail in tails.tolist())
        self.open, self.right = self.open + open_, self.right + len(tails) * size - open_


@dataclass(frozen=True)
class Pair:
    """Inputs of one query and maximum: what each number up to the maximum, at each place, adds to each lead."""

    lead: Float[np.ndarray, "place number rival"]
    safe: float

    @cached_property
    def rates(self) -> Float[np.ndarray, " rate"]:
        return RATES / np.abs(self.lead).max()

    @cached_property
    def sums(self) -> Float[np.ndarray, "2 rate place rival"]:
        """ln of the sum of e^(-rate lead) over the numbers below the maximum; and with it."""
        weight, found = np.exp(-self.rates[0] * self.lead), []
        for _ in self.rates:  # each is twice the one before
            found.append((weight[:, :-1].sum(1), weight.sum(1)))
            weight = weight * weight
        with np.errstate(divide="ignore"):  # no number lies below 0
            return np.log(np.array(found)).swapaxes(0, 1)


@dataclass(frozen=True)
class Cell:
    """Inputs of a pair with one first place of the maximum.

    fixed: the leads of what is known; places: the others, and whether the maximum may stand there again.
    """

    pair: Pair
    fixed: Float[np.ndarray, " rival"]
    places: list[tuple[int, bool]]
    rivals: Int[np.ndarray, " rival"]

    @cached_property
    def tables(self) -> list[Float[np.ndarray, "number rival"]]:
        lead = self.pair.lead
        return [lead[i, : lead.shape[1] - (not again)][:, self.rivals] for i, again in self.places]

    @cached_property
    def least(self) -> list[Float[np.ndarray, " rival"]]:
        """What the places from each on add to a lead at least."""
        return self._from([table.min(0) for table in self.tables])

    @cached_property
    def most(self) -> list[Float[np.ndarray, " rival"]]:
        return self._from([table.max(0) for table in self.tables])

    @cached_property
    def sums(self) -> list[Float[np.ndarray, "rate rival"]]:
        """ln of the sum of e^(-rate lead) over all numbers at the places from each on."""
        return self._from([self.pair.sums[int(again), :, i][:, self.rivals] for i, again in self.places], len(RATES))

    def _from(self, ends: list[Float[np.ndarray, "*any"]], *lead: int) -> list[Float[np.ndarray, "*any"]]:
        sums = [np.zeros((*lead, len(self.rivals)))]
        for end in reversed(ends):
            sums.append(sums[-1] + end)
        return sums[::-1]

    @cached_property
    def sizes(self) -> list[int]:
        """Inputs for each choice at the places before each."""
        numbers = self.pair.lead.shape[1]
        return [
            prod(numbers - (not again) for _, again in self.places[depth:]) for depth in range(len(self.places) + 1)
        ]

    def narrowed(self) -> Cell:
        """Only rivals that may win somewhere, and first the places where numbers differ most."""
        open_ = np.flatnonzero(self.fixed + self.least[0] <= self.pair.safe)
        spread = {place: float(np.ptp(table[:, open_], axis=0).max()) for place, table in zip(self.places, self.tables)}
        places = sorted(self.places, key=lambda place: -spread[place])
        return Cell(self.pair, self.fixed[open_], places, self.rivals[open_])

    def tails(self, depth: int, leads: Float[np.ndarray, "row rival"]) -> Float[np.ndarray, " row"]:
        """For each choice at the places before: inputs that are not right, at most (Chernoff's bound)."""
        of_rate = zip(self.pair.rates, self.sums[depth])
        least = np.min([rate * (self.pair.safe - leads) + sums for rate, sums in of_rate], axis=0)
        whole = float(self.sizes[depth])
        return np.minimum(np.exp(np.minimum(least, math.log(whole))).sum(1) * (1 + SAFE), whole)

    def settle(self, books: Books, budget: float) -> None:
        """Decide all inputs, or as many as so many operations can."""
        self._settle(books, 0, self.fixed[None], np.array([budget]))

    def _settle(self, books: Books, depth: int, leads: Float[np.ndarray, "row rival"], shares: Shares) -> None:
        """The same for each choice at the places before, with an own budget."""
        right = (leads + self.least[depth] > self.pair.safe).all(1)
        wrong = (leads + self.most[depth] < -self.pair.safe).any(1)
        books.right += int(right.sum()) * self.sizes[depth]
        books.wrong += int(wrong.sum()) * self.sizes[depth]
        books.operations += 4 * leads.size
        leads, shares = leads[~right & ~wrong], shares[~right & ~wrong]
        if depth == len(self.places):
            books.near += len(leads)
            return
        numbers, rivals = self.tables[depth].shape
        step = TAIL * numbers * rivals
        enough = shares >= 0.5 * rivals * self.sizes[depth]  # a twelfth of all that follows: most is settled before
        # the last place, and no tails are needed
        stop = ~enough & (shares < step)
        if stop.any():
            books.leave(self.tails(depth, leads[stop]), self.sizes[depth])
        for group in (np.flatnonzero(enough), np.flatnonzero(~enough & ~stop)):
            for some in np.array_split(group, 1 + len(group) * rivals * numbers // NUMBERS):
                if len(some):
                    longer = (leads[some, None] + self.tables[depth]).reshape(-1, rivals)
                    books.operations += longer.size
                    parts = np.full((len(some), numbers), math.inf)
                    if not enough[some[0]]:  # what is left, by how much each may still hold
                        tails = self.tails(depth + 1, longer).reshape(-1, numbers)
                        parts = (shares[some] - step)[:, None] * tails / tails.sum(1, keepdims=True)
                        books.operations += TAIL * longer.size
                    self._settle(books, depth + 1, longer, parts.ravel())


def cells(K: int, v: int, g: Float[np.ndarray, "query place number answer"]) -> Iterator[Cell]:
    for q, m in zip(*map(np.ndarray.tolist, np.triu_indices(v))):
        rivals = np.delete(np.arange(v), m)
        lead = g[q, :, : m + 1, m, None] - g[q][:, : m + 1][..., rivals]  # (place, number, rival)
        pair = Pair(lead, SAFE * float(np.abs(g[q, :, : m + 1]).max((1, 2)).sum()))
        for at in range(K) if q == m else range(K - 1) if m else ():
            places = [(i, i > at) for i in range(K - 1) if i != at]
            if m or all(again for _, again in places):  # nothing lies below 0
                fixed = lead[K - 1, q] + (lead[at, m] if at < K - 1 else 0.0)
                yield Cell(pair, fixed, places, np.arange(v - 1))


def count(model: interp.TaskModel, most: float = math.inf) -> dict[str, object]:
    """Inputs proved right by each proof, the errors and what is too near to tell, with operations.

    most: operations for places, about, shared among cells by their tails.
    """
    started, (g, cost) = time.perf_counter(), added(model)
    K, v = model.task.terms, model.task.base
    by_cells = Books(operations=cost + 2 * K * sum((m + 1) * (v - 1) for _, m in zip(*np.triu_indices(v))))
    by_tails, tails, last = Books(), {}, None
    for number, cell in enumerate(cells(K, v, g)):
        by_cells.operations += (len(cell.places) + 1) * v
        if (cell.fixed + cell.least[0] > cell.pair.safe).all():
            by_cells.right += cell.sizes[0]
        else:
            cell = cell.narrowed()
            tails[number] = cell.tails(0, cell.fixed[None])
            by_tails.leave(tails[number], cell.sizes[0])
            by_tails.operations += TAIL * len(cell.rivals)
            if cell.pair is not last:  # sums are made once for all cells of a pair
                by_tails.operations += (2 * len(RATES) + 10) * cell.pair.lead.size
            last = cell.pair
    by_tails.right += by_cells.right
    by_tails.operations += by_cells.operations
    books = Books(right=by_cells.right, operations=by_cells.operations if math.isinf(most) else by_tails.operations)
    end = books.operations + most
    for share in PASSES:
        budget, mass = (end - books.operations) * share, sum(float(tail[0]) for tail in tails.values())
        for number, cell in enumerate(cells(K, v, g)):
            if number in tails:
                trial = Books()
                cell.narrowed().settle(trial, budget * float(tails[number][0]) / mass if budget < math.inf else budget)
                books.operations += trial.operations
                if not trial.open or share == PASSES[-1]:
                    books.add(trial)
                    del tails[number]
                else:
                    tails[number] = np.array([float(trial.open)])
    total = v**K
    assert books.right + books.wrong + books.near + books.open == total
    proofs = {"cells": by_cells, "tails": by_tails, "places": books}
    return {
        "K": K, "v": v, "inputs": total, "errors": books.wrong, "near": books.near, "open": books.open,
        "accuracy": 1 - books.wrong / total if not books.open else float("nan"),
        **{f"bound by {name}": proof.right / total for name, proof in proofs.items()},
        **{f"operations, {name}": float(proof.operations) for name, proof in proofs.items()},
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
                print(
                    K,
                    v,
                    seed,
                    rows[-1]["errors"],
                    rows[-1]["bound by places"],
                    f"{rows[-1]['seconds']:.1f} s",
                    flush=True,
                )
    return pd.DataFrame(rows)


def path_of(folder: Path, K: int, v: int, seed: int) -> Path:
    return folder / f"{K}-of-{v}-seed-{seed}.safetensors"


def summary(rows: pd.DataFrame) -> list[dict[str, object]]:
    """Mean and range of the exact accuracy (or the last bound) and of the first two bounds, per size."""
    found: list[dict[str, object]] = []
    for (K, v), part in rows.groupby(["K", "v"]):
        whole = "places, to the end: exact" if exact(part) else f"places, {MOST:.0e} operations"
        for name, proof in (("places", whole), ("tails", "cells and tails"), ("cells", "cells")):
            bound = part[f"bound by {name}"]
            found.append(
                {"source": f"here, {len(part)} models", "K": K, "numbers": v, "proof": proof, "mean": bound.mean(),
                 "std": bound.std(), "least": bound.min(), "most": bound.max(),
                 "operations": part[f"operations, {name}"].mean(),
                 "seconds": f"{part['seconds'].mean():.1f}" if name == "places" else ""}
            )  # fmt: skip
    return found


def study(arguments: Arguments) -> Report:
    rows = rows_of(arguments)
    report = Report("Compact proofs of max-of-K, head to head")
    report.heading(
        "Their bounds and ours",
        "Ours: inputs are split by query, maximum and its first place (cells); tails of sums bound what that leaves; "
        "then more numbers are fixed, to the last place. To run a model of four numbers below 64 on every input "
        f"takes {brute_force(4, 64, 32):.2g} operations. "
        "Seconds are for all proofs of a model together, on one core, with other work on the machine.",
    )
    table = pd.DataFrame([*PUBLISHED, *summary(rows)])
    report.add_table("head_to_head", table, "Accuracy that is proved, over all inputs.")
    report.add_table("rows", rows, "One row per model.", max_rows=200)
    for (K, v), part in rows.groupby(["K", "v"]):
        long = pd.concat([
            pd.DataFrame({"proof": name, "operations": part[f"operations, {name}"],
                          "accuracy that is proved": part[f"bound by {name}"]})
            for name in ("cells", "tails", "places")
        ])  # fmt: skip
        report.add_figure(
            f"bound_against_cost_{K}_{v}",
            draw.scatter(long, "operations", "accuracy that is proved", color="proof", x_type="log"),
            f"{K} numbers below {v}: a dot per model and proof, {len(part)} models.",
        )
    report.verdict = " ".join(said(K, v, part) for (K, v), part in rows.groupby(["K", "v"]))
    return report


def exact(part: pd.DataFrame) -> bool:
    return not any(int(n) for n in part["open"])


def said(K: int, v: int, part: pd.DataFrame) -> str:
    errors = [int(n) for n in part["errors"]]
    text, seconds = f"{K} numbers below {v}, {len(part)} models: ", f"in {part['seconds'].mean():.1f} s each."
    if exact(part):
        mean, least, most = (part["accuracy"].agg(key) for key in ("mean", "min", "max"))
        counts = f"{min(errors):,} to {max(errors):,} errors"
        return f"{text}exact accuracy {mean:.5f} on average, from {least:.5f} to {most:.5f} ({counts}), {seconds}"
    sides = [f"{low:.5f} to {1 - n / v**K:.5f}" for low, n in zip(part["bound by places"], errors)]
    return text + f"accuracy between {'; '.join(sides)}, {seconds}"


if __name__ == "__main__":
    run(study, __doc__)
