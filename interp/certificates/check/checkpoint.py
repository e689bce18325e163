"""Compare the evidence with a safetensors checkpoint."""

from __future__ import annotations

import hashlib
import json
import math
import struct

from .model import Model
from .reading import MAX_BYTES, Fault, need


def compare_checkpoint(model: Model, path: str) -> list[str]:
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
            found = struct.unpack(f"<{math.prod(shape)}{code}", body)
            need([x.hex() for x in found] == [x.hex() for x in model.values[name]], f"{name} differs from {path}")
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
