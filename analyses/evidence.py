"""Evidence of every certificate that is shipped, made and checked: how large is it, and how long does each take?

python analyses/evidence.py --out out/evidence [--quick | --smoke]
python analyses/evidence.py histogram/dot-exact count01/paper/seed-0 --out out/evidence

One file for each exact model in all its variants and for each checkpoint, in out/evidence/evidence, which a bare Python
checks with interp/certificates/check.py. Models in float32 whose margins rounding might exceed are taken in float64.
Full: all of them, which takes an hour or two: some certificates run millions of inputs, and some checks take minutes.
Quick: the last three names; smoke: the last one, one checkpoint.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import torch

import interp
from interp.architecture.task_model import TaskModel
from interp.certificates import certify_model, check
from interp.constructions import registered_constructions
from interp.errors import InterpError, UnsupportedError
from interp.report import Report
from interp.report.script import Arguments, run

CHECKER = Path(check.__file__)
COLUMNS = ["name", "variant", "verdict", "claim", "evidence_sha256", "weights_sha256", "bytes", "make_seconds",
           "check_seconds"]  # fmt: skip


def models(arguments: Arguments) -> Iterator[tuple[str, str, TaskModel]]:
    """Name, variant or checkpoint, and model of everything that is asked for."""
    asked, exact = arguments.checkpoints, registered_constructions()
    table = interp.list_models().set_index("name")
    shipped = [name for name in table.index if name not in exact or not pd.isna(table.loc[name, "parameters"])]
    names = shipped if asked == ("all",) else list(asked)  # not the exact models of a table of the user's own
    if asked == ("all",):
        names = names[-arguments.pick(len(names), 3, 1) :]
    for name in names:
        if name in exact and not pd.isna(table.loc[name, "parameters"]):
            variants = tuple(v for v in exact[name].variants if v != "auto") or ("",)
            for variant in variants[: arguments.pick(99, 99, 1)]:
                yield name, variant, interp.build(name, variant=variant or None)
        elif name in table.index:
            for seed in table.loc[name, "seeds"][: arguments.pick(99, 99, 1)]:
                yield name, f"seed-{seed}", interp.load(f"{name}/seed-{seed}")
        else:
            yield name, "", interp.load(name)


def row_of(name: str, variant: str, model: TaskModel, folder: Path) -> dict[str, object]:
    """Evidence written and checked in a process of its own, or the reason why there is none."""
    row: dict[str, object] = {"name": name, "variant": variant}
    path = folder / f"{name}-{variant}.json.gz".replace("-.json", ".json").replace("/", "-")
    started = time.perf_counter()
    try:
        verdict, evidence = made(model, path)
    except InterpError as error:
        return {**row, "verdict": "no evidence", "claim": str(error).split(": ", 1)[-1][:300]}
    done, started = time.perf_counter() - started, time.perf_counter()
    command = [sys.executable, "-I", "-S", str(CHECKER), str(path), "--weights-sha256", evidence["weights_sha256"]]
    checked = subprocess.run([*command, "--processes", "2"], capture_output=True, text=True, check=False)
    said = (checked.stdout or checked.stderr).splitlines()[0]
    return row | {
        "verdict": f"{verdict}; {said.split(':')[0]}",
        "claim": said.partition(": ")[2],
        "evidence_sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "weights_sha256": evidence["weights_sha256"],
        "bytes": path.stat().st_size,
        "make_seconds": round(done, 1),
        "check_seconds": round(time.perf_counter() - started, 1),
    }


def made(model: TaskModel, path: Path) -> tuple[str, dict[str, Any]]:
    """The certificate's status and its evidence; in float64 where float32 proves nothing of what is run."""
    options = {"budget_seconds": 2.0} if model.task.name == "histogram" else {}
    found = certify_model(model, **options)
    if model.embed.W_E.dtype != torch.float64:
        try:
            evidence = check.read(str(found.evidence(path)))
        except UnsupportedError:
            raise
        except InterpError:
            evidence = {}
        if not evidence or evidence["claim"]["format"] == "reals":
            tensors = {key: value.detach() for key, value in model.named_parameters()}
            found = certify_model(
                TaskModel(model.spec, model.task, tensors, seed=model.seed, dtype="float64"), **options
            )
            evidence = check.read(str(found.evidence(path)))
    else:
        evidence = check.read(str(found.evidence(path)))
    return found.status, evidence


def study(arguments: Arguments) -> Report:
    folder = arguments.out / "evidence"
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for name, variant, model in models(arguments):
        rows.append(row_of(name, variant, model, folder))
        print(*rows[-1].values(), sep=", ", flush=True)
    if not rows:
        raise InterpError("there is nothing to prove: no models found")
    table = pd.DataFrame(rows).reindex(columns=COLUMNS)
    report = Report("Checked without us")
    report.section(
        "Evidence", "What a bare Python says of each file; seconds of wall time, to check with two processes."
    )
    report.add_table("evidence", table, "One row for each model.", max_rows=200)
    holds = table["verdict"].str.endswith("; holds").sum()
    report.verdict = f"{holds} of {len(table)} models have evidence that holds."
    return report


if __name__ == "__main__":
    run(study, __doc__, default="all")
