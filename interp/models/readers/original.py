"""Is a converted model its original? Both run on the same inputs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from interp.errors import CheckpointError, InterpError, short
from interp.models.architecture.answers import with_others
from interp.models.architecture.comparison import Comparison, Differs, Runs, compare, runs
from interp.models.architecture.task_model import TaskModel
from interp.models.lens import HookedTransformer
from interp.models.readers.base import Conversion
from interp.models.subject import Subject

ROWS = 50
"""Inputs of the task of which rows are chosen."""
SOME = 4
"""Rows on which the two are compared."""


@dataclass(frozen=True)
class Checked:
    """comparison: None if there was no original that could be run, which makes no model wrong. why: the reason. notes:
    what was not compared, one sentence each."""

    comparison: Comparison | None
    why: str = ""
    notes: tuple[str, ...] = ()


def check_original(model: HookedTransformer, reading: Conversion, subject: Subject | None = None) -> Checked:
    """Compare a model with its original: the module that was given, or the one that its library makes.

    subject: the model with its task, if that is known. Raises CheckpointError if their logits differ.
    """
    module, reasons = reading.module, []
    for original in (None if module is None else (lambda: module), reading.original):
        if original is None:
            continue
        try:
            pair = Pair(model, original(), subject, reading.skipped)
            outcome = pair.difference()
            rounded = rounded_buffer(pair.original)
        except Differs:
            raise
        except Exception as error:  # code of somebody else may raise anything
            kind = "" if isinstance(error, InterpError) else f"{type(error).__name__}: "
            reasons.append(kind + short(str(error).strip() or "no message", 120))
            continue
        partly = pair.has_one_output and subject is not None and subject.read_at == "all"
        note = "The original has one output for each row, so only this one was compared."
        return Checked(check_same(outcome, rounded), notes=(note,) if partly else ())
    return Checked(None, reasons[0] if reasons else "")


@dataclass(frozen=True, eq=False)
class Pair:
    """A converted model and its original, a module or a function of its own token ids. subject: the model with its
    task, if that is known. skipped: the token at a row's end that an original with one output passes over."""

    model: HookedTransformer
    original: Any
    subject: Subject | None = None
    skipped: int | None = None

    def theirs(self, tokens: Tensor) -> Tensor:
        """The original's ids of the model's."""
        ids = self.model.ids_before[0] if isinstance(self.model, TaskModel) else None
        return tokens if ids is None else ids[tokens]

    @cached_property
    def has_one_output(self) -> bool:
        """Whether the original has outputs at one position of each row only."""
        rows = self.theirs(self.random_rows)
        return runs(self.original, rows)(torch.float64).shape[:-1] in (rows.shape[:1], (len(rows), 1))

    @cached_property
    def random_rows(self) -> Tensor:
        """Rows of the model's tokens, without padding."""
        model, length = self.model, min(12, self.model.cfg.n_ctx)
        allowed = torch.arange(model.cfg.d_vocab)
        if isinstance(model, TaskModel):
            allowed = torch.tensor([token for token in range(model.task.d_vocab) if token != model.task.pad_id])
        return allowed[torch.randint(len(allowed), (SOME, length), generator=torch.Generator().manual_seed(0))]

    def rows_of_the_task(self, subject: Subject) -> tuple[Tensor, Tensor]:
        """Inputs of the task, of one length, the longest that fits, in the model's ids; and where each is read.

        Inputs that end in `skipped` are left out, unless all do.
        """
        batch = subject.task.sample(ROWS, subject.task.splits[-1], seed=0)
        fit = batch.lengths <= subject.model.cfg.n_ctx
        length = int(batch.lengths[fit if bool(fit.any()) else ...].max())
        drawn = batch.tokens[batch.lengths == length][:, :length]
        tokens = subject.inputs(drawn)
        kept = self.theirs(tokens)[:, -1] != (-1 if self.skipped is None else self.skipped)
        kept = (kept if bool(kept.any()) else ~kept).nonzero()[:SOME, 0]
        return tokens[kept], subject.answer_positions(drawn[kept])

    def difference(self) -> tuple[Comparison, Tensor]:
        """Compare the two; of an original with one output for each row, where the task reads.

        Returns the comparison and the original's inputs. Raises Differs if that one output is not the model's where the
        task reads (at any position, if the task reads all, or is not known).
        """
        if not self.has_one_output:
            tokens = self.random_rows
            return compare(runs(self.model, tokens), self.columns(tokens)), self.theirs(tokens)
        tokens, read, subject = self.random_rows, None, self.subject
        if subject is not None and subject.read_at != "all":
            tokens, read = self.rows_of_the_task(subject)
        ours, one = runs(self.model, tokens), self.columns(tokens)

        def compared_at(places: Tensor) -> Comparison:
            return compare(lambda dtype: ours(dtype)[torch.arange(len(tokens)), places][:, None], one)

        if read is not None and (comparison := compared_at(read)).same:
            return comparison, self.theirs(tokens)
        mine, wanted = ours(torch.float64).double().cpu(), one(torch.float64).double()
        nearest = torch.zeros(len(tokens)).long()
        if mine.shape[-1] == wanted.shape[-1]:  # otherwise it is `compare` that says so
            nearest = (mine - wanted).abs().amax(-1).nan_to_num(nan=torch.inf).argmin(1)
        comparison = compared_at(nearest)
        if not comparison.same:
            raise Differs(
                "the original has one output for each row, and it is that of no position of the converted model, as "
                f"where positions are averaged ({comparison})"
            )
        if subject is not None and read is not None:
            row = int((nearest != read).long().argmax())
            raise Differs(
                f"the original has one output for each row: on tokens {self.theirs(tokens)[row].tolist()} it is that "
                f"of position {int(nearest[row])}, but task {subject.task.name} reads position {int(read[row])}. Give "
                "a task that reads where the original does; or, if it answers at the task's position, too, its "
                "state_dict()"
            )
        return comparison, self.theirs(tokens)

    def columns(self, tokens: Tensor) -> Runs:
        """The original's logits on the model's tokens, in the task's order, with an axis of positions."""
        run, model = runs(self.original, self.theirs(tokens)), self.model

        def picked(dtype: torch.dtype) -> Tensor:
            logits = run(dtype).cpu()
            logits = logits.reshape(len(tokens), 1, -1) if self.has_one_output else logits
            if not isinstance(model, TaskModel) or model.ids_before[1] is None:
                return logits
            return logits[..., with_others(model.ids_before[1], logits.shape[-1], model.task)]

        return picked


def rounded_buffer(module: Any) -> str:
    """Say which buffer of a module was rounded with its weights, such as the frequencies of rotary positions, which
    transformers keeps in float32 if it loads the model in half precision itself."""
    halves = (torch.float16, torch.bfloat16)
    buffers = module.named_buffers() if isinstance(module, nn.Module) else ()
    for name, buffer in buffers:
        if buffer.dtype in halves:
            kind = str(buffer.dtype).removeprefix("torch.")
            return f", whose buffer {name} was rounded to {kind}, too (give the model in float32, or as it was loaded)"
    return ""


def check_same(compared: tuple[Comparison, Tensor], more: str = "") -> Comparison:
    """Return a comparison. Raises CheckpointError, with the input, the position and both values, if logits differ."""
    apart, tokens = compared
    if not apart.same:
        raise CheckpointError(
            f"the converted model differs from the original{more}: on tokens {tokens[apart.at[0]].tolist()} at "
            f"position {apart.at[1]}, output {apart.at[2]} is {apart.ours:.6g}; the original's is {apart.theirs:.6g} "
            f"({apart})"
        )
    return apart


def compared(model: HookedTransformer, original: Any) -> Comparison:
    """Compare a model with its original on random inputs. Raises CheckpointError if their logits differ."""
    return check_same(Pair(model, original).difference())
