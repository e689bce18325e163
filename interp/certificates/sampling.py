"""Random inputs that the model runs: they narrow an accuracy that a proof leaves open."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from interp.populations import CONFIDENCE, clopper_pearson


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
