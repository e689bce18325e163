"""The certificate of everything that is shipped, with its evidence, made and checked: how large, and how long?

python analyses/evidence.py --out out/evidence [--quick | --smoke]
python analyses/evidence.py histogram/dot-exact count01/paper/seed-0 --out out/evidence

One row for each exact model in all its variants and for each checkpoint: what its certificate says in the model's own
number format, and what a bare Python says of the file in out/evidence/evidence with interp/certificates/check. A
model in float32 whose margins rounding might exceed has its evidence in float64. models/certificates.csv is the table.
What is done is not done again: a file of the same weights, spec and version of this package is kept, and checked again
only by another checker, so a run that is cut short goes on. Seconds are CPU time of all processes.
Full: all of them, which takes an hour or two: some certificates run millions of inputs, and some checks take minutes.
Quick: the last three names; smoke: the last one, one checkpoint.
"""

from __future__ import annotations

import hashlib
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import torch
from shared.certified_models import certified, row_of
from shared.certified_models import models as models_of
from shared.script import Arguments, run

import interp
from interp.certificates import Certificate, check, plan
from interp.certificates.evidence import model_sha256, weights_sha256
from interp.errors import InterpError, UnsupportedError
from interp.models.architecture.task_model import TaskModel
from interp.report import Report
from interp.support.files import write_atomically

CHECKER = Path(check.__file__).parent
COLUMNS = ["name", "variant", "kind", "sampled", "status", "accuracy low", "accuracy high", "worst_margin", "rounding",
           "proved counts", "wrong counts", "domain", "seconds", "evidence", "evidence_sha256", "weights_sha256",
           "bytes", "make_seconds", "check_seconds"]  # fmt: skip


def known(path: Path, model: TaskModel) -> dict[str, object]:
    """What an earlier run noted of the same model and version, if the file still is what it was; else nothing."""
    try:
        row = json.loads(path.read_text())
        file = path.with_suffix(".gz")
        same = row["of"] == of(model) and (row["evidence_sha256"] is None or row["evidence_sha256"] == sha256(file))
    except (OSError, ValueError, KeyError):
        return {}
    return dict(row) if same else {}


def of(model: TaskModel) -> str:
    return f"{model.spec.id}, {weights_sha256(model)}, interp {interp.__version__}"


def sha256(path: Path) -> str:
    """Of a file, or of the Python files of a folder."""
    files = sorted(path.glob("*.py")) if path.is_dir() else [path]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def complete(
    name: str, variant: str, kind: str, model: TaskModel, folder: Path, arguments: Arguments
) -> dict[str, object]:
    """One row: the certificate, its evidence and the check, as far as an earlier run has not noted them beside it."""
    file = folder / f"{name}-{variant}.json.gz".replace("-.json", ".json").replace("/", "-")
    note = file.with_suffix(".row")
    row = known(note, model)
    if not row:
        started = cpu()
        found = certified(model, arguments)
        row = row_of(name, variant, kind, model, found, arguments)
        row |= {"seconds": cpu() - started, "evidence_sha256": None, "of": of(model), "counterexample": None}
        started = cpu()
        try:
            if isinstance(found, str):
                raise UnsupportedError(found)
            written(model, found, file)
            row |= {"evidence_sha256": sha256(file), "bytes": file.stat().st_size, "make_seconds": cpu() - started}
        except InterpError as error:
            row["evidence"] = f"none: {error}"
        write_atomically(note, json.dumps(row, default=float))
    if row["evidence_sha256"] is not None and row.get("checker") != sha256(CHECKER):
        digest = check.read(str(file))["weights_sha256"]
        command = [
            sys.executable,
            "-I",
            "-S",
            str(CHECKER),
            str(file),
            "--sha256",
            model_sha256(model),
            "--processes",
            "2",
        ]
        started = cpu()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        said = (done.stdout or done.stderr).splitlines()[-1]
        row |= {
            "evidence": said,
            "weights_sha256": digest,
            "checker": sha256(CHECKER),
            "check_seconds": cpu() - started,
        }
        write_atomically(note, json.dumps(row, default=float))
    return row


def cpu() -> float:
    """CPU seconds of this process and of those that it waited for."""
    return time.process_time() + sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])


def written(model: TaskModel, found: Certificate, file: Path) -> None:
    """Evidence in the model's own number format; in float64 where rounding in float32 might change an answer."""
    own = model.embed.W_E.dtype == torch.float64 or not found.arithmetic.startswith("reals")
    try:
        found.evidence(file)
        claim = check.read(str(file))["claim"]
        if own or claim["format"] != "reals" or claim["kind"] == "places":  # these are over the reals alone
            return
    except UnsupportedError:
        raise
    except InterpError:
        if own:
            raise
    tensors = {key: value.detach() for key, value in model.named_parameters()}
    double = TaskModel(model.spec, model.task, tensors, seed=model.seed, dtype="float64")
    plan(double).certificate(usual={"seconds": 2.0}).evidence(file)


def study(arguments: Arguments) -> Report:
    folder = arguments.out / "evidence"
    folder.mkdir(parents=True, exist_ok=True)
    chosen = list(models_of(arguments))
    if arguments.checkpoints == ("all",):
        names = list(dict.fromkeys(item[0] for item in chosen))
        names = names[: arguments.pick(len(names), 3, 1)]
        chosen = [item for item in chosen if item[0] in names]
    rows = []
    for item in chosen:
        rows.append(complete(*item, folder, arguments))
        print(*(rows[-1].get(key) for key in ("name", "variant", "status", "evidence", "seconds", "make_seconds",
                                              "check_seconds")), sep=", ", flush=True)  # fmt: skip
    if not rows:
        raise InterpError("there is nothing to prove: no models found")
    table = pd.DataFrame(rows).reindex(columns=COLUMNS)
    digits = {"worst_margin": 4, "rounding": 4, "seconds": 2, "make_seconds": 2, "check_seconds": 2}
    for column, n in digits.items():
        table[column] = [None if pd.isna(x) else float(f"{x:.{n}g}") for x in table[column]]
    table["bytes"] = table["bytes"].astype("Int64")
    report = Report("Checked without us")
    report.heading(
        "Certificates and their evidence",
        "What each certificate says, and what a bare Python says of its evidence; CPU seconds.",
    )
    report.add_table("certificates", table, "One row for each model.", max_rows=200)
    holds = table["evidence"].str.startswith(("holds: ", "agrees with ")).sum()
    report.verdict = f"{holds} of {len(table)} models have evidence that holds."
    return report


if __name__ == "__main__":
    run(study, __doc__, default="all")
