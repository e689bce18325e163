"""Check the evidence of a certificate on a bare Python: no torch, no numpy, nothing of the package that wrote it.

    python check.py proof.json.gz [--weights-sha256 HEX] [--checkpoint model.safetensors] [--processes N]

Exit code 0 and "holds", or 1 and the first thing that does not. What is checked, for the weights in the file:

1. over the reals: every inequality of the claim is derived again, from the weights alone, with whole numbers. A number
   is an interval [lo, hi] of multiples of 2^-192, rounded outward; exp and sqrt are enclosed the same way.
2. as run: where the claim names a number format, a bound of what rounding may do is added, from the premise below.

The file says where the domain is cut into parts and which bound holds on each. Nothing that it says is believed: parts
are counted and must be the whole domain, each bound is derived, and the sentence of the claim is written again here.

Premise of step 2, with u the unit roundoff and eta the smallest normal number of the format: +, -, *, / and sqrt are
right to a factor 1 + u, or to eta; a sum of n products, in any order, fused or not, is within n u / (1 - n u) of the
sum of their sizes; exp is right to 32 units in the last place; a softmax rescales at most once for each 128 keys.

Layout: reading (strict), numbers, rounding, the model; then one section for each kind of domain: counts (Count01),
maxima (max-of-k), sequences (histogram), strings (PARITY, ONE, FIRST) and contexts (memorization).
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import math
import multiprocessing
import re
import struct
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import combinations_with_replacement
from math import comb, isqrt
from operator import mul
from typing import Any, NamedTuple

MAX_BYTES = 256 << 20
HEX = re.compile(r"-?0x[01](\.[0-9a-f]{1,13})?p[+-][0-9]{1,4}")


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
    except (OSError, EOFError, ValueError, RecursionError) as error:
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


def hexadecimal(value: Any, what: str) -> float:
    """A number written as a hexadecimal float."""
    need(type(value) is str and HEX.fullmatch(value), f"{what} = {value!r:.40} is no hexadecimal number")
    try:
        number = float.fromhex(value)
    except OverflowError:
        raise Fault(f"{what} = {value} is not finite") from None
    need(math.isfinite(number), f"{what} = {value} is not finite")
    return number


# ================================================================ numbers: multiples of 2^-P, rounded outward

P = 192
ONE = 1 << P


def fixed(value: float, what: str = "a weight") -> int:
    """A float as a multiple of 2^-P, exactly."""
    top, bottom = value.as_integer_ratio()
    need((top << P) % bottom == 0, f"{what} = {value!r} is no multiple of 2^-{P}, which this checker works with")
    return (top << P) // bottom


def ceil_shift(x: int, bits: int = P) -> int:
    return -(-x >> bits)


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


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
        low, high = low * low >> bits, ceil_shift(high * high, bits)
    return low >> 64, ceil_shift(high, 64)


class Format(NamedTuple):
    """A number format: u = 2^-bits (bits = 0: the reals, nothing is rounded), eta and the largest number, by 2^-P."""

    bits: int
    eta: int
    largest: int

    def gamma(self, n: int) -> int:
        """n u / (1 - n u), rounded up."""
        return ceil_div(n << P, (1 << self.bits) - n) if self.bits else 0


FORMATS = {
    "reals": Format(0, 0, 1 << 5000),
    "float32": Format(24, 1 << (P - 126), 1 << (P + 123)),
    "float64": Format(53, 1, 1 << (P + 1019)),
}


class Num(NamedTuple):
    """A real number in [lo, hi], and how far the number that a format has in its place may be from it: err."""

    lo: int
    hi: int
    err: int

    @property
    def size(self) -> int:
        """The largest size that either number may have."""
        return max(-self.lo, self.hi) + self.err


ZERO = Num(0, 0, 0)


def exact(x: int) -> Num:
    return Num(x, x, 0)


def add(x: Num, y: Num, f: Format) -> Num:
    lo, hi, err = x.lo + y.lo, x.hi + y.hi, x.err + y.err
    return Num(lo, hi, err + (ceil_shift(f.gamma(1) * (max(-lo, hi) + err)) + f.eta if f.bits else 0))


def hull(x: Num, y: Num) -> Num:
    return Num(min(x.lo, y.lo), max(x.hi, y.hi), max(x.err, y.err))


def times(x: Num, y: Num) -> Num:
    """The product, its error from those of its factors (rounding is left to the caller)."""
    ends = (x.lo * y.lo, x.lo * y.hi, x.hi * y.lo, x.hi * y.hi)
    return Num(min(ends) >> P, ceil_shift(max(ends)), ceil_shift(x.err * y.size + y.err * x.size))


def dot(xs: Sequence[Num], weights: Sequence[int], bias: int, f: Format) -> Num:
    """sum x w + bias for exact weights, in any order of evaluation."""
    lo = hi = err = size = under = 0
    for x, w in zip(xs, weights):
        if w:
            a, b = x.lo * w, x.hi * w
            lo, hi = (lo + a, hi + b) if w > 0 else (lo + b, hi + a)
            err += x.err * abs(w)
            size += max(-x.lo, x.hi) * abs(w)
            under += abs(w) + x.size
    n = len(weights) + 3
    result = Num((lo >> P) + bias, ceil_shift(hi) + bias, ceil_shift(err))
    if not f.bits:
        return result
    reach = ceil_shift(size + err) + abs(bias)
    need(reach < f.largest, "a sum might overflow")
    rounding = ceil_shift(f.gamma(n) * reach) + f.eta * n + ceil_shift(f.eta * (under + 2 * n * ONE))
    return Num(result.lo, result.hi, result.err + rounding)


def linear(xs: Sequence[Num], columns: Sequence[Sequence[int]], bias: Sequence[int] | None, f: Format) -> list[Num]:
    return [dot(xs, column, bias[j] if bias else 0, f) for j, column in enumerate(columns)]


def relu(x: Num) -> Num:
    return Num(max(x.lo, 0), max(x.hi, 0), x.err)


def layer_norm(xs: Sequence[Num], weight: Sequence[int], bias: Sequence[int], eps: int, f: Format) -> list[Num]:
    d = len(xs)
    low, high = sum(x.lo for x in xs), sum(x.hi for x in xs)
    mean_size = ceil_div(sum(x.size for x in xs), d)
    mean_err = ceil_div(sum(x.err for x in xs), d)
    centers = [
        Num(x.lo - ceil_div(high, d), x.hi - low // d,
            x.err + mean_err + ceil_shift(f.gamma(d + 3) * (x.size + mean_size)) + 2 * f.eta)
        for x in xs
    ]  # fmt: skip
    squares = [times(c, c) for c in centers]
    least = max(0, sum(max(0, s.lo) for s in squares) // d) + eps
    most = ceil_div(sum(s.hi for s in squares), d) + eps
    need(least > 0, "a layer norm divides by a number that may be 0")
    moved = ceil_div(sum(ceil_shift(2 * c.size * c.err + c.err * c.err) for c in centers), d) + d * f.eta
    moved += ceil_shift(f.gamma(d + 4) * (ceil_div(sum(ceil_shift(c.size * c.size) + 1 for c in centers), d) + eps))
    relative = ceil_div(moved << P, least)
    need(2 * relative < ONE, "rounding may change the scale of a layer norm by half")
    root_low, root_high = isqrt(least << P), isqrt(most << P) + 1
    found = []
    for c, w, b in zip(centers, weight, bias):
        ends = [(c.lo << P) // root_low, (c.lo << P) // root_high, ceil_div(c.hi << P, root_low),
                ceil_div(c.hi << P, root_high)]  # fmt: skip
        normal = Num(min(ends), max(ends), 0)
        err = ceil_div((c.err << P) + c.size * relative, root_low) * 2
        err += ceil_shift(f.gamma(4) * (normal.size + err)) + 2 * f.eta
        found.append(dot([Num(normal.lo, normal.hi, err)], [w], b, f))
    return found


def spread_of(slip: int) -> int:
    """A bound of e^slip - 1."""
    need(2 * slip < ONE, "rounding of an attention's scores is not small")
    return slip + ceil_shift(slip * slip)


def softmax_error(scores: Sequence[Num], keys: int, f: Format) -> int:
    """Relative error of any weight among `keys` keys that have these scores; the largest may belong to none of them."""
    if not f.bits:
        return 0
    top, bottom = max(s.hi for s in scores), min(s.lo for s in scores)
    err = max(s.err for s in scores)
    # The difference from the largest is rounded; a forward on counts adds the logarithm of a count before.
    slip = err + ceil_shift(f.gamma(4) * (max(s.size for s in scores) + top - bottom + 2 * err + 64 * ONE)) + f.eta
    slip += f.gamma(64 * (2 + keys // 128))  # 32 units in the last place, each of 2 u, and again for each rescaling
    # Weights that underflow beside one of at least e^-60 (float32) or e^-500 (float64): eta e^60 < 2^-39.
    lost = ceil_shift(ONE, 39 if f.bits == 24 else P)
    return spread_of(2 * slip + 2 * f.gamma(keys + 8)) + 4 * keys * lost


def mixed(weights_err: int, values: Sequence[Num], keys: int, f: Format) -> tuple[int, int]:
    """Size of a softmax's average of values, and the error of a format's average of `keys` of them."""
    size = max(v.size for v in values)
    if not f.bits:
        return size, 0
    need(2 * keys * size < f.largest, "a sum of values might overflow")
    err = max(v.err for v in values)
    return size, err + ceil_shift((weights_err + f.gamma(keys + 2) * 2) * size) + 4 * f.eta * keys * (2 + (size >> P))


def attend(scores: Sequence[Num], values: Sequence[Sequence[Num]], f: Format) -> list[Num]:
    """The average of rows of values by the softmax of their scores."""
    top = max(s.hi for s in scores)
    known: dict[tuple[int, int], tuple[int, int]] = {}
    for s in scores:
        if (key := (s.lo, s.hi)) not in known:
            known[key] = (exp_between(s.lo - top)[0], exp_between(s.hi - top)[1])
    weights = [known[s.lo, s.hi] for s in scores]
    low, high = sum(w[0] for w in weights), sum(w[1] for w in weights)
    need(low > 0, "the weights of an attention cannot be told from 0")
    keys, relative = len(scores), softmax_error(scores, len(scores), f)
    found = []
    for column in zip(*values):
        bottom = sum(v.lo * w[0 if v.lo >= 0 else 1] for v, w in zip(column, weights))
        top_sum = sum(v.hi * w[1 if v.hi >= 0 else 0] for v, w in zip(column, weights))
        lo = bottom // (high if bottom >= 0 else low)
        hi = ceil_div(top_sum, low if top_sum >= 0 else high)
        found.append(Num(lo, hi, mixed(relative, column, keys, f)[1]))
    return found


# ================================================================ the model

LAYER = {
    "n_heads": 1, "mixing": "dot", "normalizer": "softmax", "scale": "inv_sqrt_d_head", "log_length": "none",
    "query_key": "learned", "value_output": "learned", "bias": {}, "mlp": None, "norm": "none", "norm_eps": 1e-5,
}  # fmt: skip
SPEC = {
    "direction": "causal", "embedding": "learned", "positions": "none", "positions_enter": "residual",
    "max_length": None, "readout": "linear", "readout_width": None, "readout_bias": True, "readout_at": "all",
    "n_out": None, "decision": "argmax", "tolerance": None, "dtype": "float32", "origin": None,
}  # fmt: skip
FREE = ("origin", "dtype", "embedding")
"""Fields that do not change what the weights compute."""


class Model:
    """Spec and weights. A field of the spec that this file does not know, or a value it cannot read, is refused."""

    def __init__(self, spec: Any, weights: Any, name: Any, digest: Any) -> None:
        need(type(spec) is dict and type(spec.get("layers")) is list, "spec must be an object with layers")
        need({"task", "d_model", "layers"} <= set(spec) <= {"task", "d_model", "layers", *SPEC}, "unknown spec field")
        need(all(type(layer) is dict for layer in spec["layers"]), "a layer must be an object")
        need(all({"d_head"} <= set(layer) <= {"d_head", *LAYER} for layer in spec["layers"]), "unknown layer field")
        self.spec: dict[str, Any] = {**SPEC, **spec}
        self.layers: list[dict[str, Any]] = [{**LAYER, **layer} for layer in spec["layers"]]
        self.d = whole(spec["d_model"], 1, 4096, "d_model")
        task = spec["task"]
        allowed = {"name", "parameters", "data_seed", "table_sha256"}
        need(type(task) is dict and "name" in task and set(task) <= allowed, "spec.task must name a task")
        self.task, self.parameters = task["name"], task.get("parameters", {})
        need(type(self.task) is str and type(self.parameters) is dict, "spec.task must name a task")
        for layer in self.layers:
            whole(layer["n_heads"], 1, 1024, "n_heads")
            whole(layer["d_head"], 1, 4096, "d_head")
        canonical = json.dumps(spec, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
        heads = self.layers[0]["n_heads"] if self.layers else 0
        said = f"{self.task}-d{self.d}-h{heads}-{hashlib.sha256(canonical).hexdigest()[:10]}"
        need(name == said, f"the model is called {name!r:.80}, and its spec {said}")
        self.name = said
        need(type(weights) is dict and len(weights) <= 1000, "weights must be an object")
        self.shapes: dict[str, list[int]] = {}
        self.values: dict[str, list[float]] = {}
        for key in weights:
            shape, values = fields(weights[key], "shape values", f"weights.{key}")
            self.shapes[key] = [whole(n, 1, 1 << 24, f"the shape of {key}") for n in listed(shape, "a shape")]
            listed(values, f"weights.{key}.values", math.prod(self.shapes[key]))
            self.values[key] = [hexadecimal(value, key) for value in values]
        self.sha256 = weights_sha256(self.shapes, self.values)
        need(digest == self.sha256, f"weights_sha256 is {digest!r:.80}, that of the weights is {self.sha256}")
        self.unused = set(self.shapes)

    def require(self, what: str, given: dict[str, Any], **wanted: tuple[Any, ...] | None) -> None:
        """Every field is a wanted value, its default, or free; a wanted None allows anything."""
        defaults = LAYER if what == "layer" else SPEC
        for key, default in defaults.items():
            choices = wanted.get(key, (default,)) if key in wanted or key not in FREE else None
            right = choices is None or any(type(c) is type(given[key]) and c == given[key] for c in choices)
            need(right, f"{what}: {key} = {given[key]!r:.60} is not what this kind of claim is about: {choices}")

    def tensor(self, name: str, *shape: int) -> list[int]:
        need(self.shapes.get(name) == list(shape), f"{name} has shape {self.shapes.get(name)}, not {list(shape)}")
        self.unused.discard(name)
        return [fixed(value, name) for value in self.values[name]]

    def columns(self, name: str, rows: int, columns: int) -> list[list[int]]:
        """The columns of a matrix."""
        flat = self.tensor(name, rows, columns)
        return [flat[j::columns] for j in range(columns)]

    def rows(self, name: str, *shape: int) -> list[list[int]]:
        """The rows of a matrix, or of several."""
        flat, columns = self.tensor(name, *shape), shape[-1]
        return [flat[i : i + columns] for i in range(0, len(flat), columns)]

    def per_head(self, name: str, heads: int, rows: int, columns: int) -> list[list[list[int]]]:
        """The columns of one matrix for each head."""
        flat, size = self.tensor(name, heads, rows, columns), rows * columns
        return [[flat[h * size + j : (h + 1) * size : columns] for j in range(columns)] for h in range(heads)]

    def factor(self, layer: dict[str, Any]) -> Num:
        """What scores are multiplied by."""
        scale, sizes = layer["scale"], {"inv_sqrt_d_head": layer["d_head"], "inv_sqrt_d_model": self.d}
        if type(scale) is float:
            need(0 < scale < 1e9, f"scale = {scale!r} must be a positive number")
            return exact(fixed(scale, "scale"))
        need(type(scale) is str and scale in sizes, f"scale = {scale!r:.40} is unknown")
        low = isqrt((1 << 2 * P) // sizes[scale])
        return Num(low, low + 1, 0)

    def scores(self, q: Sequence[Num], ks: Sequence[Sequence[Num]], factor: Num, f: Format) -> list[Num]:
        """Products of a query with every key, times the factor."""
        found = []
        for k in ks:
            terms = [times(a, b) for a, b in zip(q, k)]
            size = sum(ceil_shift(a.size * b.size) for a, b in zip(q, k))
            need(size < f.largest and ceil_shift(size * factor.hi) < f.largest, "a score might overflow")
            err = sum(t.err for t in terms) + ceil_shift(f.gamma(len(q) + 8) * size) + len(q) * f.eta
            total = Num(sum(t.lo for t in terms), sum(t.hi for t in terms), err)
            ends = [x * y for x in (total.lo, total.hi) for y in (factor.lo, factor.hi)]
            reach = ceil_shift(factor.hi * (total.err + 2 * f.eta) + f.gamma(4) * ceil_shift(total.size * factor.hi))
            found.append(Num(min(ends) >> P, ceil_shift(max(ends)), reach + 2 * f.eta))
        return found


def weights_sha256(shapes: dict[str, list[int]], values: dict[str, list[float]]) -> str:
    """Over the tensors in the order of their names: name, shape, and the numbers as little-endian float64."""
    digest = hashlib.sha256()
    for name in sorted(shapes):
        digest.update(f"{name} {','.join(map(str, shapes[name]))}\n".encode())
        digest.update(struct.pack(f"<{len(values[name])}d", *values[name]))
    return digest.hexdigest()


def compare_checkpoint(model: Model, path: str) -> str:
    """Are the weights those of a safetensors file, bit for bit? Its SHA-256."""
    with open(path, "rb") as file:
        data = file.read(MAX_BYTES)
    try:
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
    except (OSError, KeyError, ValueError, TypeError, struct.error) as error:
        raise Fault(f"{path} does not hold these weights: {error!r:.100}") from None
    return hashlib.sha256(data).hexdigest()


# ================================================================ kinds of domains: counts


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

    def corners(self) -> list[tuple[int, int, int]]:
        """The vertices: (n0, n1) lies in a polygon whose sides are n0, n1 or n1 - n0 = constant, so they are whole."""
        (a, c, e, p), (b, d, g, q) = self.low, self.high
        points = {(x, y) for x in (a, b) for y in (c, d)} | {(x, x + z) for x in (a, b) for z in (p, q)}
        points |= {(y - z, y) for y in (c, d) for z in (p, q)}
        inside = [(x, y) for x, y in points if a <= x <= b and c <= y <= d and p <= y - x <= q]
        return [(x, y, z) for x, y in inside for z in {e, g}]

    def inputs(self) -> Iterator[tuple[int, int]]:
        """Each difference n1 - n0, and the number of inputs with it."""
        (a, c, e, p), (b, d, g, q) = self.low, self.high
        for z in range(p, q + 1):
            if (pairs := min(b, d - z) - max(a, c - z) + 1) > 0:
                yield z, pairs * (g - e + 1)


Head = tuple[tuple[int, ...], tuple[int, ...]]
"""Coefficients of (1, n0, n1, n2) in the denominator and, times 2^P, in the numerator."""
Pair = tuple[int, int]


def least(zone: Zone, offset: int, heads: Sequence[Head]) -> int:
    """A bound from below of offset + sum over heads of N / D on a zone, with N and D > 0 affine in the counts.

    Each quotient alone is smallest at a corner; for a sum, N / D = F + (N - F D) / D0 - (N - F D)(D - D0) / (D D0) for
    any F and D0: the middle term is affine, so the sum over heads is smallest at a corner, and the last one is small.
    """
    corners = [(1, *corner) for corner in zone.corners()]
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


BOS, FOUR, FIVE, EQUALS, TOKENS = 0, 5, 6, 4, 8


def counts(model: Model, domain: Any, parts: Any, f: Format, spread: Callable[..., Any]) -> tuple[str, int, int]:
    """Count01: one layer of attention without positions, so '=' sees how often each token occurs, and nothing else."""
    box, errors = fields(domain, "box errors", "claim.domain")
    sides = [listed(side, "a side of the box", 2) for side in listed(box, "box", 3)]
    ranges = [[whole(n, 0, 10**6, "a count") for n in side] for side in sides]
    need(all(low <= high for low, high in ranges), "a side of the box is empty")
    (a, b), (c, d), (e, g) = ranges
    need(model.task == "count01", "counts are for count01")
    asked = asked_by(model, EQUALS, TOKENS, TOKENS, b + d + g + 3, f)
    pairs = [(i, j) for i in range(TOKENS) for j in range(TOKENS) if i != j and {i, j} & {FOUR, FIVE}]
    heads = {pair: heads_of(asked, pair) for pair in pairs}
    offset = {(i, j): asked.base[i].lo - asked.base[j].hi for i, j in pairs}
    root = Zone((a, c, e, c - b), (b, d, g, d - a))
    stack, leaves = [root], []
    for item in listed(parts, "parts"):
        need(stack, "there are more parts than the cuts make")
        zone = stack.pop()
        if type(item) is list and len(item) == 2 and type(item[1]) is int:
            first, second = zone.cut(whole(item[0], 0, 3, "an axis"), item[1])
            stack += [second, first]
        else:
            leaves.append((zone, item))
    need(not stack, "a part of the domain is left out")
    found = spread(partial(count_part, heads, offset, asked.slack), leaves)
    wrong: dict[int, int] = {}
    for (zone, _), (is_wrong, _) in zip(leaves, found):
        if is_wrong:
            for z, n in zone.inputs():
                wrong[z] = wrong.get(z, 0) + n
    sizes = dict(root.inputs())
    seen = sum(n for zone, _ in leaves for _, n in zone.inputs())
    total = (b - a + 1) * (d - c + 1) * (g - e + 1)
    need(seen == total == sum(sizes.values()), f"the parts hold {seen} inputs, the domain {total}")
    need(errors == [[z, wrong[z]] for z in sorted(wrong)], f"errors are {sorted(wrong.items())[:9]}, not as claimed")
    where = f"n0 in {a}..{b}, n1 in {c}..{d}, n2 in {e}..{g}"
    said = f"count01: at '=' the right answer has the largest output on every one of {total} inputs ({where})"
    if wrong:
        places = "; ".join(f"n1 - n0 = {z}: {wrong[z]} of {sizes[z]}" for z in sorted(wrong))
        said += f" but exactly {sum(wrong.values())}, on which it has not ({places})"
    return said, min(bound for _, bound in found), asked.rounding


def heads_of(asked: Asked, pair: Pair) -> list[Head]:
    """Every head's share of the difference of two outputs; [BOS] and '=' occur once."""
    i, j = pair
    found = []
    for weights, logits in zip(asked.weights, asked.logits):
        terms = [w * (row[i] - row[j]) for w, row in zip(weights, logits)]
        once = [numbers[BOS] + numbers[EQUALS] for numbers in (weights, terms)]
        found.append(((once[0], *weights[1:4]), (once[1], *terms[1:4])))
    return found


class Asked(NamedTuple):
    """One layer without positions, asked by one token: an output is base plus, for each head, the average of logits
    over what is seen, by weights. slack: how far these numbers may put a difference of outputs from the true one."""

    weights: list[list[int]]
    logits: list[list[list[int]]]
    base: list[Num]
    slack: int
    rounding: int


def asked_by(model: Model, query: int, tokens: int, outputs: int, keys: int, f: Format) -> Asked:
    """What the token `query` is told by those up to itself; tokens after it are never seen. At most `keys` are seen."""
    need(len(model.layers) == 1, "counts are for one layer")
    model.require("spec", model.spec, readout_at=("=",), readout_bias=(True, False))
    layer, d, real = model.layers[0], model.d, FORMATS["reals"]
    model.require("layer", layer, n_heads=None, scale=None, bias=None, norm=("none", "pre"), norm_eps=None)
    biases = layer["bias"]
    need(type(biases) is dict and all(k in "qkvo" and v is True for k, v in biases.items()), "bias is q, k, v or o")
    H, width, x = layer["n_heads"], layer["d_head"], model.rows("embed.W_E", tokens, d)
    rows = [[exact(value) for value in row] for row in x]
    if layer["norm"] == "pre":
        w, b = model.tensor("blocks.0.ln1.w", d), model.tensor("blocks.0.ln1.b", d)
        need(type(layer["norm_eps"]) is float, "norm_eps must be a number")
        rows = [layer_norm(row, w, b, fixed(layer["norm_eps"], "norm_eps"), f) for row in rows]

    def project(name: str, row: Sequence[Num], h: int) -> list[Num]:
        return linear(row, matrices[name][h], starts[name][h] if name in starts else None, f)

    matrices = {name: model.per_head(f"blocks.0.attn.W_{name}", H, d, width) for name in "QKV"}
    starts = {name: model.rows(f"blocks.0.attn.b_{name}", H, width) for name in "QKV" if name.lower() in biases}
    out = model.tensor("blocks.0.attn.W_O", H, width, d)
    b_o = model.tensor("blocks.0.attn.b_O", d) if "o" in biases else [0] * d
    unembed = model.columns("unembed.W_U", d, outputs)
    b_u = model.tensor("unembed.b_U", outputs) if model.spec["readout_bias"] else [0] * outputs
    factor, all_weights, all_logits, z, slack = model.factor(layer), [], [], [], 0
    for h in range(H):
        scores = model.scores(project("Q", rows[query], h), [project("K", row, h) for row in rows], factor, f)
        values = [project("V", row, h) for row in rows[: query + 1]]
        relative = softmax_error(scores, keys, f)
        for column in zip(*values):
            size, err = mixed(relative, column, keys, f)
            z.append(Num(-size, size, err))
        bounds = bounds_of(scores[: query + 1], softmax=True)
        need(min(low for low, _ in bounds) > 0, "a weight of the attention cannot be told from 0")
        relative = max(ceil_div((high - low + 1) << P, low) for low, high in bounds)
        need(relative < ONE >> 4, "the weights of an attention are not known well enough")
        write = [out[h * width * d + j : (h + 1) * width * d : d] for j in range(d)]
        logits = [linear(linear(value, write, None, real), unembed, None, real) for value in values]
        size = max(number.size for row in logits for number in row)
        slack += ceil_shift(16 * relative * size) + 4 * max(n.hi - n.lo + 1 for row in logits for n in row) + 4
        all_weights.append([(low + high) >> 1 for low, high in bounds])
        all_logits.append([[(number.lo + number.hi) >> 1 for number in row] for row in logits])
    written = linear(z, [out[j::d] for j in range(d)], b_o, f)
    said = linear([add(exact(a), b, f) for a, b in zip(x[query], written)], unembed, b_u, f)
    rounding = 2 * 2 * max(number.err for number in said)  # two outputs; and twice, for a readout before the sum
    base = linear([exact(u + v) for u, v in zip(x[query], b_o)], unembed, b_u, real)
    return Asked(all_weights, all_logits, base, slack, rounding)


def count_part(
    heads: dict[Pair, list[Head]], offset: dict[Pair, int], slack: int, leaf: tuple[Zone, Any]
) -> tuple[bool, int]:
    """Is one part right (a bound), or wrong because another output is larger ([output, bound])? And its bound."""
    zone, item = leaf
    need(zone.high[3] <= 0 or zone.low[3] >= 1, f"a part holds inputs of both answers: {zone}")
    right = FOUR if zone.low[3] >= 1 else FIVE
    pairs = [(right, j) for j in range(TOKENS) if j != right]
    if type(item) is list:
        rival, item = listed(item, "a part", 2)
        pairs = [(whole(rival, 0, TOKENS - 1, "an output"), right)]
        need(pairs[0][0] != right, "the right answer is no error")
    bound = fixed(hexadecimal(item, "a bound"), "a bound")
    for i, j in pairs:
        found = least(zone, offset[i, j], heads[i, j]) - slack
        need(found >= bound, f"output {i} exceeds {j} by {found / ONE:.6g} at least, not {item}, on {zone}")
    return len(pairs) == 1, bound


# ================================================================ maxima: the largest of K numbers


def maxima(model: Model, domain: Any, parts: Any, f: Format, spread: Callable[..., Any]) -> tuple[str, int, int]:
    """Max-of-k: at '=' one head without positions has averaged what K numbers and '=' itself say.

    Times the sum of weights, a difference of outputs less a bound is a sum over tokens, so that it is smallest where
    all numbers but one maximum are the worst one not above it: one part for each maximum, or each of its multisets.
    """
    (errors,) = fields(domain, "errors", "claim.domain")
    need(model.task == "max-of-k" and set(model.parameters) <= {"K", "v"}, "maxima are for max-of-k")
    K, v = (whole(model.parameters.get(name, size), 1, 512, name) for name, size in (("K", 4), ("v", 64)))
    need(len(model.layers) == 1 and model.layers[0]["n_heads"] == 1, "maxima are for one layer of one head")
    asked = asked_by(model, v, v + 1, v, K + 1, f)
    found = spread(partial(one_maximum, asked, K, v), range(v), listed(parts, "parts", v))
    wrong = [[m, n] for m, (_, n) in enumerate(found) if n]
    need(errors == wrong, f"errors are {wrong[:9]}, not as claimed")
    said = f"max-of-k: at '=' the largest of {K} numbers below {v} has the largest output, for all {v}^{K} inputs"
    if wrong:
        places = "; ".join(f"largest {m}: {n} of {(m + 1) ** K - m**K}" for m, n in wrong)
        said += f" but exactly {sum(n for _, n in wrong)}, for which it has not ({places})"
    return said, min(bound for bound, _ in found), asked.rounding


def one_maximum(asked: Asked, K: int, v: int, m: int, part: Any) -> tuple[int, int]:
    """All inputs with the largest number m: the smallest bound, and the number of inputs that are wrong."""
    weights, logits = asked.weights[0], asked.logits[0]

    def shares(i: int, j: int, bound: int) -> list[int]:
        """For each token: its part of (output i less output j, less bound) times the sum of weights."""
        beyond = asked.base[i].lo - asked.base[j].hi - asked.slack - bound
        return [w * (row[i] - row[j] + beyond) for w, row in zip(weights, logits)]

    others = [j for j in range(v) if j != m]
    if type(part) is str:
        bound = fixed(hexadecimal(part, "a bound"), "a bound")
        for j in others:
            each = shares(m, j, bound)
            need(each[v] + each[m] + (K - 1) * min(each[: m + 1]) >= 0, f"largest {m}: output {j} may exceed it")
        return bound, 0
    rows = list(combinations_with_replacement(range(m + 1), K - 1))
    least, wrong = None, 0
    for row, item in zip(rows, listed(part, "a part", len(rows))):
        pairs = [(m, j) for j in others]
        if type(item) is list:
            rival, item = listed(item, "a multiset", 2)
            pairs = [(whole(rival, 0, v - 1, "an output"), m)]
            need(rival != m, "the right answer is no error")
            counts = Counter((*row, m))
            wrong += math.factorial(K) // math.prod(map(math.factorial, counts.values()))
        bound = fixed(hexadecimal(item, "a bound"), "a bound")
        for i, j in pairs:
            each = shares(i, j, bound)
            need(
                each[v] + each[m] + sum(each[t] for t in row) >= 0, f"{(*row, m)}: output {i} less {j} is below {item}"
            )
        least = bound if least is None else min(least, bound)
    return int(least or 0), wrong


# ================================================================ sequences: multisets, or slots of a fixed pattern

S, W, C = 64, 128, 32
"""Bits after the point: of values, readout and bounds; of attention weights; of the slopes of a bounded ReLU."""


class Around(NamedTuple):
    """One own token t at a position. Neuron i sees own[i] + (sum over slots of weight * value[i]) / (sum of weights).

    weights: of every row, [BOS] last, where scores are dot products; pattern: of every slot, where it is fixed; without
    a softmax the sum of weights is not divided by. lead[k - 1][j]: readout of the right output for count k less that of
    output j. extra[k - 1][j]: what lead . relu must exceed a bound by, for biases and for the cut digits here.
    """

    t: int
    T: int
    L: int
    softmax: bool
    own: list[int]
    values: list[list[int]]
    weights: list[int]
    pattern: list[list[int]]
    lead: list[list[list[int]]]
    extra: list[list[int]]
    right: list[int]

    @property
    def counts(self) -> list[int]:
        """How often t may occur."""
        return list(range(1, self.L + 1)) if self.T > 1 else [self.L]

    def settle(self, k: int, item: Any, lo: list[int], hi: list[int], lowest: Callable[[list[int]], int]) -> int:
        """Does every other output stay below the right one by `item`, for neurons in [lo, hi]? That bound."""
        bound = fixed(hexadecimal(item, "a bound"), "a bound")
        for j, (weights, extra) in enumerate(zip(self.lead[k - 1], self.extra[k - 1])):
            right = j == self.right[k - 1] or exceeds(weights, lo, hi, ceil_shift(bound + extra, P - S), lowest)
            need(right, f"token {self.t} {k} times: output {j} is not proved to stay {item} below the right one")
        return bound


def exceeds(weights: list[int], lo: list[int], hi: list[int], wanted: int, lowest: Callable[[list[int]], int]) -> bool:
    """Is sum w relu(z) >= wanted where lo <= z <= hi? lowest(slopes) is the least sum of slopes * z on this part.

    Each term alone; then lines below w relu(z): its own where the sign is fixed, else for w < 0 the chord, for w > 0
    any line w a z with 0 <= a <= 1: a = 0 or 1, or the chord's slope.
    """
    if sum(w * max(a, 0) if w > 0 else w * max(b, 0) for w, a, b in zip(weights, lo, hi)) >= wanted << S:
        return True
    for parallel in (False, True):
        slopes, offset = [], 0
        for w, a, b in zip(weights, lo, hi):
            share = 0 if b <= 0 else 1 << C
            if a < 0 < b:
                if w < 0 or parallel:
                    share = ceil_div(b << C, b - a)
                elif b <= -a:
                    share = 0
                if w < 0:
                    offset -= w * share * a
            slopes.append(w * share)
        if lowest(slopes) + offset >= wanted << (S + C):
            return True
    return False


def multisets(around: Around, order: Any, bounds: Any) -> tuple[int, int]:
    """The parts around one own token where order does not matter: the smallest bound, and the inputs that they hold.

    A part fixes how often each of the first tokens in `order` occurs; the others may be any of the later ones. Every
    linear function of what the neurons see is a quotient of affine ones there, least where all others are one token.
    """
    t, L, softmax = around.t, around.L, around.softmax
    listed(order, "order", around.T - 1)
    need(all(type(o) is int for o in order), "order must hold tokens")
    need(sorted([*order, t]) == list(range(around.T)), "order must hold every other token once")
    terms = [[w * v for v in row] for w, row in zip(around.weights, around.values)]
    below = around.weights if softmax else [0] * len(terms)
    base = terms[around.T] if len(terms) > around.T else [0] * len(around.own)
    start = (below[around.T] if len(terms) > around.T else 0) if softmax else 1 << W
    low, high = [terms[o] for o in order], [terms[o] for o in order]
    for i in range(len(order) - 2, -1, -1):  # without a softmax: the extremes over the later tokens
        low[i], high[i] = list(map(min, low[i], low[i + 1])), list(map(max, high[i], high[i + 1]))
    smallest, inputs = None, 0
    stack = [(k, 0, L - k, [b + k * x for b, x in zip(base, terms[t])], start + k * below[t], 1)
             for k in reversed(around.counts)]  # fmt: skip
    for item in listed(bounds, "bounds"):
        need(stack, "there are more parts than the cuts make")
        k, i, left, top, bottom, ways = stack.pop()
        if item == 0 and type(item) is int:
            need(left > 0 and i + 1 < len(order), "a part is cut that holds one kind of sequence")
            for n in range(left, -1, -1):
                more = [x + n * y for x, y in zip(top, terms[order[i]])]
                stack.append((k, i + 1, left - n, more, bottom + n * below[order[i]], ways * comb(left, n)))
            continue
        rest = order[i:] if left else order[:1] or [t]
        if softmax:
            ends = [[(x + left * y) // (bottom + left * below[o]) for x, y in zip(top, terms[o])] for o in rest]
            lo, hi = [min(column) for column in zip(*ends)], [max(column) + 1 for column in zip(*ends)]
        elif left:
            lo = [(x + left * y) >> W for x, y in zip(top, low[i])]
            hi = [ceil_shift(x + left * y, W) for x, y in zip(top, high[i])]
        else:
            lo, hi = [x >> W for x in top], [ceil_shift(x, W) for x in top]
        lo, hi = list(map(int.__add__, lo, around.own)), list(map(int.__add__, hi, around.own))

        def lowest(slopes: list[int], rest: Any = rest, top: Any = top, left: int = left, bottom: int = bottom) -> int:
            fixed_part = sum(map(mul, slopes, top))
            each = ((fixed_part + left * sum(map(mul, slopes, terms[o]))) // (bottom + left * below[o]) for o in rest)
            return min(each) + sum(map(mul, slopes, around.own))

        bound = around.settle(k, item, lo, hi, lowest)
        smallest = bound if smallest is None else min(smallest, bound)
        inputs += L * comb(L - 1, k - 1) * ways * (len(order) - i) ** left
    need(not stack and smallest is not None, "a part of the domain is left out")
    return int(smallest or 0), inputs


def slots(around: Around, bounds: Any) -> tuple[int, int]:
    """The same for a fixed pattern: one part for each position and count. Every linear function of what the neurons see
    is least where each slot holds its best other token, but the slots where t costs least hold t."""
    t, L, T = around.t, around.L, around.T
    others = [o for o in range(T) if o != t] or [t]
    items = iter(listed(bounds, "bounds", L * len(around.counts)))
    smallest, inputs = None, 0
    columns = [[around.values[o][p] for o in others] for p in range(len(around.own))]
    for position in range(L):
        here, row = around.pattern[position][position], list(around.pattern[position])
        del row[position]

        def least_sums(low: int, high: int, own: int, here: int = here, row: Any = row) -> list[int]:
            """The least sum over slots, by the number of those that hold t (0, 1, ...), for any function of a token
            that is `own` at t and lies in low..high elsewhere."""
            best = [a * (low if a > 0 else high) for a in row]
            sums = [here * own + sum(best)]
            for gain in sorted(a * own - b for a, b in zip(row, best)):
                sums.append(sums[-1] + gain)
            return sums

        lows = [least_sums(min(c), max(c), v) for c, v in zip(columns, around.values[t])]
        highs = [least_sums(-max(c), -min(c), -v) for c, v in zip(columns, around.values[t])]
        for k in around.counts:
            lo = [own + (sums[k - 1] >> W) for own, sums in zip(around.own, lows)]
            hi = [own - (sums[k - 1] >> W) for own, sums in zip(around.own, highs)]

            def lowest(slopes: list[int], k: int = k, sums: Any = least_sums) -> int:
                each = [sum(map(mul, slopes, around.values[o])) for o in others]
                mine = sum(map(mul, slopes, around.values[t]))
                return (sums(min(each), max(each), mine)[k - 1] >> W) + sum(map(mul, slopes, around.own))

            bound = around.settle(k, next(items), lo, hi, lowest)
            smallest = bound if smallest is None else min(smallest, bound)
            inputs += comb(L - 1, k - 1) * (T - 1) ** (L - k)
    return int(smallest or 0), inputs


def one_token(shared: Sequences, t: int, part: Any) -> tuple[int, int, int]:
    """The parts around one own token: smallest bound, inputs, and the rounding of two outputs' difference."""
    around = shared.around(t)
    if shared.pattern:
        found = slots(around, *fields(part, "bounds", "a part"))
    else:
        found = multisets(around, *fields(part, "order bounds", "a part"))
    return (*found, shared.rounding(t))


class Sequences(NamedTuple):
    """A histogram model in numbers: embedding rows x, their values at the neurons, scores or pattern, readout."""

    T: int
    L: int
    softmax: bool
    x: list[list[Num]]
    values: list[list[Num]]
    scores: list[list[Num]]
    pattern: list[list[tuple[int, int]]]
    w_in: list[list[int]]
    b_in: list[int]
    w_out: list[list[int]]
    b_out: list[int]
    right: list[int]
    f: Format

    def around(self, t: int) -> Around:
        """Whole numbers around one own token, and how far they may be from the true ones."""
        sizes = [max(v.size for v in column) for column in zip(*self.values)]
        keys = len(self.x) - self.T + self.L
        rows = self.pattern or [bounds_of(self.scores[t], self.softmax)]
        off = max(high - low for row in rows for low, high in row) + (2 << (P - W))
        reach = max(max(-low, high) for row in rows for low, high in row)
        if self.softmax and not self.pattern:  # t itself and [BOS] are always there: an average moves by at most this
            present = rows[0][t][0] + sum(low for low, _ in rows[0][self.T :])
            relative = ceil_div(keys * off << P, max(1, present))
            need(relative < ONE >> 4, "a softmax weight is lost beside another's, or not known well enough")
            slip, most = [ceil_shift(4 * relative * size) for size in sizes], 1
        else:
            slip = [keys * (ceil_shift(off * size) + 2 * (reach >> S) + 2) for size in sizes]
            most = ceil_div(keys * reach, ONE)
        slip = [s + (4 << (P - S)) for s in slip]
        whole_rows = [[(low + high) >> (1 + P - W) for low, high in row] for row in rows]
        values = [[(v.lo + v.hi) >> (1 + P - S) for v in row] for row in self.values]
        own = [(v.lo + b) >> (P - S) for v, b in zip(self.values[t], self.b_in)]
        largest = sum(most * size + abs(b) + size for size, b in zip(sizes, self.b_in))
        lead, extra = [], []
        for r in self.right:
            leads = [[a - b for a, b in zip(self.w_out[r], column)] for column in self.w_out]
            slack = [ceil_shift(sum(map(mul, map(abs, row), slip))) + (largest >> S) + len(row) for row in leads]
            extra.append([s - self.b_out[r] + b for s, b in zip(slack, self.b_out)])
            lead.append([[w >> (P - S) for w in row] for row in leads])
        weights, pattern = ([], whole_rows) if self.pattern else (whole_rows[0], [])
        return Around(t, self.T, self.L, self.softmax, own, values, weights, pattern, lead, extra, self.right)

    def rounding(self, t: int) -> int:
        """A bound of the error of the difference of two outputs, wherever t stands and whatever the others are."""
        f, keys = self.f, len(self.x) - self.T + self.L
        if not f.bits:
            return 0
        rows = self.scores if self.pattern else [self.scores[t]]
        stream, relative = [], max(softmax_error(row, keys, f) for row in rows) if self.softmax else 0
        for own, *column in zip(self.x[t], *self.x):
            size, err = mixed(relative, column, keys, f)
            if not self.softmax:
                reach = max(s.size for row in rows for s in row)
                err = keys * ceil_shift(max(s.err for row in rows for s in row) * size)
                size = keys * ceil_shift(reach * size)
                need(size < f.largest, "a sum of values might overflow")
                err += ceil_shift(f.gamma(keys + 4) * (size + err)) + f.eta * keys * (2 + (size >> P))
            stream.append(add(Num(-size, size, err), own, f))
        hidden = [relu(number) for number in linear(stream, self.w_in, self.b_in, f)]
        return 4 * max(number.err for number in linear(hidden, self.w_out, self.b_out, f))


def bounds_of(scores: Sequence[Num], softmax: bool, share: bool = False) -> list[tuple[int, int]]:
    """Bounds of the weights of scores: themselves, their exponentials up to a common factor, or shares of one."""
    if not softmax:
        return [(s.lo, s.hi) for s in scores]
    top = max(s.hi for s in scores)
    found = [(exp_between(s.lo - top)[0], exp_between(s.hi - top)[1]) for s in scores]
    low, high = (sum(pair[i] for pair in found) for i in (0, 1))
    return [((a << P) // high, ceil_div(b << P, low)) for a, b in found] if share else found


def sequences(model: Model, domain: Any, parts: Any, f: Format, spread: Callable[..., Any]) -> tuple[str, int, int]:
    """Histogram: does every position say how often its token occurs, in all T^L sequences?"""
    fields(domain, "", "claim.domain")
    known = {"T": 32, "L": 10, "bos": False, "sampler": "published", "zero_class": False}
    need(model.task == "histogram" and len(model.layers) == 1, "sequences are for one layer on histogram")
    need(set(model.parameters) <= set(known), "a parameter of the task is unknown")
    given = {**known, **model.parameters}
    T, L = whole(given["T"], 1, 4096, "T"), whole(given["L"], 1, 64, "L")
    bos, zero = given["bos"], given["zero_class"]
    need(type(bos) is bool and type(zero) is bool, "bos and zero_class must be true or false")
    layer, rows, d = model.layers[0], T + bos, model.d
    fixed_pattern = layer["mixing"] == "linear"
    model.require("spec", model.spec, direction=("bidirectional",), readout=("relu_mlp",), readout_width=None,
                  max_length=(L if fixed_pattern else None,))  # fmt: skip
    model.require("layer", layer, mixing=("dot", "linear"), normalizer=("softmax", "none"), scale=None, norm_eps=None,
                  value_output=("identity",))  # fmt: skip
    need(not (fixed_pattern and bos), "a fixed pattern is checked without [BOS]")
    width = whole(model.spec["readout_width"], 1, 4096, "readout_width")
    need(layer["d_head"] == d, "values that are the stream itself need d_head = d_model")
    n_out, softmax, scores, pattern = L + zero, layer["normalizer"] == "softmax", [], []
    x = [[exact(value) for value in row] for row in model.rows("embed.W_E", rows, d)]
    w_in = model.columns("unembed.W_in", d, width)
    if fixed_pattern:
        scores = [[exact(value) for value in row] for row in model.rows("blocks.0.attn.W_mix", 1, L, L)]
        pattern = [bounds_of(row, softmax, share=True) for row in scores]
    else:
        w_q, w_k = (model.per_head(f"blocks.0.attn.W_{name}", 1, d, d)[0] for name in "QK")
        q, k = ([linear(row, w, None, f) for row in x] for w in (w_q, w_k))
        scores = [model.scores(q[t], k, model.factor(layer), f) for t in range(T)]
    shared = Sequences(
        T, L, softmax, x, [linear(row, w_in, None, FORMATS["reals"]) for row in x], scores, pattern, w_in,
        model.tensor("unembed.b_in", width), model.columns("unembed.W_out", width, n_out),
        model.tensor("unembed.b_out", n_out), [n - (not zero) for n in range(1, L + 1)], f,
    )  # fmt: skip
    found = spread(partial(one_token, shared), range(T), listed(parts, "parts", T))
    for t, (_, inputs, _) in enumerate(found):
        need(inputs == L * T ** (L - 1), f"the parts of token {t} hold {inputs} inputs, not {L * T ** (L - 1)}")
    said = f"histogram: every position has its largest output at how often its token occurs, in all {T}^{L} sequences"
    return said, min(bound for bound, _, _ in found), max(rounding for _, _, rounding in found)


# ================================================================ strings of 0 and 1

LANGUAGES: dict[str, Callable[[int, dict[int, int]], bool]] = {
    "parity": lambda ones, seen: ones % 2 == 1,
    "one": lambda ones, seen: ones == 1,
    "first": lambda ones, seen: seen[1] == 1,
}
CODES: dict[str, Callable[[int, int], list[tuple[int, int]]]] = {
    "none": lambda i, n: [],
    "first": lambda i, n: [(int(i == 1), 1)],
    "fraction": lambda i, n: [(i, n)],
    "parity": lambda i, n: [(i, n), (1 - 2 * (i % 2), 1)],
}
"""Position codes: fractions in the first components, for position i of n tokens ([CLS] is position 0)."""
CLS = 2


def strings(model: Model, domain: Any, parts: Any, f: Format, spread: Callable[..., Any]) -> tuple[str, int, int]:
    """PARITY, ONE and FIRST: every string up to a length, by its number of ones and its symbols at `seen` positions.

    Layer 1 scores all pairs alike, so what it adds is an average over all rows, which depends on the number of ones.
    Then the row of a position that is not seen may be either of two; everything that follows holds for both at once.
    """
    longest, seen = fields(domain, "longest seen", "claim.domain")
    whole(longest, 1, 1000, "longest")
    need(model.task in LANGUAGES and len(model.layers) in (1, 2), f"no strings are known of task {model.task!r:.40}")
    need(all(type(i) is int for i in listed(seen, "seen")) and seen in ([], [1]), "seen positions may be [] or [1]")
    need(model.task != "first" or seen == [1], "FIRST is about position 1")
    need(set(model.parameters) <= {"length", "shortest", "test_length"}, "a parameter of the task is unknown")
    model.require("spec", model.spec, direction=("bidirectional",), positions=tuple(CODES), readout=("scalar",),
                  readout_bias=(False,), readout_at=("[CLS]",), decision=("sigmoid",))  # fmt: skip
    layers = [Block(model, i) for i in range(len(model.layers))]
    need(not any(value for q, k in zip(layers[0].q, layers[0].k) if any(map(any, q)) for row in k for value in row),
         "layer 1 does not score all pairs alike")  # fmt: skip
    words = model.rows("embed.W_E", 4, model.d)
    readout = model.columns("unembed.W_U", model.d, 1)[0]
    work = partial(one_length, model.spec["positions"], model.task, layers, words, readout, seen, f)
    found = spread(work, range(1, longest + 1), listed(parts, "parts", longest))
    said = f"{model.task}: right on every string of 1 to {longest} symbols, {2 ** (longest + 1) - 2} strings"
    return said, min(bound for bound, _ in found), max(rounding for _, rounding in found)


class Block:
    """A layer of attention and neurons without biases in its attention: the columns of its matrices."""

    def __init__(self, model: Model, index: int) -> None:
        layer, d, self.name = model.layers[index], model.d, f"blocks.{index}."
        model.require("layer", layer, n_heads=None, scale=None, mlp=None, norm_eps=None, query_key=("learned", "full"),
                      value_output=("learned", "full"))  # fmt: skip
        heads, width = layer["n_heads"], layer["d_head"]
        need(layer["query_key"] == layer["value_output"] == "learned" or width == d, "full matrices need d_head = d")
        eye = [[[ONE if i == j else 0 for i in range(d)] for j in range(d)]] * heads
        read = partial(model.per_head, heads=heads, rows=d, columns=width)
        self.q = read(f"{self.name}attn.W_Q")
        self.k = eye if layer["query_key"] == "full" else read(f"{self.name}attn.W_K")
        self.v = eye if layer["value_output"] == "full" else read(f"{self.name}attn.W_V")
        out = model.tensor(f"{self.name}attn.W_O", heads, width, d)
        self.o = [out[j::d] for j in range(d)]
        self.factor, self.scores = model.factor(layer), model.scores
        self.mlp: list[Any] = []
        if layer["mlp"] is not None:
            known = {"d_mlp", "activation"}
            need(type(layer["mlp"]) is dict and set(layer["mlp"]) <= known, "mlp has d_mlp and activation")
            need(layer["mlp"].get("activation", "relu") == "relu", "neurons must be ReLU")
            size, name = whole(layer["mlp"].get("d_mlp"), 1, 4096, "d_mlp"), f"{self.name}mlp."
            self.mlp = [model.columns(name + "W_in", d, size), model.tensor(name + "b_in", size),
                        model.columns(name + "W_out", size, d), model.tensor(name + "b_out", d)]  # fmt: skip

    def attention(self, asking: Sequence[Num], rows: Sequence[Sequence[Num]], f: Format) -> list[Num]:
        """What the heads write for one row that asks, from all rows."""
        z = []
        for q, k, v in zip(self.q, self.k, self.v):
            keys, values = [linear(row, k, None, f) for row in rows], [linear(row, v, None, f) for row in rows]
            z += attend(self.scores(linear(asking, q, None, f), keys, self.factor, f), values, f)
        return linear(z, self.o, None, f)

    def neurons(self, row: Sequence[Num], f: Format) -> list[Num]:
        """The stream after the feed-forward part."""
        if not self.mlp:
            return list(row)
        hidden = [relu(number) for number in linear(row, self.mlp[0], self.mlp[1], f)]
        return [add(x, y, f) for x, y in zip(row, linear(hidden, self.mlp[2], self.mlp[3], f))]


def one_length(
    code: str, task: str, layers: list[Block], words: list[list[int]], readout: list[int], seen: list[int], f: Format,
    length: int, item: Any,
) -> tuple[int, int]:  # fmt: skip
    """All strings of one length: the bound that their margins keep, and the rounding."""
    bound, n, worst = fixed(hexadecimal(item, "a bound"), "a bound"), length + 1, 0
    places = [i for i in seen if i <= length]
    rows = [[row_of(code, words[token], i, n, f) for token in ((0, 1) if i else (CLS,))] for i in range(n)]
    first = layers[0]
    sums = []  # for each head and component: of [CLS] and all zeros, what a one adds, size and error of the average
    for v in first.v:
        values = [[linear(row, v, None, f) for row in choice] for choice in rows]
        for c in range(len(v)):
            column = [[value[c] for value in choice] for choice in values]
            flat = [number for choice in column for number in choice]
            err = mixed(softmax_error([ZERO], n, f), flat, n, f)[1]
            sums.append(([choice[0] for choice in column], [choice[-1] for choice in column], err))
    for ones in range(length + 1):
        for chosen in range(2 ** len(places)):
            symbols = {i: chosen >> at & 1 for at, i in enumerate(places)}
            free = [i for i in range(1, n) if i not in symbols]
            more = ones - sum(symbols.values())
            if not 0 <= more <= len(free):
                continue
            one = {i for i, symbol in symbols.items() if symbol} | set(free[:more])
            z = []
            for zeros, others, err in sums:  # the sum is that of any string with as many ones: values are linear
                picked = [others[i] if i in one else zeros[i] for i in range(n)]
                z.append(Num(sum(v.lo for v in picked) // n, ceil_div(sum(v.hi for v in picked), n), err))
            written = linear(z, first.o, None, f)
            after = []
            for i in range(n if len(layers) > 1 else 1):
                choice = rows[i] if i not in symbols else [rows[i][symbols[i]]]
                both = [first.neurons([add(x, y, f) for x, y in zip(row, written)], f) for row in choice]
                after.append(both[0] if len(both) == 1 else [hull(x, y) for x, y in zip(*both)])
            last = after[0]
            for layer in layers[1:]:
                last = layer.neurons([add(x, y, f) for x, y in zip(last, layer.attention(last, after, f))], f)
            said = dot(last, readout, 0, f)
            margin = said.lo if LANGUAGES[task](ones, symbols) else -said.hi
            need(margin >= bound, f"length {length}, {ones} ones: a margin of {margin / ONE:.6g} at least, not {item}")
            worst = max(worst, said.err)
    return bound, worst


def row_of(code: str, word: Sequence[int], i: int, n: int, f: Format) -> list[Num]:
    """Token and position."""
    row = [exact(value) for value in word]
    fractions = CODES[code](i, n)
    need(len(fractions) <= len(row), "the position code needs more components")
    for at, (a, b) in enumerate(fractions):
        low, high = (a << P) // b, ceil_div(a << P, b)
        row[at] = add(row[at], Num(low, high, ceil_shift(f.gamma(3) * abs(high)) if b > 1 else 0), f)
    return row


# ================================================================ contexts of a table


def contexts(model: Model, domain: Any, parts: Any, f: Format, spread: Callable[..., Any]) -> tuple[str, int, int]:
    """Memorization: is the largest output at a right answer, for each of the contexts that a table names?"""
    order, outputs, tokens, errors = fields(domain, "order outputs tokens errors", "claim.domain")
    limits = [whole(n, 1, 10**6, what) for n, what in ((order, "order"), (outputs, "outputs"), (tokens, "tokens"))]
    need(len(model.layers) == 1, "contexts are for one layer")
    positions = model.spec["positions"]
    model.require("spec", model.spec, direction=("causal", "bidirectional"), positions=("none", "learned"), n_out=None,
                  positions_enter=("attention", "residual"), max_length=(order,) if positions == "learned" else (None,),
                  readout_bias=(True, False), readout_at=("last",))  # fmt: skip
    block, d = Block(model, 0), model.d
    words = model.rows("embed.W_E", tokens, d)
    inside = model.spec["positions_enter"] == "attention"
    name = "blocks.0.attn.W_pos" if inside else "pos_embed.W_pos"
    places = model.rows(name, order, d) if positions == "learned" else [[0] * d] * order
    unembed = model.columns("unembed.W_U", d, outputs)
    bias = model.tensor("unembed.b_U", outputs) if model.spec["readout_bias"] else [0] * outputs
    for context, answers, *_ in (listed(part, "a part") for part in listed(parts, "parts") if need_long(part)):
        need(all(whole(t, 0, limits[2] - 1, "a token") >= 0 for t in listed(context, "a context", order)), "")
        need(all(whole(t, 0, limits[1] - 1, "an answer") >= 0 for t in listed(answers, "answers")), "")
        need(answers and sorted(set(answers)) == answers, "answers must ascend")
    table = [part[:2] for part in parts]
    need(len({tuple(context) for context, _ in table}) == len(table), "a context occurs twice")
    found = spread(partial(one_context, block, words, places, inside, unembed, bias, f), parts)
    wrong = [context for (context, _), (bad, _, _) in zip(table, found) if bad]
    need(errors == wrong, f"wrong contexts are {wrong[:9]}, not as claimed")
    digest = hashlib.sha256(json.dumps(table, separators=(",", ":")).encode()).hexdigest()
    every = f"all {len(table)} = {tokens}^{order}" if len(table) == tokens**order else f"each of the {len(table)}"
    said = f"{model.task}: the largest output is a right one for {every} contexts of the table of SHA-256 {digest}"
    if wrong:
        said += f" but exactly {len(wrong)}, for which it is not"
    return said, min(bound for _, bound, _ in found), max(rounding for _, _, rounding in found)


def need_long(part: Any) -> bool:
    need(type(part) is list and len(part) in (3, 4), "a part must be a context, its right answers, and what is proved")
    return True


def one_context(
    block: Block, words: list[list[int]], places: list[list[int]], inside: bool, unembed: list[list[int]],
    bias: list[int], f: Format, part: list[Any],
) -> tuple[bool, int, int]:  # fmt: skip
    """Is the largest output a right one (bound), or another one ([output, bound])? Wrong, bound, rounding."""
    context, answers = part[0], part[1]
    rows = [[exact(value) for value in words[t]] for t in context]
    seen = [[add(x, exact(y), f) for x, y in zip(row, place)] for row, place in zip(rows, places)]
    stream = (rows if inside else seen)[-1]
    last = block.neurons([add(x, y, f) for x, y in zip(stream, block.attention(seen[-1], seen, f))], f)
    said = linear(last, unembed, bias, f)
    bound = fixed(hexadecimal(part[-1], "a bound"), "a bound")
    others = [j for j in range(len(said)) if j not in answers]
    if len(part) == 4:
        whole(part[2], 0, len(said) - 1, "an output")
        need(part[2] in others, "a right answer is no error")
        margin = said[part[2]].lo - max(said[j].hi for j in answers)
    else:
        need(others, "every answer is right")
        margin = max(said[j].lo for j in answers) - max(said[j].hi for j in others)
    need(margin >= bound, f"context {context}: a margin of {margin / ONE:.6g} at least, not {part[-1]}")
    return len(part) == 4, bound, 2 * max(number.err for number in said)


# ================================================================ the claim

KINDS: dict[str, Callable[..., tuple[str, int, int]]] = {
    "counts": counts, "maxima": maxima, "sequences": sequences, "strings": strings, "contexts": contexts,
}  # fmt: skip


def check(evidence: dict[str, Any], processes: int = 1) -> tuple[Model, str, float]:
    """The model, the sentence that holds of it, and the bound of rounding. Raises Fault at the first that does not."""
    schema, name, spec, weights, digest, claim, parts = fields(
        evidence, "evidence model spec weights weights_sha256 claim parts", "the evidence"
    )
    need(type(schema) is int and schema == 1, f"evidence = {schema!r:.40} must be 1, which this file checks")
    kind, domain, number_format, margin, sentence = fields(claim, "kind domain format margin sentence", "the claim")
    need(type(kind) is str and kind in KINDS, f"claim.kind = {kind!r:.40} must be one of {', '.join(KINDS)}")
    need(type(number_format) is str and number_format in FORMATS, f"claim.format = {number_format!r:.40} is unknown")
    f, least_margin = FORMATS[number_format], fixed(hexadecimal(margin, "claim.margin"), "claim.margin")
    need(least_margin > 0, f"claim.margin = {margin} must be positive")
    model = Model(spec, weights, name, digest)
    if number_format == "float32":
        every = (value for values in model.values.values() for value in values)
        need(all(struct.unpack("<f", struct.pack("<f", v))[0] == v for v in every), "a weight is no float32 number")

    def spread(function: Callable[..., Any], *lists: Iterable[Any]) -> list[Any]:
        if processes == 1:
            return [function(*items) for items in zip(*lists)]
        with multiprocessing.Pool(processes) as pool:
            return pool.starmap(function, list(zip(*lists)))

    said, bound, rounding = KINDS[kind](model, domain, parts, f, spread)
    need(not model.unused, f"weights that no step reads: {sorted(model.unused)[:5]}")
    need(bound >= least_margin, f"claim.margin = {margin}, but a part has only {bound / ONE:.6g}")
    run = "over the reals" if not f.bits else f"over the reals and as run in {number_format}"
    need(least_margin > rounding, f"the margin {margin} does not exceed the rounding bound {rounding / ONE:.3g}")
    said = f"{said}; by {margin} at least, {run}"
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
        model, said, rounding = check(read(given.evidence), given.processes)
        if given.weights_sha256 is not None:
            need(given.weights_sha256 == model.sha256, f"the weights have SHA-256 {model.sha256}, not as asked")
        if given.checkpoint is not None:
            print(f"checkpoint {given.checkpoint} of SHA-256 {compare_checkpoint(model, given.checkpoint)}")
    except Fault as fault:
        print(f"DOES NOT HOLD: {fault}")
        return 1
    print(f"holds: {said}")
    print(f"model {model.name}, weights of SHA-256 {model.sha256}; what rounding may do is below {rounding:.3g}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
