"""The model that a spec and its weights define, as a function of tokens.

Position codes that are given by formulas are bounded, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import isqrt
from typing import Any

from .decoder import Decoder
from .enclosures import Format, P, Vec, ceil_div, log_between, plus, relu, sine_between, up
from .layer import EnclosedLayer, drifts
from .reading import need, whole
from .weights import FREE, LAYER, SPEC, TODAY, ModelWeights


def ratio(a: int, b: int = 1) -> tuple[int, int, int]:
    return (a << P) // b, ceil_div(a << P, b), 3 if b > 1 else 0


def mirror(i: int, n: int) -> list[tuple[int, int, int]]:
    """Return sqrt(ln(16 n) / 2) / sin(pi / 2m) times cos(pi i / m) and sin(pi i / m), with m = n - 1."""
    m, (low, high) = max(1, n - 1), log_between(16 * n << P)
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


class Model(ModelWeights):
    """A model with bounds on every number, for any row of tokens."""

    def __init__(self, spec: Any, weights: Any, name: Any, digest: Any, f: Format) -> None:
        super().__init__(spec, weights, name, digest, f)
        self.build(self.layer_specs)

    def build(self, layers: list[dict[str, Any]]) -> None:
        spec, d = self.spec, self.d
        self.decoder: Decoder | None = None
        self.layers: list[EnclosedLayer] = []
        if self.is_decoder(layers):
            need(len(layers) == 1, "norms, positions or neurons of this kind are checked only in one-layer models")
            self.longest = spec["max_length"]
            self.decoder = Decoder(self, layers[0])
            self.words, self.n_out = self.decoder.words, len(self.decoder.read)
            need(spec["n_out"] is None or spec["n_out"] == self.n_out, "n_out is another")
            need(not self.unused, f"weights that no step reads: {sorted(self.unused)[:5]}")
            return
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
        self.layers = [EnclosedLayer(self, i, layer, inside) for i, layer in enumerate(layers)]
        self.final = self.norm("ln_final", layers[-1]["norm_eps"]) if spec["final_norm"] == "layer_norm" else None
        relu_mlp = spec["readout"] == "relu_mlp"
        need((spec["readout"] == "scalar") == (spec["decision"] != "argmax"), "decision and readout do not fit")
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

    def is_decoder(self, layers: list[dict[str, Any]]) -> bool:
        """Return whether the spec has parts that EnclosedLayer does not support."""
        spec, modern = self.spec, spec_differs(self.spec, SPEC)
        parts = [layer["mlp"] for layer in layers if type(layer["mlp"]) is dict]
        modern |= any(spec_differs(layer, LAYER) for layer in layers)
        modern |= any(part.get("activation", "relu") != "relu" or {"gated", "bias"} & set(part) for part in parts)
        return bool(modern or spec["positions"] == "rotary" or spec["final_norm"] == "rms_norm")

    def as_decoder(self) -> Decoder:
        """Return a one-layer model as a Decoder, even if EnclosedLayer supports all of its parts."""
        if self.decoder is None:
            need(len(self.layers) == 1, "this kind of claim is about one layer")
            self.decoder = Decoder(self, self.layers[0].spec)
        return self.decoder

    def require(self, **wanted: Any) -> EnclosedLayer:
        """Return the only layer of the model. Every field must have a supported value, the default, or no effect.

        wanted: the supported values per field; None supports any value.
        """
        need(len(self.layers) == 1, "this kind of claim is about one layer")
        for owner, defaults in ((self.spec, SPEC), (self.layers[0].spec, LAYER)):
            for key, default in defaults.items():
                choices = wanted.get(key, (default,)) if key not in FREE else None
                right = choices is None or any(type(c) is type(owner[key]) and c == owner[key] for c in choices)
                need(right, f"{key} = {owner[key]!r:.60} is not what this kind of claim is about: {choices}")
        return self.layers[0]

    @lru_cache(maxsize=1 << 12)  # noqa: B019 (one model lives as long as the process)
    def embed(self, token: int, i: int, n: int) -> Vec:
        """Return the token plus position embedding."""
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
        """Return the outputs at some positions of a row of tokens."""
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
        """Return a bound on how far rounding moves the difference of two outputs, for models of one layer.

        query: the row at the read position, which sees any `keys` of the rows `seen`. scores: computed here by default.
        """
        layer, f, z = self.layers[0], self.f, []
        if not f.bits:
            return 0
        for h in range(layer.heads):
            head_scores = scores or layer.scores(h, query, seen, 0)
            columns = list(zip(*(zip(v.sizes(), v.err) for v in (layer.value(h, layer.normed(row)) for row in seen))))
            many = 1 if layer.softmax else up(keys * max(head_scores.sizes()))
            errs = drifts(head_scores, columns, keys, layer.softmax, f)
            z += [(0, max(size for size, _ in column) * many, err) for column, err in zip(columns, errs)]
        out = self.read(layer.after(query, Vec(*map(tuple, zip(*z)))))
        return 4 * max(out.err)  # two outputs, doubled for an evaluation that reads out before it averages


def spec_differs(given: dict[str, Any], defaults: dict[str, Any]) -> bool:
    """Return whether a field that only modern decoders use differs from its default."""
    return any(given[name] != defaults[name] for name in TODAY if name in defaults)
