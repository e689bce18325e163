"""The same model written otherwise: what it computes is equal, so what is said of it must be, too.

Each change returns a model and the new name of each part. In float64, so that what is equal stays equal to 1e-12, but
for `in_double` itself.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

import interp
from interp.models.spec import ModelSpec, Training
from interp.programs.explanations import Explanation

READ, WRITE = ("W_Q", "W_K", "W_V", "W_in", "W_U"), ("W_E", "W_pos", "W_O", "W_out", "b_out", "b_O")
DEAD = 8


@dataclass(frozen=True)
class Changed:
    """A model that computes the same, and what its parts were called before."""

    model: interp.TaskModel
    names: dict[str, str]


def again(model: interp.TaskModel, tensors: dict[str, Tensor], spec: ModelSpec | None = None) -> interp.TaskModel:
    """A model with other weights, and perhaps of another shape."""
    new = interp.build((spec or model.spec).replace(dtype="float64", origin=Training()))
    missing = new.load_state_dict({name: tensor.double() for name, tensor in tensors.items()}, strict=False)
    assert not missing.unexpected_keys
    return new.eval()


def weights(model: interp.TaskModel) -> dict[str, Tensor]:
    return {name: one.detach().clone().double() for name, one in model.named_parameters()}


def in_double(model: interp.TaskModel) -> Changed:
    return Changed(again(model, weights(model)), {})


def permuted(model: interp.TaskModel, seed: int = 0) -> Changed:
    """Heads of a layer change places, and so do the neurons of an MLP."""
    draw, names, tensors = torch.Generator().manual_seed(seed), {}, weights(model)
    for layer in range(len(model.spec.layers)):
        begin = f"blocks.{layer}"
        n = model.blocks[layer].attn.W_O.shape[0] if hasattr(model.blocks[layer].attn, "W_O") else 1
        order = torch.randperm(n, generator=draw)
        names |= {f"head {layer}.{new}": f"head {layer}.{old}" for new, old in enumerate(order.tolist())}
        for name in tensors:
            kind = name.removeprefix(f"{begin}.attn.")
            if name.startswith(f"{begin}.attn.") and kind != "b_O" and tensors[name].shape[0] == n:
                tensors[name] = tensors[name][order]
        if f"{begin}.mlp.W_in" in tensors:
            mlp = torch.randperm(tensors[f"{begin}.mlp.b_in"].shape[0], generator=draw)
            for name in {f"{begin}.mlp.W_in", f"{begin}.mlp.W_gate"} & {*tensors}:
                tensors[name] = tensors[name][:, mlp]
            tensors[f"{begin}.mlp.b_in"] = tensors[f"{begin}.mlp.b_in"][mlp]
            tensors[f"{begin}.mlp.W_out"] = tensors[f"{begin}.mlp.W_out"][mlp]
    return Changed(again(model, tensors), names)


def rotated(model: interp.TaskModel, seed: int = 0) -> Changed:
    """All that reads or writes the stream is turned. Only for models without norms, and with a linear readout."""
    d = model.spec.d_model
    draw = torch.randn(d, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    turn = torch.linalg.qr(draw).Q
    tensors = weights(model)
    for name, one in tensors.items():
        kind = name.rsplit(".", 1)[-1]
        tensors[name] = turn.T @ one if kind in READ else one @ turn if kind in WRITE else one
    return Changed(again(model, tensors), {})


def with_dead_parts(model: interp.TaskModel, seed: int = 0) -> Changed:
    """A head more in each layer, and DEAD neurons, which read the stream and write nothing that is read."""
    draw, old, new = torch.Generator().manual_seed(seed), weights(model), {}
    layers = []
    for layer in model.spec.layers:
        more = {"n_heads": layer.n_heads + 1}
        if layer.mlp is not None:
            more["mlp"] = layer.mlp.model_copy(update={"d_mlp": layer.mlp.d_mlp + DEAD})
        layers.append(layer.model_copy(update=more))
    found = interp.build(model.spec.replace(layers=tuple(layers), dtype="float64", origin=Training()))
    for name, blank in found.named_parameters():
        kind = name.rsplit(".", 1)[-1]
        tensor = torch.randn(blank.shape, generator=draw, dtype=torch.float64)
        tensor = torch.zeros_like(tensor) if kind in ("W_O", "W_out") and tensor.shape != old[name].shape else tensor
        tensor[tuple(slice(0, n) for n in old[name].shape)] = old[name]
        new[name] = tensor
    return Changed(again(found, new, found.spec), {})


CHANGES: dict[str, Callable[[interp.TaskModel], Changed]] = {
    "permuted": permuted, "rotated": rotated, "dead": with_dead_parts, "double": in_double,
}  # fmt: skip


def changes(model: interp.TaskModel) -> dict[str, Callable[[interp.TaskModel], Changed]]:
    """The changes that leave what a model of this shape computes as it is."""
    layers, spec = model.spec.layers, model.spec
    plain = all(layer.mixing == "dot" and layer.value_output == "learned" for layer in layers)
    turns = plain and spec.readout != "relu_mlp" and all(layer.norm == "none" for layer in layers)
    turns = turns and spec.final_norm == "none" and spec.positions in ("none", "learned")
    plain = plain and spec.positions != "alibi"  # a head's slope follows from its number, and from how many there are
    kept = {"permuted": plain, "rotated": turns, "dead": plain, "double": True}
    return {name: change for name, change in CHANGES.items() if kept[name]}


def form(found: Explanation, names: dict[str, str] | None = None) -> dict[str, object]:
    """What an explanation says, in an order and with names of its own: parts with what they read, and the answer.

    names: what parts were called before they were moved.
    """
    names = names or {}

    def known(name: str) -> str:
        """The name of a part, or of a variable that is called by its part, such as its level or a class of tokens."""
        return re.sub(r"head \d+\.\d+", lambda part: names.get(part[0], part[0]), name)

    said: dict[str, object] = {"level": found.level, "constants": found.constants if found.found else None}
    said |= {known(one.part): one.status for one in found.parts if one.status not in ("not used", "minor")}
    program = found.program
    if program is not None:
        for step in (*program.steps, program.answer):
            said[f"step {known(step.name)}"] = (type(step).__name__, sorted(map(known, step.of)), step.constants)
    return said
