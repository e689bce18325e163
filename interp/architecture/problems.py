"""Checks of specs, dtypes and devices before a model is built. This module works without transformer_lens."""

import math

import torch

from interp.architecture.formulas import position_formula, registered_positions
from interp.architecture.parameters import outputs, parameter_shapes
from interp.budget import need
from interp.errors import InterpError, one_of
from interp.spec import PLAIN_POSITIONS, ModelSpec
from interp.tasks import Task


def model_problems(spec: ModelSpec, task: Task) -> list[str]:
    """List all problems of a spec for its task, one sentence each, starting with spec.problems()."""
    known = (*PLAIN_POSITIONS, *registered_positions())
    if spec.positions not in known:  # spec.problems() would treat the name as a formula
        found = [one_of("positions", spec.positions, known)]
    else:
        found = spec.problems() + _size_problems(spec, task)
        found = found or position_problems(spec)  # a formula is evaluated, so sizes come first
    if spec.tied_embeddings and outputs(spec, task) != task.d_vocab:
        found.append(
            f"tied_embeddings needs one output per token ({task.d_vocab}), but there are {outputs(spec, task)} outputs"
        )
    if (task.decision == "set") != (spec.decision == "set"):
        wanted = "set" if task.decision == "set" else "argmax, sigmoid or indicator"
        found.append(f"decision = {spec.decision!r} does not fit task {task.name}: expected {wanted}")
    places = ("all", "first", "last", *task.vocabulary)
    if spec.readout_at not in places:
        found.append(one_of("readout_at", spec.readout_at, places))
    return found


def _size_problems(spec: ModelSpec, task: Task) -> list[str]:
    """Return one sentence if the memory for parameters, layers or batches exceeds the budget."""
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
    """Return one sentence if the spec's positions are unknown, or if their codes have more than d_model components."""
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
    """Convert a dtype or its name to a floating-point torch dtype."""
    found = dtype if isinstance(dtype, torch.dtype) else getattr(torch, str(dtype), None)
    if found not in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        raise InterpError(one_of("dtype", dtype, ("float64", "float32", "float16", "bfloat16")))
    return found


def as_device(device: torch.device | str) -> torch.device:
    """Convert a device or its name to a torch device. Raises InterpError if it is not available."""
    try:
        found = torch.device(device)
    except (RuntimeError, TypeError):
        raise InterpError(one_of("device", device, ("cpu", "cuda"))) from None
    if found.type not in ("cpu", "cuda"):
        raise InterpError(one_of("device", device, ("cpu", "cuda")))
    if found.type == "cuda" and not torch.cuda.is_available():
        raise InterpError(f"device {str(device)!r}: torch finds no CUDA device; use 'cpu'")
    return found
