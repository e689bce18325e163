"""Certificates shipped with interp, for models whose proofs take a minute.

known.json contains them, keyed by spec, number format and hash of the weights (see analyses/known_certificates.py).
Models with other weights, with hooks or with a changed task do not get one.
"""

import json
from dataclasses import fields, replace
from functools import cache
from importlib.resources import files
from typing import Any

import pandas as pd

from interp.certificates.arithmetic import lowered
from interp.certificates.certificate import Certificate, MadeBy
from interp.certificates.evidence import write_evidence
from interp.certificates.probes import compare_with_fresh, probes_of, remake_model
from interp.models.architecture.task_model import TaskModel
from interp.models.subject import autocast
from interp.tasks.task import tensors_sha256

FILE = "known.json"
COMPARED = 16
"""Number of inputs per split on which the model is compared with a fresh one; some inputs have 1000 symbols."""
NOT_KEPT = ("source", "probes", "on_record")
"""Fields that are not stored: they refer to a model in memory, or are the same for all stored certificates."""


def find_known(model: TaskModel) -> Certificate | None:
    """Return the shipped certificate for this model, or None.

    The model is checked and compared with a fresh one on the task's probes, as in certify_model. Raises
    UnsupportedError if it differs from its spec.
    """
    if not (of_spec := [key for key in _all() if key.startswith(f"{model.spec.id}:")]):
        return None
    if next(model.parameters()).device.type != "cpu" or autocast() is not None or lowered() is not None:
        return None  # the certificate is for a CPU and full precision
    fresh = remake_model(model)
    if (key := key_of(fresh)) not in of_spec:
        return None
    certificate = from_plain(_all()[key])
    few = (batch[slice(0, COMPARED)] for batch in probes_of(fresh.task, ()))
    method, options = _all()[key]["made_by"]
    source = MadeBy(fresh, method, options, write_evidence)
    return replace(certificate, source=source, on_record=True, probed=compare_with_fresh(model, fresh, few))


def key_of(model: TaskModel) -> str:
    """Return the key of a certificate: the spec's id, the number format and the hash of the weights."""
    tensors = {name: parameter.detach().cpu().contiguous() for name, parameter in model.named_parameters()}
    dtype = str(next(iter(tensors.values())).dtype).removeprefix("torch.")
    return f"{model.spec.id}:{dtype}:{tensors_sha256(tensors)}"


def to_plain(found: Certificate) -> dict[str, Any]:
    """Return a certificate as plain data for JSON, without references to its model."""
    data = {field.name: getattr(found, field.name) for field in fields(found) if field.name not in NOT_KEPT}
    tables = {name: table.to_dict(orient="split", index=False) for name, table in found.tables.items()}
    assert found.source is not None  # certify_model made it
    return data | {"tables": tables, "made_by": [found.source.method, found.source.options]}


def from_plain(data: dict[str, Any]) -> Certificate:
    """Return the inverse of to_plain."""
    data = {name: value for name, value in data.items() if name != "made_by"}
    for name in ("accuracy", "notes", "on_trust"):
        data[name] = tuple(data[name]) if isinstance(data[name], list) else data[name]
    data["tables"] = {name: pd.DataFrame(**table) for name, table in data["tables"].items()}
    return Certificate(**data)


@cache
def _all() -> dict[str, dict[str, Any]]:
    file = files("interp.certificates") / FILE
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
