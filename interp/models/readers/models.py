"""Models from readings, what `interp inspect` says of a file, and comparisons with the original's logits.

A model is a HookedTransformer if a config can express it, otherwise a task model.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from interp.errors import CheckpointError, InterpError, first_few, of_type, short
from interp.models.architecture.answers import NOT_NAMED, with_others
from interp.models.architecture.checkpoint import read_checkpoint
from interp.models.architecture.comparison import Comparison, Differs, compare, runs
from interp.models.architecture.header import lacks_header
from interp.models.architecture.settings import AS_IN_CONFIG
from interp.models.architecture.stock import in_task_order, read_config, stock_model
from interp.models.architecture.task_model import TaskModel
from interp.models.lens import HookedTransformer, is_bridge
from interp.models.readers import Conversion, find_reader, open_source, read
from interp.models.readers.base import Source
from interp.models.readers.original import ROWS, SOME, check_original
from interp.models.subject import Padding, Subject, output_ids_of, token_ids_of
from interp.tasks import Task, make_task

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Converted:
    """A converted model with its task.

    notes: what was assumed, if nothing bore it out, or what the original does that its config does not say. doubtful:
    whether answers may differ from the original's.
    """

    subject: Subject
    notes: tuple[str, ...]
    doubtful: bool = False


def convert(
    source: Any,
    given: Any,
    task: Task | str,
    tokens: Mapping[str, int] | None = None,
    outputs: Mapping[str, int] | None = None,
    padding: Padding = "mask",
) -> Converted:
    """Convert the model in a file, folder, state dict, module or bridge, and compare it with its original.

    A HookedTransformer stays as it is.

    The original is the module or bridge that was given, or else the model of the library that wrote the file. Raises
    CheckpointError if the two differ, and all errors of `read`.
    """
    known = make_task(task) if isinstance(task, str) else task
    if not isinstance(known, Task):
        raise InterpError(f"expected a task or its name, got {task!r}")
    if isinstance(source, HookedTransformer):
        if given is not None:
            raise InterpError(f"{of_type(source)} already has a config: leave out config=")
        return Converted(Subject.external(source, task, tokens, outputs, padding), ())
    reading = read(source, given)
    tokens = tokens if tokens is not None else tokens_of(reading, known)
    if reading.blocks is not None:
        subject = Subject.of(task_model(reading, known, tokens, outputs))
    else:
        model = stock_model(read_config(reading.fields), reading.tensors)
        subject = Subject.external(model, task, tokens, outputs, padding)
    checked = check_original(subject.model, reading, subject)
    notes = (reading.notes if checked.comparison is None or is_bridge(reading.module) else ()) + reading.facts
    notes += checked.notes
    if tokens is None and reading.module is None:
        words = ", ".join(known.vocabulary[:3]) + ", ..." * (len(known.vocabulary) > 3)
        notes += (f"Token ids are assumed to be in the task's order ({words}); pass tokens= if they are not.",)
    doubts = [*skipped_token(reading, known, tokens), *of_last_token(reading, subject)]
    doubts += padded_otherwise(reading, subject, tokens)
    if reading.bare:
        doubts.append("There is no output layer: the embedding is taken for it (tied).")
    if checked.why:
        notes += (f"It was not compared with its original: {checked.why}.",)
    return Converted(subject, (*notes, *doubts), checked.comparison is None or bool(doubts))


def skipped_token(reading: Conversion, task: Task, tokens: Mapping[str, int] | None) -> list[str]:
    """Say which token of the task a classification head skips at a row's end, because the file calls it padding."""
    ids = dict(zip(task.vocabulary, range(task.d_vocab))) if tokens is None else tokens
    return [
        f"Its pad_token_id is {reading.skipped}, the token {word!r}: if its classification head has one answer per "
        f"row, it answers before the {word!r} at a row's end, and its answers differ there."
        for word, number in ids.items()
        if number == reading.skipped and word != task.pad
    ]


def of_last_token(reading: Conversion, subject: Subject) -> list[str]:
    """Say that a classification head has one answer, at a row's end, where the task reads elsewhere. Of a module that
    was given, `check_original` finds out."""
    if not reading.scored or reading.module is not None or subject.read_at == "last":
        return []
    batch = subject.task.sample(ROWS, subject.task.splits[-1], seed=0)
    if subject.read_at != "all" and bool((subject.answer_positions(batch.tokens) == batch.lengths - 1).all()):
        return []
    where = "every position" if subject.read_at == "all" else f"{subject.read_at!r}"
    return [
        "Its output layer is the head of a classifier (score.weight), whose library reads it at a row's last token; "
        f"task {subject.task.name} reads {where}."
    ]


def padded_otherwise(reading: Conversion, subject: Subject, tokens: Mapping[str, int] | None) -> list[str]:
    """Say whether a module that was given answers otherwise on padded rows of the task."""
    pad, module = subject.task.pad, reading.module
    if pad is None or module is None or (tokens is not None and pad not in tokens):
        return []
    try:
        check_conversion(module, subject)
    except Differs:
        return [
            f"On rows with padding ({pad}), the module answers otherwise if it is given token ids alone: here, padding "
            f"is {'masked' if subject.padding == 'mask' else 'attended to'}, and answers are read where the task reads."
        ]
    except Exception:  # code of somebody else may raise anything
        pass
    return []


def tokens_of(reading: Conversion, task: Task) -> dict[str, int] | None:
    """Return the ids of the task's tokens in the file's vocabulary, or None if the file has none.

    Padding may be missing. Raises InterpError if another token is.
    """
    if (words := reading.vocabulary) is None:
        return None
    for token in task.vocabulary:
        if token not in words and token != task.pad:
            known = first_few([short(repr(word), 20) for word in sorted(words, key=words.__getitem__)], 3)
            raise InterpError(
                f"the vocabulary of the file ({known}) lacks {token!r} of task {task.name}; pass "
                f"tokens={{{task.vocabulary[0]!r}: 0, ...}}, the file's id of each token"
            )
    return {token: words[token] for token in task.vocabulary if token in words}


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


# ---------------------------------------------------------------- facts about a file

SHOWN = 12
"""Number of tokens of a vocabulary, and of tensors, that are shown."""


@dataclass(frozen=True)
class Inspection:
    """Facts about a model file. ready: whether `interp.load` needs nothing but a task."""

    rows: tuple[tuple[str, str], ...]
    ready: bool

    def to_frame(self) -> pd.DataFrame:
        """Return a table with columns what and value, one row per fact."""
        import pandas as pd

        return pd.DataFrame(list(self.rows), columns=["what", "value"])

    def brief(self) -> Inspection:
        """Return the same facts, with one row for all settings that are taken as in TransformerLens."""
        rows = [row for row in self.rows if row[1] != AS_IN_CONFIG]
        if n := len(self.rows) - len(rows):
            rows.append(("other settings", f"{n}, {AS_IN_CONFIG}; --format json lists them"))
        return Inspection(tuple(rows), self.ready)


def inspect(source: Any, given: Mapping[str, Any] | None = None) -> Inspection:
    """Describe a file, folder, state dict or module without a task.

    Args:
        source: as for `interp.load`; interp's own checkpoints are described by the header, unless settings are given.
        given: settings that the file lacks, as in `config=` of `interp.load`.

    Raises:
        CheckpointError: the file is broken.
        InterpError: no reader knows the format.
    """
    path = Path(source) if isinstance(source, str | Path) else None
    if not given and path and path.suffix == ".safetensors" and path.is_file() and not lacks_header(path):
        return _own(path)
    opened = open_source(source)
    reader = find_reader(opened)
    rows = [("file", opened.where), ("reader", reader.name)]
    try:
        reading = read(opened, given)
    except InterpError as error:
        rows += [("missing", str(error)), *_tensors(opened)]
        rows += [(f"setting {name}", meaning) for name, meaning in reader.settings.items()]
        return Inspection(tuple(rows), ready=False)
    rows.append(("format", reading.format))
    rows += [(name, short(value)) for name, value in reading.fields.items()]
    rows.append(("parameters", f"{reading.n_parameters:,}"))
    rows.append(("vocabulary", _vocabulary(reading)))
    rows += [("assumed", note) for note in reading.notes] + [("note", fact) for fact in reading.facts]
    rows.append(("compared with the original", _compared(reading)))
    named = repr(str(source)) if isinstance(source, str) or hasattr(source, "__fspath__") else "model"
    rows.append(("missing", f"the task, as in interp.load({named}, task=...)"))
    return Inspection(tuple(rows), ready=True)


def _own(path: Path) -> Inspection:
    """Describe a checkpoint of interp's, which lacks nothing. Raises CheckpointError if it is broken."""
    saved = read_checkpoint(path)
    spec, plain = saved.spec, saved.spec.to_dict()
    rows = [("file", str(path)), ("format", "a checkpoint of interp"), ("spec", spec.id), ("task", repr(saved.task))]
    rows += [("seed", str(saved.seed))]
    rows += [(name, json.dumps(plain[name])) for name in plain if name not in ("task", "layers", "schema")]
    rows += [(f"layer {number}", json.dumps(layer)) for number, layer in enumerate(plain["layers"])]
    rows.append(("parameters", f"{sum(tensor.numel() for tensor in saved.tensors.values()):,}"))
    rows += [(f"at the end: {name}", short(value)) for name, value in saved.summary.items() if name != "curve"]
    rows += [(f"written with {name}", version) for name, version in saved.versions.items()]
    rows.append(("missing", f"nothing: interp.load({str(path)!r})"))
    return Inspection(tuple(rows), ready=True)


def _tensors(source: Source) -> list[tuple[str, str]]:
    tensors = list(source.tensors.items())
    rows = [
        (name, f"{tuple(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}") for name, tensor in tensors[:SHOWN]
    ]
    return rows + ([("...", f"{len(tensors) - SHOWN} more tensors")] if len(tensors) > SHOWN else [])


def _vocabulary(reading: Conversion) -> str:
    words = reading.vocabulary
    if words is None:
        return "not saved; if ids differ from your task's, pass tokens={'a': 0, ...}"
    first = sorted(words, key=words.__getitem__)[:SHOWN]
    return ", ".join(f"{word!r}: {words[word]}" for word in first) + (", ..." if len(words) > SHOWN else "")


def _compared(reading: Conversion) -> str:
    """Compare the converted model's logits with the original library's, in one sentence."""
    if reading.blocks is not None or (reading.original is None and reading.module is None):
        return "no: its library is not available; interp.check_conversion compares with your own forward pass"
    try:
        checked = check_original(stock_model(read_config(reading.fields), reading.tensors), reading)
    except InterpError as error:
        return f"no: {error}"
    return f"no: {checked.why}" if checked.comparison is None else f"{checked.comparison}, on {SOME} random inputs"


# ---------------------------------------------------------------- comparison with a forward pass


def check_conversion(
    forward: Any, like: Any, tokens: Mapping[str, int] | None = None, outputs: Mapping[str, int] | None = None
) -> Comparison:
    """Compare a converted model with the user's own forward pass at the read positions of 50 inputs of its task.

    Args:
        forward: token ids (rows, length) to logits (rows, length, n_out), or (rows, n_out) if answers are read at one
            position: a module, of which a copy runs in float64 if it can, or a function, which runs in its own number
            format.
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
        logits = theirs(dtype).cpu()
        if logits.ndim == 2 and subject.read_at != "all":
            logits = logits[:, None].expand(-1, batch.tokens.shape[1], -1)
        if logits.ndim != 3 or logits.shape[:2] != batch.tokens.shape:
            raise CheckpointError(
                f"forward returns shape {tuple(logits.shape)}; expected {tuple(batch.tokens.shape)} and an axis of "
                "outputs"
            )
        chosen, n_out = columns, logits.shape[-1]
        if columns is None and (outputs is not None or n_out != subject.model.cfg.d_vocab_out):
            chosen = output_ids_of(n_out, n_out, task, ids, outputs)
        chosen = None if chosen is None else with_others(chosen, n_out, task)
        return logits[where] if chosen is None else logits[where][:, chosen]

    apart = compare(lambda dtype: subject.in_format(dtype).logits(batch), picked)
    if not apart.same:
        (row, place), at = where.nonzero()[apart.at[0]].tolist(), apart.at[1]
        half = apart.precision in ("float16", "bfloat16")
        coarse = f"; {apart.precision} may round as much: give the forward pass in float32" if half else ""
        raise Differs(
            f"the converted model differs from forward: on {task.format(batch.tokens[row])!r} at position {place}, "
            f"{'output ' + repr(task.answer_words[at]) if at < task.n_out else NOT_NAMED} is {apart.ours:.6g}, but "
            f"forward returns {apart.theirs:.6g} ({apart}{coarse})"
        )
    return apart
