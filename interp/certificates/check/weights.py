"""The spec and weights in a file. Unknown fields of a spec are refused.

The weights can be compared with a safetensors checkpoint.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from .enclosures import Format, Matrix, Vec, fixed, layer_norm
from .reading import MAX_BYTES, NAME, Fault, fields, hexadecimal, listed, need, whole, wholes

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
"""Fields of modern decoders, which decoder.py reads; a model with non-default values must have one layer."""
KNOWN: dict[str, Sequence[Any]] = {
    "n_heads": range(1, 1025), "mixing": ("dot", "linear"), "normalizer": ("softmax", "none"),
    "query_key": ("learned", "full"), "value_output": ("learned", "full", "identity"), "norm": ("none", "pre", "post"),
    "log_length": ("none", "current", *range(1, 10**6)), "direction": ("causal", "bidirectional"),
    "positions_enter": ("residual", "attention"), "final_norm": ("none", "layer_norm", "rms_norm"),
    "readout": ("linear", "scalar", "relu_mlp"), "readout_bias": (True, False),
    "decision": ("argmax", "sigmoid", "indicator"), "norm_kind": ("layer", "rms"), "query_key_norm": (True, False),
    "tied_embeddings": (True, False), "rotary_pairs": ("halves", "adjacent"), "embedding": ("learned", "frozen"),
    "dtype": ("float64", "float32", "float16", "bfloat16"),
}  # fmt: skip


class ModelWeights:
    """A spec and its tensors. Raises Fault for unknown fields and unreadable values."""

    longest: int | None = None
    """Largest number of tokens in a row; None: unlimited."""
    causal = True

    def __init__(self, spec: Any, weights: Any, name: Any, digest: Any, f: Format) -> None:
        need(type(spec) is dict and type(spec.get("layers")) is list, "spec must be an object with layers")
        need({"task", "d_model", "layers"} <= set(spec) <= {"task", "d_model", "layers", *SPEC}, "unknown spec field")
        need(spec["layers"] and all(type(layer) is dict for layer in spec["layers"]), "a layer must be an object")
        need(all({"d_head"} <= set(layer) <= {"d_head", *LAYER} for layer in spec["layers"]), "unknown layer field")
        self.given, self.spec = spec, {**SPEC, **spec}
        self.layer_specs: list[dict[str, Any]] = [{**LAYER, **layer} for layer in spec["layers"]]
        for key, known in KNOWN.items():
            for owner in self.layer_specs if key in LAYER else [self.spec]:
                right = any(type(owner[key]) is type(value) and owner[key] == value for value in known)
                need(right, f"{key} = {owner[key]!r:.60} is not known to this checker")
        for layer in self.layer_specs:
            scale, eps, bias = layer["scale"], layer["norm_eps"], layer["bias"]
            right = 0 < scale < 1e9 if type(scale) is float else scale in ("inv_sqrt_d_head", "inv_sqrt_d_model")
            need(right, f"scale = {scale!r:.60} is not known to this checker")
            need(type(eps) is float and eps >= 0, f"norm_eps = {eps!r:.60} must be a number")
            right = type(bias) is dict and set(bias) <= set("qkvo") and all(v is True for v in bias.values())
            need(right, f"bias = {bias!r:.60} must be q, k, v or o")
        self.d, self.f = whole(spec["d_model"], 1, 4096, "d_model"), f
        need(type(self.spec["readout_at"]) is str, "readout_at must be a text")
        tolerance = self.spec["tolerance"]
        need(tolerance is None or (type(tolerance) is float and tolerance > 0), "tolerance must be a positive number")
        inert = [key for key in ("rotary_base", "rotary_dim", "rotary_pairs") if self.spec[key] != SPEC[key]]
        need(self.spec["positions"] == "rotary" or not inert, f"{inert} go with rotary positions")
        need((self.spec["readout_width"] is not None) == (self.spec["readout"] == "relu_mlp"),
             "readout_width goes with readout = relu_mlp")  # fmt: skip
        need((tolerance is not None) == (self.spec["decision"] == "indicator"), "tolerance goes with an indicator")
        task = spec["task"]
        allowed = {"name", "parameters", "data_seed", "table_sha256"}
        need(type(task) is dict and "name" in task and set(task) <= allowed, "spec.task must name a task")
        self.task, self.parameters = task["name"], task.get("parameters", {})
        plain = type(self.task) is str and NAME.fullmatch(self.task)  # a name must not read like another claim
        need(plain and type(self.parameters) is dict, "spec.task must name a task in letters and digits")
        canonical = json.dumps(spec, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
        wanted = f"{self.task}-d{self.d}-h{self.layer_specs[0]['n_heads']}-{hashlib.sha256(canonical).hexdigest()[:10]}"
        need(name == wanted, f"the model is called {name!r:.80}, and its spec {wanted}")
        self.name = wanted
        need(type(weights) is dict and len(weights) <= 1000, "weights must be an object")
        self.shapes: dict[str, list[int]] = {}
        self.values: dict[str, list[float]] = {}
        for key in weights:
            need(NAME.fullmatch(key), f"{key!r:.80} is not a tensor's name")
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
            need(right, "a weight is not a float32 number")
        self.unused = set(self.shapes)

    def tensor(self, name: str, *shape: int) -> list[int]:
        """Return the numbers of a tensor of this shape; 0 means any size."""
        stored = self.shapes.get(name, [])
        right = len(stored) == len(shape) and all(n in (0, m) for n, m in zip(shape, stored))
        need(right, f"{name} has shape {stored}, not {list(shape)}")
        self.unused.discard(name)
        return [fixed(value, name) for value in self.values[name]]

    def table(self, name: str) -> list[Vec]:
        """Return the rows of a matrix with d_model columns."""
        flat = self.tensor(name, 0, self.d)
        return [Vec.exact(flat[i : i + self.d]) for i in range(0, len(flat), self.d)]

    def matrix(self, name: str, rows: int, bias: str | None = None) -> Matrix:
        flat = self.tensor(name, rows, 0)
        width = self.shapes[name][1]
        return Matrix([flat[j::width] for j in range(width)], self.tensor(bias, width) if bias else None)

    def heads(self, name: str, heads: int, width: int, biases: Any, letter: str) -> list[Matrix]:
        """Return the matrix of each head for queries, keys or values."""
        flat, size = self.tensor(f"{name}W_{letter}", heads, self.d, width), self.d * width
        biased = letter.lower() in biases
        starts = self.tensor(f"{name}b_{letter}", heads, width) if biased else [0] * (heads * width)
        return [Matrix([flat[h * size + j : (h + 1) * size : width] for j in range(width)],
                       starts[h * width : (h + 1) * width]) for h in range(heads)]  # fmt: skip

    def norm(self, name: str, eps: Any) -> Callable[[Vec], Vec]:
        w, b = self.tensor(f"{name}.w", self.d), self.tensor(f"{name}.b", self.d)
        return partial(layer_norm, weight=w, bias=b, eps=fixed(eps, "norm_eps"), f=self.f)


def weights_sha256(shapes: dict[str, list[int]], values: dict[str, list[float]]) -> str:
    """SHA-256 over the tensors in the order of their names: name, shape, and little-endian float64 numbers."""
    digest = hashlib.sha256()
    for name in sorted(shapes):
        digest.update(f"{name} {','.join(map(str, shapes[name]))}\n".encode())
        digest.update(struct.pack(f"<{len(values[name])}d", *values[name]))
    return digest.hexdigest()


def compare_checkpoint(model: ModelWeights, path: str) -> list[str]:
    """Check that a safetensors file has the same weights, bit for bit, and the same spec; return lines that say so."""
    lines = []
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
            numbers = struct.unpack(f"<{math.prod(shape)}{code}", body)
            need([x.hex() for x in numbers] == [x.hex() for x in model.values[name]], f"{name} differs from {path}")
        others = [name for name in header if name not in model.shapes and not name.startswith(("__", "task."))]
        need(not others, f"{path} also holds {others[:3]}")
        if (record := header.get("__metadata__", {}).get("interp")) is not None:
            specs = [json.dumps({k: v for k, v in spec.items() if k not in ("dtype", "origin")}, sort_keys=True)
                     for spec in (json.loads(record)["spec"], model.given)]  # fmt: skip
            need(specs[0] == specs[1], f"{path} says of its model what the evidence does not: {specs[0]:.2000}")
        else:
            lines.append(f"{path} says nothing of its model's architecture: the spec is that of the evidence alone")
    except (OSError, KeyError, ValueError, TypeError, AttributeError, RecursionError, struct.error) as error:
        raise Fault(f"{path} does not hold these weights: {error!r:.100}") from None
    return [*lines, f"checkpoint {path} of SHA-256 {hashlib.sha256(data).hexdigest()} holds these weights"]
