"""Attacks by models that nobody built on purpose: what is certified of a random one, and what its evidence says.

The truth is every input of a small domain, run in float64. Every field that a method takes into account is drawn, so
that evidence that is written and then refused shows, too: method and checker must know the same models.
"""

import json
import random
import re
from pathlib import Path
from typing import Any

import torch
from attack_models import drawn
from bare_checker import check

import interp


def any_counter(rng: random.Random) -> interp.ModelSpec:
    """A histogram model with every field of its scores."""
    T, L, d, full = rng.choice([1, 2, 3]), rng.choice([1, 1, 2, 3]), rng.choice([1, 2, 3]), rng.random() < 0.3
    fixed = rng.random() < 0.3
    bos = not fixed and rng.random() < 0.4
    layer: dict[str, Any] = {"d_head": d, "value_output": "identity", "normalizer": rng.choice(["softmax", "none"]),
                             "scale": rng.choice([0.5, 1.0, "inv_sqrt_d_head"])}  # fmt: skip
    if fixed:
        layer["mixing"] = "linear"
    else:
        layer |= {"query_key": "full"} if full else {}
        layer["bias"] = {name: True for name in ("q" if full else "qk") if rng.random() < 0.4}
    task = {"name": "histogram", "parameters": {"T": T, "L": L, "bos": bos, "zero_class": rng.random() < 0.5}}
    spec = {"task": task, "d_model": d, "layers": [layer], "direction": "bidirectional", "readout": "relu_mlp",
            "readout_width": rng.choice([1, 3]), "dtype": "float64"}  # fmt: skip
    return interp.ModelSpec.from_dict(spec | ({"max_length": L} if fixed else {}))


def any_maximum(rng: random.Random) -> interp.ModelSpec:
    """A max-of-k model with every field of one head, also of two heads, layers and directions."""
    K, v, d = rng.choice([1, 2, 3]), rng.choice([2, 3, 4]), rng.choice([1, 2, 3])
    norm, full = rng.choice(["none", "none", "pre", "post"]), rng.random() < 0.2
    layer: dict[str, Any] = {"n_heads": rng.choice([1, 1, 2]), "d_head": d, "norm": norm}
    layer |= {"query_key": "full"} if full else {}
    layer["bias"] = {name: True for name in ("qvo" if full else "qkvo") if rng.random() < 0.3}
    spec: dict[str, Any] = {"task": {"name": "max-of-k", "parameters": {"K": K, "v": v}}, "d_model": d,
                            "layers": [layer] * rng.choice([1, 1, 2]), "readout_at": rng.choice(["=", "last"]),
                            "direction": rng.choice(["causal", "bidirectional"]), "dtype": "float64"}  # fmt: skip
    spec |= rng.choice([{}, {"readout_bias": False}, {"readout": "relu_mlp", "readout_width": 2}])
    placed = {"positions": "learned", "max_length": K + rng.choice([0, 1, 2])}
    return interp.ModelSpec.from_dict(spec | (placed if rng.random() < 0.5 else {}))


def one(rng: random.Random, folder: Path) -> str:
    """What came of one model; an AssertionError for anything false."""
    model = drawn(rng.choice([any_counter, any_maximum])(rng), rng, rng.choice([0.3, 1.0, 3.0]))
    if model.task.name == "histogram" and model.task.parameters["L"] == 1:  # once: the last class
        with torch.no_grad():
            model.unembed.b_out[-1] += 1000 * rng.choice([0, 1])
    try:
        found = interp.certify(model, **({"samples": 0} if model.task.name == "histogram" else {}))
    except interp.InterpError as error:
        if "at most" not in str(error):  # too few positions are the only reason
            raise
        return "refused"
    margins = true_margins(model)
    wrong, near = int((margins <= 0).sum()), int((margins.abs() < 1e-12).sum())
    assert (found.n_answers or found.n_inputs) == len(margins)
    assert found.n_errors is None or abs(found.n_errors - wrong) <= near
    assert found.status != "certified" or (not wrong and found.worst_margin <= float(margins.min()) + 1e-9)
    path = folder / "proof.json"
    try:
        found.evidence(path)
    except interp.InterpError:
        return f"{found.status}, no evidence"
    said = check.check(json.loads(path.read_text()))[1]
    errs = re.search(r"but exactly (\d+)", said)
    assert "chosen inputs" in said or (int(errs[1]) if errs else 0) == wrong, said
    return f"{found.status}, evidence holds"


def true_margins(model: interp.TaskModel) -> torch.Tensor:
    """The right output less the best other one at every position that is read, of all inputs."""
    found = []
    for batch in model.task.inputs():
        with torch.no_grad():
            out = model(batch.tokens)
        classes = model.task.classes(batch)
        rows, right = out[classes >= 0], classes[classes >= 0][:, None]
        found.append(rows.gather(1, right)[:, 0] - rows.scatter(1, right, -torch.inf).amax(1))
    return torch.cat(found)
