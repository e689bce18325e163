"""Limits of searches, as numbers of steps, so that a verdict does not depend on the machine or on how busy it is.

By default only steps count. With a user's `seconds=`, the number of steps is that of so many seconds of one idle core
of 2024. If the steps take much longer (a slow machine, a wrong estimate), the clock ends the search after CAP times the
seconds. The certificate says which limit ended it. Random inputs that the model runs then narrow the accuracy that the
proof leaves open.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from interp.errors import InterpError, quoted
from interp.populations import CONFIDENCE, clopper_pearson

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


@dataclass
class Stratum:
    """A part of the inputs.

    inputs: their number; right, wrong: numbers of those decided. drawn, drawn_right: number of independent, uniform
    random ones that were run, and of right answers to them. drawn_open: of them, those whose margin is within rounding
    of 0, which may be right or wrong in exact arithmetic.
    """

    inputs: int
    right: int = 0
    wrong: int = 0
    drawn: int = 0
    drawn_right: int = 0
    drawn_open: int = 0

    @property
    def open(self) -> int:
        return self.inputs - self.right - self.wrong


@dataclass(frozen=True)
class SampledShare:
    """The share of right answers, exact or an interval. confidence: of the interval; None if it is proved."""

    accuracy: float | tuple[float, float]
    confidence: float | None = None
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, strata: Sequence[Stratum]) -> SampledShare:
        """Add up the strata: exact if all is decided; open ones are narrowed by what was drawn."""
        total, wrong = sum(one.inputs for one in strata), sum(one.wrong for one in strata)
        if not any(one.open for one in strata):
            return cls(1 - wrong / total)
        proved = sum(one.right for one in strata) / total, 1 - wrong / total
        drawn = [one for one in strata if one.open and one.drawn]
        if not drawn:
            return cls(proved)
        low = high = 0.0
        for one in (one for one in strata if one.inputs):
            ends = one.right / one.inputs, 1 - one.wrong / one.inputs
            if one.open and one.drawn:
                confidence = 1 - (1 - CONFIDENCE) / len(drawn)
                least = clopper_pearson(one.drawn_right, one.drawn, confidence)[0]
                most = clopper_pearson(one.drawn_right + one.drawn_open, one.drawn, confidence)[1]
                both = max(ends[0], least), min(ends[1], most)
                ends = both if both[0] <= both[1] else ends
            low, high = low + ends[0] * (one.inputs / total), high + ends[1] * (one.inputs / total)
        note = (
            f"accuracy: {CONFIDENCE:.1%} confidence interval from {sum(one.drawn for one in drawn):,} answers to "
            f"random inputs, as run; without them [{proved[0]:.6g}, {proved[1]:.6g}]"
        )
        return cls((max(low, proved[0]), min(high, proved[1])), CONFIDENCE, (note,))
