"""How much of small trained models does interp.explain read out of their weights?

python analyses/explain_trained.py --out out/explain_trained [--quick | --smoke]
python analyses/explain_trained.py "unique copy" sort --out out/explain_trained

Trains twelve models (shared/small_tasks.py: 1 to 3 layers, causal and not, with and without norms and MLPs), and
explains each. Weights are kept in OUT/models, so that a second run trains nothing. The table says the level, the share
of the model's answers that the program of the parts (or the rule for the answers) gives, its constants, the parts that
are not described, and all that is said. Full: all models; quick: the four that train fastest; smoke: one of these, with
a shorter training.
"""

from __future__ import annotations

import sys
from pathlib import Path
from time import process_time

import pandas as pd
from shared.script import Arguments, run
from shared.small_tasks import RECIPES

import interp
from interp.errors import InterpError, one_of
from interp.measures.accuracy import accuracy
from interp.models.architecture.task_model import TaskModel
from interp.programs.explanations.explanation import LEVELS
from interp.report import Report

QUICK, SMOKE = ("reverse", "copy", "majority of 26", "modular difference"), "reverse"


def names(arguments: Arguments) -> list[str]:
    """The models that are asked for."""
    if arguments.checkpoints == ("all",):
        return list(arguments.pick(RECIPES, QUICK, [SMOKE]))
    for name in arguments.checkpoints:
        if name not in RECIPES:
            raise InterpError(one_of("model", name, RECIPES))
    return list(arguments.checkpoints)


def trained(name: str, folder: Path, smoke: bool) -> TaskModel:
    """The model of this name, trained if the folder does not have it."""
    file = folder / f"{name.replace(' ', '-')}{'-smoke' * smoke}.safetensors"
    if file.is_file():
        return interp.load(file)
    spec = RECIPES[name]()
    if smoke:
        spec = spec.replace(origin=spec.origin.model_copy(update={"epochs": 6}))
    (model,) = interp.train(spec, progress=False)
    folder.mkdir(parents=True, exist_ok=True)
    interp.save(model, file)
    return model


def row(name: str, model: TaskModel) -> dict[str, object]:
    """One line of the table."""
    started = process_time()
    found = interp.explain(model)
    seconds = process_time() - started
    kept = [f"{one.part}: {one.note}" for one in found.parts if one.status == "kept"]
    agreement = found.agreement
    return {
        "model": name, "layers": len(model.spec.layers), "parameters": found.parameters,
        "accuracy": accuracy(model).accuracy, "level": found.level,
        "share": agreement and agreement.share, "least": agreement and agreement.least,
        "inputs": agreement and agreement.on,
        "constants": found.constants if found.found else None, "used": len(found.parts) - found.count("not used"),
        "described": found.count("explained"), "not described": "; ".join(kept), "reason": found.reason,
        "CPU seconds": round(seconds, 1), "said": found.sentence,
        "parts": "; ".join(f"{one.part} {one.does}" for one in found.parts if one.does),
    }  # fmt: skip


def study(arguments: Arguments) -> Report:
    rows = []
    for name in names(arguments):
        rows.append(row(name, trained(name, arguments.out / "models", arguments.mode == "smoke")))
        print(" | ".join(str(value) for value in rows[-1].values()), file=sys.stderr, flush=True)
    table = pd.DataFrame(rows)
    report = Report("The algorithms of small trained models")
    report.add_table("models", table, "One row for each model.", max_rows=20)
    counts = table["level"].value_counts()
    levels = ", ".join(f"{counts.get(level, 0)} {level}" for level in LEVELS)
    slowest = table.loc[table["CPU seconds"].idxmax()]
    report.verdict = f"{len(table)} trained models: {levels}. Slowest: {slowest['model']}."
    return report


if __name__ == "__main__":
    run(study, __doc__, default="all", what="names of models")
