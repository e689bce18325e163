"""Atomic writing of files."""

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from interp.errors import InterpError, as_path, short

BINARY = getattr(os, "O_BINARY", 0)
"""Flag of os.open that keeps Windows from writing \\r\\n for \\n."""


def refuse_special(path: Path) -> None:
    """Raise InterpError for a device, a pipe or a folder, which an atomic write would replace or fail on."""
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
    """Make a folder's new entries survive a crash of the machine. Does nothing on Windows."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_atomically(path: str | Path, data: bytes | str) -> Path:
    """Write a file completely or not at all, with a temporary file in the same folder, fsync and os.replace.

    Raises InterpError if the folder is missing or cannot be written to. An existing file is then unchanged.
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
    except BaseException:  # such as an interruption
        Path(temporary).unlink(missing_ok=True)
        raise
    return path


@contextmanager
def no_empty_folder(folder: Path) -> Iterator[None]:
    """Remove the folders created inside the `with` block if it fails, if they are empty."""
    new = [path for path in (folder, *folder.parents) if not os.path.isdir(path)]
    try:
        yield
    except BaseException:
        for path in new:
            with suppress(OSError):
                path.rmdir()
        raise
