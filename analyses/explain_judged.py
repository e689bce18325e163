"""What does a peer's measure of validity say of our explanations?

pip install 'interp[judge]'
python analyses/explain_judged.py --out out/explain_judged [--quick | --smoke]
python analyses/explain_judged.py bigram algorithmic/max-of-k --out out/explain_judged

Explains compiled models (shared/outside_programs.py) and trained ones that come with interp, and has each program
judged by the causal abstraction error (CAE) of Méloux et al. 2026 (package causal-abstraction-eval, in
shared/peer_judge.py): the share of interventions after which the model and the program answer differently, from the
program down to the model and from the model up to the program, with noise in the parts that have no place in the
program, and without. Beside it stand our numbers: the level, and the interchange accuracy by hooks
(shared/judged_by_hooks.py), of the cases in which the program says that the answer changes; the lowest of a variable
with 35 cases or more. Full: twelve models, 400 samples each; quick: four; smoke: one, 20 samples.
"""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
import torch
from shared.judged_by_hooks import FEW, SHOWN, Examined, interchanges
from shared.outside_programs import PROGRAMS
from shared.script import Arguments, run

import interp
from interp.errors import InterpError
from interp.models.architecture.task_model import TaskModel
from interp.models.subject import Subject
from interp.report import Report

COMPILED = ("previous", "bigram", "histogram", "pattern", "parity", "pairs")
TRAINED = (
    "algorithmic/max-of-k", "algorithmic/induction", "algorithmic/modular-addition", "algorithmic/brackets",
    "languages/first-learned", "languages/parity-learned",
)  # fmt: skip
ERROR = 0.05
ROWS = 300
"""Rows of tokens that values come from."""


def model_of(name: str) -> TaskModel:
    if name in PROGRAMS:
        return interp.compile(PROGRAMS[name](), decoys=1, dead=8, rotate=1)
    return interp.load(name)


def rows(model: TaskModel, longest: int) -> torch.Tensor:
    """Rows of one length, the most frequent one, so that each can give a value to each other."""
    for split in reversed(model.task.splits):  # where rows are too long for the program, the split with shorter ones
        batch = model.task.sample(20 * ROWS, split, seed=3)
        if batch.tokens.shape[1] <= longest:
            break
    length = batch.lengths.mode().values
    return batch.tokens[batch.lengths == length].unique(dim=0)[:ROWS]


def judged(name: str, n: int) -> dict[str, object]:
    """One row of the table."""
    from shared.peer_judge import Abstraction

    model = model_of(name)
    found = interp.explain(model)
    row: dict[str, object] = {"model": name, "level": found.level}
    if found.program is None:
        return row
    examined = Examined(Subject.of(model), rows(model, found.program.length))
    with torch.no_grad():
        errors = Abstraction(found, examined).judged(n)
        claims = [one for one in interchanges(found, examined) if one.kind == "interchange (changes)"]
    shares = [one.measured or 0.0 for one in claims if one.n >= FEW]
    listed = "; ".join(f"{one.part} {one.measured or 0:.3f} of {one.n}" for one in claims)
    return row | {
        "CAE down": errors.down, "CAE up": errors.up, "CAE down, no noise": errors.down_unfaithful,
        "CAE up, no noise": errors.up_unfaithful, "lowest interchange": min(shares, default=np.nan),
        "interchange": listed,
    }  # fmt: skip


def study(arguments: Arguments) -> Report:
    chosen = arguments.checkpoints
    if chosen == ("all",):
        chosen = arguments.pick((*COMPILED, *TRAINED), (*COMPILED[:2], *TRAINED[:2]), COMPILED[:1])
    n = arguments.pick(400, 200, 20)
    table = []
    for name in chosen:
        table.append(judged(name, n))
        print(" | ".join(map(str, table[-1].values())), file=sys.stderr, flush=True)
    frame = pd.DataFrame(table)
    if "CAE down" not in frame:
        raise InterpError("none of these models has a program of its parts: there is nothing to judge")
    report = Report("Explanations judged by the causal abstraction error")
    report.add_table("models", frame, f"One row for each model; errors on {n} samples.", max_rows=len(frame))
    few = len(frame) - int(frame["lowest interchange"].notna().sum())
    frame = frame[frame["lowest interchange"].notna()]
    plain = frame[["CAE down, no noise", "CAE up, no noise"]].max(axis=1) <= ERROR
    noisy = frame[["CAE down", "CAE up"]].max(axis=1) <= ERROR
    ours = frame["lowest interchange"] >= SHOWN
    report.verdict = (
        f"{len(frame)} models: {int(plain.sum())} programs have an error of at most {ERROR} without noise, and "
        f"{int(noisy.sum())} with noise in the parts that they do not read; {int(ours.sum())} have an interchange "
        f"accuracy of at least {SHOWN} for each variable. The two agree on {int((plain == ours).sum())}. Others have "
        f"no program, or too few cases: {few}."
    )
    return report


if __name__ == "__main__":
    run(study, __doc__, default="all", what="names of models")
