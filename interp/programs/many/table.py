"""The durable table of a comparison: one line of JSON for each model, and for each pair of models that was tried.

A line is appended and synced when its model is done. An incomplete last line, which a crash leaves, is dropped.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from interp.errors import InterpError, short
from interp.programs.many.transplant import Transplant

FILE = "compared.jsonl"


class ComparedTable:
    """The rows of a comparison, by model, in memory or in a folder: `with ComparedTable(folder) as rows: ...`.

    known: the row of each model. tested: what was tried from one model to another. Raises InterpError for a folder that
    cannot be written to, and for a file that is no such table.
    """

    def __init__(self, folder: str | Path | None):
        self.path = None if folder is None else Path(folder) / FILE
        self.known: dict[str, dict[str, Any]] = {}
        self.tested: dict[str, list[Transplant]] = {}

    def __enter__(self) -> ComparedTable:
        if self.path is None:
            return self
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("a+b")
            self._file.seek(0)
            data = self._file.read()
            whole = data[: data.rfind(b"\n") + 1]
            self._file.truncate(len(whole))
        except OSError as error:
            raise InterpError(f"cannot write to {short(self.path)}: {error.strerror or error}") from None
        try:
            for line in whole.splitlines():
                self._take(json.loads(line))
        except (ValueError, KeyError, TypeError):
            self._file.close()
            raise InterpError(f"{self.path} is not the table of a comparison; choose another folder") from None
        return self

    def __exit__(self, *error: object) -> None:
        if self.path is not None:
            self._file.close()

    def append(self, row: dict[str, Any]) -> None:
        """Add the row of a model."""
        self._write({"row": row})

    def append_tests(self, key: str, tests: list[Transplant]) -> None:
        """Add what was tried from one model to another."""
        self._write({"pair": key, "tests": [asdict(test) for test in tests]})

    def _write(self, line: dict[str, Any]) -> None:
        if self.path is not None:
            self._file.write(json.dumps(line, separators=(",", ":")).encode() + b"\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        self._take(line)

    def _take(self, line: dict[str, Any]) -> None:
        if "row" in line:
            row, name = line["row"], line["row"]["model"]
            if row.get("explanation") != self.known.get(name, row).get("explanation"):  # what was tried is of another
                self.tested = {pair: tests for pair, tests in self.tested.items() if name not in pair.split(" -> ")}
            self.known[name] = row
        else:
            self.tested[line["pair"]] = [Transplant(**test) for test in line["tests"]]
