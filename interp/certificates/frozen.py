"""Make a fresh model of a model's spec, parameters and task; certificates are about this fresh model.

A given model may have been changed, for example by replaced modules. The fresh model is made again from the spec, the
parameters and the task's tables, so a certificate holds for it whatever was done to the given one. To show that both
are the same, they are run on the same few hundred inputs, the probes, and must agree there in outputs and labels (on
long inputs, where a proof asks for few whole forward passes, in the answers).
"""

from collections.abc import Iterable, Iterator
from itertools import islice

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_modules

from interp.architecture.task_model import TaskModel, standing_hooks
from interp.certificates.probes import row_text
from interp.errors import InterpError, UnsupportedError
from interp.tasks import Batch, Task
from interp.tasks.registry import remade

PROBED = 256
"""Number of inputs on which both models are compared if a proof has no probes."""
STEPS = 64.0
"""Largest difference between two runs of one model, in units in the last place of the largest output."""
GLOBAL_HOOKS = ("_global_forward_hooks", "_global_forward_pre_hooks")
FORMATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


def frozen(model: TaskModel) -> TaskModel:
    """Make a fresh model with the same spec, parameters and task. Raises UnsupportedError if none can be made."""
    name = f"{model.spec.id} cannot be certified"
    if (reason := hooks_on(model)) is not None:
        raise UnsupportedError(f"{name}: {reason}")
    if model.summary.get("outputs_left_out"):  # in checkpoints of earlier versions
        raise UnsupportedError(f"{name}: some of the original's outputs were left out of it; load the original again")
    kinds = {parameter.dtype for parameter in model.parameters()}
    if len(kinds) > 1 or not kinds <= {*FORMATS}:
        raise UnsupportedError(f"{name}: its parameters are stored as {', '.join(sorted(map(str, kinds)))}")
    try:
        task = remade(model.task, model.spec.task)
        tensors = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
        device = next(model.parameters()).device
        fresh = TaskModel(model.spec, task, tensors, seed=model.seed, dtype=kinds.pop(), device=device)
    except InterpError as error:
        raise UnsupportedError(f"{name}: {error}") from None
    fresh.length_limit = model.length_limit
    return fresh


def hooks_on(model: nn.Module) -> str | None:
    """Return a sentence about the first hook of a model, or on a global hook, or None."""
    if any(getattr(torch_modules, name, None) for name in GLOBAL_HOOKS):
        return "a global forward hook of torch is registered, and a certificate is about the model without hooks"
    if names := standing_hooks(model):
        return f"there is a hook at {names[0]}, and a certificate covers only models without hooks"
    return None


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
        except UnsupportedError:  # the task has no sampler
            continue


@torch.no_grad()
def compare_with_fresh(
    model: TaskModel, fresh: TaskModel, batches: Iterable[Batch], answered: Iterable[Batch] = ()
) -> int:
    """Run both models on some inputs; return the number of equal outputs.

    answered: more inputs, on which only the answers of predict() are compared. Raises UnsupportedError if an output or
    answer differs, or a label by the two models' tasks.
    """
    agreed = 0
    for batch in batches:
        for start in range(0, len(batch), PROBED):
            agreed += _compare(model, fresh, batch[slice(start, start + PROBED)])
    for batch in answered:
        said, right = (one.predict(batch.tokens).long() for one in (model, fresh))
        _refuse(model, fresh, batch, first_apart(said, right, 0.0))
        _compare_labels(model, fresh, batch)
        agreed += len(batch)
    return agreed


def _compare(model: TaskModel, fresh: TaskModel, batch: Batch) -> int:
    tokens = batch.tokens.to(fresh.cfg.device)
    mask = batch.attention_mask if bool((~batch.attention_mask).any()) and fresh.task.pad_id is None else None
    wanted, found = fresh(tokens, attention_mask=mask), model(tokens, attention_mask=mask)
    scale = float(wanted.nan_to_num(0, 0, 0).abs().max())
    near = STEPS * torch.finfo(wanted.dtype).eps * scale + torch.finfo(wanted.dtype).tiny
    _refuse(model, fresh, batch, first_apart(found, wanted, near))
    _compare_labels(model, fresh, batch)
    return int(wanted.shape[:-1].numel())


def _refuse(model: TaskModel, fresh: TaskModel, batch: Batch, row: int | None) -> None:
    """Raise UnsupportedError if there is a row on which the two models differ."""
    if row is not None:
        raise UnsupportedError(
            f"{model.spec.id} cannot be certified: on {row_text(fresh.task, batch, row)} its outputs are not those "
            "that its spec and its parameters give in a fresh model"
        )


def _compare_labels(model: TaskModel, fresh: TaskModel, batch: Batch) -> None:
    if fresh.task.labels_tokens:
        said, right = (task.batch(batch.tokens).labels.long() for task in (model.task, fresh.task))
        if (row := first_apart(said, right, 0.0)) is not None:
            raise UnsupportedError(
                f"{model.spec.id} cannot be certified: its task labels {row_text(fresh.task, batch, row)} differently "
                "from the task that its class makes from its parameters and tables"
            )


def first_apart(found: Tensor, wanted: Tensor, near: float) -> int | None:
    """Return the first row in which values differ by more than `near`, or only one is finite; None if there is none."""
    if found.shape != wanted.shape:
        return 0
    finite = wanted.isfinite()
    apart = (found.isfinite() != finite) | (finite & ~((found - wanted).abs() <= near))
    rows = apart.flatten(1).any(1) if apart.ndim > 1 else apart
    return int(rows.int().argmax()) if bool(rows.any()) else None
