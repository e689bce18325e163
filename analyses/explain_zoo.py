"""The algorithm of every model of the zoo: at which level it is explained, and whether it is proved on all inputs.

python analyses/explain_zoo.py --out out/explain_zoo [--quick | --smoke]
python analyses/explain_zoo.py histogram/dot languages/parity --out out/explain_zoo

Writes OUT/shipped.json after each model: the explanations that come with interp, in
interp/programs/explanations/shipped.json, are this file. Models that it holds already, with the same weights, are not
explained anew, so a run that was cut off goes on. The verdict counts levels and proofs.
Smoke: one model; otherwise all, about ten seconds each, and up to two minutes for a proof.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from time import process_time

import pandas as pd
from shared.script import Arguments, run

import interp
from interp.errors import InterpError, UnsupportedError
from interp.models.subject import Subject
from interp.programs.explanations import Explanation
from interp.programs.explanations.explanation import LEVELS, SHIPPED, weights_hash
from interp.programs.explanations.findings import STATUSES
from interp.report import Report
from interp.support.files import write_atomically

SMOKE = "algorithmic/max-of-k-exact"


def names(arguments: Arguments) -> list[str]:
    """The models that are asked for; of all, those that have weights."""
    if arguments.checkpoints != ("all",):
        return list(arguments.checkpoints)
    if arguments.mode == "smoke":
        return [SMOKE]
    table = interp.list_models()
    return [name for name, parameters in zip(table["name"], table["parameters"]) if not pd.isna(parameters)]


def explained(name: str, known: dict[str, dict[str, object]]) -> Explanation:
    """The explanation of a model, from `known` where it is there; put there otherwise."""
    model = interp.load(name)
    key = weights_hash(Subject.of(model))
    if key in known:
        return Explanation.from_json(json.dumps(known[key]))
    found = proved(interp.explain(name))
    if key is not None:
        known[key] = json.loads(found.to_json())
    return found


def proved(found: Explanation) -> Explanation:
    """The explanation with its proof, or with the exact share of the answers, where an engine applies."""
    if found.program is None:
        return found
    try:
        return found.certify()
    except UnsupportedError as error:
        print(f"{found.model}: {error}", file=sys.stderr)
        return found


def row(name: str, found: Explanation) -> dict[str, object]:
    """One line of the table."""
    line: dict[str, object] = {
        "model": name,
        "level": found.level,
        "proved": str(found.proved or ""),
        "said": found.sentence,
    }
    line["parameters"] = found.parameters
    line |= {status: found.count(status) for status in STATUSES}
    if found.variables:
        least = min(found.variables, key=lambda one: one.interchange.accuracy)
        line |= {"least interchange": least.interchange.accuracy, "of": least.name,
                 "changes": least.interchange.changes.n, "stays": least.interchange.stays.n}  # fmt: skip
    if found.found and found.agreement is not None:
        line |= {
            "constants": found.constants, "share": found.agreement.share, "least": found.agreement.least,
            "low": found.agreement.low, "inputs": found.agreement.on, "parts tested": found.tested_on,
        }  # fmt: skip
    return line


def study(arguments: Arguments) -> Report:
    arguments.out.mkdir(parents=True, exist_ok=True)
    file = arguments.out / SHIPPED
    known = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    rows = []
    for name in names(arguments):
        try:
            started = process_time()
            found = explained(name, known)
        except InterpError as error:  # a model without weights of its own, say
            print(f"{name}: {error}", file=sys.stderr)
            continue
        rows.append({**row(name, found), "CPU seconds": round(process_time() - started, 1)})
        save(file, known)
        print(" | ".join(str(value) for value in rows[-1].values()), file=sys.stderr, flush=True)
    if not rows:
        raise InterpError("there is nothing to explain: no models found")
    table = pd.DataFrame(rows)
    report = Report("The algorithms of the zoo")
    report.heading(
        "Programs",
        "explained: the program of the parts gives 99% of the model's answers, and of each frequent answer, and the "
        "model computes with its variables (interchange intervention accuracy). imitated: it gives the answers, but "
        "some variables are not the model's. in part: some parts have a description. answers only: a rule gives the "
        "answers, but nothing is said of the parts.",
    )
    report.add_table("explanations", table, "One row for each model.", max_rows=120)
    report.verdict = verdict(table)
    return report


def save(file: Path, known: dict[str, dict[str, object]]) -> None:
    ordered = dict(sorted(known.items(), key=lambda item: str(item[1]["model"])))
    lines = [f"{json.dumps(key)}: {json.dumps(found, separators=(',', ':'))}" for key, found in ordered.items()]
    write_atomically(file, ("{\n" + ",\n".join(lines) + "\n}\n").encode())


def verdict(table: pd.DataFrame) -> str:
    """How many models are explained at each level."""
    counts = table["level"].value_counts()
    levels = ", ".join(f"{counts.get(level, 0)} {level}" for level in LEVELS)
    n_proved = sum(said.startswith("proved") for said in table.loc[table["level"] == "explained", "proved"])
    slowest = table.loc[table["CPU seconds"].idxmax()]
    return (
        f"{len(table)} models: {levels}. Explained and proved on all inputs: {n_proved}. "
        f"Slowest: {slowest['model']}, {slowest['CPU seconds']} s of one core."
    )


if __name__ == "__main__":
    run(study, __doc__, default="all")
