"""Numbers in sentences, rounded such that the sentence stays true: a share below 1 is never printed as 1."""

import re
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
"""The meanings of a report's marks."""
STATES: dict[str, Mark] = {"certified": "proved", "refuted": "refuted", "undecided": "undecided"}
"""The mark for each status of a certificate."""


def share(value: float, digits: int = 4, rounding: float = 0.0) -> str:
    """Format a share from 0 to 1 with as many digits as needed, so that only 0 and 1 print as "0" and "1".

    share(0.98) is "0.9800", share(1 - 3e-8) is "0.99999997", share(1.0) is "1". rounding: the arithmetic error within
    which a value counts as 0 or 1.
    """
    if min(abs(value), abs(value - 1)) <= rounding:
        return f"{abs(value):.0f}"
    while digits < 17 and float(f"{value:.{digits}f}") in (0, 1):
        digits += 1
    return f"{value:.{digits}f}"


def at_least(value: float, digits: int = 4) -> str:
    """Format a share as a lower bound: rounded down, so that "0.9966 or more" is true for 299/300."""
    return _bound(value, digits, ROUND_FLOOR)


def at_most(value: float, digits: int = 4) -> str:
    """Format a share as an upper bound: rounded up."""
    return _bound(value, digits, ROUND_CEILING)


def _bound(value: float, digits: int, rounding: str) -> str:
    exact = Decimal(repr(float(value)))
    if exact in (0, 1):
        return f"{exact:.0f}"
    while True:
        quantized = exact.quantize(Decimal(1).scaleb(-digits), rounding)
        if quantized not in (0, 1):
            return f"{quantized:f}"
        digits += 1


def portion(value: float, digits: int = 4, rounding: float = 0.0) -> str:
    """Format a share for phrases like "0.98 of the answers", with "all" for 1 and "none" for 0."""
    return {"1": "all", "0": "none"}.get(text := share(value, digits, rounding), text)


def counted(n: int, one: str, several: str | None = None) -> str:
    """Format a number and a noun: counted(1, "head") is "1 head", counted(2, "head") is "2 heads"."""
    return f"{n:,} {one if n == 1 else several or one + 's'}"


def number(value: float, digits: int = 4, rounding: float = 0.0) -> str:
    """Format a number with `digits` significant digits, or with more if it would wrongly print as 0, 1 or -1.

    rounding: the arithmetic error within which a value counts as 0, 1 or -1.
    """
    value = next((float(whole) for whole in (0, 1, -1) if abs(value - whole) <= rounding), value)
    text = f"{value:.{digits}g}"
    while digits < 17 and float(text) in (0, 1, -1) and float(text) != value:
        digits += 1
        text = f"{value:.{digits}g}"
    return text.replace("-", "\N{MINUS SIGN}", 1) if text.startswith("-") else text


def rounded(value: float, decimals: int) -> str:
    """Format a number with this many decimals, with "≈" if it would wrongly be 0, 1 or -1: 0.99999 is "≈1"."""
    text = f"{value:.{decimals}f}"
    if float(text) in (0, 1, -1):
        text = f"{'' if float(text) == value else '≈'}{float(text) + 0.0:.0f}"
    return text.replace("-", "\N{MINUS SIGN}")


def number_at_most(value: float, digits: int = 4) -> str:
    """Format a number as an upper bound: rounded up to `digits` significant digits."""
    exact = Decimal(repr(float(value)))
    return number(float(exact.quantize(Decimal(1).scaleb(exact.adjusted() - digits + 1), ROUND_CEILING)), digits)


def either(names: Iterable[str], most: int = 3) -> str:
    """Join the names of ties: "a", "a or b", "any of 5, such as a"."""
    names = list(names)
    if len(names) > most:
        return f"any of {len(names)}, such as {names[0]}"
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last


def joined(names: Iterable[str]) -> str:
    """Join names: joined(["a", "b", "c"]) is "a, b and c"."""
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def ranges(numbers: Iterable[int]) -> str:
    """Join numbers as runs: ranges([1, 2, 3, 4, 6, 9]) is "1 to 4, 6 and 9"."""
    runs: list[list[int]] = []
    for n in numbers:
        if runs and n == runs[-1][-1] + 1:
            runs[-1].append(n)
        else:
            runs.append([n])
    return joined(str(run[0]) if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs)


SENTENCE = re.compile(r"(?<=[a-z)'\"][.!?]) (?=[A-Z'\"(])|(?<=\d\d[.!?]) (?=[A-Z'\"(])|\n+")
"""Where a text may be cut: before a sentence that begins with a capital letter, or a new line."""


def n_words(text: str) -> int:
    """Count what a reader counts as words: what stands between spaces and has a letter or a digit."""
    return sum(any(map(str.isalnum, word)) for word in text.split())


def fitting(text: str, most: int) -> tuple[str, str]:
    """Cut a text after as many whole sentences and lines as have at most `most` words; return both parts.

    A first sentence that is longer alone is cut within, and ends with an ellipsis; the second part then has all of it.
    """
    end = 0
    for cut in [*(match.start() for match in SENTENCE.finditer(text)), len(text)]:
        if n_words(text[:cut]) > most:
            break
        end = cut
    if not end and text:
        return f"{' '.join(text.split()[: most - 1])} ...", text
    return text[:end].strip(), text[end:].strip()
