"""A progress bar that appears only if the work takes long."""

from __future__ import annotations

import time
from importlib.util import find_spec

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


class LateBar:
    """A rich progress bar on standard error that appears after two seconds, only on a terminal or in a notebook.

    lines: where there is neither, print one line per step instead (for work of few steps).
    """

    PATIENCE = 2.0

    def __init__(self, title: str, lines: bool = False) -> None:
        self.title, self.start, self.lines = title, time.monotonic(), lines
        self.console = Console(stderr=True)
        self.bar: Progress | None = None

    def update(self, done: int, total: int, note: str = "") -> None:
        """Show that `done` of `total` steps are complete."""
        if self.bar is None:
            # In a notebook, rich needs ipywidgets and warns if they are not installed.
            notebook = self.console.is_jupyter and find_spec("ipywidgets") is not None
            quiet = not (notebook or (self.console.is_terminal and not self.console.is_jupyter))
            if quiet and self.lines and not self.console.is_jupyter:
                self.console.print(f"{self.title}: {note}", markup=False, highlight=False)
            if quiet or time.monotonic() - self.start < self.PATIENCE:
                return
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
            self.bar = Progress(*columns, TextColumn("{task.fields[note]}"), console=self.console, transient=True)
            self.bar.start()
            self.bar.add_task(self.title, total=total, note=note)
        self.bar.update(self.bar.task_ids[0], completed=done, total=total, note=note)

    def __enter__(self) -> LateBar:
        return self

    def __exit__(self, *error: object) -> None:
        if self.bar is not None:
            self.bar.stop()
