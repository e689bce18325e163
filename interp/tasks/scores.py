"""Scores: how many of n answers are right, and the interval of their share."""

from __future__ import annotations

import math
from dataclasses import dataclass

from interp.errors import InterpError
from interp.support import words

NORMAL_95 = 1.959963984540054
CONFIDENCE = 0.999
"""Confidence of the interval around an accuracy that a certificate could not decide."""


@dataclass(frozen=True)
class Score:
    """How many of n answers are right. right: their number, or the number that is expected.

    rows: the inputs that the answers belong to: errors within one may be correlated, so that there are at most so many
    independent answers. exact: whether these are all inputs, so that the accuracy has no sampling error.

    Example:

        >>> score = Score(1_000, 980, rows=1_000)
        >>> score.accuracy, str(score)
        (0.98, '0.9800 (95% interval 0.9693 to 0.9871)')
    """

    n: int
    right: int | float
    rows: int
    exact: bool = False

    @property
    def accuracy(self) -> float:
        """The share of right answers; NaN without answers."""
        return self.right / self.n if self.n else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95% interval of the accuracy among all inputs; the accuracy itself if it is exact, or NaN."""
        if self.exact or not self.n:
            return self.accuracy, self.accuracy
        return wilson(self.accuracy, min(self.n, self.rows))

    @property
    def low(self) -> float:
        return self.interval[0]

    @property
    def high(self) -> float:
        return self.interval[1]

    def exceeds(self, other: Score) -> bool:
        """Test whether this accuracy is larger and the intervals do not overlap."""
        return bool(self.low > other.high)

    def __str__(self) -> str:
        value = words.share(self.accuracy)
        if self.exact:
            return value
        return f"{value} (95% interval {words.at_least(self.low)} to {words.at_most(self.high)})"


def wilson(share: float, n: int) -> tuple[float, float]:
    """Compute Wilson's 95% interval of a share of n independent answers (Wilson 1927); it contains the share itself."""
    if n < 1:
        raise InterpError("the interval of a share needs at least one answer")
    z = NORMAL_95**2 / n
    middle = share + z / 2
    half = NORMAL_95 * math.sqrt(share * (1 - share) / n + z / (4 * n))
    low = 0.0 if share <= 0 else max(0.0, (middle - half) / (1 + z))
    high = 1.0 if share >= 1 else min(1.0, (middle + half) / (1 + z))
    return low, high


def clopper_pearson(right: int, n: int, confidence: float) -> tuple[float, float]:
    """Compute the interval of a share of n independent answers (Clopper and Pearson 1934), (0, 1) without answers."""
    from scipy.stats import beta  # takes a second to import

    tail = (1 - confidence) / 2
    low = float(beta.ppf(tail, right, n - right + 1)) if right else 0.0
    high = float(beta.ppf(1 - tail, right + 1, n - right)) if right < n else 1.0
    return low, high
