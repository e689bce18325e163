"""What one model learned, as plain data: its accuracy, its explanation, and the canonical form of its program."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, MutableMapping
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

import torch

from interp.certificates.certificate import Certificate
from interp.certificates.certify import certify_model
from interp.certificates.known import find_known
from interp.errors import UnsupportedError
from interp.measures.accuracy import accuracy
from interp.models.architecture.task_model import TaskModel
from interp.models.subject import Model, Subject, Value
from interp.programs.explanations import Explanation, explain_subject
from interp.programs.explanations.causal import RULES
from interp.programs.explanations.engine import inputs_of
from interp.programs.explanations.explanation import how, weights_hash
from interp.programs.explanations.findings import USED
from interp.programs.many.canonical import FORM, canonical
from interp.programs.running import Running
from interp.support.resources import threads_for
from interp.tasks import Batch
from interp.tasks.populations import everything, sample

Row: TypeAlias = dict[str, Any]
COMMON = 256
"""Most inputs on which programs are compared."""
SEED = 3
"""Seed of these inputs, if they are drawn."""


@dataclass(frozen=True, repr=False)
class OfOneTask(Subject):
    """A model under study whose task draws each sample once for all models of a comparison; what depends on the inputs
    alone, such as labels, is made once."""

    known: MutableMapping[Batch, dict[tuple[str, ...], Any]] = field(default_factory=WeakKeyDictionary, compare=False)

    def shared(self, what: str, batch: Batch, make: Callable[[], Value]) -> Value:
        """See Subject.shared."""
        known, key = self.known.setdefault(batch, {}), (what, self.read_at, self.model.cfg.attention_dir)
        if key not in known:
            known[key] = make()
        value: Value = known[key]
        return value


Tasks: TypeAlias = dict[tuple[type, str], OfOneTask]
"""The first model of each task, by the task's class and reference."""


@torch.no_grad()
def learned(model: TaskModel, name: str, certify: bool = False, tasks: Tasks | None = None) -> Row:
    """Explain a model and return its row: accuracy and its interval, level, agreement, constants, parts, and the
    canonical form of its program (None without one). certify: whether to ask for a certificate; see `right_of`. tasks:
    what earlier models of a comparison have drawn, to which this one's task is added."""
    subject = sharing(model, {} if tasks is None else tasks)
    with threads_for(model):
        finding, right = explain_subject(subject, name), right_of(subject, certify)
    return {
        "model": name, "form": FORM, "rules": RULES, "task": finding.task, "asked": subject.task.ref.model_dump_json(),
        "seed": model.seed, "spec": model.spec.id, "weights": weights_hash(subject), **right, "level": finding.level,
        "answers": None if finding.agreement is None else finding.agreement.share, "interchange": _least(finding),
        "constants": finding.constants if finding.found else None, "parts": len(finding.parts),
        "used": sum(part.status in USED for part in finding.parts), "how": how(finding, weights=True),
        "reason": finding.reason, "canonical": None,
        "explanation": json.loads(finding.to_json()), **_form(finding, subject),
    }  # fmt: skip


def sharing(model: TaskModel, tasks: Tasks) -> Subject:
    """Return a model under study whose task draws each sample once, for all models that share these tasks."""
    subject = Subject.of(model)
    key = type(subject.task), subject.task.ref.model_dump_json()
    if key not in tasks:
        task = copy(subject.task)
        task.sample = cache(subject.task.sample)  # type: ignore[method-assign]
        tasks[key] = OfOneTask(model, task)
    return replace(tasks[key], model=model, notes=subject.notes)


def right_of(model: Model, certify: bool) -> Row:
    """The accuracy of a model: exact if its task lists its inputs, or, if that is asked for, by a certificate that
    knows it; otherwise of a sample, with its interval. The row says whether one was asked for."""
    if certify and (proved := _proved(model)) is not None:
        share = proved.accuracy
        return {"accuracy": share, "low": share, "high": share, "exact": True, "n": proved.n_answers or proved.n_inputs,
                "on": f"by a certificate: {proved.domain}", "certify": certify}  # fmt: skip
    right = accuracy(model)
    return {"accuracy": right.accuracy, "low": right.low, "high": right.high, "exact": right.exact, "n": right.answers,
            "on": right.on, "certify": certify}  # fmt: skip


def needs_certificate(row: Row, certify: bool) -> bool:
    """Whether a certificate is asked for that may make the row's accuracy exact, and was not when it was made."""
    return certify and not row["exact"] and not row.get("certify")


def _proved(model: Model) -> Certificate | None:
    """A certificate, shipped or made now, that knows the exact accuracy; None if there is none."""
    task_model = Subject.of(model).model
    assert isinstance(task_model, TaskModel)
    try:
        certificate = find_known(task_model) or certify_model(task_model)
    except UnsupportedError:
        return None
    return None if isinstance(certificate.accuracy, tuple) else certificate


def reformed(model: TaskModel, row: Row) -> Row:
    """Return the row of a model with the canonical form made anew from its explanation."""
    explanation = Explanation.from_json(json.dumps(row["explanation"]))
    return {"on": "", **row, "form": FORM, "canonical": None, **_form(explanation, Subject.of(model))}


def _form(explanation: Explanation, subject: Subject) -> Row:
    if explanation.program is None:
        return {}
    running = Running.of(subject, common(subject))
    return {"canonical": canonical(explanation.program, running.batch.tokens, running.counts).to_plain()}


def common(subject: Subject) -> Batch:
    """Return the inputs on which all models of a task are compared: all, or some of the split that is explained."""
    task = subject.task
    if task.n_inputs is not None and task.n_inputs <= COMMON:
        return everything(task).batch
    return sample(task, COMMON, inputs_of(subject).split, SEED).batch


def _least(explanation: Explanation) -> float | None:
    """The least interchange intervention accuracy of a variable, or None without one that changes an answer."""
    known = [variable.interchange.accuracy for variable in explanation.variables]
    return min((value for value in known if not math.isnan(value)), default=None)
