"""Checkpoints: safetensors files with the parameters, and with the spec, the seed and a hash in the header.

    __metadata__ = {"format": "pt", "interp": JSON of {schema, spec, seed, summary, versions, sha256}}

Reading checks everything: size, header, names, shapes, dtypes, hash and finite values. Broken and hostile files raise
CheckpointError with one sentence, and nothing in them is executed. A task's tables (a conditional distribution that the
task's parameters do not determine) are extra tensors named `task.*`. This module works without transformer_lens.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from interp.architecture.parameters import check_parameters, check_shapes
from interp.errors import CheckpointError, InterpError, as_path
from interp.files import write_atomically
from interp.spec import ModelSpec
from interp.tasks import Task, make_task
from interp.tasks.hashes import tensors_sha256

SCHEMA = 1
MAX_BYTES = 2 * 2**30
"""Largest file that is opened; task models are small."""

MIGRATIONS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}
"""Conversions of older records: schema n -> the same record in schema n + 1."""

_FIELDS = ("schema", "spec", "seed", "summary", "versions")
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


@dataclass(frozen=True)
class CheckpointHeader:
    """The header of a checkpoint; tensors are neither read nor checked."""

    spec: ModelSpec
    seed: int
    summary: dict[str, Any]
    versions: dict[str, str]


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
        raise InterpError(f"the spec's task is {spec.task!r}, not {task.ref!r}")
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
        record["sha256"] = tensors_sha256(stored, _canonical(record))
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


def read_checkpoint(path: str | Path, max_bytes: int = MAX_BYTES) -> Checkpoint:
    """Read and check one checkpoint file.

    Raises CheckpointError, with one sentence that names the file, for anything but a valid checkpoint.
    """
    path = regular_file(path, max_bytes)
    with opened(path) as file:
        record, salt, claimed = _record(path, file.metadata())
        spec, seed, summary, versions = _claims(path, record)
        names = list(file.keys())
        slices = {name: file.get_slice(name) for name in names}
        with as_checkpoint_error(path):
            # Check names, shapes and dtypes before reading tensors, so that a wrong header costs nothing.
            tables = {
                name.removeprefix(_TABLE): file.get_tensor(name).clone() for name in names if name.startswith(_TABLE)
            }
            task = make_task(spec.task, tables)
            parameters = [name for name in names if not name.startswith(_TABLE)]
            check_shapes(spec, task, {name: slices[name].get_shape() for name in parameters})
            _check_dtypes(spec, {name: slices[name].get_dtype() for name in parameters})
        tensors = {name: file.get_tensor(name).clone() for name in parameters}
    stored = tensors | {_TABLE + name: table for name, table in tables.items()}
    if tensors_sha256(stored, salt) != claimed:
        raise CheckpointError(f"{path} is damaged: the sha256 of its contents is not the one it was written with")
    with as_checkpoint_error(path):
        check_parameters(spec, task, tensors)
    return Checkpoint(spec, seed, tensors, task, summary, versions)


def read_header(path: str | Path, max_bytes: int = MAX_BYTES) -> CheckpointHeader:
    """Read the header of a checkpoint without its tensors, for lists of many files."""
    path = regular_file(path, max_bytes)
    with opened(path) as file:
        return CheckpointHeader(*_claims(path, _record(path, file.metadata())[0]))


def regular_file(path: str | Path, max_bytes: int) -> Path:
    path = Path(path)
    if not path.exists():
        raise CheckpointError(f"no such file: {path}")
    if not path.is_file():
        raise CheckpointError(f"{path} is not a regular file; a checkpoint is one .safetensors file")
    size = path.stat().st_size
    if size > max_bytes:
        raise CheckpointError(f"{path} has {size:,} bytes, more than the limit of {max_bytes:,}")
    return path


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except SafetensorError as error:
        raise CheckpointError(f"{path} is not a whole safetensors file: {error}") from None
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror or error}") from None


@contextmanager
def as_checkpoint_error(path: Path) -> Iterator[None]:
    try:
        yield
    except CheckpointError:
        raise
    except InterpError as error:
        raise CheckpointError(f"{path}: {error}") from None


def _record(path: Path, metadata: Mapping[str, str] | None) -> tuple[dict[str, Any], str, str]:
    """Return the header's JSON value in the current schema, the text that was hashed with the tensors, and the hash."""
    if not metadata or set(metadata) != {"format", "interp"} or metadata["format"] != "pt":
        raise CheckpointError(
            f"{path} has no interp header; if it is your own model, put its spec next to it, as "
            f"{path.with_suffix('.toml').name} or {path.with_suffix('.json').name}"
        )
    try:
        record = json.loads(metadata["interp"])
        schema = record.get("schema") if isinstance(record, dict) else None
        if type(schema) is not int or schema < 1:
            raise CheckpointError(f"{path}: its interp header has no schema number")
        if schema > SCHEMA:
            raise CheckpointError(
                f"{path} has checkpoint schema {schema}; this version of interp reads schemas up to {SCHEMA}"
            )
        sha256 = record.pop("sha256", None)
        salt = _canonical(record)
    except CheckpointError:
        raise
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: its interp header is not JSON: {error}") from None
    for step in range(schema, SCHEMA):
        record = MIGRATIONS[step](record)
    if set(record) != set(_FIELDS) or not isinstance(sha256, str):
        raise CheckpointError(f"{path}: its interp header must have {', '.join(_FIELDS)} and sha256")
    return record, salt, sha256


def _claims(path: Path, record: Mapping[str, Any]) -> tuple[ModelSpec, int, dict[str, Any], dict[str, str]]:
    """Check and return the spec, seed, summary and versions of a record."""
    seed, plain = record["seed"], record["spec"]
    if type(seed) is not int or seed < 0:
        raise CheckpointError(f"{path}: its seed {seed!r} must be an integer of at least 0")
    for name in ("spec", "summary", "versions"):
        if not isinstance(record[name], dict):
            raise CheckpointError(f"{path}: its {name} must be a table, not {type(record[name]).__name__}")
    with as_checkpoint_error(path):
        spec = ModelSpec.from_dict(plain).check()
    return spec, seed, dict(record["summary"]), dict(record["versions"])


def _check_dtypes(spec: ModelSpec, found: Mapping[str, str]) -> None:
    wanted = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16"}[spec.dtype]
    for name, dtype in found.items():
        if dtype != wanted:
            raise InterpError(f"{name} has dtype {dtype}; {spec.id} needs {wanted} ({spec.dtype})")


def _canonical(record: Mapping[str, Any]) -> str:
    """Return the text of a record for the hash, which thus detects changes in the spec as well as in weights."""
    return json.dumps(record, sort_keys=True, separators=(",", ":"), allow_nan=False)
