"""Time limits of searches, as a number of steps, so that a verdict does not depend on how busy the machine is.

If steps take much longer than expected (a slow machine, a wrong estimate), the clock ends the search after CAP times
the seconds. The certificate says which limit ended it.
"""

from __future__ import annotations

import time

from interp.errors import InterpError, quoted

CAP = 3.0
"""Wall-clock seconds allowed per second of the limit; limits below one second count as one."""


class Budget:
    """A time limit in steps. seconds: the limit, in seconds of an idle core of 2024. rate: steps per second."""

    def __init__(self, seconds: float | int, rate: float) -> None:
        if not seconds >= 0:
            raise InterpError(f"seconds = {quoted(seconds)} must not be negative")
        self.seconds, self.steps = seconds, seconds * rate
        self.end = float("inf")  # until the first step
        self.ended = ""

    def is_over(self) -> bool:
        """Return whether the steps are used up or the clock has run out; `ended` says which."""
        if self.end == float("inf"):
            self.end = time.monotonic() + CAP * max(self.seconds, 1)
        if not self.ended and self.steps <= 0:
            self.ended = f"the time limit of {self.seconds:g} seconds was used up"
        elif not self.ended and time.monotonic() > self.end:
            self.ended = f"it took {CAP * max(self.seconds, 1):g} seconds instead of {self.seconds:g}"
        return bool(self.ended)
