"""Writing files so that nothing half-written is ever left behind."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from interp.errors import InterpError, as_path, short

BINARY = getattr(os, "O_BINARY", 0)
"""A flag of os.open that Windows needs, or it writes \\r\\n for \\n."""


def refuse_special(path: Path) -> None:
    """Raise InterpError for a device, a pipe or a folder: a rename would put a regular file in its place."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise InterpError(f"cannot write {short(path)}: {error.strerror or error}") from None
    if not stat.S_ISREG(mode):
        kind = "a folder" if stat.S_ISDIR(mode) else "a device, a pipe or a socket"
        raise InterpError(f"cannot write {short(path)}: it exists and is {kind}, not a regular file")


def sync_folder(folder: Path) -> None:
    """Make a folder's new entries survive a crash of the machine. Windows, which has no handle of a folder, does it."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_atomically(path: str | Path, data: bytes | str) -> Path:
    """Write a whole file or nothing: a temporary file in the same folder, fsync, os.replace.

    Raises InterpError when the folder is missing or cannot be written to; an older file then stays as it was.
    """
    path = as_path(path)
    refuse_special(path)
    raw = data.encode("utf-8") if isinstance(data, str) else data
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-", suffix=".tmp")
    except OSError as error:
        raise InterpError(
            f"cannot write {short(path)}: {error.strerror or error} (folder {short(path.parent)})"
        ) from None
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except OSError as error:
        Path(temporary).unlink(missing_ok=True)
        raise InterpError(f"cannot write {short(path)}: {error.strerror or error}") from None
    except BaseException:  # an interruption leaves nothing behind either
        Path(temporary).unlink(missing_ok=True)
        raise
    return path


@contextmanager
def no_empty_folder(folder: Path) -> Iterator[None]:
    """Folders that the work within makes are removed again where it fails, as far as nothing is in them."""
    new = [path for path in (folder, *folder.parents) if not os.path.isdir(path)]
    try:
        yield
    except BaseException:
        for path in new:
            with suppress(OSError):
                path.rmdir()
        raise
