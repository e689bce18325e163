"""What long work may use: steps and seconds of a search, threads for torch and BLAS, and the available cores.

Limits of searches are numbers of steps, so that a verdict does not depend on the machine or on how busy it is. By
default only steps count. With a user's `seconds=`, the number of steps is that of so many seconds of one idle core of
2024. If the steps take much longer (a slow machine, a wrong estimate), the clock ends the search after CAP times the
seconds.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import lru_cache

import torch
from threadpoolctl import ThreadpoolController

from interp.errors import InterpError, quoted

MEMORY = 4e9
"""Bytes that the tables of a search may take."""

CAP = 3.0
"""Wall-clock seconds allowed per second of the limit; limits below one second count as one."""


class Budget:
    """A limit in steps. seconds: the user's limit (None: no clock). rate: steps per second. work: seconds of steps."""

    def __init__(self, seconds: float | int | None, rate: float | int, work: float | int | None = None) -> None:
        check_seconds(seconds)
        self.seconds, self.steps = seconds, float(seconds if work is None else work) * rate  # type: ignore[arg-type]
        self.end = float("inf")  # until the first step
        self.ended = ""

    def next(self, rate: float | int, work: float | int) -> Budget:
        """Return the budget of the search that follows, with the same end by the clock."""
        budget = Budget(self.seconds, rate, work)
        budget.end = self.end
        return budget

    def is_over(self) -> bool:
        """Return whether the steps are used up or the clock has run out; `ended` says which."""
        if self.seconds is not None and self.end == float("inf"):
            self.end = time.monotonic() + CAP * max(self.seconds, 1)
        if not self.ended and self.steps <= 0:
            limit = "the budget" if self.seconds is None else f"the time limit of {self.seconds:g} seconds"
            self.ended = f"{limit} was used up"
        elif not self.ended and time.monotonic() > self.end:
            self.ended = f"it took {CAP * max(self.seconds or 0, 1):g} seconds instead of {self.seconds:g}"
        return bool(self.ended)


def check_seconds(seconds: object) -> None:
    """Raise InterpError for a limit below 0."""
    if seconds is not None and not (isinstance(seconds, int | float) and seconds >= 0):
        raise InterpError(f"seconds = {quoted(seconds)} must not be negative")


SMALL = 1_000_000
"""Models with at most this many parameters run on one thread, because their operations are too small to share."""


@contextmanager
def one_thread() -> Iterator[None]:
    """Use one thread in torch and in the BLAS of numpy and scikit-learn, for many small operations.

    On busy cores, the threads of a small product mostly wait for each other: on a busy machine, a probe of 2,000
    vectors took 21 CPU seconds with two threads and 1.3 with one.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with _pools(len(sys.modules)).limit(limits=1):
            yield
    finally:
        torch.set_num_threads(before)


@lru_cache(maxsize=1)
def _pools(imported: int) -> ThreadpoolController:
    """Find the loaded BLAS and OpenMP, anew when modules were imported since: reading all libraries takes a while."""
    return ThreadpoolController()


@contextmanager
def threads_for(model: torch.nn.Module) -> Iterator[None]:
    """Use one thread for a small model, and torch's default for larger ones; and float32 for new tensors."""
    small = sum(parameter.numel() for parameter in model.parameters()) <= SMALL
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        with one_thread() if small else nullcontext():
            yield
    finally:
        torch.set_default_dtype(before)


def cores() -> int:
    """Count the cores that this process may use; all cores if the system does not report it (macOS, Windows)."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
