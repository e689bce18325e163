"""One layer with parts of modern decoders: RMSNorm, query-key norm, rotary positions, gated MLPs, tied embeddings.

Claims about such models are over the reals only, not about any number format.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from math import isqrt
from operator import mul
from typing import Any, NamedTuple

from .enclosures import ONE, REALS, Matrix, P, Vec, ceil_div, exp_between, fixed, log_between, plus, up
from .reading import need, whole
from .weights import ModelWeights

Pair = tuple[int, int]


class DecoderMLP(NamedTuple):
    """The MLP: act(x into + b_in) out + b_out, or with a gate (act(x gate) * (x into)) out + b_out."""

    activation: str
    gate: Matrix | None
    into: Matrix
    out: Matrix


class Decoder:
    """The weights of a supported one-layer model. Raises Fault for other models."""

    def __init__(self, model: ModelWeights, layer: dict[str, Any]) -> None:
        self.model, self.layer, spec = model, layer, model.spec
        plain = {"mixing": "dot", "normalizer": "softmax", "log_length": "none", "query_key": "learned",
                 "value_output": "learned", "key_value_heads": None}  # fmt: skip
        for key, value in plain.items():
            need(layer[key] == value, f"{key} = {layer[key]!r:.60} is not what this kind of claim is about")
        whole_model = {"direction": "causal", "readout": "linear", "decision": "argmax", "readout_at": "all"}
        for key, value in whole_model.items():
            need(spec[key] == value, f"{key} = {spec[key]!r:.60} is not what this kind of claim is about")
        normed = layer["norm"] == "pre"
        need(
            layer["norm"] == "none" or (normed and layer["norm_kind"] == "rms"),
            "the layer's norms must be RMS norms, before attention and before the MLP",
        )
        need(spec["final_norm"] in ("none", "rms_norm"), "the last norm must be an RMS norm")
        need(spec["positions"] in ("none", "learned", "rotary"), "positions must be none, learned or rotary")
        inside = spec["positions_enter"] == "attention"
        need(inside == (spec["positions"] == "rotary"), "rotary positions enter attention, and no others do")
        self.d, self.heads, self.width = model.d, layer["n_heads"], whole(layer["d_head"], 1, 256, "d_head")
        self.words = model.table("embed.W_E")
        self.places = model.table("pos_embed.W_pos") if spec["positions"] == "learned" else None
        self.eps = layer["norm_eps"]
        self.ln1 = model.tensor("blocks.0.ln1.w", self.d) if normed else None
        biases = layer["bias"]
        self.q, self.k, self.v = (
            model.heads("blocks.0.attn.", self.heads, self.width, biases, letter) for letter in "QKV"
        )
        flat = model.tensor("blocks.0.attn.W_O", self.heads, self.width, self.d)
        rows = [flat[i : i + self.d] for i in range(0, len(flat), self.d)]
        self.write = [rows[h * self.width : (h + 1) * self.width] for h in range(self.heads)]
        self.b_write = model.tensor("blocks.0.attn.b_O", self.d) if "o" in biases else [0] * self.d
        self.qk_norms = ([model.tensor(f"blocks.0.attn.{part}_norm.w", self.width) for part in "qk"]
                         if layer["query_key_norm"] else None)  # fmt: skip
        self.neurons = self._neurons(layer["mlp"])
        self.ln2 = model.tensor("blocks.0.ln2.w", self.d) if normed and self.neurons else None
        self.final = model.tensor("ln_final.w", self.d) if spec["final_norm"] == "rms_norm" else None
        if spec["tied_embeddings"]:
            need(not spec["readout_bias"], "a tied readout must not have a bias")
            self.read, self.b_read = [list(row.mid) for row in self.words], [0] * len(self.words)
        else:
            out = model.matrix("unembed.W_U", self.d, "unembed.b_U" if spec["readout_bias"] else None)
            self.read, self.b_read = [list(column) for column in out.full], out.bias
        self.turns = self._turns(spec) if spec["positions"] == "rotary" else None

    def _neurons(self, mlp: Any) -> DecoderMLP | None:
        if mlp is None:
            return None
        fields = {"d_mlp", "activation", "gated", "bias"}
        need(type(mlp) is dict and "d_mlp" in mlp and set(mlp) <= fields, "mlp has d_mlp, activation, gated and bias")
        many, act = whole(mlp["d_mlp"], 1, 4096, "d_mlp"), mlp.get("activation", "relu")
        gated, bias = mlp.get("gated", False), mlp.get("bias", True)
        need(act in ("relu", "gelu", "silu"), f"activation = {act!r:.40} must be relu, gelu or silu")
        need(type(gated) is bool and type(bias) is bool, "gated and bias must be true or false")
        name = "blocks.0.mlp."
        gate = self.model.matrix(f"{name}W_gate", self.d) if gated else None
        into = self.model.matrix(f"{name}W_in", self.d, f"{name}b_in" if bias and not gated else None)
        shift = self.model.tensor(f"{name}b_in", many) if bias and gated else None
        need(shift is None or not any(shift), "b_in of a gated MLP must be zero")
        out = self.model.matrix(f"{name}W_out", many, f"{name}b_out" if bias else None)
        need(len(into.columns) == many and len(out.columns) == self.d, "W_in and W_out must have d_mlp neurons")
        need(gate is None or len(gate.columns) == many, "W_gate must have d_mlp neurons")
        return DecoderMLP(act, gate, into, out)

    def _turns(self, spec: dict[str, Any]) -> list[tuple[int, int, Fraction | int]]:
        """Return the rotated pairs of dimensions, each with the exponent in its angle, place / base^exponent."""
        base, dim, kind = spec["rotary_base"], spec["rotary_dim"], spec["rotary_pairs"]
        need(type(base) in (int, float) and 1 < base < 1e9, "rotary_base must be a number between 1 and 1e9")
        dim = self.width if dim is None else whole(dim, 2, self.width, "rotary_dim")
        need(dim % 2 == 0 and kind in ("halves", "adjacent"), "rotary_dim is even, rotary_pairs halves or adjacent")
        half = dim // 2
        return [(j, j + half, Fraction(2 * j, dim)) if kind == "halves" else (2 * j, 2 * j + 1, Fraction(2 * j, dim))
                for j in range(half)]  # fmt: skip

    @lru_cache(maxsize=1 << 14)  # noqa: B019 (one model lives as long as the process)
    def row(self, token: int, place: int) -> Vec:
        """Return the token plus position embedding."""
        return self.words[token] if self.places is None else plus(self.words[token], self.places[place], REALS)

    @lru_cache(maxsize=1 << 14)  # noqa: B019
    def inner(self, token: int, place: int) -> Vec:
        row = self.row(token, place)
        return row if self.ln1 is None else rms_norm(row, self.ln1, self.eps)

    @lru_cache(maxsize=1 << 14)  # noqa: B019
    def turned(self, which: str, head: int, token: int, place: int) -> Vec:
        """Return a query ("q") or key ("k"), after norm and rotation."""
        vector = (self.q if which == "q" else self.k)[head](self.inner(token, place), REALS)
        if self.qk_norms is not None:
            vector = rms_norm(vector, self.qk_norms["qk".index(which)], self.eps)
        if self.turns is None:
            return vector
        ends: list[Pair] = list(vector.ends())
        for a, b, share in self.turns:
            base = self.model.spec["rotary_base"]
            cos, sin = turn(fixed(float(base), "rotary_base"), share, place)
            x, y = ends[a], ends[b]
            ends[a] = _minus(_times(x, cos), _times(y, sin))
            ends[b] = _plus(_times(y, cos), _times(x, sin))
        low, high = zip(*ends)
        return Vec.between(low, high, (0,) * len(ends))

    @lru_cache(maxsize=1 << 14)  # noqa: B019
    def value(self, head: int, token: int, place: int) -> Vec:
        return self.v[head](self.inner(token, place), REALS)

    def score(self, head: int, query: tuple[int, int], key: tuple[int, int]) -> Pair:
        """Return bounds on the score between a query and a key, each given as (token, place)."""
        q, k = self.turned("q", head, *query), self.turned("k", head, *key)
        mid = sum(map(mul, q.mid, k.mid))
        rad = sum((abs(a) + r) * s for a, r, s in zip(q.mid, q.rad, k.rad)) + sum(
            abs(b) * r for b, r in zip(k.mid, q.rad)
        )
        scale = self.layer["scale"]
        if type(scale) is float:
            factor = (fixed(scale, "scale"),) * 2
        else:
            sizes = {"inv_sqrt_d_head": self.width, "inv_sqrt_d_model": self.d}
            low = isqrt((1 << 2 * P) // sizes[scale])
            factor = (low, low + 1)
        return _times((mid - rad >> P, up(mid + rad)), factor)


def rms_norm(x: Vec, weight: Sequence[int], eps: float) -> Vec:
    """Return x / sqrt(mean of x^2 + eps) times a weight."""
    d, small = len(x.mid), fixed(eps, "norm_eps")
    least = sum(max(0, abs(m) - r) ** 2 for m, r in zip(x.mid, x.rad)) // d // ONE + small
    most = ceil_div(sum((abs(m) + r) ** 2 for m, r in zip(x.mid, x.rad)), d * ONE) + small
    need(least > 0, "a norm divides by a number that could be 0")
    low, high = isqrt(least << P), isqrt(most << P) + 1
    bounds = []
    for (a, b), w in zip(x.ends(), weight):
        ends = [(a << P) // low, (a << P) // high, ceil_div(b << P, low), ceil_div(b << P, high)]
        bounds.append(_times((min(ends), max(ends)), (w, w)))
    lows, highs = zip(*bounds)
    return Vec.between(lows, highs, (0,) * d)


def _times(x: Pair, y: Pair) -> Pair:
    products = [a * b for a in x for b in y]
    return min(products) >> P, up(max(products))


def _plus(x: Pair, y: Pair) -> Pair:
    return x[0] + y[0], x[1] + y[1]


def _minus(x: Pair, y: Pair) -> Pair:
    return x[0] - y[1], x[1] - y[0]


@lru_cache(maxsize=1 << 12)
def turn(base: int, share: Fraction, place: int) -> tuple[Pair, Pair]:
    """Return bounds on the cosine and sine of place / base^share."""
    ends_of_log = log_between(base)
    low = exp_between(-ceil_div(ends_of_log[1] * share.numerator, share.denominator))[0]
    high = exp_between(-(ends_of_log[0] * share.numerator // share.denominator))[1]
    middle, off = place * (low + high) >> 1, (place * (high - low) >> 1) + 2
    more = 192  # extra bits, because the terms of the series first grow to e^place
    need(place <= 128, "a row is too long for this series")
    x = middle << more
    ends = []
    for start in (0, 1):
        term = 1 << P + more if start == 0 else x
        total, i = term, start
        while term:
            term = (term * x >> P + more) * x >> P + more
            term = -term // ((i + 1) * (i + 2))
            total, i = total + term, i + 2
            if abs(term) <= 4 and i > 4 * place + 8:
                break
        # Rounding changes each term by a few units. The terms computed from it enlarge this error by a factor below
        # e^place <= e^128 < 2^185, which the 192 extra bits absorb.
        ends.append(((total >> more) - off - 256, (total >> more) + off + 257))
    return ends[0], ends[1]
