"""A program for every model of the zoo: which has one, how large it is, and how many of the model's answers it gives.

python analyses/explain_zoo.py --out out/explain_zoo [--quick | --smoke]
python analyses/explain_zoo.py histogram/dot languages/parity --out out/explain_zoo

Writes OUT/shipped.json after each model: the explanations that come with interp, in interp/explanations/shipped.json,
are this file. Models that it holds already, with the same weights, are not explained anew. The verdict counts models
with a program of at most a tenth as many constants as they have parameters that gives 99% of their answers. Full: up to
5 minutes per model; quick: 1 minute; smoke: 5 seconds, one model.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pandas as pd

import interp
from interp.errors import InterpError
from interp.explanations import Explanation
from interp.explanations.shipped import FILE, weights_hash
from interp.files import write_atomically
from interp.measures.subject import Subject
from interp.report import Report
from interp.report.script import Arguments, run

SMOKE = "algorithmic/max-of-k-exact"
TENTH = 10


def names(arguments: Arguments) -> list[str]:
    """The models that are asked for; of all, those that have weights."""
    if arguments.checkpoints != ("all",):
        return list(arguments.checkpoints)
    if arguments.mode == "smoke":
        return [SMOKE]
    table = interp.list_models()
    return [name for name, parameters in zip(table["name"], table["parameters"]) if not pd.isna(parameters)]


def explained(name: str, known: dict[str, dict[str, object]], seconds: float) -> Explanation:
    """The explanation of a model, from `known` where it is there; put there otherwise."""
    model = interp.load(name)
    key = weights_hash(Subject.of(model))
    if key in known:
        return Explanation.from_json(json.dumps(known[key]))
    found = interp.explain(name, seconds=seconds)
    if key is not None:
        known[key] = json.loads(found.to_json())
    return found


def row(name: str, found: Explanation) -> dict[str, object]:
    """One line of the table."""
    program = found.program.words if found.program else "none"
    line: dict[str, object] = {"model": name, "program": program, "why not": found.reason}
    line["parameters"] = found.parameters
    if found.found and found.agreement is not None:
        line |= {status: found.count(status) for status in ("explained", "kept", "cut")}
        line |= {
            "constants": found.constants, "share": found.agreement.share, "low": found.agreement.low,
            "inputs": found.agreement.on, "parts tested on": found.tested_on,
            "short": found.constants * TENTH <= found.parameters,
        }  # fmt: skip
    return {**line, "seconds": found.seconds}


def study(arguments: Arguments) -> Report:
    arguments.out.mkdir(parents=True, exist_ok=True)
    file = arguments.out / FILE
    known = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    rows = []
    for name in names(arguments):
        try:
            found = explained(name, known, arguments.pick(300.0, 60.0, 5.0))
        except InterpError as error:  # a model without weights of its own, say
            print(f"{name}: {error}", file=sys.stderr)
            continue
        rows.append(row(name, found))
        save(file, known)
        print(" | ".join(str(value) for value in rows[-1].values()), file=sys.stderr, flush=True)
    if not rows:
        raise InterpError("there is nothing to explain: no models found")
    table = pd.DataFrame(rows)
    report = Report("The algorithms of the zoo")
    report.section(
        "Programs",
        "Each program is found from the model's answers and tested against them. Parts: explained, kept as they are, "
        "cut. A program is short where it has at most a tenth as many constants as the model has parameters.",
    )
    report.add_table("explanations", table, "One row for each model.", max_rows=120)
    report.verdict = verdict(table)
    return report


def save(file: Path, known: dict[str, dict[str, object]]) -> None:
    ordered = dict(sorted(known.items(), key=lambda item: str(item[1]["model"])))
    write_atomically(file, (json.dumps(ordered, indent=1) + "\n").encode())


def verdict(table: pd.DataFrame) -> str:
    """How many models have a program, and how many a short one."""
    found = table[table["program"] != "none"]
    short = found[found["short"].astype(bool)] if len(found) else found
    slowest = table.loc[table["seconds"].idxmax()]
    return (
        f"{len(short)} of {len(table)} models ({len(short) / len(table):.0%}) have a program of at most a tenth as "
        f"many constants as parameters that gives 99% of the model's answers; {len(found) - len(short)} more have a "
        f"longer one. The slowest took {slowest['seconds']:.0f} seconds ({slowest['model']})."
    )


if __name__ == "__main__":
    run(study, __doc__, default="all")
