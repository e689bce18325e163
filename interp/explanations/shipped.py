"""Explanations shipped with interp, found by the hash of the weights."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files

from interp.architecture.task_model import TaskModel, hooked
from interp.explanations.explanation import Explanation
from interp.measures.subject import Subject
from interp.tasks.base import tensors_sha256

FILE = "shipped.json"


def weights_hash(subject: Subject) -> str | None:
    """Return the sha256 of a task model's weights and task; None for other models and for models with hooks."""
    model = subject.model
    if not isinstance(model, TaskModel) or subject.token_ids is not None or hooked(model):
        return None
    tensors = {name: parameter.detach().cpu().contiguous() for name, parameter in model.named_parameters()}
    return f"{model.spec.id}:{tensors_sha256(tensors)}"


def shipped(subject: Subject) -> Explanation | None:
    """Return the shipped explanation of exactly these weights, or None."""
    key = weights_hash(subject)
    known = _known()
    return None if key is None or key not in known else Explanation.from_json(json.dumps(known[key]))


@cache
def _known() -> dict[str, dict[str, object]]:
    file = files("interp.explanations") / FILE
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
