"""Certificates of the shipped models whose proof takes longer than a reader of a report wants to wait.

python analyses/known_certificates.py --out out/known_certificates [--quick | --smoke]
python analyses/known_certificates.py algorithmic/brackets --out out/known_certificates

Writes OUT/known.json: interp/certificates/known.json, from which reports read, is this file of a full run. Each
certificate is bound to the weights, number format and spec of its model. Models whose certificate takes less than 2 CPU
seconds are left out: those are proved anew. Full: up to a minute of search each; quick: 10 s; smoke: one model.
"""

from __future__ import annotations

import json
import sys
import time

import pandas as pd
from shared.script import Arguments, run

import interp
from interp.certificates import Certificate, plan
from interp.certificates.known import FILE, key_of, to_plain
from interp.errors import UnsupportedError
from interp.models.architecture.task_model import TaskModel
from interp.report import Report
from interp.support.files import write_atomically

SMOKE = "histogram/bos-softmax-p2-d45"
LONG = 2.0
"""CPU seconds from which a certificate is kept."""


def study(arguments: Arguments) -> Report:
    arguments.out.mkdir(parents=True, exist_ok=True)
    kept: dict[str, dict[str, object]] = {}
    rows = []
    for name in names(arguments):
        model = interp.load(name)
        started = time.process_time()
        try:
            found = certified(model, arguments.pick(60.0, 10.0, 1.0))
        except UnsupportedError as error:
            print(f"{name}: {error}", file=sys.stderr)
            continue
        seconds = time.process_time() - started
        long = seconds >= LONG or arguments.mode == "smoke"
        if long:
            kept[key_of(model)] = to_plain(found)
        rows.append({"model": name, "status": found.status, "seconds": seconds, "kept": long})
        lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(one)}" for key, one in kept.items())  # a model per line
        write_atomically(arguments.out / FILE, f"{{\n{lines}\n}}\n".encode())
    report = Report("Certificates that are read")
    report.heading("What reports read", f"A certificate is kept where its proof takes {LONG:g} CPU seconds or more.")
    report.add_table("certificates", pd.DataFrame(rows), "One row per model; seconds: CPU time of its certificate.")
    report.verdict = f"{len(kept)} of {len(rows)} certificates are kept."
    return report


def names(arguments: Arguments) -> list[str]:
    """The models that are asked for; of all, those that were trained."""
    if arguments.checkpoints != ("all",):
        return list(arguments.checkpoints)
    table = interp.list_models()
    return [SMOKE] if arguments.mode == "smoke" else [n for n, seeds in zip(table["name"], table["seeds"]) if seeds]


def certified(model: TaskModel, seconds: float) -> Certificate:
    """The certificate, searched for as long as it is given where its method searches."""
    return plan(model).certificate(usual={"seconds": seconds})


if __name__ == "__main__":
    run(study, __doc__, default="all")
