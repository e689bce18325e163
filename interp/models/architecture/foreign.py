"""Read a user's HookedTransformer state dict with a spec, as strictly as interp's own checkpoints.

A state dict does not contain the attention direction, the scale of the scores or the meaning of tokens, so it needs a
ModelSpec in a TOML or JSON file next to it. The spec fixes some parameters: without learned values, W_V is the
identity, and missing biases are zero. If the file contains one of them, it must equal that constant. A position table
of zeros counts as no positions.
"""

from pathlib import Path

import torch
from torch import Tensor

from interp.errors import CheckpointError, InterpError, SpecError
from interp.models.architecture.checkpoint import Checkpoint
from interp.models.architecture.header import as_checkpoint_error, regular_file
from interp.models.architecture.parameters import check_parameters, parameter_shapes
from interp.models.architecture.state_dicts import read_tensors
from interp.models.spec import ModelSpec, read_json
from interp.tasks import make_task

BUFFERS = (".mask", ".IGNORE")
"""Endings of the names of TransformerLens's constant buffers."""


def read_state_dict(path: str | Path, spec: ModelSpec | str | Path | None = None) -> Checkpoint:
    """Read a .pt or .pth state dict (torch's weights_only loader, nothing executed) or plain safetensors.

    spec: the ModelSpec or its path (default: <stem>.toml or <stem>.json next to the file). The seed of the result is 0,
    because the file does not contain it. Raises CheckpointError for anything that does not match the spec exactly.
    """
    from interp.models.architecture.task_model import TaskModel  # imports transformer_lens, which takes seconds

    path = regular_file(path)
    spec = _spec_beside(path, spec)
    saved = read_tensors(path)
    with as_checkpoint_error(path):
        task = make_task(spec.check().task)
        shapes = parameter_shapes(spec, task)
        constants = dict(TaskModel(spec, task).named_buffers())
        tensors = {}
        for name, tensor in saved.items():
            if name in shapes:
                tensors[name] = tensor
            elif name == "pos_embed.W_pos" and spec.positions in ("none", "learned"):
                _check_constant(name, tensor, torch.zeros(tensor.shape))
            elif name in constants:
                _check_constant(name, tensor, constants[name])
            elif not name.endswith(BUFFERS):
                tensors[name] = tensor  # check_parameters refuses it by name
        check_parameters(spec, task, tensors)
        for name, tensor in tensors.items():
            if tensor.dtype != getattr(torch, spec.dtype):
                raise InterpError(f"{name} has dtype {tensor.dtype}; {spec.id} needs {spec.dtype}")
    return Checkpoint(spec, 0, tensors, task)


def _spec_beside(path: Path, spec: ModelSpec | str | Path | None) -> ModelSpec:
    if isinstance(spec, ModelSpec):
        return spec
    if spec is not None and not isinstance(spec, (str, Path)):
        raise InterpError(f"spec must be a ModelSpec or the path of one, not {type(spec).__name__}")
    choices = [path.with_suffix(".toml"), path.with_suffix(".json")] if spec is None else [Path(spec)]
    for choice in choices:
        if choice.is_file():
            if choice.suffix == ".json" and {"n_layers", "d_head"} <= {*read_json(choice)}:
                raise InterpError(
                    f"{choice.name} is a TransformerLens config, which does not say what the task is: "
                    f"interp.load({path.name!r}, task=..., config={choice.name!r})"
                )
            return _read_spec(choice)
    raise CheckpointError(
        f"{path} needs a spec, but none of {', '.join(c.name for c in choices)} exists next to it; for a model of your "
        "own without a spec, give its task: task=... in Python, or --task NAME"
    )


def _read_spec(path: Path) -> ModelSpec:
    if path.suffix != ".json":
        return ModelSpec.from_toml(path)
    try:
        return ModelSpec.from_dict(read_json(path))
    except SpecError as error:
        raise SpecError(error.problems, str(path)) from None


def _check_constant(name: str, tensor: Tensor, constant: Tensor) -> None:
    if not tensor.is_floating_point() or tensor.shape != constant.shape or not tensor.double().equal(constant.double()):
        value = "the identity" if constant.any() else "zero"
        raise InterpError(f"{name} must be {value} of shape {tuple(constant.shape)}: it is a constant in the spec")
