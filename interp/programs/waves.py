"""Numbers as points on circles: what models that add modulo p compute with (Nanda et al. 2023; Zhong et al. 2023).

A variable whose first p values are the numbers 0 to p - 1 has a wave for each frequency k: the cosine and sine of
2 pi k x / p. Waves of a sum of numbers are products of theirs, and a sum of waves has its largest value where they
agree.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import pi
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.programs.steps import Features, Known, Lines, Step, Values


@dataclass(frozen=True)
class Waves(Step):
    """Map: cos and sin of 2 pi k x / period for each frequency k, where x is the sum of the numbers that are read.

    of: variables whose first `period` values are the numbers from 0 on; other values are no numbers. A number is read
    if any of the variables holds it, whatever its weight; one that is read alone counts `terms` times, so with two
    terms the sum of equal numbers is right, too. Where nothing is read, all are 0. fading: each wave is times the
    length of the mean of the numbers' points on its circle, of two numbers x and y |cos(pi k (x - y) / period)|.
    """

    of: tuple[str, ...]
    period: int
    frequencies: tuple[int, ...]
    terms: int = 1
    fading: bool = False
    part: str = ""

    @property
    def values(self) -> Values:
        return tuple(f"{kind} {k}" for k in self.frequencies for kind in ("cos", "sin"))

    @property
    def constants(self) -> int:
        return len(self.frequencies) + 2

    def problems(self, known: Known, steps: Mapping[str, Step]) -> list[str]:
        least = min((len(known[name]) for name in self.of), default=0)
        if least < self.period or self.period < 1 or self.terms < 1:
            return [f"{self.name} needs variables with {self.period} numbers or more, and a sum of one or more"]
        return []

    def mapped(self, made: Features) -> Float[Tensor, "... waves"]:
        held = sum((made[name][..., : self.period] != 0).double() for name in self.of)
        read = torch.as_tensor(held).sign()
        n = read.sum(-1, keepdim=True).clamp(min=1.0)
        number = torch.arange(self.period, dtype=torch.float64)
        frequencies = torch.tensor(self.frequencies, dtype=torch.float64) * 2 * pi / self.period
        angle = self.terms * (read @ number / n[..., 0])[..., None] * frequencies
        points = number[:, None] * frequencies
        size = read.amax(-1, keepdim=True)
        if self.fading:
            size = ((read @ points.cos()).square() + (read @ points.sin()).square()).sqrt() / n
        return (torch.stack([angle.cos(), angle.sin()], -1) * size[..., None]).flatten(-2)

    def python(self, upper: str, names: Mapping[str, str], shown: Known) -> Lines:
        constants = [
            f"{upper}_NUMBERS_{i} = {{value: n for n, value in enumerate({_listed(shown[name][: self.period])})}}"
            for i, name in enumerate(self.of)
        ]
        read = ", ".join(f"({names[name]}, {upper}_NUMBERS_{i})" for i, name in enumerate(self.of))
        return constants, f"waves({self.frequencies!r}, {self.period!r}, {self.terms!r}, {self.fading!r}, {read})"


@dataclass(frozen=True)
class Cosines(Step):
    """Readout: for each number c, the sum of amplitude x cos(2 pi k (x - c) / period), of the waves of x.

    of: one variable of Waves with these frequencies. values: the answers, from number 0 on.
    """

    of: tuple[str, ...]
    frequencies: tuple[int, ...]
    amplitudes: tuple[float, ...]
    values: Values
    part: str = ""

    @property
    def constants(self) -> int:
        return len(self.frequencies) + len(self.amplitudes) + 1

    def problems(self, known: Known, steps: Mapping[str, Step]) -> list[str]:
        n = len(self.frequencies)
        if [len(known[name]) for name in self.of] != [2 * n] or len(self.amplitudes) != n:
            return [f"{self.name} needs one variable of {2 * n} numbers, and {n} amplitudes"]
        return []

    def sums(
        self, made: Features, of: Collection[str] | None = None, bias: bool = True
    ) -> Float[Tensor, "rows length values"]:
        """The sum of cosines for each answer; zeros where `of` leaves out the variable, and no bias."""
        matrix = wave_matrix(self.frequencies, len(self.values), self.amplitudes)
        return made[self.of[0]] @ (matrix if of is None or self.of[0] in of else torch.zeros_like(matrix))

    def python(self, upper: str, names: Mapping[str, str], shown: Known) -> Lines:
        amplitudes = dict(zip(self.frequencies, self.amplitudes))
        constants = [f"{upper}_AMPLITUDES = {amplitudes!r}", f"{upper}_VALUES = {_listed(self.values)}"]
        return constants, f"cosines({upper}_AMPLITUDES, {upper}_VALUES, {names[self.of[0]]})"


def _listed(values: Sequence[Any]) -> str:
    """Values as they stand in the source; the numbers from 0 on are not listed."""
    counted = list(values) == [str(i) for i in range(len(values))]
    return f"[str(n) for n in range({len(values)})]" if counted else repr(list(values))


def wave_matrix(
    frequencies: Sequence[int], period: int, amplitudes: Sequence[float] | None = None
) -> Float[Tensor, "waves numbers"]:
    """cos and sin of 2 pi k c / period for each frequency k (rows) and number c, times amplitudes."""
    k = torch.tensor(frequencies, dtype=torch.float64)[:, None]
    angle = 2 * pi / period * (k * torch.arange(period))
    size = torch.ones(len(k)) if amplitudes is None else torch.tensor(amplitudes)
    return (torch.stack([angle.cos(), angle.sin()], 1) * size.double()[:, None, None]).flatten(0, 1)
