"""Make a fresh model of a model's spec and parameters; certificates are about this fresh model.

A model object may have been changed by hooks, replaced functions or replaced modules. The fresh model has none of
these. Visible changes are refused, because the certificate would not be about the changed model. Other changes are
found by running both models on the same inputs, the probes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_modules

from interp.architecture.answers import decide
from interp.architecture.task_model import TaskModel
from interp.errors import InterpError, UnsupportedError, quoted, short
from interp.spec import TaskRef
from interp.tasks import Batch, Task
from interp.tasks.snapshot import Uncomparable, impostor, patched, same, snapshot

NO_VALUE = object()
PROBED = 256
"""Number of inputs on which both models are compared if a proof has no probes."""
STEPS = 64.0
"""Largest difference between two runs of one model, in units in the last place of the largest output."""
GLOBAL_HOOKS = ("_global_forward_hooks", "_global_forward_pre_hooks")
OWN = ("_forward_hooks", "_forward_pre_hooks")
FORMATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


def frozen(model: TaskModel) -> TaskModel:
    """Make a fresh model with the same spec, parameters and task. Raises UnsupportedError if the model was changed."""

    def refuse(reason: str | None) -> None:
        if reason is not None:
            raise UnsupportedError(f"{model.spec.id} cannot be certified: {reason}")

    refuse(hooks_on(model))
    kinds = {parameter.dtype for parameter in model.parameters()}
    if len(kinds) > 1:
        refuse(f"its parameters have several number formats: {', '.join(sorted(map(str, kinds)))}")
    for name, parameter in model.named_parameters():
        if parameter.dtype not in FORMATS or parameter.layout != torch.strided:
            refuse(f"{name} is stored as {parameter.dtype}, {parameter.layout}, in which no model runs here")
        if not bool(parameter.isfinite().all()):
            raise InterpError(f"{model.spec.id} cannot be certified: {name} has values that are not finite")
    try:
        task = snapshot(model.task)
        refuse(impostor(task) or _other_task(model, task))
        tensors = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
        device = next(model.parameters()).device
        fresh = TaskModel(model.spec, task, tensors, seed=model.seed, dtype=kinds.pop(), device=device)
    except InterpError as error:
        if str(error).startswith(model.spec.id):
            raise
        raise UnsupportedError(f"{model.spec.id} cannot be certified: {error}") from None
    fresh.length_limit, fresh.outputs_left_out = model.length_limit, model.outputs_left_out
    refuse(other_parts(model, fresh))
    return fresh


def hooks_on(model: nn.Module) -> str | None:
    """Return a sentence about the first hook of a model, or on a global hook, or None."""
    if any(getattr(torch_modules, name, None) for name in GLOBAL_HOOKS):
        return "a global forward hook of torch is registered, and a certificate is about the model without hooks"
    for name, module in model.named_modules():
        if any(getattr(module, hooks) for hooks in OWN):
            return (
                f"there is a hook at {name or 'the model itself'}, and a certificate covers only models without hooks"
            )
    return None


def _other_task(model: TaskModel, task: Task) -> str | None:
    named = model.spec.task
    changed = tuple((name, value) for name, value in named.parameters if value != task.defaults.get(name))
    if named.model_copy(update={"parameters": changed}) == task.ref:  # the spec may also state defaults
        return None
    return f"its spec names the task {_of(model.spec.task)}, but its task is {_of(task.ref)}"


def _of(ref: TaskRef) -> str:
    """Return a task's name and parameters for a message."""
    table = "" if ref.table_sha256 is None else f" with the table {ref.table_sha256[:12]}"
    seed = f" with data_seed {ref.data_seed}" if ref.data_seed else ""
    return f"{ref.name}({', '.join(f'{name}={value!r}' for name, value in ref.parameters)}){seed}{table}"


def other_parts(model: nn.Module, fresh: nn.Module) -> str | None:
    """Return a sentence about the first module of a model that differs from its spec, or None."""
    mine, theirs = dict(model.named_modules()), dict(fresh.named_modules())
    if odd := sorted(set(mine) ^ set(theirs)):
        return f"{odd[0]} is not a part of both the model and what its spec describes"
    for kind in {type(module) for module in mine.values()}:
        if (reason := patched(kind)) is not None:
            return reason
    for name, module in mine.items():
        if reason := _other_part(module, theirs[name]):
            return f"{name or 'the model itself'} is not what its spec describes: {reason}"
    return None


def _other_part(module: nn.Module, twin: nn.Module) -> str | None:
    """Return a sentence about a difference between two modules in class, functions, numbers or constants, or None."""
    if type(module) is not type(twin):
        return f"its class is {type(module).__name__}, not {type(twin).__name__}"
    for name, value in vars(module).items():
        other = vars(twin).get(name, NO_VALUE)
        if value is None or value is other or isinstance(value, nn.Module | Tensor):
            continue
        if callable(value) and (other is NO_VALUE or other is None):
            return f"its {name} was replaced by {quoted(value)}"
        if name.startswith("_") or name == "training":
            continue
        if isinstance(value, bool | int | float | str) and value != other:
            return f"{name} is {value!r}, not {other!r}"
        if callable(value) and not _alike(value, other):
            return f"its {name} was replaced by {quoted(value)}"
    constants = dict(twin.named_buffers(recurse=False))
    for name, buffer in module.named_buffers(recurse=False):
        other = constants.get(name)
        if other is None or buffer.shape != other.shape or not bool((buffer.cpu() == other.cpu()).all()):
            return f"the constant {name} was changed"
    return None


def _alike(one: Any, other: Any) -> bool:
    """Return whether two functions are the same, including partials of a copied model."""
    try:
        return same(one, other, {})
    except Uncomparable:
        return False


def probes_of(task: Task, batches: Iterable[Batch]) -> Iterator[Batch]:
    """Yield the inputs of a proof's probes, or the task's first inputs and samples if there are none."""
    found = False
    for batch in batches:
        found = True
        yield batch
    if found:
        return
    if task.n_inputs is not None:
        yield from islice(task.inputs(PROBED), 1)
    for split in task.splits:
        try:
            yield task.sample(PROBED, split, seed=0)
        except InterpError:  # the task has no sampler
            continue


@torch.no_grad()
def compare_with_fresh(model: TaskModel, fresh: TaskModel, batches: Iterable[Batch]) -> int:
    """Run both models on some inputs; return the number of equal outputs. Raises UnsupportedError if one differs."""
    agreed = 0
    for batch in batches:
        for start in range(0, len(batch), PROBED):
            agreed += _compare(model, fresh, batch[slice(start, start + PROBED)])
    return agreed


def _compare(model: TaskModel, fresh: TaskModel, batch: Batch) -> int:
    tokens = batch.tokens.to(fresh.cfg.device)
    mask = batch.attention_mask if bool((~batch.attention_mask).any()) and fresh.task.pad_id is None else None
    wanted, read = fresh(tokens, attention_mask=mask), fresh.read(tokens, mask)
    try:
        found, said = model(tokens, attention_mask=mask), model.predict(tokens, mask)
    except Exception as error:
        raise UnsupportedError(
            f"{model.spec.id} cannot be certified: run on {_text(fresh, batch, 0)} it raises "
            f"{type(error).__name__}: {short(' '.join(str(error).split()), 150)}"
        ) from error
    if not isinstance(found, Tensor) or found.shape != wanted.shape:
        raise UnsupportedError(f"{model.spec.id} cannot be certified: its outputs are not what its spec describes")
    finite = wanted.isfinite()
    scale = float(wanted[finite].abs().max()) if bool(finite.any()) else 0.0
    near = STEPS * torch.finfo(wanted.dtype).eps * scale + torch.finfo(wanted.dtype).tiny
    odd = (found.isfinite() != finite) | (finite & ~((found.to(wanted.dtype) - wanted).abs() <= near))
    if bool(odd.any()):
        row = int(odd.flatten(1).any(1).int().argmax())
        raise UnsupportedError(
            f"{model.spec.id} cannot be certified: on {_text(fresh, batch, row)} its outputs are not those that its "
            "spec and its parameters give in a fresh model"
        )
    right = fresh.task.answers(decide(read, fresh.spec), tokens)
    other = (said != right.to(said.device)) & (_gap(read, fresh.spec) > 4 * near)
    if bool(other.any()):
        row = int(other.flatten(1).any(1).int().argmax()) if other.ndim > 1 else int(other.int().argmax())
        raise UnsupportedError(
            f"{model.spec.id} cannot be certified: on {_text(fresh, batch, row)} its predict() does not "
            "follow from its outputs: something else runs"
        )
    return int(wanted.shape[:-1].numel())


def _gap(outputs: Tensor, spec: Any) -> Tensor:
    """Return the margin between the answer and the next one."""
    if spec.decision == "sigmoid":
        return outputs[..., 0].abs()
    if spec.decision == "indicator":
        return (outputs[..., 0].abs() - spec.tolerance).abs()
    first, second = outputs.topk(2, -1).values.unbind(-1) if outputs.shape[-1] > 1 else (outputs[..., 0], -torch.inf)
    return (first - second).nan_to_num(nan=0.0, posinf=torch.inf)


def _text(model: TaskModel, batch: Batch, row: int) -> str:
    return short(repr(model.task.format(batch.tokens[row, : int(batch.lengths[row])])))
