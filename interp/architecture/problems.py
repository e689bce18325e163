"""What keeps a spec from being built for its task. Nothing here imports transformer_lens, so that engines can ask."""

from __future__ import annotations

import math

import torch

from interp.architecture.formulas import position_formula, registered_positions
from interp.architecture.parameters import outputs, parameter_shapes
from interp.budget import need
from interp.errors import InterpError, one_of
from interp.spec import PLAIN_POSITIONS, ModelSpec
from interp.tasks import Task


def model_problems(spec: ModelSpec, task: Task) -> list[str]:
    """Everything that keeps this spec from being built for this task; spec.problems() first."""
    known = (*PLAIN_POSITIONS, *registered_positions())
    if spec.positions not in known:  # what else is said of positions would be about a formula
        found = [one_of("positions", spec.positions, known)]
    else:
        found = spec.problems() + _size_problems(spec, task)
        found = found or position_problems(spec)  # a formula is evaluated, so sizes come first
    if spec.tied_embeddings and outputs(spec, task) != task.d_vocab:
        found.append(
            f"tied_embeddings needs an output for each of the {task.d_vocab} tokens; there are {outputs(spec, task)}"
        )
    if (task.decision == "set") != (spec.decision == "set"):
        wanted = "set" if task.decision == "set" else "argmax, sigmoid or indicator"
        found.append(f"decision = {spec.decision!r} does not fit task {task.name}: expected {wanted}")
    places = ("all", "first", "last", *task.vocabulary)
    if spec.readout_at not in places:
        found.append(one_of("readout_at", spec.readout_at, places))
    return found


def _size_problems(spec: ModelSpec, task: Task) -> list[str]:
    """One sentence if the parameters, or what a layer is at least in memory, pass the budget."""
    if spec.problems():
        return []
    try:
        need(f"a model of {len(spec.layers):,} layers", 20_000.0 * len(spec.layers))
        for what, rows in (("a batch", spec.training.batch_size), ("an epoch", spec.training.samples_per_epoch or 0)):
            need(f"{what} of {rows:,} inputs", 128.0 * rows)
        numbers = sum(math.prod(shape) for shape in parameter_shapes(spec, task).values())
        whole = sum(layer.n_heads * spec.d_model**2 for layer in spec.layers if layer.value_output != "learned")
        need(f"a model of {numbers:,} parameters", 8.0 * (numbers + whole))
    except InterpError as error:
        return [str(error)]
    return []


def position_problems(spec: ModelSpec) -> list[str]:
    """One sentence if the spec's positions are unknown, or a formula has no room in d_model."""
    known = (*PLAIN_POSITIONS, *registered_positions())
    if spec.positions not in known:
        return [one_of("positions", spec.positions, known)]
    if spec.positions in PLAIN_POSITIONS:
        return []
    try:
        position_formula(spec.positions)(torch.zeros(1, 1), torch.ones(1, 1), spec.d_model)
    except InterpError as error:
        return [str(error)]
    return []


def as_dtype(dtype: torch.dtype | str) -> torch.dtype:
    """A floating torch dtype from itself or its name."""
    found = dtype if isinstance(dtype, torch.dtype) else getattr(torch, str(dtype), None)
    if found not in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        raise InterpError(one_of("dtype", dtype, ("float64", "float32", "float16", "bfloat16")))
    return found


def as_device(device: torch.device | str) -> torch.device:
    """A torch device from itself or its name. Raises InterpError if this machine or this torch has none such."""
    try:
        found = torch.device(device)
    except (RuntimeError, TypeError):
        raise InterpError(one_of("device", device, ("cpu", "cuda"))) from None
    if found.type not in ("cpu", "cuda"):
        raise InterpError(one_of("device", device, ("cpu", "cuda")))
    if found.type == "cuda" and not torch.cuda.is_available():
        raise InterpError(f"device {str(device)!r}: torch sees no CUDA device here; use 'cpu'")
    return found
