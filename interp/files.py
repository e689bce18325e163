"""Writing files so that nothing half-written is ever left behind."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from interp.errors import InterpError, as_path


def write_atomically(path: str | Path, data: bytes | str) -> Path:
    """Write a whole file or nothing: a temporary file in the same folder, fsync, os.replace.

    Raises InterpError when the folder is missing or cannot be written to; an older file then stays as it was.
    """
    path = as_path(path)
    raw = data.encode("utf-8") if isinstance(data, str) else data
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-", suffix=".tmp")
    except OSError as error:
        raise InterpError(f"cannot write {path}: {error.strerror or error} (folder {path.parent})") from None
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except OSError as error:
        Path(temporary).unlink(missing_ok=True)
        raise InterpError(f"cannot write {path}: {error.strerror or error}") from None
    except BaseException:  # an interruption leaves nothing behind either
        Path(temporary).unlink(missing_ok=True)
        raise
    return path
