"""Models from readings: a HookedTransformer if a config can express it, otherwise a task model."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from interp._lens import HookedTransformer
from interp.architecture.comparison import Comparison, compare, runs
from interp.architecture.stock import in_task_order, read_config, stock_model
from interp.architecture.task_model import TaskModel
from interp.errors import CheckpointError, InterpError
from interp.measures.subject import output_ids_of, token_ids_of
from interp.readers import Conversion, read
from interp.tasks import Task, make_task


@dataclass(frozen=True)
class Converted:
    """A converted model.

    tokens: the model's id of each token of the task, or None if the ids are equal. compared: its logits and the
    original's on random inputs; None if the original could not be run.
    """

    model: HookedTransformer
    reading: Conversion
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


def tokens_of(reading: Conversion, task: Task) -> dict[str, int] | None:
    """Return the ids of the task's tokens in the file's vocabulary, or None unless it contains all of them."""
    words = reading.vocabulary
    if words is None or any(token not in words for token in task.vocabulary):
        return None
    return {token: words[token] for token in task.vocabulary}


def check_original(model: HookedTransformer, reading: Conversion) -> Comparison | None:
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
    reading: Conversion, task: Task, tokens: Mapping[str, int] | None, outputs: Mapping[str, int] | None
) -> TaskModel:
    """Build the task model of a reading with blocks, with embedding and readout in the task's order."""
    blocks, n_tokens, n_out = reading.blocks, len(reading.tensors["embed.W_E"]), reading.tensors["unembed.W_U"].shape[1]
    assert blocks is not None
    ids = token_ids_of(n_tokens, task, tokens)
    return in_task_order(
        dict(reading.tensors),
        task,
        ids,
        output_ids_of(n_out, n_tokens, task, ids, outputs),
        direction="causal" if blocks.causal else "bidirectional",
        layers=blocks.layers,
        positions="none" if blocks.max_length is None else "learned",
        max_length=blocks.max_length,
        final_norm="layer_norm" if blocks.final_norm else "none",
    )
