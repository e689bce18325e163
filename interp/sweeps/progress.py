"""Progress of a sweep on standard error: a bar on a terminal or in a notebook, elsewhere a line every half minute."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from interp.sweeps.jobs import Job

LINE_EVERY_SECONDS = 30.0


class SweepProgress:
    """Runs done, rate, and time left. Time left is based on work, because the longest jobs come first."""

    def __init__(self, jobs: list[Job], done_before: int, shown: bool = True) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        self.runs, self.work = sum(len(job.seeds) for job in jobs), sum(job.work for job in jobs)
        self.done_before, self.shown = done_before, shown
        self.done, self.failed, self.done_work = 0, 0, 0.0
        self.start = self.last_line = time.monotonic()
        console = Console(stderr=True)
        self.bar = None
        if shown and (console.is_terminal or console.is_jupyter):
            self.bar = Progress(BarColumn(), TextColumn("{task.description}"), console=console)

    def update(self, job: Job, failed: int) -> None:
        """Record that a job has ended with this number of failed runs."""
        self.done, self.failed = self.done + len(job.seeds), self.failed + failed
        self.done_work += job.work
        if self.bar is not None:
            self.bar.update(self.bar.task_ids[0], completed=self.done_work, description=self.line())
        elif self.shown and (time.monotonic() - self.last_line > LINE_EVERY_SECONDS or self.done == self.runs):
            self.last_line = time.monotonic()
            print(self.line(), file=sys.stderr, flush=True)

    def line(self) -> str:
        elapsed = time.monotonic() - self.start
        text = f"{self.done_before + self.done} of {self.done_before + self.runs} runs"
        if self.done:
            left = elapsed * (self.work - self.done_work) / self.done_work
            text += f", {60 * self.done / elapsed:.1f} a minute, {duration(left)} left"
        return text + (f", {self.failed} failed" if self.failed else "")

    def __enter__(self) -> SweepProgress:
        if self.bar is not None:
            self.bar.start()
            self.bar.add_task(self.line(), total=self.work)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar is not None:
            self.bar.stop()


def duration(seconds: float) -> str:
    """Format a duration, such as 12 s, 3 min or 4.5 h."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"
