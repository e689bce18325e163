"""What is true of explanations of models that nobody made for this project?

python analyses/explain_outside.py --out out/explain_outside [--quick | --smoke]
python analyses/explain_outside.py histogram "unique copy" --out out/explain_outside

Explains two kinds of models. *Compiled*: programs in the style of a RASP compiler's library and of a benchmark of
circuits (shared/outside_programs.py), each with one head that nothing reads, eight dead neurons in each layer and a
rotated stream. *Trained*: stock models of small tasks, trained in plain torch (shared/outside_tasks.py; kept in
OUT/models). Then every claim is tried by hooks (shared/judged_by_hooks.py): each input of each part is swapped along
its edge, each head's attention is compared with its pattern, the parts that are not used are put at their means, and
each part's value is interchanged. The tables have a row for each model, and one for each claim. Full: all models;
quick: ten compiled ones; smoke: one.
"""

from __future__ import annotations

import sys
from collections import Counter
from time import process_time

import pandas as pd
import torch
from shared.judged_by_hooks import OUT, Claim, examine, verdict
from shared.outside_programs import PROGRAMS
from shared.outside_tasks import RECIPES, trained
from shared.script import Arguments, run

import interp
from interp.errors import InterpError, one_of
from interp.models.architecture.task_model import TaskModel
from interp.models.subject import Subject
from interp.programs.task import ProgramTask
from interp.report import Report

INPUTS = 400
"""Most inputs on which claims are tried."""
LISTED = 1 << 14
VERDICTS = (
    "explained and true",
    "misleading",
    "smaller network",
    "imitated",
    "in part",
    "answers only",
    "none",
    "crash",
)


def compiled(name: str) -> TaskModel:
    """A model of a program, with parts that nothing reads."""
    return interp.compile(PROGRAMS[name](), decoys=1, dead=8, rotate=1)


def inputs(model: TaskModel) -> torch.Tensor:
    """INPUTS rows of all inputs where these can be listed, else of the task's own distribution."""
    if model.task.n_inputs is None or model.task.n_inputs > LISTED:
        return model.task.sample(INPUTS, seed=5).tokens
    tokens = torch.cat([batch.tokens for batch in model.task.inputs()])
    return tokens[torch.randperm(len(tokens), generator=torch.Generator().manual_seed(0))[:INPUTS]]


def judged(name: str, model: TaskModel) -> tuple[dict[str, object], list[dict[str, object]]]:
    """A row for the model, and one for each claim."""
    started = process_time()
    try:
        found = interp.explain(model)
    except Exception as error:  # a crash is a result here
        return {"verdict": "crash", "said": f"{type(error).__name__}: {error}"}, []
    seconds = process_time() - started
    claims: list[Claim] = examine(found, Subject.of(model), inputs(model))
    used = {one.part for one in found.parts if one.status not in OUT}
    row: dict[str, object] = {
        "verdict": verdict(found, claims), "level": found.level, "claims": len(claims),
        "false": sum(one.holds is False for one in claims),
        "false claims": "; ".join(
            f"{one.part} {one.kind} {one.said} ({one.measured:.3g} of {one.n})" for one in claims if one.holds is False
        ),
        "missing": "", "superfluous": "", "constants": found.constants if found.found else None,
        "CPU seconds": round(seconds, 1), "said": found.sentence,
    }  # fmt: skip
    if isinstance(model.task, ProgramTask):
        true = {step.part for step in model.task.program.steps}
        row |= {"missing": ", ".join(sorted(true - used)), "superfluous": ", ".join(sorted(used - true))}
    return row, [{"model": name, **vars(one)} for one in claims]


def study(arguments: Arguments) -> Report:
    chosen = arguments.checkpoints
    if chosen == ("all",):
        chosen = arguments.pick((*PROGRAMS, *RECIPES), tuple(PROGRAMS)[:10], ("previous",))
    rows, claims = [], []
    for name in chosen:
        if name not in PROGRAMS and name not in RECIPES:
            raise InterpError(one_of("model", name, (*PROGRAMS, *RECIPES)))
        kind = "compiled" if name in PROGRAMS else "trained"
        row, found = judged(name, compiled(name) if name in PROGRAMS else trained(name, arguments.out / "models"))
        rows.append({"model": name, "kind": kind, **row})
        claims += found
        print(" | ".join(str(value) for value in rows[-1].values()), file=sys.stderr, flush=True)
    report = Report("Explanations of others' models, tried by hooks")
    report.add_table("models", pd.DataFrame(rows), "One row for each model.", max_rows=len(rows))
    report.add_table("claims", pd.DataFrame(claims), "One row for each claim that was tried.", max_rows=2000)
    report.verdict = " ".join(tallied(kind, rows) for kind in dict.fromkeys(row["kind"] for row in rows))
    tried = [one["holds"] for one in claims if one["holds"] is not None]
    report.verdict += f" Of {len(tried)} claims that were tried, {sum(map(bool, tried))} hold."
    return report


def tallied(kind: object, rows: list[dict[str, object]]) -> str:
    """How many models of a kind have each verdict."""
    tally = Counter(str(row["verdict"]) for row in rows if row["kind"] == kind)
    verdicts = dict.fromkeys([*VERDICTS, *tally])
    return f"{sum(tally.values())} {kind} models: {', '.join(f'{tally[one]} {one}' for one in verdicts)}."


if __name__ == "__main__":
    run(study, __doc__, default="all", what="names of models")
