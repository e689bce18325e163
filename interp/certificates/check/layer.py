"""One block: attention and MLP, with bounds on softmax, on weighted means of values, and on their rounding."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache, partial
from math import isqrt
from operator import add, mul
from typing import Any

from .enclosures import ONE, Format, Matrix, P, Vec, ceil_div, exp_between, fixed, log_between, plus, relu, up
from .reading import need, whole
from .weights import ModelWeights


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
    relative, errs, reach = softmax_error(scores, keys, f) if softmax else 0, [], max(scores.sizes())
    under = 4 * keys * up(ONE, 39 if f.bits == 24 else P) if softmax else 0  # underflow of weights times values
    for column in columns:
        size, err = max(s for s, _ in column), max(e for _, e in column)
        if not softmax:  # errors of the factors, then of a sum of products of that size
            err = keys * up(reach * err + max(scores.err) * size)
            size = keys * up(reach * size)
        need(2 * keys * size < f.largest, "a sum of values might overflow")
        err += up((relative + f.gamma(keys + 4) * 2) * (size + err)) + 4 * f.eta * keys * (2 + (size >> P))
        errs.append(err + under)
    return errs


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
    reach, middles, spread = [abs(m) + r for m, r in zip(mids, rads)], [], []
    for column, radii in zip(zip(*(v.mid for v in values)), zip(*(v.rad for v in values))):
        middles.append(middle := sum(map(mul, mids, column)) // total)
        far = [abs(x - middle) for x in column] if softmax else map(abs, column)
        spread.append(ceil_div(sum(map(mul, reach, radii)) + sum(map(mul, rads, far)) + total, least))
    sizes = zip(*(zip(value.sizes(), value.err) for value in values))
    return Vec(tuple(middles), tuple(spread), tuple(drifts(scores, sizes, len(values), softmax, f)))


class EnclosedLayer:
    """The attention and MLP of one block."""

    def __init__(self, model: ModelWeights, index: int, spec: dict[str, Any], inside: bool) -> None:
        self.spec, self.model, d, name = spec, model, model.d, f"blocks.{index}."
        heads, width, biases = spec["n_heads"], whole(spec["d_head"], 1, 4096, "d_head"), spec["bias"]
        plain = spec["query_key"] == spec["value_output"] == "learned"
        need(plain or width == d, "values or scores of the stream itself need d_head = d_model")
        self.heads, self.softmax = heads, spec["normalizer"] == "softmax"
        self.linear = spec["mixing"] == "linear"
        need(self.softmax or spec["log_length"] == "none", "log_length is for a softmax")
        if model.f.bits and not self.linear:  # the score of any two rows, including masked ones
            reach = d * (model.f.largest >> P) << model.f.weight
            score = reach * reach * width * (self.factor(model.longest or 1 << 20)[1] + ONE)
            need(score < 1 << P + model.f.top, "the score of rows that are not seen might overflow")
        eye = Matrix([[ONE if i == j else 0 for i in range(d)] for j in range(d)])

        per_head = partial(model.heads, f"{name}attn.", heads, width, biases)
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
            need([len(m.columns) for m in self.neurons] == [many, d], "W_in and W_out must have d_mlp neurons")

    def factor(self, n: int) -> tuple[int, int]:
        """Return bounds on the scale of scores for n tokens."""
        scale, sizes = self.spec["scale"], {"inv_sqrt_d_head": self.spec["d_head"], "inv_sqrt_d_model": self.model.d}
        if type(scale) is float:
            low = high = fixed(scale, "scale")
        else:
            low = isqrt((1 << 2 * P) // sizes[scale])
            high = low + 1
        if (length := self.spec["log_length"]) == "none":
            return low, high
        small, large = log_between((n if length == "current" else length) << P)
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
        """Return the scores of a query row with every row of the stream, for n tokens."""
        q, f = self.query(h, self.normed(asking)), self.model.f
        q_sizes, q_reach = q.sizes(), [abs(m) + r for m, r in zip(q.mid, q.rad)]
        (low, high), gamma, width = self.factor(n), f.gamma(len(q.mid) + 8), len(q.mid)
        middle, off, scores = (low + high) >> 1, (high - low + 1) >> 1, []
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
            scores.append((mid * middle >> P, up(rad * high + abs(mid) * off) + 1, err))
        return Vec(*map(tuple, zip(*scores)))

    def run(self, rows: Sequence[Vec], asking: Iterable[int]) -> list[Vec]:
        """Return the residual stream after this layer, at the query positions."""
        f, n, causal = self.model.f, len(rows), self.model.causal
        seen = list(rows) if self.places is None else [plus(row, at, f) for row, at in zip(rows, self.places)]
        need(not self.linear or n == self.model.longest, "a fixed pattern is for rows of max_length tokens")
        done: dict[Any, Vec] = {}
        stream = []
        for i in asking:
            known = (rows[i], seen[i], i if causal or self.linear else None)
            if known not in done:
                keys, z = seen[: i + 1] if causal else seen, Vec((), (), ())
                for h in range(self.heads):
                    scores = self.pattern[h][i] if self.linear else self.scores(h, seen[i], keys, n)
                    mixed = attend(scores, [self.value(h, self.normed(row)) for row in keys], self.softmax, f)
                    z = Vec(*map(add, z, mixed))
                done[known] = self.after(rows[i], z)
            stream.append(done[known])
        return stream

    @lru_cache(maxsize=1 << 12)  # noqa: B019
    def normed(self, row: Vec) -> Vec:
        return self.ln1(row) if self.ln1 and self.spec["norm"] == "pre" else row

    def after(self, row: Vec, z: Vec) -> Vec:
        """Return the residual stream after attention with head outputs z, and after the MLP."""
        f, post = self.model.f, self.spec["norm"] == "post"
        row = plus(row, self.o(z, f), f)
        row = self.ln1(row) if post and self.ln1 else row
        if self.neurons:
            inner = self.ln2(row) if self.ln2 and not post else row
            row = plus(row, self.neurons[1](relu(self.neurons[0](inner, f)), f), f)
            row = self.ln2(row) if self.ln2 and post else row
        return row
