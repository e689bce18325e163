"""Are the programs of compiled models, whose circuits are known, read out of their weights, and nothing else?

python analyses/explain_compiled.py --out out/explain_compiled [--quick | --smoke]
python analyses/explain_compiled.py 1000-1199 --out out/others

Compiles one random program for each seed (shared/random_programs.py: 1 to 4 layers of 1 to 3 heads, with and without
MLPs, causal and not, with padding and marks), adds decoys and rotates the residual stream, and decompiles the model. A
model is explained if the program of its parts gives 99% of its answers, and of each frequent one. For each part that is
used, the table compares how its variable divides the positions of inputs with the truth, where the true variable
matters (where another of its values would change an answer): the same; equivalent (values with the same effect are
one); or wrong (all else). If true parts are said not to be used, the model runs with all of them at their means. A
second table scores the circuits that other techniques find on the same models. Full: seeds 0 to 199; quick: the first
40; smoke: two small ones.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from time import process_time

import pandas as pd
import torch
from shared.compiled_truth import STAYS, edges_scored, partition, removed
from shared.random_programs import Shape, random_program
from shared.script import Arguments, run

import interp
from interp.errors import InterpError
from interp.models.architecture.task_model import TaskModel
from interp.programs.language import Head, Program
from interp.programs.task import ProgramTask
from interp.report import Report
from interp.tasks.pairs import KINDS

DECOYS = 4
COMPARED = 1000
"""Inputs on which variables are compared."""
CIRCUITS = 40
"""Models, the first ones, whose circuits are scored."""
GOOD = ("same", "equivalent")


@dataclass(frozen=True)
class Reading:
    """What an explanation says: its level, the share of answers, the used parts, and their program."""

    level: str
    share: float
    used: frozenset[str]
    program: Program | None


@torch.no_grad()
def read(model: TaskModel) -> Reading:
    """Explain a model."""
    found = interp.explain(model)
    used = frozenset(part.part for part in found.parts if part.status != "not used")
    share = 0.0 if found.program is None or found.agreement is None else found.agreement.share
    return Reading(found.level, share, used, found.program)


def seeds(arguments: Arguments) -> range:
    try:
        first, last = map(int, arguments.checkpoint.split("-"))
    except ValueError:
        raise InterpError(f"seeds = {arguments.checkpoint!r}: give a range such as 1000-1199") from None
    return range(first, last + 1)[: arguments.pick(None, 40, 2)]


def scored(seed: int, shape: Shape) -> dict[str, object]:
    """One row of the table."""
    model = interp.compile(random_program(seed, shape), decoys=DECOYS, rotate=seed, seed=seed)
    task: ProgramTask = model.task  # type: ignore[assignment]
    program, true = task.program, {step.part for step in task.program.steps}
    started = process_time()
    found = read(model)
    seconds = process_time() - started
    tokens = torch.cat([batch.tokens for batch in task.inputs()])
    some = torch.randperm(len(tokens), generator=torch.Generator().manual_seed(seed))[:COMPARED]
    missing, extra = sorted(true - found.used), sorted(found.used - true)
    kept = removed(model, missing, tokens[some]) if missing else 1.0
    roles = {}
    if found.program is not None:
        described = {step.part for step in found.program.steps} & true
        roles = {part: partition(task, part, found.program, tokens[some]) for part in sorted(described)}
    counts = Counter("wrong" if role not in GOOD else role for role in roles.values())
    return {
        "seed": seed, "layers": len(model.spec.layers), "heads": sum(isinstance(s, Head) for s in program.steps),
        "MLPs": sum(not isinstance(s, Head) for s in program.steps), "causal": program.causal,
        "padding": program.pad is not None, "marks": sum(map(len, task.ends)), "read": program.read,
        "inputs": task.n_inputs, "level": found.level, "share": found.share, "parts": len(true),
        "used": len(found.used), "missing": ", ".join(missing), "stays without": kept, "extra": ", ".join(extra),
        "same": counts["same"], "equivalent": counts["equivalent"], "wrong": counts["wrong"],
        "roles": "; ".join(f"{part} {role}" for part, role in roles.items()), "CPU seconds": seconds,
    }  # fmt: skip


def circuit(seed: int, shape: Shape) -> dict[str, object]:
    """How well the circuit that interp.find_circuit finds, and the effects of edges, tell what is true from decoys."""
    model = interp.compile(random_program(seed, shape), decoys=DECOYS, rotate=seed, seed=seed)
    task: ProgramTask = model.task  # type: ignore[assignment]
    true, found = {step.part for step in task.program.steps}, set(interp.find_circuit(model).kept)
    return {"seed": seed, "parts": len(true), "found": len(found), "true of found": len(true & found),
            **edges_scored(model)}  # fmt: skip


def study(arguments: Arguments) -> Report:
    shape = Shape(layers=1, heads=1) if arguments.mode == "smoke" else Shape()
    table = pd.DataFrame([scored(seed, shape) for seed in seeds(arguments)])
    circuits = pd.DataFrame([circuit(seed, shape) for seed in seeds(arguments)[:CIRCUITS]])
    report = Report("Programs read out of compiled models")
    report.add_table("models", table, "One row for each compiled model.", max_rows=250)
    report.add_table(
        "circuits", circuits,
        "Parts of the circuit that interp.find_circuit finds, and the area under the ROC curve of the effects of edges "
        "(interp.measures.edges.edge_effects) against the true ones, by kind of minimal pair and by kind of edge.",
        max_rows=CIRCUITS,
    )  # fmt: skip
    explained = int((table["level"] == "explained").sum())
    parts = int(((table["extra"] == "") & (table["stays without"] >= STAYS)).sum())
    report.verdict = (
        f"{explained} of {len(table)} compiled models are explained by a program of their parts. The used parts are "
        f"the true ones, up to some without which the answers stay, in {parts}; {int((table['extra'] == '').sum())} "
        f"have no decoy among them. Of {int(table[['same', 'equivalent', 'wrong']].sum().sum())} variables of parts, "
        f"{int(table['same'].sum())} divide the inputs as the true ones do, {int(table['equivalent'].sum())} up to "
        f"values with the same effect, and {int(table['wrong'].sum())} otherwise. Of {int(circuits['parts'].sum())} "
        f"true parts of {len(circuits)} models, interp.find_circuit finds {int(circuits['true of found'].sum())}, and "
        f"{int((circuits['found'] - circuits['true of found']).sum())} others. The mean area under the ROC curve of "
        f"the effects of edges is {circuits['largest'].mean():.2f}, and {areas(circuits)}."
    )
    return report


def areas(circuits: pd.DataFrame) -> str:
    """The mean area by kind of pair, and by kind of edge (over the models that have true and other ones)."""
    pairs = [f"{circuits[kind].mean():.2f} on pairs of kind {kind!r}" for kind in KINDS if kind in circuits]
    edges = [f"{circuits[kind].mean():.2f} of edges {kind}" for kind in circuits if "->" in kind]
    return ", ".join([*pairs, *edges])


if __name__ == "__main__":
    run(study, __doc__, default="0-199", what="range of seeds")
