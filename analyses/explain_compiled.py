"""Are the programs of compiled models, whose circuits are known, read out of their weights, and nothing else?

python analyses/explain_compiled.py --out out/explain_compiled [--quick | --smoke]
python analyses/explain_compiled.py 1000-1199 --out out/others

Compiles one random program for each seed (shared/random_programs.py: 1 to 4 layers of 1 to 3 heads, with and without
MLPs, causal and not, with padding and marks), adds decoys (heads and tables that nothing reads), eight dead neurons in
each layer and noise on all weights, rotates the residual stream, and decompiles the model. For each part that is used,
the table compares how its variable divides the positions of inputs with the truth, where the true variable matters
(where another of its values would change an answer): the same; equivalent (values with the same effect are one); or
wrong (all else). A part is said to read a false variable if its true step does not read it, and a superfluous one if
no answer changes when only this part reads it from another input (shared/judged_by_hooks.py). If true parts are said
not to be used, the model runs with all of them at their means. A second table scores the circuits that other techniques
find on the same models, by the kind of decoys. Full: seeds 0 to 199; quick: the first 40; smoke: two small ones.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass
from time import process_time

import pandas as pd
import torch
from shared.compiled_truth import STAYS, edges_scored, partition, removed, true_edges
from shared.judged_by_hooks import Examined, parts_of, ways
from shared.random_programs import Shape, random_program
from shared.script import Arguments, run

import interp
from interp.errors import InterpError
from interp.measures.accuracy import accuracy
from interp.models.architecture.task_model import TaskModel
from interp.models.subject import Subject
from interp.programs.explanations import Explanation
from interp.programs.language import Head, Program
from interp.programs.task import ProgramTask
from interp.report import Report
from interp.tasks.pairs import KINDS

DECOYS, DEAD, NOISE = 4, 8, 1e-6
KINDS_OF_DECOYS = {
    "none": {}, "heads and tables": {"decoys": DECOYS}, "dead neurons": {"dead": DEAD},
    "all, and noise": {"decoys": DECOYS, "dead": DEAD, "noise": NOISE},
}  # fmt: skip
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
    found: Explanation


@torch.no_grad()
def read(model: TaskModel) -> Reading:
    """Explain a model."""
    found = interp.explain(model)
    used = frozenset(part.part for part in found.parts if part.status != "not used")
    share = 0.0 if found.program is None or found.agreement is None else found.agreement.share
    return Reading(found.level, share, used, found.program, found)


def inputs_said(found: Explanation) -> list[tuple[str, str, str, list[str]]]:
    """What each part is said to read: the part, how, the variable, and what writes it."""
    said = []
    for step in () if found.program is None else (*found.program.steps, found.program.answer):
        part = getattr(step, "part", "") or ("output" if step is found.program.answer else "")
        inside = "." in part and not isinstance(step, Head)  # computed of what a head carries, and read by no edge
        said += [(part, way, name, parts_of(found, name, part)) for way, name in ways(step) if part and not inside]
    return said


def false_and_superfluous(
    task: ProgramTask, model: TaskModel, found: Explanation, tokens: torch.Tensor
) -> tuple[list[str], list[str]]:
    """Inputs that parts are said to read, but do not, and those that make no difference to an answer."""
    true = true_edges(task.program)
    read = {part: {one for one, to in true if to == part} for part in {to for _, to in true}}
    given = {
        part: {name for step in (*task.program.steps, task.program.answer) if (step.part or "output") == part
               for name in step.of if name in ("token", "position")} for part in read
    }  # fmt: skip
    examined, false, idle = Examined(Subject.of(model), tokens), [], []
    for part, way, name, sources in inputs_said(found):
        known = read.get(part, set()) | given.get(part, set())
        false += [f"{part} reads {one}" for one in sources if one not in known]
        if sources and not examined.edge(part, way, sources):
            idle.append(f"{part} reads {name} ({way})")
    return false, idle


def seeds(arguments: Arguments) -> range:
    try:
        first, last = map(int, arguments.checkpoint.split("-"))
    except ValueError:
        raise InterpError(f"seeds = {arguments.checkpoint!r}: give a range such as 1000-1199") from None
    return range(first, last + 1)[: arguments.pick(None, 40, 2)]


def scored(seed: int, shape: Shape) -> dict[str, object]:
    """One row of the table."""
    model = interp.compile(random_program(seed, shape), decoys=DECOYS, dead=DEAD, noise=NOISE, rotate=seed, seed=seed)
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
    false, idle = false_and_superfluous(task, model, found.found, tokens[some])
    counts = Counter("wrong" if role not in GOOD else role for role in roles.values())
    return {
        "seed": seed, "layers": len(model.spec.layers), "heads": sum(isinstance(s, Head) for s in program.steps),
        "MLPs": sum(not isinstance(s, Head) for s in program.steps), "causal": program.causal,
        "padding": program.pad is not None, "marks": sum(map(len, task.ends)), "read": program.read,
        "inputs": task.n_inputs, "right": accuracy(model).accuracy,
        "level": found.level, "share": found.share, "parts": len(true),
        "used": len(found.used), "missing": ", ".join(missing), "stays without": kept, "extra": ", ".join(extra),
        "false": "; ".join(false), "superfluous": "; ".join(idle),
        "same": counts["same"], "equivalent": counts["equivalent"], "wrong": counts["wrong"],
        "roles": "; ".join(f"{part} {role}" for part, role in roles.items()), "CPU seconds": seconds,
    }  # fmt: skip


def circuit(seed: int, shape: Shape, kind: str) -> dict[str, object]:
    """How well the circuit that interp.find_circuit finds, and the effects of edges, tell what is true from decoys."""
    model = interp.compile(random_program(seed, shape), **KINDS_OF_DECOYS[kind], rotate=seed, seed=seed)
    task: ProgramTask = model.task  # type: ignore[assignment]
    true, found = {step.part for step in task.program.steps}, set(interp.find_circuit(model).kept)
    parts = sum(layer.n_heads + (layer.mlp is not None) for layer in model.spec.layers)
    return {"seed": seed, "decoys": kind, "parts": len(true), "others": parts - len(true), "found": len(found),
            "true of found": len(true & found), **edges_scored(model)}  # fmt: skip


def study(arguments: Arguments) -> Report:
    shape = Shape(layers=1, heads=1) if arguments.mode == "smoke" else Shape()
    rows = []
    for seed in seeds(arguments):
        rows.append(scored(seed, shape))
        print(" | ".join(str(value) for value in rows[-1].values()), file=sys.stderr, flush=True)
    table = pd.DataFrame(rows)
    chosen = seeds(arguments)[:CIRCUITS]
    circuits = pd.DataFrame([circuit(seed, shape, kind) for kind in KINDS_OF_DECOYS for seed in chosen])
    report = Report("Programs read out of compiled models")
    report.add_table("models", table, "One row for each compiled model.", max_rows=250)
    report.add_table(
        "circuits", circuits,
        "Parts of the circuit that interp.find_circuit finds, and the area under the ROC curve of the effects of edges "
        "(interp.measures.edges.edge_effects) against the true ones, by kind of minimal pair and by kind of edge, for "
        "each model and kind of decoys.",
        max_rows=4 * CIRCUITS,
    )  # fmt: skip
    explained, wrong = int((table["level"] == "explained").sum()), table[table["right"] < 1]
    parts = int(((table["extra"] == "") & (table["stays without"] >= STAYS)).sum())
    report.verdict = (
        f"{explained} of {len(table)} compiled models are explained by a program of their parts. {broken(wrong)}"
        f"The used parts are the true ones, up to some without which the answers stay, in {parts}; "
        f"{int((table['extra'] == '').sum())} "
        f"have no decoy among them. Of {int(table[['same', 'equivalent', 'wrong']].sum().sum())} variables of parts, "
        f"{int(table['same'].sum())} divide the inputs as the true ones do, {int(table['equivalent'].sum())} up to "
        f"values with the same effect, and {int(table['wrong'].sum())} otherwise. No part is said to read "
        f"a false variable in {int((table['false'] == '').sum())}, or a superfluous one in "
        f"{int((table['superfluous'] == '').sum())}. "
        f"{nodes(circuits)} The mean area under the ROC curve of "
        f"the effects of edges is {circuits['largest'].mean():.2f}, and {areas(circuits)}."
    )
    return report


def broken(wrong: pd.DataFrame) -> str:
    """Which models do not give all answers of the programs that they were compiled from, because of the noise."""
    each = (f"{row.seed} ({row.right:.4f}, {row.level})" for row in wrong.itertuples())
    return f"With the noise, not all answers of their programs are given by {', '.join(each)}. " if len(wrong) else ""


def nodes(circuits: pd.DataFrame) -> str:
    """What interp.find_circuit finds, by kind of decoys."""
    said = []
    for kind, some in circuits.groupby("decoys", sort=False):
        true, found = int(some["true of found"].sum()), int(some["found"].sum())
        said.append(
            f"{true} of {int(some['parts'].sum())} and {found - true} of {int(some['others'].sum())} others ({kind})"
        )
    return f"Of the true parts of {circuits['seed'].nunique()} models, interp.find_circuit finds {', '.join(said)}."


def areas(circuits: pd.DataFrame) -> str:
    """The mean area by kind of pair, and by kind of edge (over the models that have true and other ones)."""
    pairs = [f"{circuits[kind].mean():.2f} on pairs of kind {kind!r}" for kind in KINDS if kind in circuits]
    edges = [f"{circuits[kind].mean():.2f} of edges {kind}" for kind in circuits if "->" in kind]
    return ", ".join([*pairs, *edges])


if __name__ == "__main__":
    run(study, __doc__, default="0-199", what="range of seeds")
