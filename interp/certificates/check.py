"""Check the evidence of a certificate on a bare Python: no torch, no numpy, nothing of the package that wrote it.

    python -I -S check.py proof.json.gz [--weights-sha256 HEX] [--checkpoint model.safetensors] [--processes N]

Exit code 0 and "holds", or 1 and the first thing that does not. Nothing that the file says is believed: every
inequality is derived again from the weights with whole numbers, parts of a domain are counted and must be all of it,
and the sentence of the claim is written again here.

A number is (mid, rad, err), in units of 2^-192: the real one is in mid +- rad, rounded outward, and the one that a
number format has in its place is within err of it. The claim is about the reals; where it names a format, the answers
there are the same, because the margin exceeds what err adds up to. The premise about a format, with u its unit roundoff
and eta its smallest normal number: +, -, *, / and sqrt are right to a factor 1 + u, or to eta; a sum of n products, in
any order, fused or not, is within n u / (1 - n u) of the sum of their sizes; exp is right to 32 units in the last
place; a softmax rescales at most once for each 128 keys; a position code of sines and a logarithm, computed in float64,
is right to 256 u of each component. Products of three may be formed in either order, and tokens
that stand later in a row, or nowhere, may take part with weight 0: a claim that names a format is therefore refused
where a number on the way might come near the format's limits. Every input is run as a row of its own, without padding.

Layout: reading (strict), numbers, the model, and one section for each kind of domain: inputs (a table of them, all
run), strings (of 0 and 1), counts (boxes of three counts), maxima (the largest of K numbers), sequences (in which every
position says how often its token occurs).
"""

from __future__ import annotations

import argparse
import concurrent.futures
import gzip
import hashlib
import io
import json
import math
import re
import struct
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import product
from math import comb, isqrt
from operator import add, mul
from typing import Any, NamedTuple

MAX_BYTES = 64 << 20
HEX = re.compile(r"-?0x[01](\.[0-9a-f]{1,13})?p[+-][0-9]{1,4}")
NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class Fault(Exception):
    """What does not hold."""


def need(condition: object, sentence: str) -> None:
    if not condition:
        raise Fault(sentence)


# ================================================================ reading


def read(path: str) -> dict[str, Any]:
    """The JSON object of a file, plain or gzipped, with every key once."""
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
        if data[:2] == b"\x1f\x8b":
            data = gzip.GzipFile(fileobj=io.BytesIO(data)).read(MAX_BYTES + 1)
        need(len(data) <= MAX_BYTES, f"the file holds more than {MAX_BYTES} bytes")
        found = json.loads(data.decode(), object_pairs_hook=_once, parse_constant=_constant, parse_float=_float)
    except (OSError, EOFError, ValueError, RecursionError, zlib.error) as error:
        raise Fault(f"the file cannot be read: {type(error).__name__}: {str(error)[:200]}") from None
    need(type(found) is dict, "the file holds no JSON object")
    return dict(found)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    need(len(found) == len(pairs), f"a key occurs twice among {sorted(key for key, _ in pairs)[:20]}")
    return found


def _constant(name: str) -> None:
    raise Fault(f"{name} is no finite number")


def _float(text: str) -> float:
    need(math.isfinite(number := float(text)), f"{text[:40]} is no finite number")
    return number


def fields(value: Any, names: str, what: str) -> list[Any]:
    """The values of an object that has these fields and no others."""
    wanted = names.split()
    need(type(value) is dict and sorted(value) == sorted(wanted), f"{what} must be an object with {', '.join(wanted)}")
    return [value[name] for name in wanted]


def whole(value: Any, low: int, high: int, what: str) -> int:
    need(type(value) is int and low <= value <= high, f"{what} = {value!r:.60} must be a whole number {low}..{high}")
    return int(value)


def listed(value: Any, what: str, length: int | None = None) -> list[Any]:
    right = type(value) is list and (length is None or len(value) == length)
    need(right, f"{what} must be a list" + ("" if length is None else f" of {length}"))
    return list(value)


def wholes(value: Any, low: int, high: int, what: str, length: int | None = None) -> list[int]:
    return [whole(item, low, high, what) for item in listed(value, what, length)]


def hexadecimal(value: Any, what: str) -> float:
    """A number written as a hexadecimal float."""
    need(type(value) is str and HEX.fullmatch(value), f"{what} = {value!r:.40} is no hexadecimal number")
    try:
        number = float.fromhex(value)
    except OverflowError:
        raise Fault(f"{what} = {value} is not finite") from None
    need(math.isfinite(number), f"{what} = {value} is not finite")
    return number


# ================================================================ numbers

P, S, WIDE = 192, 40, 256
ONE = 1 << P
PI = 0x3_243F6A88_85A308D3_13198A2E_03707344_A4093822_299F31D0
"""pi, cut after 192 bits."""


def fixed(value: float, what: str = "a weight") -> int:
    """A float as a multiple of 2^-P, exactly."""
    top, bottom = value.as_integer_ratio()
    need((top << P) % bottom == 0, f"{what} = {value!r} is no multiple of 2^-{P}, which this checker works with")
    return (top << P) // bottom


def up(x: int, bits: int = P) -> int:
    return -(-x >> bits)


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def about(x: int) -> str:
    """A number for a sentence, however large."""
    return f"{x / ONE:.6g}" if abs(x) < ONE << 1000 else f"2^{abs(x).bit_length() - P} in size"


@lru_cache(maxsize=1 << 15)
def exp_between(x: int) -> tuple[int, int]:
    """Bounds of e^x for x <= 0: Taylor's series of x / 2^k with 64 further bits, squared k times."""
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
    low, high = total - 4 * (i + 2), total + 4 * (i + 2)  # each of the i terms, and y, is cut by less than 1 + its own
    for _ in range(k):
        low, high = low * low >> bits, up(high * high, bits)
    return low >> 64, up(high, 64)


def log_between(n: int) -> tuple[int, int]:
    """Bounds of ln(n), found in any way and proved by exponentials."""
    middle, off = fixed(math.log(n)), ONE >> 40
    need(n == 1 or (exp_between(off - middle)[0] * n >= ONE >= exp_between(-off - middle)[1] * n),
         "a logarithm is not what it should be")  # fmt: skip
    return (middle - off, middle + off) if n > 1 else (0, 0)


def sine_between(a: int, b: int) -> tuple[int, int]:
    """Bounds of sin(pi a / b) for 0 <= a <= b / 2, by Taylor's series at the ends of what is known of pi a / b."""
    ends = []
    for x in (PI * a // b, ceil_div((PI + 1) * a, b)):
        total = term = x
        i = 1
        while term:
            i += 2
            term = (term * x >> P) * x // ((i - 1) * i << P)
            total += term if i % 4 == 1 else -term
        ends.append((total, 4 * i))  # each term is cut by less than 4, and they fall from x <= pi / 2 on
    (low, cut), (high, also) = ends
    return max(0, low - cut), high + also


class Format(NamedTuple):
    """A number format: u = 2^-bits (bits = 0: the reals, nothing is rounded), eta, and 2^top, which it still holds.
    Weights stay below 2^weight, sums below `largest`, so that products of a few of either are below 2^top, whatever
    the order in which they are formed. eta and largest in units of 2^-P."""

    bits: int
    eta: int
    top: int
    weight: int
    largest: int

    def gamma(self, n: int) -> int:
        """n u / (1 - n u), rounded up."""
        need(2 * n < 1 << self.bits or not self.bits, "a sum is too long for this number format")
        return ceil_div(n << P, (1 << self.bits) - n) if self.bits else 0


REALS = Format(0, 0, 0, 0, 1 << 9999)
FORMATS = {
    "reals": REALS, "float32": Format(24, 1 << (P - 126), 126, 16, 1 << (P + 30)),
    "float64": Format(53, 1, 1022, 100, 1 << (P + 300)),
}  # fmt: skip


class Vec(NamedTuple):
    """Numbers: number j is really in mid[j] +- rad[j], and a format has one within err[j] of it in its place."""

    mid: tuple[int, ...]
    rad: tuple[int, ...]
    err: tuple[int, ...]

    def sizes(self) -> list[int]:
        """The largest size that either number may have."""
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
    found = Vec(*(tuple(map(add, a, b)) for a, b in zip(x, y)))
    if not f.bits:
        return found
    # Each may be multiplied by a matrix before they are added: then what cancels here is rounded before.
    sizes, reach = found.sizes(), list(map(add, x.sizes(), y.sizes()))
    need(max(reach) < f.largest, "a sum might overflow")
    once, twice = f.gamma(1), f.gamma(len(sizes) + 3)
    err = (e + f.eta + up(once * size + twice * (most - size)) for e, size, most in zip(found.err, sizes, reach))
    return found._replace(err=tuple(err))


def relu(x: Vec) -> Vec:
    return Vec.between([max(a, 0) for a, _ in x.ends()], [max(b, 0) for _, b in x.ends()], x.err)


class Matrix:
    """Columns, shifted as far as they are whole, and sizes of their entries in units of 2^-S, rounded up."""

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
        """x times every column, plus bias, in any order of evaluation."""
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
        if len(each) > WIDE:  # one bound for all components is coarse and saves a product for each entry
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
        # A change of the variance by a share of at most 1/2 changes its inverse root by less than twice that.
        err = ceil_div((e << P) + (abs(c) + r + e) * relative, low) * 2
        err += up(f.gamma(4) * (abs(middle) + radius + err)) + 2 * f.eta
        mids.append((middle * w >> P) + b)
        rads.append(up(radius * abs(w)) + 1)
        size = up((abs(middle) + radius + err) * abs(w)) + abs(b)
        need(size < f.largest, "a layer norm might overflow")
        errs.append(up(err * abs(w)) + up(f.gamma(4) * size) + up(f.eta * (abs(w) + 4 * ONE + size)))
    return Vec(tuple(mids), tuple(rads), tuple(errs))


def softmax_error(scores: Vec, keys: int, f: Format) -> int:
    """Relative error of any weight among `keys` keys that have these scores; the largest may belong to none of them."""
    if not f.bits:
        return 0
    ends = list(scores.ends())
    spread, err, size = max(b for _, b in ends) - min(a for a, _ in ends), max(scores.err), max(scores.sizes())
    # The difference from the largest is rounded; a forward on counts adds the logarithm of a count before.
    slip = err + up(f.gamma(4) * (size + spread + 2 * err + 64 * ONE)) + f.eta
    slip += f.gamma(64 * (2 + keys // 128))  # 32 units in the last place, each of 2 u, and again for each rescaling
    slip = 2 * slip + 2 * f.gamma(keys + 8)
    need(2 * slip < ONE, "rounding of an attention's scores is not small")
    # e^slip - 1; and weights that underflow beside one of at least e^-60 (float32) or e^-500: eta e^60 < 2^-39.
    return slip + up(slip * slip) + 4 * keys * up(ONE, 39 if f.bits == 24 else P)


def drifts(scores: Vec, columns: Iterable[Sequence[tuple[int, int]]], keys: int, softmax: bool, f: Format) -> list[int]:
    """Errors of a format's averages (or sums) of at most `keys` values by these scores; columns hold (size, err)."""
    if not f.bits:
        return [0 for _ in columns]
    relative, found, reach = softmax_error(scores, keys, f) if softmax else 0, [], max(scores.sizes())
    under = 4 * keys * up(ONE, 39 if f.bits == 24 else P) if softmax else 0  # the same, of weights times values
    for column in columns:
        size, err = max(s for s, _ in column), max(e for _, e in column)
        if not softmax:  # every product is off by its factors, then as an average of values of that size
            err = keys * up(reach * err + max(scores.err) * size)
            size = keys * up(reach * size)
        need(2 * keys * size < f.largest, "a sum of values might overflow")
        err += up((relative + f.gamma(keys + 4) * 2) * (size + err)) + 4 * f.eta * keys * (2 + (size >> P))
        found.append(err + under)
    return found


def weights_of(scores: Vec, softmax: bool) -> list[tuple[int, int]]:
    """Bounds of the weights of scores: themselves, or their exponentials up to a common factor."""
    ends = list(scores.ends())
    top = max(b for _, b in ends)
    return [(exp_between(a - top)[0], exp_between(b - top)[1]) for a, b in ends] if softmax else ends


def attend(scores: Vec, values: Sequence[Vec], softmax: bool, f: Format) -> Vec:
    """The average of values by the softmax of their scores, or their sum by the scores themselves."""
    bounds = weights_of(scores, softmax)
    mids, rads = [(a + b) >> 1 for a, b in bounds], [(b - a + 1) >> 1 for a, b in bounds]
    total = sum(mids) if softmax else ONE
    least = total - sum(rads) if softmax else ONE
    need(least > 0, "the weights of an attention cannot be told from 0")
    reach, found, spread = [abs(m) + r for m, r in zip(mids, rads)], [], []
    for column, radii in zip(zip(*(v.mid for v in values)), zip(*(v.rad for v in values))):
        found.append(middle := sum(map(mul, mids, column)) // total)
        far = [abs(x - middle) for x in column] if softmax else map(abs, column)
        spread.append(ceil_div(sum(map(mul, reach, radii)) + sum(map(mul, rads, far)) + total, least))
    sizes = zip(*(zip(value.sizes(), value.err) for value in values))
    return Vec(tuple(found), tuple(spread), tuple(drifts(scores, sizes, len(values), softmax, f)))


# ================================================================ the model

LAYER = {
    "n_heads": 1, "mixing": "dot", "normalizer": "softmax", "scale": "inv_sqrt_d_head", "log_length": "none",
    "query_key": "learned", "value_output": "learned", "bias": {}, "mlp": None, "norm": "none", "norm_eps": 1e-5,
}  # fmt: skip
SPEC = {
    "direction": "causal", "embedding": "learned", "positions": "none", "positions_enter": "residual",
    "max_length": None, "final_norm": "none", "readout": "linear", "readout_width": None, "readout_bias": True,
    "readout_at": "all", "n_out": None, "decision": "argmax", "tolerance": None, "dtype": "float32", "origin": None,
}  # fmt: skip
FREE = ("origin", "dtype", "embedding", "n_out")
"""Fields that do not change what the weights compute (n_out is the readout's own shape)."""
KNOWN: dict[str, Sequence[Any]] = {
    "n_heads": range(1, 1025), "mixing": ("dot", "linear"), "normalizer": ("softmax", "none"),
    "query_key": ("learned", "full"), "value_output": ("learned", "full", "identity"), "norm": ("none", "pre", "post"),
    "log_length": ("none", "current", *range(1, 10**6)), "direction": ("causal", "bidirectional"),
    "positions_enter": ("residual", "attention"), "final_norm": ("none", "layer_norm"),
    "readout": ("linear", "scalar", "relu_mlp"), "readout_bias": (True, False),
    "decision": ("argmax", "sigmoid", "indicator"),
}  # fmt: skip


def ratio(a: int, b: int = 1) -> tuple[int, int, int]:
    return (a << P) // b, ceil_div(a << P, b), 3 if b > 1 else 0


def mirror(i: int, n: int) -> list[tuple[int, int, int]]:
    """sqrt(ln(16 n) / 2) / sin(pi / 2m) times cos(pi i / m) and sin(pi i / m), with m = n - 1."""
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
"""Position codes in the first components, for position i of n tokens ([CLS] is position 0): two numbers that each lies
between, and how many units roundoff of its size a format may be off."""


class Model:
    """Spec and weights. A field of the spec that this file does not know, or a value it cannot read, is refused."""

    def __init__(self, spec: Any, weights: Any, name: Any, digest: Any, f: Format) -> None:
        need(type(spec) is dict and type(spec.get("layers")) is list, "spec must be an object with layers")
        need({"task", "d_model", "layers"} <= set(spec) <= {"task", "d_model", "layers", *SPEC}, "unknown spec field")
        need(spec["layers"] and all(type(layer) is dict for layer in spec["layers"]), "a layer must be an object")
        need(all({"d_head"} <= set(layer) <= {"d_head", *LAYER} for layer in spec["layers"]), "unknown layer field")
        self.given, self.spec = spec, {**SPEC, **spec}
        layers: list[dict[str, Any]] = [{**LAYER, **layer} for layer in spec["layers"]]
        for key, known in KNOWN.items():
            for owner in layers if key in LAYER else [self.spec]:
                right = any(type(owner[key]) is type(value) and owner[key] == value for value in known)
                need(right, f"{key} = {owner[key]!r:.60} is not known to this checker")
        self.d, self.f = whole(spec["d_model"], 1, 4096, "d_model"), f
        need(type(self.spec["readout_at"]) is str, "readout_at must be a text")
        tolerance = self.spec["tolerance"]
        need(tolerance is None or (type(tolerance) is float and tolerance > 0), "tolerance must be a positive number")
        task = spec["task"]
        allowed = {"name", "parameters", "data_seed", "table_sha256"}
        need(type(task) is dict and "name" in task and set(task) <= allowed, "spec.task must name a task")
        self.task, self.parameters = task["name"], task.get("parameters", {})
        plain = type(self.task) is str and NAME.fullmatch(self.task)  # no name that reads like another claim
        need(plain and type(self.parameters) is dict, "spec.task must name a task in letters and digits")
        canonical = json.dumps(spec, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
        said = f"{self.task}-d{self.d}-h{layers[0]['n_heads']}-{hashlib.sha256(canonical).hexdigest()[:10]}"
        need(name == said, f"the model is called {name!r:.80}, and its spec {said}")
        self.name = said
        need(type(weights) is dict and len(weights) <= 1000, "weights must be an object")
        self.shapes: dict[str, list[int]] = {}
        self.values: dict[str, list[float]] = {}
        for key in weights:
            shape, values = fields(weights[key], "shape values", "each of the weights")
            self.shapes[key] = wholes(shape, 1, 1 << 24, "a shape")
            need(len(self.shapes[key]) <= 4, "a tensor has more than four axes")
            listed(values, "values of weights", math.prod(self.shapes[key]))
            self.values[key] = [hexadecimal(value, "a weight") for value in values]
        self.sha256 = weights_sha256(self.shapes, self.values)
        need(digest == self.sha256, f"weights_sha256 is {digest!r:.80}, that of the weights is {self.sha256}")
        for values in self.values.values() if f.bits else ():
            need(all(abs(v) < 2.0**f.weight for v in values), "a weight is so large that something might overflow")
            right = f.bits == 53 or all(struct.unpack("<f", struct.pack("<f", v))[0] == v for v in values)
            need(right, "a weight is no float32 number")
        self.unused = set(self.shapes)
        self.build(layers)

    def build(self, layers: list[dict[str, Any]]) -> None:
        spec, d = self.spec, self.d
        self.words = self.table("embed.W_E")
        inside, learned = spec["positions_enter"] == "attention", spec["positions"] == "learned"
        need(learned or not inside, "positions that enter attention are learned ones")
        need(learned or spec["positions"] in ("none", *CODES), f"positions = {spec['positions']!r:.40} are not known")
        sized = learned or any(layer["mixing"] == "linear" for layer in layers)
        self.longest = whole(spec["max_length"], 1, 1 << 20, "max_length") if sized else None
        need(sized or spec["max_length"] is None, "max_length has no meaning here")
        self.places = self.table("pos_embed.W_pos") if learned and not inside else None
        need(self.places is None or len(self.places) == self.longest, "there is not one row for each position")
        self.causal = spec["direction"] == "causal"
        need(not self.causal or (spec["positions"] not in CODES and not any(
            layer["log_length"] == "current" or layer["mixing"] == "linear" for layer in layers)),
            "a causal model does not know its length")  # fmt: skip
        self.layers = [Layer(self, i, layer, inside) for i, layer in enumerate(layers)]
        self.final = self.norm("ln_final", layers[-1]["norm_eps"]) if spec["final_norm"] == "layer_norm" else None
        relu_mlp = spec["readout"] == "relu_mlp"
        need((spec["readout_width"] is not None) == relu_mlp, "readout_width goes with readout = relu_mlp")
        need((spec["readout"] == "scalar") == (spec["decision"] != "argmax"), "decision and readout do not fit")
        need((spec["tolerance"] is not None) == (spec["decision"] == "indicator"), "tolerance goes with an indicator")
        if relu_mlp:
            width = whole(spec["readout_width"], 1, 4096, "readout_width")
            self.hidden = self.matrix("unembed.W_in", d, "unembed.b_in")
            self.out = self.matrix("unembed.W_out", width, "unembed.b_out")
            need(len(self.hidden.columns) == width and spec["readout_bias"], "readout_width is another")
        else:
            self.out = self.matrix("unembed.W_U", d, "unembed.b_U" if spec["readout_bias"] else None)
        self.n_out = len(self.out.columns)
        need(spec["readout"] != "scalar" or self.n_out == 1, "a scalar readout has one output")
        need(spec["n_out"] is None or whole(spec["n_out"], 1, 1 << 24, "n_out") == self.n_out, "n_out is another")
        need(not self.unused, f"weights that no step reads: {sorted(self.unused)[:5]}")

    def require(self, **wanted: Any) -> Layer:
        """The only layer of a model in which every field is a wanted one, its default, or changes nothing; a wanted
        None allows anything."""
        need(len(self.layers) == 1, "this kind of claim is about one layer")
        for owner, defaults in ((self.spec, SPEC), (self.layers[0].spec, LAYER)):
            for key, default in defaults.items():
                choices = wanted.get(key, (default,)) if key not in FREE else None
                right = choices is None or any(type(c) is type(owner[key]) and c == owner[key] for c in choices)
                need(right, f"{key} = {owner[key]!r:.60} is not what this kind of claim is about: {choices}")
        return self.layers[0]

    def tensor(self, name: str, *shape: int) -> list[int]:
        """Its numbers; a size of 0 stands for any."""
        found = self.shapes.get(name, [])
        right = len(found) == len(shape) and all(n in (0, m) for n, m in zip(shape, found))
        need(right, f"{name} has shape {found}, not {list(shape)}")
        self.unused.discard(name)
        return [fixed(value, name) for value in self.values[name]]

    def table(self, name: str) -> list[Vec]:
        """The rows of a matrix of d_model columns."""
        flat = self.tensor(name, 0, self.d)
        return [Vec.exact(flat[i : i + self.d]) for i in range(0, len(flat), self.d)]

    def matrix(self, name: str, rows: int, bias: str | None = None) -> Matrix:
        flat = self.tensor(name, rows, 0)
        width = self.shapes[name][1]
        return Matrix([flat[j::width] for j in range(width)], self.tensor(bias, width) if bias else None)

    def norm(self, name: str, eps: Any) -> Callable[[Vec], Vec]:
        need(type(eps) is float and eps >= 0, "norm_eps must be a number")
        w, b = self.tensor(f"{name}.w", self.d), self.tensor(f"{name}.b", self.d)
        return partial(layer_norm, weight=w, bias=b, eps=fixed(eps, "norm_eps"), f=self.f)

    @lru_cache(maxsize=1 << 12)  # noqa: B019 (one model lives as long as the process)
    def embed(self, token: int, i: int, n: int) -> Vec:
        """Token and position, as they enter the stream."""
        row = self.words[token]
        if self.places is not None:
            return plus(row, self.places[i], self.f)
        if self.spec["positions"] not in CODES:
            return row
        code = CODES[self.spec["positions"]](i, n)
        need(len(code) <= self.d, "the position code needs more components")
        low, high, units = zip(*code, *[(0, 0, 0)] * (self.d - len(code)))
        err = [up(self.f.gamma(k) * max(abs(a), abs(b))) for a, b, k in zip(low, high, units)]
        return plus(row, Vec.between(low, high, err), self.f)

    def forward(self, tokens: Sequence[int], places: Sequence[int]) -> list[Vec]:
        """The outputs at some places of a row of tokens."""
        n = len(tokens)
        need(self.longest is None or n <= self.longest, "a row is longer than the model's positions")
        rows = [self.embed(token, i, n) for i, token in enumerate(tokens)]
        for layer in self.layers:
            asking = range(n) if layer is not self.layers[-1] else places
            rows = layer.run(rows, asking)
        return [self.read(row) for row in rows]

    @lru_cache(maxsize=1 << 12)  # noqa: B019
    def read(self, row: Vec) -> Vec:
        row = self.final(row) if self.final else row
        return self.out(relu(self.hidden(row, self.f)) if self.spec["readout"] == "relu_mlp" else row, self.f)

    def drift(self, query: Vec, seen: Sequence[Vec], keys: int, scores: Vec | None = None) -> int:
        """One layer: how far rounding moves the difference of two outputs where `query` sees at most `keys` of the
        rows `seen`, whatever they are. scores: where they are not those of the query and the rows."""
        layer, f, z = self.layers[0], self.f, []
        if not f.bits:
            return 0
        for h in range(layer.heads):
            found = scores or layer.scores(h, query, seen, 0)
            columns = list(zip(*(zip(v.sizes(), v.err) for v in (layer.value(h, layer.normed(row)) for row in seen))))
            many = 1 if layer.softmax else up(keys * max(found.sizes()))
            errs = drifts(found, columns, keys, layer.softmax, f)
            z += [(0, max(size for size, _ in column) * many, err) for column, err in zip(columns, errs)]
        out = self.read(layer.after(query, Vec(*map(tuple, zip(*z)))))
        return 4 * max(out.err)  # two outputs; and twice, for an evaluation that reads out before it averages


class Layer:
    """Attention and neurons of one block."""

    def __init__(self, model: Model, index: int, spec: dict[str, Any], inside: bool) -> None:
        self.spec, self.model, d, name = spec, model, model.d, f"blocks.{index}."
        heads, width, biases = spec["n_heads"], whole(spec["d_head"], 1, 4096, "d_head"), spec["bias"]
        need(type(biases) is dict and all(k in "qkvo" and v is True for k, v in biases.items()), "bias is q, k, v or o")
        plain = spec["query_key"] == spec["value_output"] == "learned"
        need(plain or width == d, "values or scores of the stream itself need d_head = d_model")
        self.heads, self.softmax = heads, spec["normalizer"] == "softmax"
        self.linear = spec["mixing"] == "linear"
        need(self.softmax or spec["log_length"] == "none", "log_length is for a softmax")
        if model.f.bits and not self.linear:  # the score of any two rows, also of those that a query does not see
            reach = d * (model.f.largest >> P) << model.f.weight
            score = reach * reach * width * (self.factor(model.longest or 1 << 20)[1] + ONE)
            need(score < 1 << P + model.f.top, "the score of rows that are not seen might overflow")
        eye = Matrix([[ONE if i == j else 0 for i in range(d)] for j in range(d)])

        def per_head(letter: str) -> list[Matrix]:
            flat, size = model.tensor(f"{name}attn.W_{letter}", heads, d, width), d * width
            starts = model.tensor(f"{name}attn.b_{letter}", heads, width) if letter.lower() in biases else None
            return [Matrix([flat[h * size + j : (h + 1) * size : width] for j in range(width)],
                           starts[h * width : (h + 1) * width] if starts else None) for h in range(heads)]  # fmt: skip

        self.pattern: list[list[Vec]] = []
        if self.linear:
            need(not {"q", "k"} & set(biases), "linear mixing has no queries and keys")
            length = model.longest or 0
            flat = model.tensor(f"{name}attn.W_mix", heads, length, length)
            rows = [Vec.exact(flat[i : i + length]) for i in range(0, len(flat), length)]
            self.pattern = [rows[h * length : (h + 1) * length] for h in range(heads)]
        else:
            self.q = per_head("Q")
            need(spec["query_key"] == "learned" or "k" not in biases, "full queries have no k bias")
            self.k = [eye] * heads if spec["query_key"] == "full" else per_head("K")
        need(spec["value_output"] == "learned" or "v" not in biases, "full values have no v bias")
        self.v = per_head("V") if spec["value_output"] == "learned" else None
        b_o = model.tensor(f"{name}attn.b_O", d) if "o" in biases else None
        if spec["value_output"] == "identity":
            self.o = Matrix([[ONE if i % d == j else 0 for i in range(heads * d)] for j in range(d)], b_o)
        else:
            flat = model.tensor(f"{name}attn.W_O", heads, width, d)
            self.o = Matrix([flat[j::d] for j in range(d)], b_o)
        self.places = model.table(f"{name}attn.W_pos") if inside else None
        need(
            self.places is None or (len(self.places) == model.longest and spec["norm"] == "none"),
            "positions of attention",
        )
        norms = [model.norm(f"{name}{part}", spec["norm_eps"]) for part in ("ln1", "ln2")[: 1 + bool(spec["mlp"])]
                 if spec["norm"] != "none"]  # fmt: skip
        self.ln1, self.ln2 = [*norms, None, None][:2]
        self.neurons: list[Matrix] = []
        if (mlp := spec["mlp"]) is not None:
            need(type(mlp) is dict and set(mlp) <= {"d_mlp", "activation"}, "mlp has d_mlp and activation")
            need(mlp.get("activation", "relu") == "relu", "neurons must be ReLU: a GELU is not enclosed here")
            many = whole(mlp.get("d_mlp"), 1, 1 << 16, "d_mlp")
            self.neurons = [model.matrix(f"{name}mlp.W_{part}", rows, f"{name}mlp.b_{part}")
                            for part, rows in (("in", d), ("out", many))]  # fmt: skip
            need([len(m.columns) for m in self.neurons] == [many, d], "d_mlp is another")

    def factor(self, n: int) -> tuple[int, int]:
        """What scores are multiplied by for n tokens, between two numbers."""
        scale, sizes = self.spec["scale"], {"inv_sqrt_d_head": self.spec["d_head"], "inv_sqrt_d_model": self.model.d}
        if type(scale) is float:
            need(0 < scale < 1e9, f"scale = {scale!r} must be a positive number")
            low = high = fixed(scale, "scale")
        else:
            need(type(scale) is str and scale in sizes, f"scale = {scale!r:.40} is unknown")
            low = isqrt((1 << 2 * P) // sizes[scale])
            high = low + 1
        if (length := self.spec["log_length"]) == "none":
            return low, high
        small, large = log_between(n if length == "current" else length)
        return low * small >> P, up(high * large)

    @lru_cache(maxsize=1 << 12)  # noqa: B019
    def query(self, h: int, row: Vec) -> Vec:
        return self.q[h](row, self.model.f)

    @lru_cache(maxsize=1 << 12)  # noqa: B019
    def key(self, h: int, row: Vec) -> Vec:
        return self.k[h](row, self.model.f)

    @lru_cache(maxsize=1 << 12)  # noqa: B019
    def value(self, h: int, row: Vec) -> Vec:
        return self.v[h](row, self.model.f) if self.v else row

    def scores(self, h: int, asking: Vec, rows: Sequence[Vec], n: int) -> Vec:
        """Products of a query with the key of every row, times the factor for n tokens; rows of the stream."""
        q, f = self.query(h, self.normed(asking)), self.model.f
        q_sizes, q_reach = q.sizes(), [abs(m) + r for m, r in zip(q.mid, q.rad)]
        (low, high), gamma, width = self.factor(n), f.gamma(len(q.mid) + 8), len(q.mid)
        middle, off, found = (low + high) >> 1, (high - low + 1) >> 1, []
        for k in (self.key(h, self.normed(row)) for row in rows):
            mid = sum(map(mul, q.mid, k.mid)) >> P
            rad = up(sum(map(mul, q_reach, k.rad)) + sum(abs(m) * r for m, r in zip(k.mid, q.rad))) + 1
            err = 0
            if f.bits:
                sizes = k.sizes()
                size = up(sum(map(mul, q_sizes, sizes)))
                need(size < f.largest and up(size * high) < f.largest, "a score might overflow")
                err = up(sum(map(mul, q.err, sizes)) + sum(map(mul, q_sizes, k.err))) + up(gamma * size)
                err += f.eta * (width + 2 + up(sum(sizes) + sum(q_sizes)))
                err = up(high * err + f.gamma(8) * up(size * high)) + 2 * f.eta
            found.append((mid * middle >> P, up(rad * high + abs(mid) * off) + 1, err))
        return Vec(*map(tuple, zip(*found)))

    def run(self, rows: Sequence[Vec], asking: Iterable[int]) -> list[Vec]:
        """The stream after this layer, at the places that ask."""
        f, n, causal = self.model.f, len(rows), self.model.causal
        seen = list(rows) if self.places is None else [plus(row, at, f) for row, at in zip(rows, self.places)]
        need(not self.linear or n == self.model.longest, "a fixed pattern is for rows of max_length tokens")
        done: dict[Any, Vec] = {}
        found = []
        for i in asking:
            known = (rows[i], seen[i], i if causal or self.linear else None)
            if known not in done:
                keys, z = seen[: i + 1] if causal else seen, Vec((), (), ())
                for h in range(self.heads):
                    scores = self.pattern[h][i] if self.linear else self.scores(h, seen[i], keys, n)
                    mixed = attend(scores, [self.value(h, self.normed(row)) for row in keys], self.softmax, f)
                    z = Vec(*map(add, z, mixed))
                done[known] = self.after(rows[i], z)
            found.append(done[known])
        return found

    @lru_cache(maxsize=1 << 12)  # noqa: B019
    def normed(self, row: Vec) -> Vec:
        return self.ln1(row) if self.ln1 and self.spec["norm"] == "pre" else row

    def after(self, row: Vec, z: Vec) -> Vec:
        """The stream after attention has found z, and after the neurons."""
        f, post = self.model.f, self.spec["norm"] == "post"
        row = plus(row, self.o(z, f), f)
        row = self.ln1(row) if post and self.ln1 else row
        if self.neurons:
            inner = self.ln2(row) if self.ln2 and not post else row
            row = plus(row, self.neurons[1](relu(self.neurons[0](inner, f)), f), f)
            row = self.ln2(row) if self.ln2 and post else row
        return row


def weights_sha256(shapes: dict[str, list[int]], values: dict[str, list[float]]) -> str:
    """Over the tensors in the order of their names: name, shape, and the numbers as little-endian float64."""
    digest = hashlib.sha256()
    for name in sorted(shapes):
        digest.update(f"{name} {','.join(map(str, shapes[name]))}\n".encode())
        digest.update(struct.pack(f"<{len(values[name])}d", *values[name]))
    return digest.hexdigest()


def compare_checkpoint(model: Model, path: str) -> str:
    """Are the weights those of a safetensors file, bit for bit, and its spec that of the evidence? Its SHA-256."""
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
        need(len(data) <= MAX_BYTES, f"{path} holds more than {MAX_BYTES} bytes")
        size = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + size])
        for name, shape in model.shapes.items():
            item = header[name]
            need(item["shape"] == shape, f"{name} has shape {item['shape']} in {path}, not {shape}")
            first, last = item["data_offsets"]
            code = {"F32": "f", "F64": "d"}[item["dtype"]]
            body = data[8 + size + first : 8 + size + last]
            found = struct.unpack(f"<{math.prod(shape)}{code}", body)
            need([x.hex() for x in found] == [x.hex() for x in model.values[name]], f"{name} differs from {path}")
        others = [name for name in header if name not in model.shapes and not name.startswith(("__", "task."))]
        need(not others, f"{path} also holds {others[:3]}")
        if (record := header.get("__metadata__", {}).get("interp")) is not None:
            specs = [json.dumps({k: v for k, v in spec.items() if k not in ("dtype", "origin")}, sort_keys=True)
                     for spec in (json.loads(record)["spec"], model.given)]  # fmt: skip
            need(specs[0] == specs[1], f"{path} says of its model what the evidence does not: {specs[0]:.2000}")
        else:
            print(f"{path} says nothing of its model's architecture: the spec is that of the evidence alone")
    except (OSError, KeyError, ValueError, TypeError, AttributeError, RecursionError, struct.error) as error:
        raise Fault(f"{path} does not hold these weights: {error!r:.100}") from None
    return hashlib.sha256(data).hexdigest()


# ================================================================ inputs: a table of them

Spread = Callable[..., list[Any]]
"""(work, items) -> [work(*item) for item in items], perhaps in several processes."""
Found = tuple[str, int]
"""What holds, up to its margin, and a bound of what rounding may do to a difference of two outputs."""


def is_right(model: Model, out: Vec, answers: Sequence[int], margin: int) -> bool:
    """Does a right output exceed all others by the margin, or another one all right ones? Anything else is a fault."""
    said = list(out.ends())
    if model.spec["decision"] == "sigmoid":  # yes where the output is positive
        said = [(0, 0), said[0]]
    elif model.spec["decision"] == "indicator":  # yes where it is at most the tolerance away from 0
        edge = fixed(model.spec["tolerance"], "tolerance")
        said = [(max(0, abs(out.mid[0]) - out.rad[0]), abs(out.mid[0]) + out.rad[0]), (edge, edge)]
    others = [j for j in range(len(said)) if j not in answers]
    need(answers and others and max(answers) < len(said), f"answers {answers} are none or all of the outputs")
    if max(said[j][0] for j in answers) - max(said[j][1] for j in others) >= margin:
        return True
    apart = max(said[j][0] for j in others) - max(said[j][1] for j in answers)
    need(apart >= margin, f"the answers {answers} are neither right nor wrong by the margin")
    return False


def inputs(model: Model, domain: Any, parts: Any, margin: int, spread: Spread) -> Found:
    """Every input of a table is run: [tokens, [[place, right outputs], ...]] for each."""
    token, errors = fields(domain, "read errors", "claim.domain")
    at, seen = model.spec["readout_at"], set()
    need(token is None or whole(token, 0, len(model.words) - 1, "read") >= 0, "")
    need(at not in ("all", "first", "last") or token is None, f"answers are read at {at!r:.40}, not at a token")
    for part in listed(parts, "parts"):
        tokens, reads = listed(part, "a part", 2)
        need(wholes(tokens, 0, len(model.words) - 1, "a token"), "a row is empty")
        seen.add(tuple(tokens))
        places = [whole(listed(item, "a read", 2)[0], 0, len(tokens) - 1, "a place") for item in listed(reads, "reads")]
        need(places and sorted(set(places)) == places, "places must ascend")
        need(all(sorted(set(wholes(item[1], 0, 1 << 24, "an answer"))) == item[1] for item in reads), "answers ascend")
        if at != "all":
            one = {"first": 0, "last": len(tokens) - 1}.get(at)
            one = tokens.index(token) if one is None and token in tokens else one
            need(places == [one], f"row {tokens!r:.80} is not read where its answer stands")
    need(parts and len(seen) == len(parts), "an input occurs twice, or there is none")
    found = spread(partial(one_input, model, margin), parts)
    wrong = [[i, place] for i, (places, _) in enumerate(found) for place in places]
    need(errors == wrong, f"wrong answers are {wrong[:9]}, not as claimed")
    digest = hashlib.sha256(json.dumps(parts, separators=(",", ":")).encode()).hexdigest()
    one_length = len({len(row) for row in seen}) == 1 and len(seen) == len(model.words) ** len(parts[0][0])
    every = f"all {len(seen)} = {len(model.words)}^{len(parts[0][0])}" if one_length else f"each of the {len(seen)}"
    where = "" if token is None else f", read at token {token}"
    answers, most = sum(len(part[1]) for part in parts), max(len(item[1]) for part in parts for item in part[1])
    said = f"{model.task}: right for {every} inputs, rows without padding, of the table of SHA-256 {digest}{where}"
    said += f", by the {answers} answers that it gives" + (f", up to {most} outputs for one" if most > 1 else "")
    said += f" but exactly {len(wrong)} of {answers} answers, which are wrong" if wrong else ""
    return said, max(rounding for _, rounding in found)


def one_input(model: Model, margin: int, tokens: list[int], reads: list[Any]) -> tuple[list[int], int]:
    """Places with a wrong answer, and the rounding."""
    outs = model.forward(tokens, [place for place, _ in reads])
    wrong = [place for (place, answers), out in zip(reads, outs) if not is_right(model, out, answers, margin)]
    return wrong, 2 * max(max(out.err) for out in outs)


# ================================================================ strings of 0 and 1

LANGUAGES: dict[str, Callable[[Sequence[int]], bool]] = {
    "parity": lambda w: sum(w) % 2 == 1, "one": lambda w: sum(w) == 1, "first": lambda w: w[0] == 1,
    "palindrome": lambda w: list(w) == list(w)[::-1],
}  # fmt: skip
CLS, EOS = 2, 3


def strings(model: Model, domain: Any, parts: Any, margin: int, spread: Spread) -> Found:
    """Every string up to a length: each one run, or one for all of equal first symbol and number of ones.

    by "string": each is run. "class": rows of equal tokens are equal but for the first, so one string is run for its
    class. "average": layer 1 scores all pairs alike, so that what it adds is an average that the class decides; then
    the row of a later position may be either of two, and everything that follows holds for both at once.
    """
    longest, by, errors = fields(domain, "longest by errors", "claim.domain")
    whole(longest, 1, 1000, "longest")
    need(by in ("string", "class", "average") and parts == [], "strings are taken by string, class or average")
    need(model.task in LANGUAGES, f"no strings are known of task {model.task!r:.40}")
    need(set(model.parameters) <= {"length", "shortest", "test_length"}, "a parameter of the task is unknown")
    ends = model.task == "palindrome"
    need(len(model.words) == 4 + ends, "words are 0, 1, [CLS], [EOS] of palindromes, and padding")
    need(model.spec["readout_at"] == "[CLS]" and model.spec["decision"] != "argmax", "strings are judged at [CLS]")
    need(by == "string" or not (model.causal or ends), "palindromes, and what a causal model says, are no classes")
    need(by != "class" or model.spec["positions"] in ("none", "first"), "positions differ within a class")
    layer = model.layers[0]
    need(not any(one.linear or one.places for one in model.layers), "positions differ within a class")
    need(by != "average" or layer.spec["norm"] != "pre", "values are not linear in a row that is normalized before")
    if by == "average":
        blank = all(q.blank or k.blank for q, k in zip(layer.q, layer.k))
        need(blank and layer.softmax and model.places is None, "layer 1 does not score all pairs alike")
    work: list[tuple[int, list[int]]] = []
    rounding, wrong = 0, dict.fromkeys(range(1, longest + 1), 0)
    for n in range(1, longest + 1):
        if by == "string":
            need(longest <= 20, "there are too many strings to run each")
            work += [(n, list(start)) for start in product((0, 1), repeat=min(n, 6))]
        else:
            work += [(n, [first, *[1] * ones]) for first in (0, 1) for ones in range(n)]
    totals = dict.fromkeys(range(1, longest + 1), 0)
    found = spread(
        partial({"string": each_string, "class": one_class, "average": one_average}[by], model, margin), work
    )
    for (n, _), (many, bad, moved) in zip(work, found):
        totals[n], wrong[n], rounding = totals[n] + many, wrong[n] + bad, max(rounding, moved)
    need(totals == {n: 2**n for n in totals}, "strings are left out")
    where = [[n, bad] for n, bad in wrong.items() if bad]
    need(errors == where, f"errors are {where[:20]}, not as claimed")
    said = f"{model.task}: right on every string of 1 to {longest} symbols, {2 ** (longest + 1) - 2} strings"
    said += ", rows without padding"
    if where:
        each = "; ".join(f"{n} symbols: {bad}" for n, bad in where)
        said += f" but exactly {sum(bad for _, bad in where)}, on which it errs ({each})"
    return said, rounding


def each_string(model: Model, margin: int, n: int, start: list[int]) -> tuple[int, int, int]:
    """All strings that start so: their number, those that are wrong, and the rounding."""
    total = bad = moved = 0
    for rest in product((0, 1), repeat=n - len(start)):
        word = [*start, *rest]
        wrong, rounding = one_input(
            model, margin, [CLS, *word, *[EOS] * (model.task == "palindrome")],
            [[0, [int(LANGUAGES[model.task](word))]]],
        )  # fmt: skip
        total, bad, moved = total + 1, bad + len(wrong), max(moved, rounding)
    return total, bad, moved


def one_class(model: Model, margin: int, n: int, start: list[int]) -> tuple[int, int, int]:
    word = start + [0] * (n - len(start))
    wrong, rounding = one_input(model, margin, [CLS, *word], [[0, [int(LANGUAGES[model.task](word))]]])
    size = comb(n - 1, len(start) - 1)
    return size, size * len(wrong), rounding


def one_average(model: Model, margin: int, n: int, start: list[int]) -> tuple[int, int, int]:
    word, layer, f = start + [0] * (n - len(start)), model.layers[0], model.f
    rows = [[model.embed(t, i, n + 1) for t in ((0, 1) if i > 1 else ((CLS, *word)[i],))] for i in range(n + 1)]
    chosen = [choice[-1] if i and word[i - 1] else choice[0] for i, choice in enumerate(rows)]
    zero, z = Vec.exact([0] * (n + 1)), Vec((), (), ())
    for h in range(
        layer.heads
    ):  # values are linear in a row, and rows in whether a symbol is 1: the average is the same
        values = [[layer.value(h, layer.normed(row)) for row in choice] for choice in rows]
        first = attend(zero, [layer.value(h, layer.normed(row)) for row in chosen], True, REALS)
        sizes = zip(*(zip(v.sizes(), v.err) for choice in values for v in choice))
        z = Vec(*map(add, z, (first.mid, first.rad, tuple(drifts(zero, sizes, n + 1, True, f)))))
    after = [hull([layer.after(row, z) for row in choice]) for choice in (rows if model.layers[1:] else rows[:1])]
    for later in model.layers[1:]:
        after = later.run(after, range(n + 1) if later is not model.layers[-1] else [0])
    out, size = model.read(after[0]), comb(n - 1, len(start) - 1)
    right = is_right(model, out, [int(LANGUAGES[model.task](word))], margin)
    return size, 0 if right else size, 2 * max(out.err)


def hull(rows: Sequence[Vec]) -> Vec:
    low = [min(m - r for m, r in pairs) for pairs in zip(*(zip(row.mid, row.rad) for row in rows))]
    high = [max(m + r for m, r in pairs) for pairs in zip(*(zip(row.mid, row.rad) for row in rows))]
    return rows[0] if len(rows) == 1 else Vec.between(low, high, map(max, zip(*(row.err for row in rows))))


# ================================================================ counts: boxes of how often three tokens occur


class Zone(NamedTuple):
    """Inputs with low[i] <= x_i <= high[i] for x = (n0, n1, n2, n1 - n0)."""

    low: tuple[int, ...]
    high: tuple[int, ...]

    def cut(self, axis: int, at: int) -> tuple[Zone, Zone]:
        """Where x_axis <= at, and where not."""
        need(self.low[axis] <= at < self.high[axis], f"a part is cut at {at}, outside it")
        first = (*self.high[:axis], at, *self.high[axis + 1 :])
        second = (*self.low[:axis], at + 1, *self.low[axis + 1 :])
        return Zone(self.low, first), Zone(second, self.high)

    def corners(self) -> list[tuple[int, int, int, int]]:
        """1 and the vertices: (n0, n1) lies in a polygon with sides n0, n1 or n1 - n0 = constant, so they are whole."""
        (a, c, e, p), (b, d, g, q) = self.low, self.high
        points = {(x, y) for x in (a, b) for y in (c, d)} | {(x, x + z) for x in (a, b) for z in (p, q)}
        points |= {(y - z, y) for y in (c, d) for z in (p, q)}
        inside = [(x, y) for x, y in points if a <= x <= b and c <= y <= d and p <= y - x <= q]
        return [(1, x, y, z) for x, y in inside for z in {e, g}]

    def inputs(self) -> Iterator[tuple[int, int]]:
        """Each difference n1 - n0, and the number of inputs with it."""
        (a, c, e, p), (b, d, g, q) = self.low, self.high
        for z in range(p, q + 1):
            if (pairs := min(b, d - z) - max(a, c - z) + 1) > 0:
                yield z, pairs * (g - e + 1)


class Asked(NamedTuple):
    """One layer asked by one row: an output is base plus, for each head, the average of logits over the rows seen, by
    the softmax of scores. logits and base are within rad of the real ones."""

    scores: list[Vec]
    logits: list[list[tuple[int, ...]]]
    base: tuple[int, ...]
    rad: int


def asked_by(model: Model, query: Vec, rows: Sequence[Vec], **also: Any) -> Asked:
    """What a row is told by some rows, through one layer of attention and a linear readout."""
    free = dict.fromkeys(("n_heads", "scale", "query_key", "value_output", "bias", "norm_eps", "readout_at"))
    layer = model.require(**{**free, "readout_bias": (True, False), "norm": ("none", "pre"), **also})
    need(layer.spec["norm"] == "pre" or layer.ln1 is None, "layer norm")
    all_scores, all_logits, rad = [], [], 0
    nothing = Vec.exact([0] * len(layer.o.full[0]))
    base = model.read(layer.after(query, nothing))
    for h in range(layer.heads):
        all_scores.append(layer.scores(h, query, rows, 0))
        said = []
        for value in (layer.value(h, layer.normed(row)) for row in rows):
            at = h * len(value.mid)
            z = Vec(*(x[:at] + y + x[at + len(y) :] for x, y in zip(nothing, value)))
            out = model.read(layer.after(query, z))
            said.append(tuple(a - b for a, b in zip(out.mid, base.mid)))
            rad = max(rad, max(map(add, out.rad, base.rad)))
        all_logits.append(said)
    return Asked(all_scores, all_logits, base.mid, max(rad, *base.rad))


Head = tuple[tuple[int, ...], tuple[int, ...]]
"""Coefficients of (1, n0, n1, n2) in the denominator and, times 2^P, in the numerator."""


def least(zone: Zone, offset: int, heads: Sequence[Head]) -> int:
    """A bound from below of offset + sum over heads of N / D on a zone, with N and D > 0 affine in the counts.

    Each quotient alone is smallest at a corner; for a sum, N / D = F + (N - F D) / D0 - (N - F D)(D - D0) / (D D0) for
    any F and D0: the middle term is affine, so the sum over heads is smallest at a corner, and the last one is small.
    """
    corners = zone.corners()
    need(corners, "a part holds no inputs")
    alone, affine, rest = 0, [0] * len(corners), 0
    for weights, values in heads:
        ds = [sum(map(mul, weights, corner)) for corner in corners]
        ns = [sum(map(mul, values, corner)) for corner in corners]
        alone += min(n // d for n, d in zip(ns, ds))
        middle = sum(ds) // len(ds)
        slope = sum(ns) // sum(ds)
        bends = [n - slope * d for n, d in zip(ns, ds)]
        affine = [total + slope + bend // middle for total, bend in zip(affine, bends)]
        far = max(abs(d - middle) for d in ds)
        rest += ceil_div(max(map(abs, bends)) * far, min(ds) * middle)
    return offset + max(alone, min(affine) - rest)


def counts(model: Model, domain: Any, parts: Any, margin: int, spread: Spread) -> Found:
    """One causal layer without positions: a token sees how often each other one stands before it, and nothing else.

    parts: cuts [axis, at] of the box, null where the right output is the largest, or the output that exceeds it.
    """
    box, counted, marks, token, answers, errors = fields(
        domain, "box counted marks read answers errors", "claim.domain"
    )
    (a, b), (c, d), (e, g) = sides = [wholes(side, 0, 10**6, "a count", 2) for side in listed(box, "box", 3)]
    need(all(low <= high for low, high in sides), "a side of the box is empty")
    words = len(model.words) - 1
    wholes(counted, 0, words, "a counted token", 3), wholes(marks, 0, words, "a mark")
    wholes(answers, 0, model.n_out - 1, "an answer", 2), whole(token, 0, words, "read")
    need(len(set(counted)) == 3 and answers[0] != answers[1], "tokens and answers must differ")
    need(token in marks and not set(counted) & set(marks), "the token that is read is a mark, and no mark is counted")
    known = ([1, 2, 3], [0, 4], 4, [5, 6], "=")
    at = model.spec["readout_at"]
    need(model.task != "count01" or (counted, marks, token, answers, at) == known, "Count01 has other tokens")
    need(at not in ("all", "first"), f"answers are read at {at!r}, not after what is counted")
    rows = [model.words[t] for t in (*counted, *marks)]
    asked = asked_by(model, model.words[token], rows)
    slack, weights = 4 * asked.rad, [weights_of(scores, softmax=True) for scores in asked.scores]
    for bounds, logits in zip(weights, asked.logits):
        need(min(low for low, _ in bounds) > 0, "a weight of the attention cannot be told from 0")
        relative = max(ceil_div((high - low + 1) << P, low) for low, high in bounds)
        need(relative < ONE >> 4, "the weights of an attention are not known well enough")
        slack += up(16 * relative * max(abs(x) for row in logits for x in row)) + 4 * asked.rad + 4

    heads = {(i, j): [head_of(bounds, logits, i, j) for bounds, logits in zip(weights, asked.logits)]
             for i, j in product(range(model.n_out), repeat=2) if i != j and {i, j} & set(answers)}  # fmt: skip
    root = Zone((a, c, e, c - b), (b, d, g, d - a))
    stack, leaves = [root], []
    for item in listed(parts, "parts"):
        need(stack, "there are more parts than the cuts make")
        zone = stack.pop()
        if type(item) is list:
            axis, at = wholes(item, -(10**6), 10**6, "a cut", 2)
            stack += reversed(zone.cut(whole(axis, 0, 3, "an axis"), at))
        else:
            need(item is None or whole(item, 0, model.n_out - 1, "an output") >= 0, "")
            leaves.append((zone, item))
    need(not stack, "a part of the domain is left out")
    spread(partial(count_part, heads, asked.base, slack + margin, answers), leaves)
    wrong: dict[int, int] = {}
    for zone, item in leaves:
        for z, n in zone.inputs() if item is not None else ():
            wrong[z] = wrong.get(z, 0) + n
    sizes = dict(root.inputs())
    seen = sum(n for zone, _ in leaves for _, n in zone.inputs())
    total = (b - a + 1) * (d - c + 1) * (g - e + 1)
    need(seen == total == sum(sizes.values()), f"the parts hold {seen} inputs, the domain {total}")
    need(errors == [[z, wrong[z]] for z in sorted(wrong)], f"errors are {sorted(wrong.items())[:9]}, not as claimed")
    said = (f"{model.task}: at token {token}, which sees {marks} and n0, n1, n2 times {counted}, the largest output is "
            f"{answers[0]} where n1 > n0, else {answers[1]}, on every one of {total} inputs "
            f"(n0 in {a}..{b}, n1 in {c}..{d}, n2 in {e}..{g})")  # fmt: skip
    if wrong:
        places = "; ".join(f"n1 - n0 = {z}: {wrong[z]} of {sizes[z]}" for z in sorted(wrong))
        said += f" but exactly {sum(wrong.values())}, on which it is not ({places})"
    return said, model.drift(model.words[token], rows, b + d + g + len(marks))


def head_of(bounds: Sequence[tuple[int, int]], logits: Sequence[Sequence[int]], i: int, j: int) -> Head:
    """A head's share of the difference of two outputs; each mark occurs once."""
    weights = [(low + high) >> 1 for low, high in bounds]
    terms = [w * (row[i] - row[j]) for w, row in zip(weights, logits)]
    return (sum(weights[3:]), *weights[:3]), (sum(terms[3:]), *terms[:3])


def count_part(
    heads: dict[tuple[int, int], list[Head]],
    base: Sequence[int],
    wanted: int,
    answers: list[int],
    zone: Zone,
    item: Any,
) -> None:
    """Is one part right (None), or wrong because the output `item` exceeds the right one?"""
    need(zone.high[3] <= 0 or zone.low[3] >= 1, f"a part holds inputs of both answers: {zone}")
    right = answers[0 if zone.low[3] >= 1 else 1]
    pairs = [(i, j) for i, j in heads if i == right] if item is None else [(item, right)]
    need(item != right, "the right answer is no error")
    for i, j in pairs:
        found = least(zone, base[i] - base[j], heads[i, j])
        need(found >= wanted, f"output {i} exceeds {j} by {about(found)} at least, {about(wanted)} is wanted")


# ================================================================ maxima: the largest of K numbers

MOST_NODES = 10**7


def maxima(model: Model, domain: Any, parts: Any, margin: int, spread: Spread) -> Found:
    """Max-of-k: at '=' one head has averaged what K numbers and '=' say.

    Times the sum of weights, a difference of outputs less the margin is a sum over positions, so that it is smallest
    where each number is its worst. Inputs are taken by their maximum and its first position, then by single numbers.
    """
    (errors,) = fields(domain, "errors", "claim.domain")
    need(model.task == "max-of-k" and set(model.parameters) <= {"K", "v"} and parts == [], "maxima are for max-of-k")
    K, v = (whole(model.parameters.get(name, size), 1, 512, name) for name, size in (("K", 4), ("v", 64)))
    need(len(model.words) == v + 1 and model.n_out == v, "words are v numbers and '='")
    need(model.longest in (None, K + 1), "positions are for K numbers and '='")
    need(model.spec["readout_at"] == "=", "answers are read at '='")
    wrong, rounding = errors_of_maxima(model, K, v, margin, spread)
    need(errors == wrong, f"errors are {wrong[:9]}, not as claimed")
    said = f"max-of-k: at '=' the largest of {K} numbers below {v} has the largest output, for all {v}^{K} inputs"
    if wrong:
        places = "; ".join(f"largest {m}: {n} of {(m + 1) ** K - m**K}" for m, n in wrong)
        said += f" but exactly {sum(n for _, n in wrong)}, for which it has not ({places})"
    return said, rounding


def errors_of_maxima(model: Model, K: int, v: int, margin: int, spread: Spread) -> tuple[list[list[int]], int]:
    """The maxima for which some inputs are wrong, with their number; and the rounding."""
    rows = [model.embed(t, i, K + 1) for i in range(K) for t in range(v)] + [model.embed(v, K, K + 1)]
    asked = asked_by(model, rows[-1], rows, n_heads=(1,), positions=("none", "learned"), max_length=(None, K + 1))
    found = spread(partial(one_maximum, asked, K, v, margin), [(m, at) for m in range(v) for at in range(K)])
    wrong = [[m, n] for m in range(v) if (n := sum(found[m * K : m * K + K]))]
    return wrong, model.drift(rows[-1], rows, K + 1)


def one_maximum(asked: Asked, K: int, v: int, margin: int, m: int, at: int) -> int:
    """How many of the inputs whose maximum m stands first at position `at` are wrong?"""

    allowed = [p * v + t for p in range(K) for t in range(m + 1)] + [K * v]
    scores = Vec(*(tuple(part[row] for row in allowed) for part in asked.scores[0]))
    weights = dict(zip(allowed, weights_of(scores, softmax=True)))

    def share(row: int, i: int, j: int) -> int:
        """A row's part of (output i less output j, less the margin) times the sum of weights, from below."""
        logits = asked.logits[0][row]
        more = logits[i] - logits[j] + asked.base[i] - asked.base[j] - 4 * asked.rad - margin
        return min(bound * more for bound in weights[row])

    free = [p for p in range(K) if p != at]
    choices = [range(m if p < at else m + 1) for p in free]
    rivals = [j for j in range(v) if j != m]
    fixed_rows = (at * v + m, K * v)
    tables = [[[share(p * v + t, m, j) for j in rivals] for t in choice] for p, choice in zip(free, choices)]
    if not all(choices):
        return 0
    below = [[0] * len(rivals)]  # the least that the positions from the last one on add
    for table in reversed(tables):
        below.append(list(map(add, below[-1], map(min, zip(*table)))))
    below.reverse()
    first: list[int] = []
    stack = [(first, [sum(share(row, m, j) for row in fixed_rows) for j in rivals])]
    wrong = nodes = 0
    while stack:
        chosen, sums = stack.pop()
        nodes += 1
        need(nodes < MOST_NODES, f"largest {m}: too many parts")
        if all(total + rest >= 0 for total, rest in zip(sums, below[len(chosen)])):
            continue
        if len(chosen) < len(free):
            table = tables[len(chosen)]
            stack += [([*chosen, t], list(map(add, sums, table[t]))) for t in choices[len(chosen)]]
            continue
        seen = (*fixed_rows, *(p * v + t for p, t in zip(free, chosen)))
        worst = any(sum(share(row, j, m) for row in seen) >= 0 for j in rivals)
        need(worst, f"numbers {chosen} beside {m}: neither right nor wrong by the margin")
        wrong += 1
    return wrong


# ================================================================ sequences: multisets, or slots of a fixed pattern

C = 32
"""Bits after the point of the slopes of a bounded ReLU."""


class Around(NamedTuple):
    """One own token t. Neuron i sees own[i] + (sum over what is seen of weight * value[i]) / (sum of weights, or 1).

    weights: of every row, [BOS] last; patterns: of every slot, for each position, where they are fixed. lead[k - 1]:
    for every other output, readout of the right one for count k less its own, and what lead . relu must reach.
    """

    t: int
    T: int
    L: int
    softmax: bool
    own: tuple[int, ...]
    values: list[tuple[int, ...]]
    weights: list[int]
    patterns: list[list[int]]
    lead: list[list[tuple[list[int], int]]]

    def open(self, k: int, lo: list[int], hi: list[int]) -> Iterator[tuple[list[int], int]]:
        """The leads that may not reach what is wanted where every neuron is in [lo, hi] for itself."""
        for lead, wanted in self.lead[k - 1]:
            if sum(w * max(a, 0) if w > 0 else w * max(b, 0) for w, a, b in zip(lead, lo, hi)) < wanted << P:
                yield lead, wanted

    def not_proved(self, k: int) -> Fault:
        return Fault(f"token {self.t}, {k} times: the right output is not proved to be the largest")


def multisets(around: Around, cuts: Any) -> int:
    """The inputs around one own token where order does not matter: how many the parts hold.

    A part fixes how often each of some tokens occurs; the others may be any of the rest, and what the neurons see is
    between its ends, where all of these are one token. Terms w relu(z) with w < 0 are concave, and w a z is below those
    with w > 0 for 0 <= a <= 1, here 0 or 1: their sum is smallest at an end. cuts: for each part the token where it is
    cut by how often that occurs, or null.
    """
    t, L, T, own = around.t, around.L, around.T, around.own
    terms = [[w * x for x in row] for w, row in zip(around.weights, around.values)]
    below = around.weights if around.softmax else [0] * len(terms)
    base, start = (terms[T], below[T]) if len(terms) > T else ([0] * len(own), 0)
    start += 0 if around.softmax else ONE
    others = tuple(o for o in range(T) if o != t)
    stack = [(k, others, L - k, [b + k * x for b, x in zip(base, terms[t])], start + k * below[t], 1)
             for k in (range(L, 0, -1) if T > 1 else [L])]  # fmt: skip
    inputs = 0
    for cut in listed(cuts, "cuts"):
        need(stack, "there are more parts than the cuts make")
        k, rest, left, top, bottom, ways = stack.pop()
        if cut is not None:
            need(left > 0 and len(rest) > 1, "a part is cut that holds one kind of sequence")
            need(whole(cut, 0, T - 1, "a cut") in rest, f"token {cut} is no longer open where a part is cut")
            fewer = tuple(o for o in rest if o != cut)
            for n in range(left, -1, -1):
                more = [x + n * y for x, y in zip(top, terms[cut])]
                stack.append((k, fewer, left - n, more, bottom + n * below[cut], ways * comb(left, n)))
            continue
        ends = [[(x + left * y) // (bottom + left * below[o]) + z for x, y, z in zip(top, terms[o], own)]
                for o in (rest if left else [t])]  # fmt: skip
        lo, hi = [min(column) for column in zip(*ends)], [max(column) + 1 for column in zip(*ends)]
        for lead, wanted in around.open(k, lo, hi):
            rising = [w if w > 0 and b > -a else 0 for w, a, b in zip(lead, lo, hi)]
            falling = [min(w, 0) for w in lead]
            for end in ends:
                least = sum(map(mul, rising, end)) + sum(w * (z + 1) for w, z in zip(falling, end) if z >= 0)
                if least < wanted << P:
                    raise around.not_proved(k)
        inputs += L * comb(L - 1, k - 1) * ways * len(rest) ** left
    need(not stack, "a part of the domain is left out")
    return inputs


def slots(around: Around) -> None:
    """The same for a fixed pattern, at each position and count. Every linear function of what the neurons see is least
    where each slot holds its best other token, but the slots where t costs least hold t."""
    t, L, T, own, mine = around.t, around.L, around.T, around.own, around.values[around.t]
    others = [o for o in range(T) if o != t] or [t]
    columns = list(zip(*(around.values[o] for o in others)))
    for position, pattern in enumerate(around.patterns):

        def least_sum(low: int, high: int, at: int, k: int, pattern: Any = pattern, position: int = position) -> int:
            """The least sum over slots of a function of their token that is `at` at t and in low..high elsewhere."""
            row = [a for slot, a in enumerate(pattern) if slot != position]
            best = [a * (low if a > 0 else high) for a in row]
            gains = sorted(a * at - b for a, b in zip(row, best))
            return pattern[position] * at + sum(best) + sum(gains[: k - 1]) >> P

        for k in range(1, L + 1) if T > 1 else [L]:
            lo = [o + least_sum(min(c), max(c), x, k) for o, c, x in zip(own, columns, mine)]
            hi = [o - least_sum(-max(c), -min(c), -x, k) for o, c, x in zip(own, columns, mine)]

            for lead, wanted in around.open(k, lo, hi):
                for slopes, offset in lines(lead, lo, hi):
                    each = [sum(map(mul, slopes, around.values[o])) for o in others]
                    found = least_sum(min(each), max(each), sum(map(mul, slopes, mine)), k)
                    if int(found) + sum(map(mul, slopes, own)) + offset >= wanted << (P + C):
                        break
                else:
                    raise around.not_proved(k)


def lines(lead: list[int], lo: list[int], hi: list[int]) -> Iterator[tuple[list[int], int]]:
    """Two lines below sum w relu(z) on [lo, hi], times 2^C: a neuron's own line where its sign is fixed, else for w < 0
    the chord, for w > 0 any line w a z with 0 <= a <= 1: a = 0 or 1, or the chord's slope."""
    for parallel in (False, True):
        slopes, offset = [], 0
        for w, a, b in zip(lead, lo, hi):
            share = 0 if b <= 0 else 1 << C
            if a < 0 < b:
                if w < 0 or parallel:
                    share = ceil_div(b << C, b - a)
                elif b <= -a:
                    share = 0
                offset -= w * share * a if w < 0 else 0
            slopes.append(w * share)
        yield slopes, offset


def one_token(model: Model, ids: list[int], T: int, L: int, right: list[int], margin: int, t: int, part: Any) -> int:
    """Checks all inputs around one own token; what rounding may do to them. From here on tokens are places in ids."""
    layer, rows, hidden = model.layers[0], [model.words[token] for token in ids], Matrix(model.hidden.full)
    softmax, keys, f = layer.softmax, len(rows) - T + L, model.f
    values = [hidden(row, REALS) for row in rows]
    every = layer.pattern[0] if layer.linear else [layer.scores(0, rows[t], rows, 0)]
    bounds = [weights_of(scores, softmax) for scores in every]
    if layer.linear and softmax:
        sums = [[sum(pair[i] for pair in row) for i in (0, 1)] for row in bounds]
        bounds = [[((a << P) // high, ceil_div(b << P, low)) for a, b in row] for row, (low, high) in zip(bounds, sums)]
    mids = [[(low + high) >> 1 for low, high in row] for row in bounds]
    off = max(high - low + 1 for row in bounds for low, high in row)
    sizes, radii = ([max(column) for column in zip(*rows)] for rows in (
        [v.sizes() for v in values], [v.rad for v in values]))  # fmt: skip
    if softmax and not layer.linear:  # t itself and [BOS] are always there: an average moves by at most this
        present = bounds[0][t][0] + sum(low for low, _ in bounds[0][T:])
        relative = ceil_div(keys * off << P, max(1, present))
        need(relative < ONE >> 4, "a softmax weight is lost beside another's, or not known well enough")
        slip = [up(4 * relative * size) + 2 * rad + 8 for size, rad in zip(sizes, radii)]
    else:
        reach = max(max(-low, high) for row in bounds for low, high in row)
        slip = [up(keys * (off * size + reach * rad)) + rad + 8 for size, rad in zip(sizes, radii)]
    lead: list[list[tuple[list[int], int]]] = []
    for r in right:
        leads = [[a - b for a, b in zip(model.out.full[r], column)] for column in model.out.full]
        loss = [
            up(sum(map(mul, map(abs, row), slip))) + 1 - model.out.bias[r] + b for row, b in zip(leads, model.out.bias)
        ]
        lead.append([(row, margin + loss[j]) for j, row in enumerate(leads) if j != r])
    own = tuple(map(add, values[t].mid, model.hidden.bias))
    patterns = mids if layer.linear else []
    around = Around(t, T, L, softmax, own, [v.mid for v in values], mids[0], patterns, lead)
    if layer.linear:
        need(part is None, "a fixed pattern has no parts")
        slots(around)
    else:
        inputs = multisets(around, part)
        need(inputs == L * T ** (L - 1), f"the parts of token {t} hold {inputs} inputs, not {L * T ** (L - 1)}")
    return max(model.drift(rows[t], rows, keys, scores) for scores in every) if f.bits else 0


def runs(numbers: Sequence[int]) -> str:
    """0..31 or [0, 2, 3]."""
    numbers = list(numbers)
    plain = len(numbers) > 1 and numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    return f"{numbers[0]}..{numbers[-1]}" if plain else str(numbers)


def sequences(model: Model, domain: Any, parts: Any, margin: int, spread: Spread) -> Found:
    """Does every position of all T^L rows of the counted tokens, after the marks, say how often its token occurs?"""
    counted, marks, L, right = fields(domain, "counted marks length classes", "claim.domain")
    last = len(model.words) - 1
    counted, marks = wholes(counted, 0, last, "a counted token"), wholes(marks, 0, last, "a mark")
    T, L = len(counted), whole(L, 1, 64, "length")
    wholes(right, 0, model.n_out - 1, "a class", L)
    need(
        counted and len(marks) <= 1 and len({*counted, *marks}) == T + len(marks),
        "tokens must differ, one mark at most",
    )
    if model.task == "histogram":
        known = {"T": 32, "L": 10, "bos": False, "sampler": "published", "zero_class": False}
        given = {**known, **model.parameters}
        need(set(given) == set(known) and all(type(given[name]) is type(known[name]) for name in known), "parameters")
        own = [list(range(T)), [T] * given["bos"], [n - (not given["zero_class"]) for n in range(1, L + 1)], T, L]
        need([counted, marks, right, given["T"], given["L"]] == own, "the histogram has other tokens, or other classes")
    linear = model.layers[0].linear
    model.require(direction=("bidirectional",), readout=("relu_mlp",), readout_width=None, norm_eps=None, scale=None,
                  mixing=("dot", "linear"), normalizer=("softmax", "none"), value_output=("identity",),
                  max_length=(L if linear else None,))  # fmt: skip
    need(not (linear and marks), "a fixed pattern is checked without marks")
    work = list(zip(range(T), listed(parts, "parts", T)))
    rounding = max(spread(partial(one_token, model, [*counted, *marks], T, L, right, margin), work))
    after = f", each after token {marks[0]}" if marks else ""
    said = (
        f"{model.task}: in all {T}^{L} sequences of {L} tokens among {runs(counted)}{after}, every token that "
        f"occurs 1, 2, ... {L} times in its own has its largest output at {runs(right)}, in this order"
    )
    return said, rounding


# ================================================================ the claim

KINDS: dict[str, Callable[..., Found]] = {
    "inputs": inputs, "strings": strings, "counts": counts, "maxima": maxima, "sequences": sequences,
}  # fmt: skip
_work: Callable[..., Any] = print


def _begin(work: Callable[..., Any]) -> None:
    global _work
    _work = work


def _do(items: Any) -> Any:
    return _work(*items)


def check(evidence: dict[str, Any], processes: int = 1) -> tuple[Model, str, float]:
    """The model, the sentence that holds of it, and the bound of rounding. Raises Fault at the first that does not."""
    schema, name, spec, weights, digest, claim, parts = fields(
        evidence, "evidence model spec weights weights_sha256 claim parts", "the evidence"
    )
    need(type(schema) is int and schema == 2, f"evidence = {schema!r:.40} must be 2, which this file checks")
    kind, domain, number_format, margin, sentence = fields(claim, "kind domain format margin sentence", "the claim")
    need(type(kind) is str and kind in KINDS, f"claim.kind = {kind!r:.40} must be one of {', '.join(KINDS)}")
    need(type(number_format) is str and number_format in FORMATS, f"claim.format = {number_format!r:.40} is unknown")
    least_margin = fixed(hexadecimal(margin, "claim.margin"), "claim.margin")
    need(least_margin > 0, f"claim.margin = {margin} must be positive")
    model = Model(spec, weights, name, digest, FORMATS[number_format])

    def spread(work: Callable[..., Any], items: list[Any]) -> list[Any]:
        if processes == 1:
            return [work(*item) for item in items]
        with concurrent.futures.ProcessPoolExecutor(processes, initializer=_begin, initargs=(work,)) as pool:
            try:
                return list(pool.map(_do, items, chunksize=max(1, len(items) // (processes * 16))))
            except concurrent.futures.BrokenExecutor:
                raise Fault("a process was stopped before it had checked its part; nothing is known") from None

    said, rounding = KINDS[kind](model, domain, parts, least_margin, spread)
    need(least_margin > rounding, f"the margin {margin} does not exceed the rounding bound {about(rounding)}")
    run = "" if number_format == "reals" else f", and the answers are the same as run in {number_format}"
    said = f"{said}; over the reals by {margin} at least{run}"
    need(sentence == said, f"the claim says {sentence!r:.300}; what was checked is {said!r}")
    return model, said, rounding / ONE


def main() -> int:
    parser = argparse.ArgumentParser(description="Check the evidence of a certificate.")
    parser.add_argument("evidence", help="a file that certificate.evidence wrote")
    parser.add_argument("--weights-sha256", help="what the weights must be")
    parser.add_argument("--checkpoint", help="a safetensors file that must hold the same weights")
    parser.add_argument("--processes", type=int, default=1)
    given = parser.parse_args()
    try:
        need(given.processes >= 1, "there must be a process")
        model, said, rounding = check(read(given.evidence), given.processes)
        if given.weights_sha256 is not None:
            need(given.weights_sha256 == model.sha256, f"the weights have SHA-256 {model.sha256}, not as asked")
        if given.checkpoint is not None:
            print(f"checkpoint {given.checkpoint} of SHA-256 {compare_checkpoint(model, given.checkpoint)}")
    except Fault as fault:
        said = "".join(c if c.isprintable() else "?" for c in str(fault))  # no line that a hostile file wrote
        print(f"DOES NOT HOLD: {said}")
        return 1
    print(f"holds: {said}")
    print(f"model {model.name}, weights of SHA-256 {model.sha256}; what rounding may do is below {rounding:.3g}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
