"""Models from readings: a HookedTransformer if a config can express it, otherwise a task model."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from interp._lens import HookedTransformer
from interp.architecture.comparison import Comparison, compare, runs
from interp.architecture.stock import read_config, stock_model, with_others
from interp.architecture.task_model import TaskModel
from interp.errors import CheckpointError, InterpError
from interp.measures.subject import output_ids_of, token_ids_of
from interp.readers import Reading, read
from interp.spec import ModelSpec
from interp.tasks import Task, make_task


@dataclass(frozen=True)
class Converted:
    """A converted model.

    tokens: the model's id of each token of the task, or None if the ids are equal. compared: its logits and the
    original's on random inputs; None if the original could not be run.
    """

    model: HookedTransformer
    reading: Reading
    tokens: Mapping[str, int] | None
    compared: Comparison | None


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
    if reading.notes and reading.original is None:
        warnings.warn(
            f"{' '.join(reading.notes)} interp.check_conversion compares the model with your own forward pass",
            stacklevel=4,
        )
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


def check_original(model: HookedTransformer, reading: Reading) -> Comparison | None:
    """Compare a model with its original; None if that cannot be run. Raises CheckpointError if their logits differ."""
    if reading.original is None:
        return None
    try:
        return compared(model, reading.original())
    except CheckpointError:
        raise
    except InterpError as error:
        warnings.warn(f"the converted model was not compared with the original: {error}", stacklevel=4)
        return None


def compared(model: HookedTransformer, original: Any, rows: int = 4) -> Comparison:
    """Compare a model's logits with its original's, a module or a function of token ids, on random inputs.

    Raises CheckpointError, with the input, the position and both values, if their logits differ.
    """
    length = min(12, model.cfg.n_ctx)
    tokens = torch.randint(model.cfg.d_vocab, (rows, length), generator=torch.Generator().manual_seed(0))
    found = compare(runs(model, tokens), runs(original, tokens))
    if not found.same:
        raise CheckpointError(
            f"the converted model differs from the original: on tokens {tokens[found.at[0]].tolist()} at position "
            f"{found.at[1]}, output {found.at[2]} is {found.ours:.6g}; the original's is {found.theirs:.6g} ({found})"
        )
    return found


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
        every_id = with_others(columns, tensors["unembed.W_U"].shape[1], task)
        tensors["unembed.W_U"] = tensors["unembed.W_U"][:, every_id]
        tensors["unembed.b_U"] = tensors["unembed.b_U"][every_id]
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
    return made
