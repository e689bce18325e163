"""`interp inspect`: the format, reader, config and missing settings of a model file."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from interp.architecture.answers import NOT_NAMED, with_others
from interp.architecture.comparison import Comparison, cast, compare, runs
from interp.architecture.stock import read_config, stock_model
from interp.architecture.task_model import TaskModel
from interp.errors import CheckpointError, InterpError, short
from interp.measures.subject import Subject, output_ids_of, token_ids_of
from interp.readers import Conversion, find_reader, open_source, read
from interp.readers.base import Source
from interp.readers.models import compared

SHOWN = 12
"""Number of tokens of a vocabulary, and of tensors, that are shown."""


@dataclass(frozen=True)
class Inspection:
    """Facts about a model file. ready: whether `interp.load` needs nothing but a task."""

    rows: tuple[tuple[str, str], ...]
    ready: bool

    def to_frame(self) -> pd.DataFrame:
        """Return a table with columns what and value, one row per fact."""
        return pd.DataFrame(list(self.rows), columns=["what", "value"])


def inspect(source: Any, given: Mapping[str, Any] | None = None) -> Inspection:
    """Describe a file, folder, state dict or module without a task.

    Args:
        source: as for `interp.load`.
        given: settings that the file lacks, as in `config=` of `interp.load`.

    Raises:
        CheckpointError: the file is broken.
        InterpError: no reader knows the format.
    """
    opened = open_source(source)
    reader = find_reader(opened)
    rows = [("file", opened.where), ("reader", reader.name)]
    try:
        reading = read(opened, given)
    except InterpError as error:
        rows += _tensors(opened)
        rows += [(f"setting {name}", meaning) for name, meaning in reader.settings.items()]
        return Inspection((*rows, ("missing", str(error))), ready=False)
    rows.append(("format", reading.format))
    rows += [(name, short(value)) for name, value in reading.fields.items()]
    rows.append(("parameters", f"{reading.n_parameters:,}"))
    rows.append(("vocabulary", _vocabulary(reading)))
    rows += [("assumed", note) for note in reading.notes]
    rows.append(("compared with the original", _compared(reading)))
    rows.append(("missing", f"the task, as in interp.load({_quoted(source)}, task=...)"))
    return Inspection(tuple(rows), ready=True)


def _quoted(source: Any) -> str:
    return repr(str(source)) if isinstance(source, str) or hasattr(source, "__fspath__") else "model"


def _tensors(source: Source) -> list[tuple[str, str]]:
    found = list(source.tensors.items())
    rows = [
        (name, f"{tuple(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}") for name, tensor in found[:SHOWN]
    ]
    return rows + ([("...", f"{len(found) - SHOWN} more tensors")] if len(found) > SHOWN else [])


def _vocabulary(reading: Conversion) -> str:
    words = reading.vocabulary
    if words is None:
        return "not saved; if ids differ from your task's, pass tokens={'a': 0, ...}"
    first = sorted(words, key=words.__getitem__)[:SHOWN]
    return ", ".join(f"{word!r}: {words[word]}" for word in first) + (", ..." if len(words) > SHOWN else "")


def _compared(reading: Conversion) -> str:
    """Compare the converted model's logits with the original library's, in one sentence."""
    if reading.blocks is not None or reading.original is None:
        return "no: its library is not available; interp.check_conversion compares with your own forward pass"
    try:
        model = stock_model(read_config(reading.fields), reading.tensors)
        return f"{compared(model, reading.original())}, on 4 random inputs"
    except InterpError as error:
        return f"no: {error}"


ROWS = 50


def check_conversion(
    forward: Any, like: Any, tokens: Mapping[str, int] | None = None, outputs: Mapping[str, int] | None = None
) -> Comparison:
    """Compare a converted model with the user's own forward pass at the read positions of 50 inputs of its task.

    Args:
        forward: token ids (rows, length) to logits (rows, length, n_out): a module, of which a copy runs in float64 if
            it can, or a function, which runs in its own number format.
        like: the converted model, as returned by `interp.load`.
        tokens, outputs: the ids given to `interp.load`, if `like` has been saved and loaded since.

    Returns:
        The largest difference of logits, and what float32 changes, both relative to the largest logit (at least 1).

    Raises:
        CheckpointError: the difference is above 1e-5 and above 8 times what float32 changes; the message names an
            input, the position and both values.
        InterpError: `like` is not a model.

    Example:

        >>> model = interp.build("count01/minimal")
        >>> interp.check_conversion(lambda tokens: model(tokens), like=model).difference < 1e-5
        True
    """
    subject = Subject.of(like)
    task, batch = subject.task, subject.task.sample(ROWS, subject.task.splits[-1], seed=0)
    ids, columns = like.ids_before if isinstance(like, TaskModel) else (subject.token_ids, subject.output_ids)
    if tokens is not None:
        ids = token_ids_of(1 + max(tokens.values(), default=0), task, tokens)
    where, theirs = subject.read_mask(batch), runs(forward, batch.tokens if ids is None else ids[batch.tokens])

    def picked(dtype: torch.dtype) -> Tensor:
        found = theirs(dtype).cpu()
        if found.ndim != 3 or found.shape[:2] != batch.tokens.shape:
            raise CheckpointError(
                f"forward returns shape {tuple(found.shape)}; expected {tuple(batch.tokens.shape)} and an axis of "
                "outputs"
            )
        chosen, n_out = columns, found.shape[-1]
        if columns is None and (outputs is not None or n_out != subject.model.cfg.d_vocab_out):
            chosen = output_ids_of(n_out, n_out, task, ids, outputs)
        chosen = None if chosen is None else with_others(chosen, n_out, task)
        return found[where] if chosen is None else found[where][:, chosen]

    found = compare(lambda dtype: replace(subject, model=cast(subject.model, dtype)).logits(batch), picked)
    if not found.same:
        (row, place), at = where.nonzero()[found.at[0]].tolist(), found.at[1]
        raise CheckpointError(
            f"the converted model differs from forward: on {task.format(batch.tokens[row])!r} at position {place}, "
            f"{'output ' + repr(task.answer_words[at]) if at < task.n_out else NOT_NAMED} is {found.ours:.6g}, but "
            f"forward returns {found.theirs:.6g} ({found})"
        )
    return found
