"""Affine arithmetic in whole numbers: propagate sets of vectors through norms, matrices and activations.

A Form has n numbers, in units of 2^-F. Over a set of inputs, each number is

    center + sum_j slopes[j] t_j + r,      every t_j in [-1, 1], |r| <= rest,

where rest includes all truncation here. Functions propagate the slopes and add the nonlinear part to rest, so bounds
are accurate to second order in the size of the set.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import isqrt
from operator import add, mul
from typing import NamedTuple

from .enclosures import ONE, PI, P, ceil_div, exp_between
from .reading import need

F = 64
UNIT = 1 << F
STEP = F - 8
"""Activations are tabulated at multiples of 2^-8."""


class Form(NamedTuple):
    """slopes: k lists of n numbers."""

    center: list[int]
    slopes: list[list[int]]
    rest: list[int]

    def radius(self) -> list[int]:
        """Return the largest distance of each number from its center."""
        return (
            [r + sum(map(abs, column)) for r, column in zip(self.rest, zip(*self.slopes))] if self.slopes else self.rest
        )


class Columns:
    """A matrix x -> x W + b in units of 2^-F, truncated: each entry has an error below one unit."""

    def __init__(self, columns: Sequence[Sequence[int]], bias: Sequence[int]) -> None:
        self.columns = [[w >> (P - F) for w in column] for column in columns]
        self.sizes = [[abs(w) + 1 for w in column] for column in self.columns]
        self.bias = [b >> (P - F) for b in bias]
        self._leads: dict[int, list[tuple[list[int], list[int], int]]] = {}

    def leads(self, right: int) -> list[tuple[list[int], list[int], int]]:
        """Return one output minus each other one: column, absolute values, bias; all with errors below one unit."""
        if right not in self._leads:
            need(0 <= right < len(self.columns) > 1, "there is no such output")
            right_column, shift = self.columns[right], self.bias[right]
            leads = [([a - b for a, b in zip(right_column, column)], shift - bias)
                     for j, (column, bias) in enumerate(zip(self.columns, self.bias)) if j != right]  # fmt: skip
            self._leads[right] = [(w, [abs(a) + 1 for a in w], bias) for w, bias in leads]
        return self._leads[right]

    def __call__(self, x: Form) -> Form:
        reach = (sum(map(abs, x.center)) + sum(x.radius()) >> F) + len(x.slopes) + 4  # truncation of weights and sums
        center = [(sum(map(mul, x.center, w)) >> F) + b for w, b in zip(self.columns, self.bias)]
        slopes = [[sum(map(mul, slope, w)) >> F for w in self.columns] for slope in x.slopes]
        return Form(center, slopes, [(sum(map(mul, x.rest, size)) >> F) + reach for size in self.sizes])


def added(x: Form, y: Form) -> Form:
    slopes = [list(map(add, a, b)) for a, b in zip(x.slopes, y.slopes)]
    return Form(list(map(add, x.center, y.center)), slopes, list(map(add, x.rest, y.rest)))


def product(x: Form, y: Form) -> Form:
    """Return the elementwise product."""
    slopes = [
        [(c * t + d * s) >> F for c, s, d, t in zip(x.center, a, y.center, b)] for a, b in zip(x.slopes, y.slopes)
    ]
    rest = [(abs(c) * q + abs(d) * r + u * v >> F) + len(slopes) + 2 for c, d, r, q, u, v in
            zip(x.center, y.center, x.rest, y.rest, x.radius(), y.radius())]  # fmt: skip
    return Form([c * d >> F for c, d in zip(x.center, y.center)], slopes, rest)


def rms(x: Form, weight: Sequence[int], eps: int) -> Form | None:
    """Return RMSNorm, x / sqrt(mean of x^2 + eps) times a weight (truncated units of 2^-F); None if all could be 0."""
    n, radius = len(x.center), x.radius()
    center = sum(c * c for c in x.center) // (n << F) + eps
    slopes = [2 * sum(map(mul, x.center, slope)) // (n << F) for slope in x.slopes]
    rest = ceil_div(sum(2 * abs(c) * q + r * r for c, q, r in zip(x.center, x.rest, radius)), n << F) + len(slopes) + 2
    reach = sum(map(abs, slopes)) + rest
    nearest = sum(max(abs(c) - r, 0) ** 2 for c, r in zip(x.center, radius)) // (n << F)
    low = max(center - reach, nearest + eps)
    if low <= 0:
        return None
    root = isqrt(center << F)  # truncated, like everything below: relative errors of at most 2^-30 go into `slope_rest`
    value = (UNIT << F) // max(root, 1)
    lowest = isqrt(low << F)
    if lowest < 1 << (F // 2):
        return None
    # Taylor: f = s^(-1/2), |f''| / 2 = 3/8 s^(-5/2) is largest at the lower end; |f'| = 1/2 s^(-3/2).
    steep = ceil_div(value * UNIT, 2 * center) + 2
    bend = ceil_div(3 * (UNIT << F) * UNIT, 8 * lowest * low) + 1  # 3/8 low^(-3/2)
    beyond = ceil_div(bend * reach * reach, low << F) + 1
    off = ceil_div(value, root) + 4  # error of the value: the root is off by at most one unit
    steep_off = ceil_div(steep * 2, root) + 4
    slope_rest = ceil_div(steep * rest, UNIT) + beyond + off + ceil_div(steep_off * reach, UNIT) + len(slopes)
    ends = (UNIT << F) // (isqrt(center + reach << F) + 1), ceil_div(UNIT << F, lowest)
    flat = (ends[1] - ends[0]) // 2 + 1
    if 2 * slope_rest < flat:
        scale = Form([value] * n, [[-(steep * s) >> F] * n for s in slopes], [slope_rest] * n)
    else:  # for large sets the plain range is tighter
        scale = Form([sum(ends) // 2] * n, [[0] * n for _ in slopes], [flat] * n)
    y = product(x, scale)
    moved = [(abs(c) + r >> F) + len(slopes) + 3 for c, r in zip(y.center, y.radius())]  # truncation of three sums
    weighted = [c * w >> F for c, w in zip(y.center, weight)]
    tilted = [[s * w >> F for s, w in zip(slope, weight)] for slope in y.slopes]
    return Form(weighted, tilted, [(r * (abs(w) + 1) >> F) + more for r, w, more in zip(y.rest, weight, moved)])


def activated(x: Form, name: str) -> Form:
    """Return relu, gelu (by the error function) or silu of each number."""
    value, slope, rest = [], [], []
    for c, q, r in zip(x.center, x.rest, x.radius()):
        v, s, more = (_relu if name == "relu" else _smooth)(name, c, q, r)
        value.append(v)
        slope.append(s)
        rest.append(more + len(x.slopes) + 1)
    return Form(value, [[a * b >> F for a, b in zip(slope, column)] for column in x.slopes], rest)


def _relu(name: str, c: int, q: int, r: int) -> tuple[int, int, int]:
    low, high = c - r, c + r
    if low >= 0:
        return c, UNIT, q
    if high <= 0:
        return 0, 0, 0
    s = (high << F) // (high - low)  # the chord is an upper bound, at most -slope * low above the function
    gap = -s * low // (2 * UNIT) + 2
    return (s * (c - low) >> F) - gap, s, (s * q >> F) + gap + 2 + ((high - low) >> F)


def _smooth(name: str, c: int, q: int, r: int) -> tuple[int, int, int]:
    """Return the tangent at the nearest multiple of 2^-8 with its error, or the plain range if that is tighter."""
    if c - r >= 12 * UNIT:  # f(x) - x lies between -12 e^-12 (silu) and 0
        return c, UNIT, q + (UNIT >> 13)
    if c + r <= -12 * UNIT:
        return 0, 0, UNIT >> 13
    if r > 64 * UNIT or abs(c) > 64 * UNIT:
        return 0, 0, abs(c) + r + UNIT
    at = (c + (1 << STEP - 1)) >> STEP
    value, slope, off = _tangent(name, at)
    away = c - (at << STEP)
    far = r + abs(away)
    bend = _bend(name, max(0, abs(c) - r - (1 << STEP)) >> STEP)
    beyond = (bend * far * far >> 2 * F + 1) + 1
    rest = (abs(slope) * q >> F) + beyond + off + (off * far >> F) + 2
    low, high = plain_range(name, c - r, c + r)
    if 4 * rest > high - low:
        return (low + high) // 2, 0, (high - low) // 2 + 1
    return value + (slope * away >> F), slope, rest


def plain_range(name: str, low: int, high: int) -> tuple[int, int]:
    """Return bounds on gelu or silu between two numbers.

    Both functions fall, then rise, and are above -0.3; their slopes are below 5/4.
    """
    ends = []
    for x in (low, high):
        at = x >> STEP
        if abs(x) >= 64 * UNIT:
            ends.append((min(0, x) if x > 0 else -UNIT, max(0, x)))
            continue
        value, _, off = _tangent(name, at)
        more = 5 * (x - (at << STEP)) // 4 + off + 1
        ends.append((value - more, value + more))
    (a, b), (c, d) = ends
    valley = low < -UNIT // 2 and high > -3 * UNIT // 2  # the minimum, at -0.75 (gelu) or -1.28 (silu), may be inside
    return (-3 * UNIT // 10 if valley else min(a, c)), max(b, d)


@lru_cache(maxsize=1 << 15)
def _tangent(name: str, at: int) -> tuple[int, int, int]:
    """Return the value and slope of gelu or silu at a multiple of 2^-8, with the error of both."""
    x = at << P - 8
    share, bell = (_normal if name == "gelu" else _logistic)(x)
    # gelu = x Phi and its slope Phi + x phi; silu = x s and s + x s (1 - s)
    value, slope = x * share >> P, share + (x * bell >> P)
    return value >> P - F, slope >> P - F, 4


@lru_cache(maxsize=1 << 14)
def _bend(name: str, nearest: int) -> int:
    """Return a bound on |second derivative| for all |x| of at least a multiple of 2^-8."""
    x = nearest << P - 8
    if name == "silu":  # s (1 - s) |2 - |x| tanh(|x|/2)| <= 1/2, and e^-|x| max(2, |x|)
        most = min(ONE >> 1, exp_between(-x)[1] * max(2 * ONE, x) >> P)
    else:  # phi(x) |2 - x^2| falls up to x = sqrt 2, rises up to x = 2, and falls from there on
        tail = 2 * (_phi(2 * ONE) + 8)
        here = ((_phi(x) + 8) * abs(2 * ONE - (x * x >> P)) >> P) + 16
        most = max(here, tail) if x < 2 * ONE else here
    return (most >> P - F) + 2


def _phi(x: int) -> int:
    """Return the normal density, with an error below 8 units of 2^-P."""
    root = isqrt((1 << 3 * P) // (2 * PI))  # 1 / sqrt(2 pi); units of 2^-P
    return exp_between(-(x * x >> P + 1))[0] * root >> P


def _normal(x: int) -> tuple[int, int]:
    """Return the normal distribution and its density, with errors below 2^-100 for |x| <= 64."""
    size = abs(x)
    bell = _phi(size)
    if size > 16 * ONE:  # beyond, the distribution is within 2^-180 of 0 or 1
        return (ONE if x > 0 else 0), 0
    # Phi(x) = 1/2 + phi(x) (x + x^3/3 + x^5/(3 5) + ...), all terms positive; their sum is below e^(x^2/2) < 2^185.
    more = 256
    term = total = size << more
    square, i = size * size >> P, 1
    while term:
        i += 2
        term = (term * square >> P) // i
        total += term
    wide = exp_wide(square >> 1, more)
    probability = (ONE >> 1) + (total * wide >> more) * isqrt((1 << 3 * P) // (2 * PI)) // (ONE * ONE << more)
    return (probability if x >= 0 else ONE - probability), bell


def exp_wide(x: int, more: int) -> int:
    """Return e^-x in units of 2^-(P + more) for 0 <= x < 2^8, with an error below 2^-(P + more - 16)."""
    bits, k = P + more + 32, 12
    y = (x << more + 32) >> k
    total = term = 1 << bits
    i = 0
    while term:
        i += 1
        term = (term * y >> bits) // i
        total += -term if i % 2 else term
    for _ in range(k):
        total = total * total >> bits
    return total >> 32


def _logistic(x: int) -> tuple[int, int]:
    """Return 1 / (1 + e^-x) and its derivative."""
    small = exp_between(-abs(x))[0]
    share = (ONE << P) // (ONE + small)
    share = share if x >= 0 else ONE - share
    return share, share * (ONE - share) >> P


def lead(x: Form, columns: Columns, right: int) -> int:
    """Return a lower bound on the right output minus any other one."""
    cut = (sum(x.radius()) + sum(map(abs, x.center)) >> F) + 2 * len(x.slopes) + 5
    return min(
        (sum(map(mul, x.center, w)) >> F) + bias - sum(abs(sum(map(mul, slope, w)) >> F) for slope in x.slopes)
        - (sum(map(mul, x.rest, sizes)) >> F) - cut
        for w, sizes, bias in columns.leads(right)
    )  # fmt: skip
