"""Are models of one program called the same, and of two programs different? Compiled models whose program is known.

python analyses/many_planted.py --out out/planted [--quick | --smoke]

Six random programs (shared.random_programs), ten models each: with their own rotation of the stream, decoys, dead
neurons, order of heads and noise on all weights, as small as in explain_compiled; and two of each with none, and with
more. Each model is explained and its program brought to canonical form (programs.many.canonical), as interp.compare
does; OUT/compared.jsonl goes on after a kill. Of all pairs of models with the same noise, wrong are those of one
program that are called different, and those of two that are called the same. Quick: two models of each program and
noise. Smoke: two of two small programs, without noise.
"""

from __future__ import annotations

from itertools import combinations, product
from typing import Any

import pandas as pd
import torch
from shared.random_programs import random_program
from shared.script import Arguments, run

import interp
from interp.models.architecture.task_model import TaskModel
from interp.models.subject import Subject
from interp.programs.many.canonical import FORM, Canonical, canonical
from interp.programs.many.one_model import common, learned, reformed
from interp.programs.many.table import ComparedTable
from interp.programs.task import ProgramTask
from interp.report import Report
from interp.tasks.scores import wilson

PROGRAMS = (0, 1, 2, 3, 4, 6)
"""Seeds of random_program."""
NOISES = {1e-6: 10, 0.0: 2, 1e-4: 2, 1e-3: 2}
"""Standard deviations of the noise on all weights, and how many models of each program have it."""
PER_HEAD = ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V")


def planted(task: ProgramTask, seed: int, noise: float) -> TaskModel:
    """Compile a program with decoys, a rotated stream and noise, and put the heads of each layer in another order."""
    model = interp.compile(task, decoys=2, dead=4, rotate=seed, noise=noise, seed=seed)
    draw = torch.Generator().manual_seed(seed)
    tensors = {name: one.detach().clone() for name, one in model.named_parameters()}
    for layer, block in enumerate(model.blocks):
        order = torch.randperm(block.attn.W_O.shape[0], generator=draw)
        for name in (f"blocks.{layer}.attn.{kind}" for kind in PER_HEAD):
            if name in tensors:
                tensors[name] = tensors[name][order]
    model.load_parameters(tensors)
    return model


def pairs_of(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """One row for each noise and grade: how many pairs of one program and of two were called what they are not."""
    forms = {row["model"]: Canonical.from_plain(row["canonical"]) if row["canonical"] else None for row in rows}
    found = []
    for noise in sorted({row["axes"]["noise"] for row in rows}):
        mine = [row for row in rows if row["axes"]["noise"] == noise]
        for grade in ("steps", "shape"):
            counts = {True: [0, 0], False: [0, 0]}
            for one, other in combinations(mine, 2):
                a, b = forms[one["model"]], forms[other["model"]]
                called = a is not None and b is not None
                called = called and (a.same_steps(b) if grade == "steps" else a.shape == b.shape)  # type: ignore[union-attr]
                same = one["axes"]["program"] == other["axes"]["program"]
                counts[same][0] += 1
                counts[same][1] += called != same
            pairs, wrong = (counts[True][i] + counts[False][i] for i in (0, 1))
            low, high = wilson(wrong / pairs, pairs)
            found.append((noise, grade, pairs, wrong, low, high, *counts[True], *counts[False]))
    columns = ["noise", "grade", "pairs", "wrong", "low", "high", "of one", "called different", "of two", "called same"]
    return pd.DataFrame(found, columns=columns)


def as_planted(model: TaskModel, row: dict[str, Any]) -> bool:
    """Whether a model's program has the steps of the true one."""
    true = canonical(model.task.program, common(Subject.of(model)).tokens)
    return row["canonical"] is not None and Canonical.from_plain(row["canonical"]).same_steps(true)


def study(arguments: Arguments) -> Report:
    seeds = arguments.pick(PROGRAMS, PROGRAMS, PROGRAMS[-2:])
    noises = arguments.pick(NOISES, dict.fromkeys(NOISES, 2), {0.0: 2})
    rows = []
    with ComparedTable(arguments.out) as table:
        for noise, program in product(noises, seeds):
            task = random_program(program)
            for number in range(noises[noise]):
                name = f"program={program}/noise={noise:g}/{number}"
                known = table.known.get(name)
                if known is None or known["form"] != FORM:
                    model = planted(task, 100 * program + number, noise)
                    row = learned(model, name) if known is None else reformed(model, known)
                    axes = {"program": program, "noise": noise, "as planted": as_planted(model, row)}
                    table.append({**row, "axes": axes})
                rows.append(table.known[name])
    pairs = pairs_of(rows)
    report = Report("Models with a planted program: same and different")
    report.verdict = "; ".join(
        f"noise {row.noise:g}, by {row.grade}: {row.wrong} of {row.pairs} pairs wrong"
        for row in pairs.itertuples()
    )  # fmt: skip
    report.add_table(
        "pairs", pairs, "Pairs of models with the same noise, and those that were called what they are not."
    )
    models = pd.DataFrame([{"model": row["model"], **row["axes"], "level": row["level"],
                            "form": (row["canonical"] or {}).get("shape", "none")} for row in rows])  # fmt: skip
    report.add_table("models", models, "One row for each model; as planted: its program has the steps of the true one.")
    return report


if __name__ == "__main__":
    run(study, __doc__, default=None)
