"""Spec and weights as a function of tokens. Every field of a spec is known or refused."""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

from .attention import drifts
from .decoder import Decoder
from .enclosures import Format, Matrix, Vec, fixed, layer_norm, plus, relu, up
from .layer import Layer
from .positions import CODES
from .reading import NAME, fields, hexadecimal, listed, need, whole, wholes

LAYER = {
    "n_heads": 1, "mixing": "dot", "normalizer": "softmax", "scale": "inv_sqrt_d_head", "log_length": "none",
    "query_key": "learned", "value_output": "learned", "bias": {}, "mlp": None, "norm": "none", "norm_eps": 1e-5,
    "norm_kind": "layer", "key_value_heads": None, "query_key_norm": False,
}  # fmt: skip
SPEC = {
    "direction": "causal", "embedding": "learned", "positions": "none", "positions_enter": "residual",
    "max_length": None, "final_norm": "none", "readout": "linear", "readout_width": None, "readout_bias": True,
    "readout_at": "all", "n_out": None, "decision": "argmax", "tolerance": None, "dtype": "float32", "origin": None,
    "tied_embeddings": False, "rotary_base": 10_000.0, "rotary_dim": None, "rotary_pairs": "halves",
}  # fmt: skip
FREE = ("origin", "dtype", "embedding", "n_out")
"""Fields that do not change what the weights compute (n_out is the readout's own shape)."""
TODAY = (
    "norm_kind",
    "key_value_heads",
    "query_key_norm",
    "tied_embeddings",
    "rotary_base",
    "rotary_dim",
    "rotary_pairs",
)
"""Fields of today's decoders, which decoder.py reads: a model in which one is not its default has no other layers."""
KNOWN: dict[str, Sequence[Any]] = {
    "n_heads": range(1, 1025), "mixing": ("dot", "linear"), "normalizer": ("softmax", "none"),
    "query_key": ("learned", "full"), "value_output": ("learned", "full", "identity"), "norm": ("none", "pre", "post"),
    "log_length": ("none", "current", *range(1, 10**6)), "direction": ("causal", "bidirectional"),
    "positions_enter": ("residual", "attention"), "final_norm": ("none", "layer_norm", "rms_norm"),
    "readout": ("linear", "scalar", "relu_mlp"), "readout_bias": (True, False),
    "decision": ("argmax", "sigmoid", "indicator"),
}  # fmt: skip


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
        weights_digest = weights_sha256(self.shapes, self.values)
        need(digest == weights_digest, f"weights_sha256 is {digest!r:.80}, that of the weights is {weights_digest}")
        self.sha256 = hashlib.sha256(canonical + b"\n" + weights_digest.encode()).hexdigest()
        for values in self.values.values() if f.bits else ():
            need(all(abs(v) < 2.0**f.weight for v in values), "a weight is so large that something might overflow")
            right = f.bits == 53 or all(struct.unpack("<f", struct.pack("<f", v))[0] == v for v in values)
            need(right, "a weight is no float32 number")
        self.unused = set(self.shapes)
        self.build(layers)

    def build(self, layers: list[dict[str, Any]]) -> None:
        spec, d = self.spec, self.d
        self.decoder: Decoder | None = None
        self.layers: list[Layer] = []
        if self.is_decoder(layers):
            need(len(layers) == 1, "norms, positions or neurons of this kind are checked in models of one layer alone")
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

    def is_decoder(self, layers: list[dict[str, Any]]) -> bool:
        """Has it parts that Layer does not know?"""
        spec, modern = self.spec, spec_differs(self.spec, SPEC)
        parts = [layer["mlp"] for layer in layers if type(layer["mlp"]) is dict]
        modern |= any(spec_differs(layer, LAYER) for layer in layers)
        modern |= any(part.get("activation", "relu") != "relu" or {"gated", "bias"} & set(part) for part in parts)
        return bool(modern or spec["positions"] == "rotary" or spec["final_norm"] == "rms_norm")

    def as_decoder(self) -> Decoder:
        """The model of one layer as a decoder, also where it needs none of a decoder's parts."""
        if self.decoder is None:
            need(len(self.layers) == 1, "this kind of claim is about one layer")
            self.decoder = Decoder(self, self.layers[0].spec)
        return self.decoder

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


def spec_differs(given: dict[str, Any], defaults: dict[str, Any]) -> bool:
    """Is a field of today's decoders not its default?"""
    return any(given[name] != defaults[name] for name in TODAY if name in defaults)


def weights_sha256(shapes: dict[str, list[int]], values: dict[str, list[float]]) -> str:
    """Over the tensors in the order of their names: name, shape, and the numbers as little-endian float64."""
    digest = hashlib.sha256()
    for name in sorted(shapes):
        digest.update(f"{name} {','.join(map(str, shapes[name]))}\n".encode())
        digest.update(struct.pack(f"<{len(values[name])}d", *values[name]))
    return digest.hexdigest()
