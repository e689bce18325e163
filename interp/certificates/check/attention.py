"""Bounds on softmax attention: weighted means of values, and their rounding."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import mul

from .enclosures import ONE, Format, P, Vec, ceil_div, exp_between, up
from .reading import need


def softmax_error(scores: Vec, keys: int, f: Format) -> int:
    """Bound the relative error of attention weights for at most `keys` of these scores."""
    if not f.bits:
        return 0
    ends = list(scores.ends())
    spread, err, size = max(b for _, b in ends) - min(a for a, _ in ends), max(scores.err), max(scores.sizes())
    # The difference from the largest score is rounded; a count-space forward pass first adds the logarithm of a count.
    slip = err + up(f.gamma(4) * (size + spread + 2 * err + 64 * ONE)) + f.eta
    slip += f.gamma(64 * (2 + keys // 128))  # the exponential (32 ulp of 2 u each) and rescalings
    slip = 2 * slip + 2 * f.gamma(keys + 8)
    need(2 * slip < ONE, "rounding of an attention's scores is not small")
    # e^slip - 1, plus weights that underflow next to one of at least e^-60 (float32) or e^-500: eta e^60 < 2^-39.
    return slip + up(slip * slip) + 4 * keys * up(ONE, 39 if f.bits == 24 else P)


def drifts(scores: Vec, columns: Iterable[Sequence[tuple[int, int]]], keys: int, softmax: bool, f: Format) -> list[int]:
    """Bound the errors of a format's means (or sums) of at most `keys` values. columns: pairs (size, err) of values."""
    if not f.bits:
        return [0 for _ in columns]
    relative, found, reach = softmax_error(scores, keys, f) if softmax else 0, [], max(scores.sizes())
    under = 4 * keys * up(ONE, 39 if f.bits == 24 else P) if softmax else 0  # underflow of weights times values
    for column in columns:
        size, err = max(s for s, _ in column), max(e for _, e in column)
        if not softmax:  # errors of the factors, then of a sum of products of that size
            err = keys * up(reach * err + max(scores.err) * size)
            size = keys * up(reach * size)
        need(2 * keys * size < f.largest, "a sum of values might overflow")
        err += up((relative + f.gamma(keys + 4) * 2) * (size + err)) + 4 * f.eta * keys * (2 + (size >> P))
        found.append(err + under)
    return found


def weights_of(scores: Vec, softmax: bool) -> list[tuple[int, int]]:
    """Return bounds on unnormalized weights: the scores or, for a softmax, their exponentials up to a factor."""
    ends = list(scores.ends())
    top = max(b for _, b in ends)
    return [(exp_between(a - top)[0], exp_between(b - top)[1]) for a, b in ends] if softmax else ends


def attend(scores: Vec, values: Sequence[Vec], softmax: bool, f: Format) -> Vec:
    """Return the mean of values weighted by the softmax of scores, or their sum weighted by the scores."""
    bounds = weights_of(scores, softmax)
    mids, rads = [(a + b) >> 1 for a, b in bounds], [(b - a + 1) >> 1 for a, b in bounds]
    total = sum(mids) if softmax else ONE
    least = total - sum(rads) if softmax else ONE
    need(least > 0, "the bound on an attention weight is not above 0")
    reach, found, spread = [abs(m) + r for m, r in zip(mids, rads)], [], []
    for column, radii in zip(zip(*(v.mid for v in values)), zip(*(v.rad for v in values))):
        found.append(middle := sum(map(mul, mids, column)) // total)
        far = [abs(x - middle) for x in column] if softmax else map(abs, column)
        spread.append(ceil_div(sum(map(mul, reach, radii)) + sum(map(mul, rads, far)) + total, least))
    sizes = zip(*(zip(value.sizes(), value.err) for value in values))
    return Vec(tuple(found), tuple(spread), tuple(drifts(scores, sizes, len(values), softmax, f)))
