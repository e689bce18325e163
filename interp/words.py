"""Numbers in words: what a sentence says is true, so a share that is not 1 never reads 1."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Literal

Mark = Literal["proved", "refuted", "undecided", "measured"]
MARKS: dict[str, str] = {
    "proved": "Proved right on every input",
    "refuted": "Proved wrong; a counterexample is shown",
    "undecided": "Undecided: proved neither right nor wrong",
    "measured": "Measured, not proved",
}
"""What each mark of a report means; a page shows it in color and in these words."""


def share(value: float, digits: int = 4, rounding: float = 0.0) -> str:
    """A share of 0 to 1 with as many digits as it needs: only exact 0 and 1 print as '0' and '1'.

    share(0.98) is "0.9800", share(1 - 3e-8) "0.99999997", share(1.0) "1". rounding: how far from 0 and 1 the value may
    have been moved by the arithmetic that made it.
    """
    if min(abs(value), abs(value - 1)) <= rounding:
        return f"{abs(value):.0f}"
    while digits < 17 and float(f"{value:.{digits}f}") in (0, 1):
        digits += 1
    return f"{value:.{digits}f}"


def at_least(value: float, digits: int = 4) -> str:
    """A share as a bound from below: rounded down, so that "0.9966 or more" is true of 299/300."""
    return _bound(value, digits, ROUND_FLOOR)


def at_most(value: float, digits: int = 4) -> str:
    """A share as a bound from above: rounded up."""
    return _bound(value, digits, ROUND_CEILING)


def _bound(value: float, digits: int, rounding: str) -> str:
    exact = Decimal(repr(float(value)))
    if exact in (0, 1):
        return f"{exact:.0f}"
    while True:
        found = exact.quantize(Decimal(1).scaleb(-digits), rounding)
        if found not in (0, 1):
            return f"{found:f}"
        digits += 1


def portion(value: float, digits: int = 4, rounding: float = 0.0) -> str:
    """How much "of the answers" or "of the variance": a share, but "all" for 1 and "none" for 0."""
    return {"1": "all", "0": "none"}.get(said := share(value, digits, rounding), said)


def counted(n: int, one: str, several: str | None = None) -> str:
    """counted(1, "head") is "1 head", counted(2, "head") "2 heads"."""
    return f"{n:,} {one if n == 1 else several or one + 's'}"


def number(value: float, digits: int = 4) -> str:
    """A number to so many significant digits, or to more where it would read 0, 1 or -1 without being it."""
    text = f"{value:.{digits}g}"
    while digits < 17 and float(text) in (0, 1, -1) and float(text) != value:
        digits += 1
        text = f"{value:.{digits}g}"
    return text.replace("-", "\N{MINUS SIGN}", 1) if text.startswith("-") else text


def number_at_most(value: float, digits: int = 4) -> str:
    """A number as a bound from above: rounded up to so many significant digits."""
    exact = Decimal(repr(float(value)))
    return number(float(exact.quantize(Decimal(1).scaleb(exact.adjusted() - digits + 1), ROUND_CEILING)), digits)


def either(names: Iterable[str], most: int = 3) -> str:
    """Names that are equally far ahead: "a", "a or b", "any of 5, such as a"."""
    names = list(names)
    if len(names) > most:
        return f"any of {len(names)}, such as {names[0]}"
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last


def joined(names: Iterable[str]) -> str:
    """joined(["a", "b", "c"]) is "a, b and c"."""
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last
