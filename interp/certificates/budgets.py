"""How long a search may go on: steps that are counted, and a wall clock for machines on which a step takes longer.

A number of steps follows from the seconds asked, so that a verdict does not depend on how busy a machine is. Where
steps take much longer than they should (a slow machine, a wrong estimate), the clock ends the search at CAP times the
seconds. A certificate says which of the two it was.
"""

from __future__ import annotations

import time

from interp.errors import InterpError, quoted

CAP = 3.0
"""Wall-clock seconds that a search may take, for each second asked, and for one where fewer are asked."""


class Budget:
    """seconds: as asked, of an idle core of 2024. rate: steps in one of them."""

    def __init__(self, seconds: float | int, rate: float) -> None:
        if not seconds >= 0:
            raise InterpError(f"seconds = {quoted(seconds)} must not be negative")
        self.seconds, self.steps = seconds, seconds * rate
        self.end = float("inf")  # until the first step
        self.ended = ""

    def is_over(self) -> bool:
        """Are all steps made, or is it too late? What ended it is kept for the certificate."""
        if self.end == float("inf"):
            self.end = time.monotonic() + CAP * max(self.seconds, 1)
        if not self.ended and self.steps <= 0:
            self.ended = f"the steps of {self.seconds:g} seconds were made"
        elif not self.ended and time.monotonic() > self.end:
            self.ended = f"it had taken {CAP * max(self.seconds, 1):g} seconds where {self.seconds:g} were asked"
        return bool(self.ended)
