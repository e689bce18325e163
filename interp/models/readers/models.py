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

from interp.errors import CheckpointError, InterpError, of_type, short
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
from interp.models.subject import Subject, output_ids_of, token_ids_of
from interp.tasks import Task, make_task

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Converted:
    """A converted model.

    tokens: the model's id of each token of the task, or None if the ids are equal. compared: its logits and the
    original's on random inputs; None if the original could not be run. notes: what was assumed, if nothing bore it out,
    or what the original does that its config does not say. doubtful: whether answers may differ from the original's.
    """

    model: HookedTransformer
    tokens: Mapping[str, int] | None
    compared: Comparison | None
    notes: tuple[str, ...]
    doubtful: bool = False


def convert(
    source: Any,
    given: Any,
    task: Task | str,
    tokens: Mapping[str, int] | None = None,
    outputs: Mapping[str, int] | None = None,
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
        return Converted(source, tokens, None, ())
    reading = read(source, given)
    tokens = tokens if tokens is not None else tokens_of(reading, known)
    model: HookedTransformer
    if reading.blocks is not None:
        model = task_model(reading, known, tokens, outputs)
    else:
        model = stock_model(read_config(reading.fields), reading.tensors)
    named = isinstance(model, TaskModel)
    subject = Subject.of(model) if named else Subject.external(model, task, tokens, outputs)
    comparison, why = check_original(model, reading, subject)
    notes = (reading.notes if comparison is None or is_bridge(reading.module) else ()) + reading.facts
    if tokens is None and reading.module is None:
        words = ", ".join(known.vocabulary[:3]) + ", ..." * (len(known.vocabulary) > 3)
        notes += (f"Token ids are assumed to be in the task's order ({words}); pass tokens= if they are not.",)
    ids = dict(zip(known.vocabulary, range(known.d_vocab))) if tokens is None else tokens
    skipped = [word for word, number in ids.items() if number == reading.skipped and word != known.pad]
    for word in skipped:
        notes += (
            f"Its pad_token_id is {reading.skipped}, the token {word!r}: if its classification head has one answer per "
            f"row, it answers before the {word!r} at a row's end, and its answers differ there.",
        )
    if reading.bare:
        notes += ("There is no output layer: the embedding is taken for it (tied).",)
    if why:
        notes += (f"It was not compared with its original: {why}.",)
    return Converted(model, tokens, comparison, notes, doubtful=comparison is None or bool(skipped) or reading.bare)


def tokens_of(reading: Conversion, task: Task) -> dict[str, int] | None:
    """Return the ids of the task's tokens in the file's vocabulary, or None unless it contains all of them."""
    words = reading.vocabulary
    if words is None or any(token not in words for token in task.vocabulary):
        return None
    return {token: words[token] for token in task.vocabulary}


def check_original(
    model: HookedTransformer, reading: Conversion, subject: Subject | None = None
) -> tuple[Comparison | None, str]:
    """Compare a model with its original: the module that was given, or the one that its library makes.

    subject: the model with its task, if that is known. Returns the comparison, or None and the reason why there was
    none: an original that cannot be run makes no model wrong. Raises CheckpointError if their logits differ.
    """
    module, reasons = reading.module, []
    for original in (None if module is None else (lambda: module), reading.original):
        if original is None:
            continue
        try:
            outcome = difference(model, original(), subject=subject, skipped=reading.skipped)
        except Differs:
            raise
        except Exception as error:  # code of somebody else may raise anything
            kind = "" if isinstance(error, InterpError) else f"{type(error).__name__}: "
            reasons.append(kind + short(str(error).strip() or "no message", 120))
            continue
        return check_same(outcome), ""
    return None, reasons[0] if reasons else ""


def difference(
    model: HookedTransformer,
    original: Any,
    rows: int = 4,
    subject: Subject | None = None,
    skipped: int | None = None,
) -> tuple[Comparison, Tensor]:
    """Compare a model's logits with its original's, a module or a function of its token ids.

    Returns the comparison and the original's inputs: random ones, or inputs of the task, if the original has one output
    for each row and the task reads one position. skipped: the token at a row's end that the original passes over.
    Raises Differs if that one output is not the model's where the task reads (without a task: at any position).
    """
    ids, columns = model.ids_before if isinstance(model, TaskModel) else (None, None)
    tokens = random_rows(model, rows)
    theirs = tokens if ids is None else ids[tokens]
    read: Tensor | None = None
    run = runs(original, theirs)
    one = run(torch.float64).shape[:-1] in (theirs.shape[:1], (rows, 1))
    if one and subject is not None and subject.read_at != "all":
        tokens, theirs, read = read_rows(subject, ids, rows, skipped)
        run = runs(original, theirs)
    ours = runs(model, tokens)

    def picked(dtype: torch.dtype) -> Tensor:
        logits = run(dtype).cpu()
        logits = logits.reshape(len(tokens), 1, -1) if one else logits
        if columns is None:
            return logits
        return logits[..., with_others(columns, logits.shape[-1], model.task)]  # type: ignore[arg-type]

    def compared_at(places: Tensor) -> Comparison:
        return compare(lambda dtype: ours(dtype)[torch.arange(len(tokens)), places][:, None], picked)

    if not one:
        return compare(ours, picked), theirs
    if read is not None and (comparison := compared_at(read)).same:
        return comparison, theirs
    mine, wanted = ours(torch.float64).double().cpu(), picked(torch.float64).double()
    nearest = torch.zeros(len(tokens)).long()
    if mine.shape[-1] == wanted.shape[-1]:  # otherwise it is `compare` that says so
        nearest = (mine - wanted).abs().amax(-1).nan_to_num(nan=torch.inf).argmin(1)
    comparison = compared_at(nearest)
    if not comparison.same:
        raise Differs(
            "the original has one output for each row, and it is that of no position of the converted model, as where "
            f"positions are averaged ({comparison})"
        )
    if subject is not None and read is not None:
        row = int((nearest != read).long().argmax())
        raise Differs(
            f"the original has one output for each row: on tokens {theirs[row].tolist()} it is that of position "
            f"{int(nearest[row])}, but task {subject.task.name} reads position {int(read[row])}. Give a task that "
            "reads where the original does; or, if it answers at the task's position, too, its state_dict()"
        )
    return comparison, theirs


def random_rows(model: HookedTransformer, rows: int) -> Tensor:
    """Draw rows of the model's tokens, without padding."""
    allowed, length = torch.arange(model.cfg.d_vocab), min(12, model.cfg.n_ctx)
    if isinstance(model, TaskModel):
        allowed = torch.tensor([token for token in range(model.task.d_vocab) if token != model.task.pad_id])
    return allowed[torch.randint(len(allowed), (rows, length), generator=torch.Generator().manual_seed(0))]


def read_rows(subject: Subject, ids: Tensor | None, rows: int, skipped: int | None) -> tuple[Tensor, Tensor, Tensor]:
    """Draw inputs of the task of one length, the longest that fits: in the model's ids, in the original's, and the
    position at which each is read.

    ids: the original's id of each of the model's, if they differ. Inputs that end in `skipped` are left out, unless all
    do.
    """
    batch = subject.task.sample(ROWS, subject.task.splits[-1], seed=0)
    fit = batch.lengths <= subject.model.cfg.n_ctx
    length = int(batch.lengths[fit if bool(fit.any()) else ...].max())
    drawn = batch.tokens[batch.lengths == length][:, :length]
    tokens = subject.inputs(drawn)
    theirs = tokens if ids is None else ids[tokens]
    kept = theirs[:, -1] != (-1 if skipped is None else skipped)
    kept = (kept if bool(kept.any()) else ~kept).nonzero()[:rows, 0]
    return tokens[kept], theirs[kept], subject.answer_positions(drawn[kept])


def check_same(compared: tuple[Comparison, Tensor]) -> Comparison:
    """Return a comparison. Raises CheckpointError, with the input, the position and both values, if logits differ."""
    apart, tokens = compared
    if not apart.same:
        raise CheckpointError(
            f"the converted model differs from the original: on tokens {tokens[apart.at[0]].tolist()} at position "
            f"{apart.at[1]}, output {apart.at[2]} is {apart.ours:.6g}; the original's is {apart.theirs:.6g} ({apart})"
        )
    return apart


def compared(model: HookedTransformer, original: Any, rows: int = 4) -> Comparison:
    """Compare a model with its original on random inputs. Raises CheckpointError if their logits differ."""
    return check_same(difference(model, original, rows))


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
        comparison, why = check_original(stock_model(read_config(reading.fields), reading.tensors), reading)
    except InterpError as error:
        return f"no: {error}"
    return f"{comparison}, on 4 random inputs" if comparison is not None else f"no: {why}"


# ---------------------------------------------------------------- comparison with a forward pass

ROWS = 50


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
        raise CheckpointError(
            f"the converted model differs from forward: on {task.format(batch.tokens[row])!r} at position {place}, "
            f"{'output ' + repr(task.answer_words[at]) if at < task.n_out else NOT_NAMED} is {apart.ours:.6g}, but "
            f"forward returns {apart.theirs:.6g} ({apart})"
        )
    return apart
