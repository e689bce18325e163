"""Numbers with bounds, for real arithmetic and for a number format; see the assumptions in __init__.py.

A number is (mid, rad, err), in units of 2^-192. The real number is within rad of mid, rounded outward; the model's
floating-point number is within err of the real one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from math import isqrt
from operator import add, mul
from typing import NamedTuple

from .reading import need

P, S, WIDE = 192, 40, 256
ONE = 1 << P
PI = 0x3_243F6A88_85A308D3_13198A2E_03707344_A4093822_299F31D0
"""pi, truncated after 192 bits."""


def fixed(value: float, what: str = "a weight") -> int:
    """Return a float as a multiple of 2^-P, exactly."""
    top, bottom = value.as_integer_ratio()
    need((top << P) % bottom == 0, f"{what} = {value!r} is not a multiple of 2^-{P}, the unit of this checker")
    return (top << P) // bottom


def up(x: int, bits: int = P) -> int:
    return -(-x >> bits)


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def about(x: int) -> str:
    """Format a number of any size for a message."""
    return f"{x / ONE:.6g}" if abs(x) < ONE << 1000 else f"2^{abs(x).bit_length() - P} in size"


@lru_cache(maxsize=1 << 15)
def exp_between(x: int) -> tuple[int, int]:
    """Return bounds on e^x for x <= 0: the Taylor series of x / 2^k with 64 extra bits, squared k times."""
    if x < -192 * ONE:
        return 0, 1  # e^-192 < 2^-276
    y, bits = -x << 64, P + 64
    k = max(0, y.bit_length() - bits + 8)
    y >>= k
    total = term = 1 << bits
    i = 0
    while term:
        i += 1
        term = (term * y >> bits) // i
        total += -term if i % 2 else term
    low, high = total - 4 * (i + 2), total + 4 * (i + 2)  # truncation of the i terms and of y
    for _ in range(k):
        low, high = low * low >> bits, up(high * high, bits)
    return low >> 64, up(high, 64)


@lru_cache(maxsize=1 << 8)
def log_between(x: int) -> tuple[int, int]:
    """Return bounds on ln(x) for x >= 1, found by Newton's method and verified with exponentials."""
    if x == ONE:
        return 0, 0
    middle, off = fixed(math.log(x / ONE)), ONE >> 150
    for _ in range(3):  # Newton's method doubles the 50 bits of a float; fewer of them count near 1
        middle += (x * exp_between(-middle)[0] >> P) - ONE
    right = exp_between(off - middle)[0] * x >= ONE << P >= exp_between(-off - middle)[1] * x
    need(right, "a logarithm is not what it should be")
    return middle - off, middle + off


def sine_between(a: int, b: int) -> tuple[int, int]:
    """Return bounds on sin(pi a / b) for 0 <= a <= b / 2, by Taylor series at both ends of an enclosure of pi a / b."""
    ends = []
    for x in (PI * a // b, ceil_div((PI + 1) * a, b)):
        total = term = x
        i = 1
        while term:
            i += 2
            term = (term * x >> P) * x // ((i - 1) * i << P)
            total += term if i % 4 == 1 else -term
        ends.append((total, 4 * i))  # truncation below 4 per term; terms decrease for x <= pi / 2
    (low, cut), (high, also) = ends
    return max(0, low - cut), high + also


class Format(NamedTuple):
    """A number format: unit roundoff u = 2^-bits (bits = 0: the reals), eta, and 2^top, which is representable.

    Weights must be below 2^weight and sums below `largest`, so that products of a few of them are below 2^top in any
    order. eta and largest are in units of 2^-P.
    """

    bits: int
    eta: int
    top: int
    weight: int
    largest: int

    def gamma(self, n: int) -> int:
        """Return n u / (1 - n u), rounded up."""
        need(2 * n < 1 << self.bits or not self.bits, "a sum is too long for this number format")
        return ceil_div(n << P, (1 << self.bits) - n) if self.bits else 0


REALS = Format(0, 0, 0, 0, 1 << 9999)
FORMATS = {
    "reals": REALS, "float32": Format(24, 1 << (P - 126), 126, 16, 1 << (P + 30)),
    "float64": Format(53, 1, 1022, 100, 1 << (P + 300)),
}  # fmt: skip


class Vec(NamedTuple):
    """A vector: real number j is within rad[j] of mid[j], and the format's number is within err[j] of it."""

    mid: tuple[int, ...]
    rad: tuple[int, ...]
    err: tuple[int, ...]

    def sizes(self) -> list[int]:
        """Return bounds on the absolute values, real or in the format."""
        return [abs(m) + r + e for m, r, e in zip(*self)]

    def ends(self) -> Iterator[tuple[int, int]]:
        return ((m - r, m + r) for m, r in zip(self.mid, self.rad))

    @classmethod
    def exact(cls, mid: Iterable[int]) -> Vec:
        mid = tuple(mid)
        return cls(mid, (0,) * len(mid), (0,) * len(mid))

    @classmethod
    def between(cls, low: Sequence[int], high: Sequence[int], err: Iterable[int]) -> Vec:
        mid = tuple((a + b) >> 1 for a, b in zip(low, high))
        return cls(mid, tuple(b - m for b, m in zip(high, mid)), tuple(err))


def plus(x: Vec, y: Vec, f: Format) -> Vec:
    total = Vec(*(tuple(map(add, a, b)) for a, b in zip(x, y)))
    if not f.bits:
        return total
    # The model may multiply each by a matrix before adding, so rounding is bounded without cancellation.
    sizes, reach = total.sizes(), list(map(add, x.sizes(), y.sizes()))
    need(max(reach) < f.largest, "a sum might overflow")
    once, twice = f.gamma(1), f.gamma(len(sizes) + 3)
    err = (e + f.eta + up(once * size + twice * (most - size)) for e, size, most in zip(total.err, sizes, reach))
    return total._replace(err=tuple(err))


def relu(x: Vec) -> Vec:
    return Vec.between([max(a, 0) for a, _ in x.ends()], [max(b, 0) for _, b in x.ends()], x.err)


class Matrix:
    """Columns, shifted right while they stay integers, and absolute values of entries in units of 2^-S, rounded up."""

    def __init__(self, columns: Sequence[Sequence[int]], bias: Sequence[int] | None = None) -> None:
        every = 0
        for column in columns:
            for w in column:
                every |= w
        self.shift = min(P, (every & -every).bit_length() - 1) if every else 0
        self.full, self.columns = columns, [[w >> self.shift for w in column] for column in columns]
        self.bias = list(bias) if bias is not None else [0] * len(columns)
        self.sizes = [[up(abs(w), P - S) for w in column] for column in columns]
        self.sums = list(map(sum, self.sizes))
        self.blank = not any(self.sums) and not any(self.bias)

    def __call__(self, x: Vec, f: Format) -> Vec:
        """Return x times every column, plus bias, in any order of evaluation."""
        need(not self.columns or len(x.mid) == len(self.columns[0]), "a matrix is for rows of another length")
        mid = tuple(
            (sum(map(mul, x.mid, column)) >> (P - self.shift)) + b for column, b in zip(self.columns, self.bias)
        )
        if (most := max(x.rad)) >> 32:
            rad = tuple(up(sum(map(mul, x.rad, size)), S) + 1 for size in self.sizes)
        else:
            rad = tuple(up(most * total, S) + 1 for total in self.sums)
        if not f.bits:
            return Vec(mid, rad, (0,) * len(mid))
        sizes, gamma, n = x.sizes(), f.gamma(len(x.mid) + 3), len(x.mid) + 3
        need(up(max(self.sums) * max(sizes), S) + max(map(abs, self.bias)) < f.largest, "a sum might overflow")
        each = [e + up(gamma * s) + f.eta for e, s in zip(x.err, sizes)]
        lost = f.eta * (2 * n + up(sum(sizes)))
        if len(each) > WIDE:  # a coarser bound for all components saves one product per entry
            sums = [max(each) * total for total in self.sums]
        else:
            sums = [sum(map(mul, each, size)) for size in self.sizes]
        err = tuple(up(total, S) + up(gamma * abs(b)) + lost for total, b in zip(sums, self.bias))
        return Vec(mid, rad, err)


def layer_norm(x: Vec, weight: Sequence[int], bias: Sequence[int], eps: int, f: Format) -> Vec:
    d, sizes = len(x.mid), x.sizes()
    mean, mean_rad = sum(x.mid) // d, ceil_div(sum(x.rad), d) + 1
    mean_err = ceil_div(sum(x.err), d) + up(f.gamma(d + 3) * ceil_div(sum(sizes), d))
    centers = [(m - mean, r + mean_rad, e + mean_err + up(f.gamma(d + 3) * s) + 2 * f.eta)
               for m, r, e, s in zip(*x, sizes)]  # fmt: skip
    least = sum(max(0, abs(c) - r) ** 2 for c, r, _ in centers) // d // ONE + eps
    most = ceil_div(sum((abs(c) + r) ** 2 for c, r, _ in centers), d * ONE) + eps
    need(least > 0, "a layer norm divides by a number that may be 0")
    squares = sum((abs(c) + r + e) ** 2 for c, r, e in centers)
    need(ceil_div(squares, ONE) < f.largest and sum(sizes) < f.largest, "a layer norm might overflow")
    moved = ceil_div(sum(2 * (abs(c) + r) * e + e * e for c, r, e in centers), d * ONE) + d * f.eta
    moved += up(f.gamma(d + 4) * (ceil_div(squares, d * ONE) + eps))
    relative = ceil_div(moved << P, least)
    need(2 * relative < ONE, "rounding may change the scale of a layer norm by half")
    low, high = isqrt(least << P), isqrt(most << P) + 1
    mids, rads, errs = [], [], []
    for (c, r, e), w, b in zip(centers, weight, bias):
        ends = [(c - r << P) // low, (c - r << P) // high, ceil_div(c + r << P, low), ceil_div(c + r << P, high)]
        middle = (min(ends) + max(ends)) >> 1
        radius = max(ends) - middle
        # A relative change of the variance of at most 1/2 changes its inverse root by less than twice as much.
        err = ceil_div((e << P) + (abs(c) + r + e) * relative, low) * 2
        err += up(f.gamma(4) * (abs(middle) + radius + err)) + 2 * f.eta
        mids.append((middle * w >> P) + b)
        rads.append(up(radius * abs(w)) + 1)
        size = up((abs(middle) + radius + err) * abs(w)) + abs(b)
        need(size < f.largest, "a layer norm might overflow")
        errs.append(up(err * abs(w)) + up(f.gamma(4) * size) + up(f.eta * (abs(w) + 4 * ONE + size)))
    return Vec(tuple(mids), tuple(rads), tuple(errs))
