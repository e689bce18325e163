"""Models from readings: a HookedTransformer if a config can express it, otherwise a task model."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from interp._lens import HookedTransformer
from interp.architecture.stock import read_config, stock_model
from interp.architecture.task_model import TaskModel
from interp.errors import CheckpointError, InterpError
from interp.measures.subject import output_ids_of, token_ids_of
from interp.readers import Reading, read
from interp.spec import ModelSpec
from interp.tasks import Task, make_task

TOLERANCE = 1e-5
"""Largest allowed difference between a converted model's logits and the original's, relative to the largest logit."""


@dataclass(frozen=True)
class Converted:
    """A converted model.

    tokens: the model's id of each token of the task, or None if the ids are equal. deviation: the largest difference
    between its logits and the original's on random inputs, relative to the largest logit; None if the original could
    not be run.
    """

    model: HookedTransformer
    reading: Reading
    tokens: Mapping[str, int] | None
    deviation: float | None


def convert(
    source: Any,
    given: Mapping[str, Any] | None,
    task: Task | str,
    tokens: Mapping[str, int] | None = None,
    outputs: Mapping[str, int] | None = None,
) -> Converted:
    """Convert the model in a file, folder, state dict or module, and compare it with the original library if installed.

    Raises CheckpointError if the two differ, and all errors of `read`.
    """
    known = make_task(task) if isinstance(task, str) else task
    if not isinstance(known, Task):
        raise InterpError(f"expected a task or its name, got {task!r}")
    reading = read(source, given)
    tokens = tokens if tokens is not None else tokens_of(reading, known)
    if reading.blocks is not None:
        return Converted(task_model(reading, known, tokens, outputs), reading, tokens, None)
    model = stock_model(read_config(reading.fields), reading.tensors)
    return Converted(model, reading, tokens, check_original(model, reading))


def tokens_of(reading: Reading, task: Task) -> dict[str, int] | None:
    """Return the ids of the task's tokens in the file's vocabulary, or None unless it contains all of them."""
    words = reading.vocabulary
    if words is None or any(token not in words for token in task.vocabulary):
        return None
    return {token: words[token] for token in task.vocabulary}


def check_original(model: HookedTransformer, reading: Reading) -> float | None:
    """Return the deviation from the original, or None if it cannot be run. Raises CheckpointError above TOLERANCE."""
    if reading.original is None:
        return None
    try:
        return deviation(model, reading.original)
    except CheckpointError:
        raise
    except InterpError as error:
        warnings.warn(f"the converted model was not compared with the original: {error}", stacklevel=4)
        return None


@torch.no_grad()
def deviation(model: HookedTransformer, original: Callable[[Tensor], Tensor], rows: int = 4) -> float:
    """Return the largest difference of logits on random inputs, relative to the largest logit (at least 1).

    Raises CheckpointError, with the input, the position and both values, if it is above TOLERANCE.
    """
    length = min(12, model.cfg.n_ctx)
    tokens = torch.randint(model.cfg.d_vocab, (rows, length), generator=torch.Generator().manual_seed(0))
    ours, theirs = model(tokens).detach().double().cpu(), original(tokens).detach().double().cpu()
    if ours.shape != theirs.shape:
        raise CheckpointError(
            f"the original's logits have shape {tuple(theirs.shape)}, the converted model's {tuple(ours.shape)}"
        )
    worst = float((ours - theirs).abs().max() / theirs.abs().max().clamp_min(1))
    limit = TOLERANCE if model.cfg.dtype != torch.float64 else 1e-9
    if not worst <= limit:
        apart = (ours - theirs).abs().nan_to_num(torch.inf)
        at = tuple(int(i) for i in torch.unravel_index(apart.argmax(), apart.shape))
        raise CheckpointError(
            f"the converted model differs from the original: on tokens {tokens[at[0]].tolist()} at position {at[1]}, "
            f"output {at[2]} is {float(ours[at]):.6g}; the original's is {float(theirs[at]):.6g}"
        )
    return worst


def task_model(
    reading: Reading, task: Task, tokens: Mapping[str, int] | None, outputs: Mapping[str, int] | None
) -> TaskModel:
    """Build the task model of a reading with blocks, with embedding and readout in the task's order."""
    blocks, tensors = reading.blocks, dict(reading.tensors)
    assert blocks is not None
    ids = token_ids_of(len(tensors["embed.W_E"]), task, tokens)
    columns = output_ids_of(tensors["unembed.W_U"].shape[1], len(tensors["embed.W_E"]), task, ids, outputs)
    if ids is not None:
        tensors["embed.W_E"] = tensors["embed.W_E"][ids]
    if columns is not None:
        tensors["unembed.W_U"] = tensors["unembed.W_U"][:, columns]
        tensors["unembed.b_U"] = tensors["unembed.b_U"][columns]
    n_out = tensors["unembed.W_U"].shape[1]
    decision = task.decision or ("sigmoid" if n_out == 1 else "argmax")
    spec = ModelSpec(
        task=task.ref,
        d_model=blocks.d_model,
        direction="causal" if blocks.causal else "bidirectional",
        layers=blocks.layers,
        positions="none" if blocks.max_length is None else "learned",
        max_length=blocks.max_length,
        final_norm="layer_norm" if blocks.final_norm else "none",
        readout="scalar" if n_out == 1 and task.decision is None else "linear",
        readout_bias=True,
        decision=decision,
        readout_at=task.readout,
        n_out=None if n_out in (1, task.n_out) else n_out,
        dtype="float64" if tensors["embed.W_E"].dtype == torch.float64 else "float32",
    )
    made = TaskModel(spec, task, tensors)
    made.ids_before = (ids, columns)
    made.outputs_left_out = reading.tensors["unembed.W_U"].shape[1] - n_out
    return made
