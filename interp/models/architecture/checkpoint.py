"""Checkpoints: safetensors files with the parameters, and with the spec, the seed and a hash in the header.

Reading checks everything: size, header, names, shapes, dtypes, hash and finite values. Broken and hostile files raise
CheckpointError with one sentence, and nothing in them is executed. A task's tables (a conditional distribution that the
task's parameters do not determine) are extra tensors named `task.*`. This module works without transformer_lens.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from interp.errors import CheckpointError, InterpError, as_path
from interp.models.architecture.header import (
    SCHEMA,
    as_checkpoint_error,
    canonical,
    claims_of,
    opened,
    record_of,
    regular_file,
)
from interp.models.architecture.parameters import check_parameters, check_shapes, check_values, parameter_shapes
from interp.models.spec import ModelSpec
from interp.support.files import write_atomically
from interp.tasks import Task, make_task
from interp.tasks.task import tensors_sha256

_TABLE = "task."


@dataclass(frozen=True)
class Checkpoint:
    """The content of a checkpoint: spec, seed of the initialization, parameters, and the task with its tables.

    summary: small facts about the training (final loss, accuracy, ...). versions: of the libraries that wrote it.
    """

    spec: ModelSpec
    seed: int
    tensors: dict[str, Tensor]
    task: Task
    summary: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)


# ---------------------------------------------------------------- writing


def save_checkpoint(
    path: str | Path,
    spec: ModelSpec,
    tensors: Mapping[str, Tensor],
    seed: int,
    summary: Mapping[str, Any] | None = None,
    task: Task | None = None,
) -> Path:
    """Write one checkpoint, either completely or not at all. Equal arguments give equal bytes.

    Raises InterpError (or SpecError) for parameters that do not fit the spec, are not finite or would be rounded to the
    spec's dtype, and CheckpointError for a path that cannot be written.
    """
    path = as_path(path, "a checkpoint")
    if path.suffix != ".safetensors":
        raise CheckpointError(f"{path}: a checkpoint is a .safetensors file")
    spec.check()
    if task is None:
        task = make_task(spec.task)
        spec = spec.replace(task=task.ref)  # drop explicit defaults, so that equal specs have equal ids
    if task.ref != spec.task:
        raise InterpError(f"the spec's task is {spec.task}, not {task.ref}")
    check_parameters(spec, task, tensors)
    stored = {name: _exactly(name, tensor.detach().cpu(), spec) for name, tensor in tensors.items()}
    stored |= {_TABLE + name: table.detach().cpu() for name, table in task.tables().items()}
    record = {
        "schema": SCHEMA,
        "spec": spec.to_dict(),
        "seed": seed,
        "summary": dict(summary or {}),
        "versions": {name: _version(name) for name in ("interp", "torch", "transformer-lens")},
    }
    try:
        record["sha256"] = tensors_sha256(stored, canonical(record))
        text = json.dumps(record, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InterpError(f"{path}: the training summary is not plain finite data: {error}") from None
    metadata = {"format": "pt", "interp": text}
    contiguous = {name: tensor.clone(memory_format=torch.contiguous_format) for name, tensor in stored.items()}
    try:
        write_atomically(path, _ordered(safetensors.torch.save(contiguous, metadata=metadata)))
    except InterpError as error:
        raise CheckpointError(str(error)) from None
    return path


def _exactly(name: str, tensor: Tensor, spec: ModelSpec) -> Tensor:
    """Convert a tensor to the spec's dtype. Raises InterpError if this would round it."""
    wanted: torch.dtype = getattr(torch, spec.dtype)
    if not tensor.to(wanted).to(tensor.dtype).equal(tensor):
        raise InterpError(
            f"{name} is {str(tensor.dtype).removeprefix('torch.')} and would be rounded to the spec's {spec.dtype}; "
            f"use spec.replace(dtype={str(tensor.dtype).removeprefix('torch.')!r})"
        )
    return tensor.to(wanted)


def _ordered(data: bytes) -> bytes:
    """Sort the entries of __metadata__, which safetensors writes in random order."""
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + data[8 + size :]


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"


# ---------------------------------------------------------------- reading


def read_checkpoint(path: str | Path) -> Checkpoint:
    """Read and check one checkpoint file.

    Raises CheckpointError, with one sentence that names the file, for anything but a valid checkpoint.
    """
    path = regular_file(path)
    with as_checkpoint_error(path), opened(path) as file:
        record, salt, claimed = record_of(path, file.metadata())
        spec, seed, summary, versions = claims_of(path, record)
        names = list(file.keys())
        slices = {name: file.get_slice(name) for name in names}
        # Check names, shapes and dtypes before reading tensors, so that a wrong header costs nothing.
        tables = {name.removeprefix(_TABLE): file.get_tensor(name).clone() for name in names if name.startswith(_TABLE)}
        task = make_task(spec.task, tables)
        parameters = [name for name in names if not name.startswith(_TABLE)]
        check_shapes(parameter_shapes(spec, task), {n: slices[n].get_shape() for n in parameters}, lambda: spec.id)
        _check_dtypes(spec, {name: slices[name].get_dtype() for name in parameters})
        tensors = {name: file.get_tensor(name).clone() for name in parameters}
        stored = tensors | {_TABLE + name: table for name, table in tables.items()}
        if tensors_sha256(stored, salt) != claimed:
            raise CheckpointError(f"{path} is damaged: the sha256 of its contents is not the one it was written with")
        check_values(tensors)
    return Checkpoint(spec, seed, tensors, task, summary, versions)


def _check_dtypes(spec: ModelSpec, dtypes: Mapping[str, str]) -> None:
    wanted = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16"}[spec.dtype]
    for name, dtype in dtypes.items():
        if dtype != wanted:
            raise InterpError(f"{name} has dtype {dtype}; {spec.id} needs {wanted} ({spec.dtype})")
