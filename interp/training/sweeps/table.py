"""The durable table of a sweep: runs.jsonl, with one line per run, appended and synced when the run ends.

Only the process that holds the folder's lock writes. If a crash leaves an incomplete last line, readers ignore it, and
the next writer removes it. The losses and accuracies of all epochs are in curves/<spec id>-seed-<seed>.csv, which is
written before the row that names it.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from interp.errors import InterpError, short
from interp.support.files import BINARY, sync_folder, write_atomically

if TYPE_CHECKING:
    import pandas as pd

FILE, CURVES, LOCK, OWNER = "runs.jsonl", "curves", "lock", "owner"

RESULT_COLUMNS = (
    "seed", "accuracy", "best_accuracy", "loss", "epochs", "engine", "device", "seconds", "cpu_seconds", "error",
    "curve", "spec_id", "host", "finished",
)  # fmt: skip
"""In this order: seed; accuracy after the last epoch and best over all epochs (0 to 1, on the task's validation data
or, if it has none, 1,000 test inputs); mean training loss of the last epoch (nats); epochs; engine and device; seconds
of wall time and of CPU time (divided by the number of runs that train together); error, or ""; file of the curve; spec
id; host name; end time (UTC). Tables also have version.* of the libraries and spec.* fields of the spec."""

Key = tuple[str, int]
"""Spec id and seed, which identify a run."""

Row = dict[str, Any]


def key_of(row: Mapping[str, Any]) -> Key:
    return row["spec_id"], row["seed"]


class RunTable:
    """The table in one folder, locked by one sweep at a time: `with RunTable(folder) as table: ...`.

    rows: the latest row of each run. Raises InterpError if another sweep has locked the folder, if a line is not a row,
    or if the disk is full; existing rows are kept.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.rows: dict[Key, Row] = {}

    def __enter__(self) -> RunTable:
        try:
            (self.folder / CURVES).mkdir(parents=True, exist_ok=True)
            # The operating system releases the lock when the process ends.
            self._lock = FileLock(self.folder / LOCK, mode=0o644)
            self._lock.acquire(blocking=False)
        except Timeout:
            raise InterpError(f"another sweep is writing to {short(self.folder)} ({self._owner()})") from None
        except OSError as error:
            raise InterpError(f"cannot write to {short(self.folder)}: {error.strerror or error}") from None
        try:
            self._open()
        except BaseException:
            self._lock.release()
            raise
        return self

    def _owner(self) -> str:
        """Describe the process that holds the lock; a new one may not have written its name yet."""
        try:
            return (self.folder / OWNER).read_text("utf-8")[:100] or "just started"
        except (OSError, ValueError):
            return "just started"

    def _open(self) -> None:
        for leftover in (self.folder / CURVES).glob(".*.tmp"):  # a curve that a crash left half-written
            leftover.unlink()
        path = self.folder / FILE
        try:
            path.touch()
            write_atomically(self.folder / OWNER, f"process {os.getpid()} on {platform.node()}")
            rows, self._size = read_rows(path)
            os.truncate(path, self._size)
            sync_folder(self.folder)
            self._file = os.open(path, os.O_WRONLY | BINARY)
        except OSError as error:
            raise InterpError(f"cannot write {path}: {error.strerror or error}") from None
        self.rows = {key_of(row): row for row in rows}

    def append(self, rows: Sequence[Row]) -> None:
        """Append rows durably, all or none. Raises InterpError, with the table unchanged, if the disk is full."""
        data = "".join(json.dumps(row, allow_nan=False, separators=(",", ":")) + "\n" for row in rows).encode()
        done = 0
        try:
            while done < len(data):
                done += write_at(self._file, data[done:], self._size + done)
            os.fsync(self._file)
        except OSError as error:
            os.ftruncate(self._file, self._size)
            raise InterpError(
                f"cannot write {self.folder / FILE}: {error.strerror or error}; the {len(self.rows)} runs before are "
                "kept, and the sweep can be resumed"
            ) from None
        self._size += len(data)
        self.rows |= {key_of(row): row for row in rows}

    def save_curve(self, row: Row, loss: Sequence[float], accuracy: Sequence[float]) -> str:
        """Write the curve of a run; returns its path inside the folder."""
        name = f"{CURVES}/{row['spec_id'].replace('/', '-')}-seed-{row['seed']}.csv"
        lines = (f"{epoch},{a:.7g},{b:.7g}\n" for epoch, (a, b) in enumerate(zip(loss, accuracy), 1))
        write_atomically(self.folder / name, "epoch,loss,accuracy\n" + "".join(lines))
        return name

    def __exit__(self, *error: object) -> None:
        os.close(self._file)
        self._lock.release()


def write_at(handle: int, data: bytes, offset: int) -> int:
    """Write at an offset of a file, like os.pwrite, which Windows lacks; return the number of bytes written."""
    os.lseek(handle, offset, os.SEEK_SET)
    return os.write(handle, data)


def read_rows(path: Path) -> tuple[list[Row], int]:
    """Read the complete rows of a table, in order, and their size in bytes. Safe while another process writes."""
    data = path.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    rows = []
    for number, line in enumerate(whole.splitlines(), 1):
        try:
            row = json.loads(line)
            if missing := {"axes", "versions", "spec", *RESULT_COLUMNS}.difference(row):
                raise KeyError(*missing)
        except (ValueError, KeyError, TypeError):
            raise InterpError(
                f"line {number} of {path} is not a row of a sweep; another program changed the table"
            ) from None
        rows.append(row)
    return rows, len(whole)


def read_runs(*folders: str | Path) -> pd.DataFrame:
    """Read the table of a sweep, finished or not, with one row per run: the grid's axes, then RESULT_COLUMNS.

    folders: one or more folders with parts of a grid. If a run was repeated, its last row without an error counts.
    Raises InterpError if a folder has no table.
    """
    latest: dict[Key, Row] = {}
    for path in (Path(folder) / FILE for folder in folders):
        try:
            rows, _ = read_rows(path)
        except OSError as error:
            raise InterpError(f"no table of a sweep: {path} ({error.strerror or error})") from None
        for row in rows:
            if not row["error"] or latest.get(key_of(row), {"error": True})["error"]:
                latest[key_of(row)] = row
    return to_frame(latest.values())


def to_frame(rows: Iterable[Row]) -> pd.DataFrame:
    """Convert rows to a tidy table."""
    import pandas as pd

    columns: dict[str, None] = {}
    records = []
    for row in rows:
        record = {**row["axes"], **{name: row[name] for name in RESULT_COLUMNS}}
        record |= {f"version.{name}": version for name, version in row["versions"].items()}
        record |= flat(row["spec"], "spec.")
        records.append(record)
        columns |= dict.fromkeys(record)
    # Keep fields that only some specs have next to the other fields of the spec.
    order = sorted(columns, key=lambda name: (name.startswith("spec."), 0))
    return pd.DataFrame(records, columns=order or list(RESULT_COLUMNS))


def flat(value: Any, prefix: str) -> dict[str, Any]:
    """Flatten nested tables and lists into one table with dotted names."""
    if isinstance(value, Mapping):
        items: Iterable[tuple[Any, Any]] = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    else:
        return {prefix.removesuffix("."): value}
    return {name: leaf for part, inner in items for name, leaf in flat(inner, f"{prefix}{part}.").items()}
