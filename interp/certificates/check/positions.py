"""Bounds on position codes that are given by formulas."""

from __future__ import annotations

from collections.abc import Callable
from math import isqrt

from .enclosures import P, ceil_div, log_between, sine_between, up


def ratio(a: int, b: int = 1) -> tuple[int, int, int]:
    return (a << P) // b, ceil_div(a << P, b), 3 if b > 1 else 0


def mirror(i: int, n: int) -> list[tuple[int, int, int]]:
    """Return sqrt(ln(16 n) / 2) / sin(pi / 2m) times cos(pi i / m) and sin(pi i / m), with m = n - 1."""
    m, (low, high) = max(1, n - 1), log_between(16 * n)
    down, over = sine_between(1, 2 * m)
    low, high = (isqrt(low << P - 1) << P) // over, ceil_div(isqrt(high << P - 1) + 1 << P, down)
    (c, d), (a, b) = sine_between(abs(m - 2 * i), 2 * m), sine_between(min(i, m - i), m)
    c, d = (c, d) if 2 * i <= m else (-d, -c)
    return [(min(low * x, high * x) >> P, up(max(low * y, high * y)), 256) for x, y in ((c, d), (a, b))]


CODES: dict[str, Callable[[int, int], list[tuple[int, int, int]]]] = {
    "first": lambda i, n: [ratio(i == 1)],
    "fraction": lambda i, n: [ratio(i, n)],
    "parity": lambda i, n: [ratio(i, n), ratio(1 - 2 * (i % 2))],
    "halves": lambda i, n: [ratio(i), ratio(n - 1 - i), ratio(2 * i <= n - 1), ratio(2 * i >= n - 1)],
    "mirror": mirror,
}
"""Position codes in the first components, for position i of n tokens ([CLS] is position 0): lower bound, upper bound,
and the rounding error as a multiple of u times the size."""
