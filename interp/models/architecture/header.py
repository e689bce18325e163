"""The header of a checkpoint: reading it takes neither torch nor the tensors, so that models can be listed at once.

    __metadata__ = {"format": "pt", "interp": JSON of {schema, spec, seed, summary, versions, sha256}}

Broken and hostile files raise CheckpointError with one sentence.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from interp.errors import CheckpointError, InterpError
from interp.models.spec import ModelSpec

SCHEMA = 1
MAX_BYTES = 2 * 2**30
"""Largest file that is opened; task models are small."""

FIELDS = ("schema", "spec", "seed", "summary", "versions")


@dataclass(frozen=True)
class CheckpointHeader:
    """The header of a checkpoint; tensors are neither read nor checked."""

    spec: ModelSpec
    seed: int
    summary: dict[str, Any]
    versions: dict[str, str]


def read_header(path: str | Path) -> CheckpointHeader:
    """Read the header of a checkpoint without its tensors, for lists of many files."""
    path = regular_file(path)
    with opened(path, "numpy") as file:
        return CheckpointHeader(*claims_of(path, record_of(path, file.metadata())[0]))


def regular_file(path: str | Path) -> Path:
    path = Path(path)
    if not path.exists():
        raise CheckpointError(f"no such file: {path}")
    if not path.is_file():
        raise CheckpointError(f"{path} is not a regular file; a checkpoint is one .safetensors file")
    size = path.stat().st_size
    if size > MAX_BYTES:
        raise CheckpointError(f"{path} has {size:,} bytes, more than the limit of {MAX_BYTES:,}")
    return path


@contextmanager
def opened(path: Path, framework: str = "pt") -> Iterator[Any]:
    try:
        with safe_open(path, framework=framework) as file:
            yield file
    except SafetensorError as error:
        raise CheckpointError(f"{path} is not a whole safetensors file: {error}") from None
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror or error}") from None


def lacks_header(path: Path) -> bool:
    """Test whether this is a valid safetensors file without interp's header, and not too large to be read at all."""
    if path.is_file() and path.stat().st_size > MAX_BYTES:
        return False
    try:
        with safe_open(path, framework="numpy") as file:
            return "interp" not in (file.metadata() or {})
    except (SafetensorError, OSError):
        return False


@contextmanager
def as_checkpoint_error(path: Path) -> Iterator[None]:
    try:
        yield
    except CheckpointError:
        raise
    except InterpError as error:
        raise CheckpointError(f"{path}: {error}") from None


def record_of(path: Path, metadata: Mapping[str, str] | None) -> tuple[dict[str, Any], str, str]:
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
        salt = canonical(record)
    except CheckpointError:
        raise
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: its interp header is not JSON: {error}") from None
    if set(record) != set(FIELDS) or not isinstance(sha256, str):
        raise CheckpointError(f"{path}: its interp header must have {', '.join(FIELDS)} and sha256")
    return record, salt, sha256


def claims_of(path: Path, record: Mapping[str, Any]) -> tuple[ModelSpec, int, dict[str, Any], dict[str, str]]:
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


def canonical(record: Mapping[str, Any]) -> str:
    """Return the text of a record for the hash, which thus detects changes in the spec as well as in weights."""
    return json.dumps(record, sort_keys=True, separators=(",", ":"), allow_nan=False)
