"""What a check of a claim is: a function that measures, and says by a rule whether the claim holds."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pandas as pd

STATUSES = ("holds", "holds corrected", "fails", "not reproduced", "not checked")
"""holds corrected: true after an erratum. fails: false, with evidence. not reproduced: our runs differ from theirs."""

ANALYSES = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Found:
    """What a check measured. value and spread are words with numbers; n is the number of models, seeds or instances."""

    value: str
    status: str
    n: int
    spread: str = ""

    def __post_init__(self) -> None:
        assert self.status in STATUSES, self.status


@dataclass(frozen=True)
class Check:
    """How a claim is checked again. cheap: seconds at most, so that the tests do it, too."""

    run: Callable[[], Found]
    cheap: bool


CHECKS: dict[str, Check] = {}


def check(name: str, cheap: bool = True) -> Callable[[Callable[[], Found]], Callable[[], Found]]:
    """Decorator: this function checks the claim of that id."""

    def add(run: Callable[[], Found]) -> Callable[[], Found]:
        assert name not in CHECKS, name
        CHECKS[name] = Check(run, cheap)
        return run

    return add


def verdict(holds: bool, corrected: bool = False, otherwise: str = "fails") -> str:
    """The status of a claim that holds (as printed, or after a correction), or what it is where it does not."""
    return ("holds corrected" if corrected else "holds") if holds else otherwise


def number(value: float, digits: int = 3) -> str:
    """A number in words that reads 0 or 1 only where it is."""
    while digits < 17 and value not in (0, 1) and float(f"{value:.{digits}f}") in (0, 1):
        digits += 1
    return f"{value:.{digits}f}"


def spread(values: Iterable[float], digits: int = 3) -> str:
    """Mean, standard deviation and range of several models, in words."""
    found = pd.Series(list(values), dtype=float)
    std, low, high = (number(value, digits) for value in (found.std(ddof=1), found.min(), found.max()))
    return f"std {std}, {low} to {high}"


@cache
def kept(name: str) -> pd.DataFrame:
    """A table of analyses/sweeps: what a study that takes longer than minutes wrote at its full size."""
    return pd.read_csv(ANALYSES / "sweeps" / f"{name}.csv")


@cache
def study(script: str, *arguments: str, mode: str = "--quick") -> dict[str, pd.DataFrame]:
    """The tables that a study in analyses/ writes; each study runs once for all claims that read it."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(ANALYSES / f"{script}.py"), *arguments, "--out", folder]
        subprocess.run([*command, mode] if mode else command, check=True, stdout=subprocess.DEVNULL)
        return {path.stem: pd.read_csv(path) for path in sorted(Path(folder).glob("*.csv"))}
