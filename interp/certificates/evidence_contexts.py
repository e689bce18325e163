"""Evidence of certificates over a table's contexts: each context, its right answers, and the bound of its margin."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np
import torch

from interp.architecture.task_model import TaskModel
from interp.certificates.base import Certificate
from interp.certificates.evidence import Finding, register_evidence, smallest, stated
from interp.certificates.memorization import last_logits_with_bound
from interp.errors import InterpError
from interp.tasks import TableTask


@register_evidence("every context of the table")
def contexts_evidence(model: TaskModel, certificate: Certificate, options: dict[str, Any]) -> Finding:
    """One part for each context of positive probability: right, or the output that exceeds every right answer."""
    task = model.task
    assert isinstance(task, TableTask)
    if model.spec.max_length not in (None, task.order):
        raise InterpError(f"evidence is for inputs of one context, {task.order} tokens, not {model.spec.max_length}")
    likely = np.flatnonzero(task.prior > 0)
    values, _ = last_logits_with_bound(model, torch.tensor(task.contexts)[torch.from_numpy(likely)])
    parts: list[list[Any]] = []
    for row, logits in zip(likely, values.numpy()):
        pi = task.conditional[row]
        answers = np.flatnonzero(pi == pi.max())
        others = np.setdiff1d(np.arange(len(pi)), answers)
        best, rival = float(logits[answers].max()), int(others[logits[others].argmax()])
        part: list[Any] = [list(map(int, task.contexts[row])), answers.tolist()]
        margin = best - float(logits[rival])
        parts.append([*part, stated(margin)] if margin > 0 else [*part, rival, stated(-margin)])
    errors = [part[0] for part in parts if len(part) == 4]
    domain = {"order": task.order, "outputs": task.n_out, "tokens": task.d_vocab, "errors": errors}
    text = json.dumps([part[:2] for part in parts], separators=(",", ":"))
    every = f"all {len(parts)} = {task.d_vocab}^{task.order}" if len(parts) == task.d_vocab**task.order else (
        f"each of the {len(parts)}"
    )  # fmt: skip
    said = f"{task.name}: the largest output is a right one for {every} contexts of the table of SHA-256 "
    said += hashlib.sha256(text.encode()).hexdigest()
    if errors:
        said += f" but exactly {len(errors)}, for which it is not"
    return Finding("contexts", domain, parts, smallest([part[-1] for part in parts]), said)
