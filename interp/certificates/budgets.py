"""Limits of searches, as numbers of steps, so that a verdict does not depend on the machine or on how busy it is.

By default only steps count. With a user's `seconds=`, the number of steps is that of so many seconds of one idle core
of 2024. If the steps take much longer (a slow machine, a wrong estimate), the clock ends the search after CAP times the
seconds. The certificate says which limit ended it.
"""

from __future__ import annotations

import time

from interp.errors import InterpError, quoted

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
        found = Budget(self.seconds, rate, work)
        found.end = self.end
        return found

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
