"""Progress of long work: a bar that appears after two seconds, on a terminal or in a notebook, and lines of news.

In a notebook, the bar is one line of text that is displayed once and then replaced, so it needs no ipywidgets, and its
last state stays in the notebook. Work inside other work (a search inside a report) is shown in the outer bar's line.
"""

from __future__ import annotations

import sys
import time
from typing import Any, ClassVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

WIDTH = 24
"""Characters of the bar in a notebook."""


def in_notebook() -> bool:
    """Return whether this runs in a Jupyter kernel (which loads IPython, so that it need not be loaded here)."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and hasattr(shell, "kernel")


def tell(text: str) -> None:
    """Say what is no result, such as where a file was written: on standard error, or below a notebook's cell."""
    if in_notebook():
        _Line().show(text)
    else:
        print(text, file=sys.stderr, flush=True)


class _Line:
    """A line of text below a notebook's cell, which can be replaced."""

    def __init__(self) -> None:
        self.handle: Any = None

    def show(self, text: str) -> None:
        from IPython.display import display

        data = {"text/plain": text}
        if self.handle is None:
            self.handle = display(data, raw=True, display_id=True)
        else:
            self.handle.update(data, raw=True)


class LateBar:
    """A progress bar that appears after two seconds: on standard error of a terminal, or below a notebook's cell.

    lines: where there is neither, print a line instead, at most every so many seconds (0: at each step; None: never).
    """

    PATIENCE = 2.0
    PAUSE = 0.1
    """Seconds between two updates in a notebook, which are messages."""
    _open: ClassVar[list[LateBar]] = []  # the bars of work that runs now, the outermost first

    def __init__(self, title: str, lines: int | float | None = None) -> None:
        self.title, self.start, self.lines = title, time.monotonic(), lines
        self.console = Console(stderr=True)
        self.bar: Progress | None = None
        self.line: _Line | None = None
        self.state: tuple[int, int | None, str] = (0, None, "")
        self.drawn = self.printed = -float("inf")

    def step(self, note: str = "") -> None:
        """Show that one more step of an unknown number is complete."""
        self.update(self.state[0] + 1, None, note)

    def update(self, done: int, total: int | None, note: str = "") -> None:
        """Show that `done` of `total` steps are complete (None: of an unknown number)."""
        self.state = done, total, note
        if self._open and self._open[0] is not self:
            outer = self._open[0]
            within = f"{done:,}" if total is None else f"{done:,}/{total:,}"
            outer._show(*outer.state[:2], " · ".join(filter(None, [outer.state[2], f"{self.title} {within}"])))
            return
        if self.lines is not None and not in_notebook() and not self.console.is_terminal:
            now = time.monotonic()
            if now - self.printed >= self.lines or done == total:
                self.printed = now
                self.console.print(f"{self.title}: {note}", markup=False, highlight=False)
        self._show(done, total, note)

    def _show(self, done: int, total: int | None, note: str) -> None:
        now = time.monotonic()
        if now - self.start < self.PATIENCE:
            return
        if in_notebook():
            if now - self.drawn >= self.PAUSE:
                self.line, self.drawn = self.line or _Line(), now
                self.line.show(self._text(done, total, note))
            return
        if not self.console.is_terminal or self.console.is_jupyter:
            return
        if self.bar is None:
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
            self.bar = Progress(*columns, TextColumn("{task.fields[note]}"), console=self.console, transient=True)
            self.bar.start()
            self.bar.add_task(self.title, total=total, note=note)
        self.bar.update(self.bar.task_ids[0], completed=done, total=total, note=note)

    def _text(self, done: int, total: int | None, note: str) -> str:
        if total is None:
            return f"{self.title}: {done:,} steps{f' · {note}' if note else ''}"
        filled = WIDTH * min(done, total) // max(total, 1)
        return f"{self.title} {'━' * filled}{'┄' * (WIDTH - filled)} {done:,}/{total:,} {note}".rstrip()

    def __enter__(self) -> LateBar:
        self._open.append(self)
        return self

    def __exit__(self, kind: object, *error: object) -> None:
        self._open.remove(self)
        if self.bar is not None:
            self.bar.stop()
        if self.line is not None:
            done, total, _ = self.state
            whole = done if kind is not None or total is None else total
            self.line.show(f"{self._text(whole, total, '')} {'done' if kind is None else 'stopped'}")
