"""Minimal pairs: a clean input and a corrupted one with another answer, and where the two are read."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from interp.errors import InterpError, UnsupportedError, short
from interp.measures.results import Inputs, as_batch
from interp.measures.runs import check_reads, reads_of
from interp.models.subject import Model, Subject
from interp.tasks import Batch, Task
from interp.tasks.batch import Reads
from interp.tasks.batch_checks import check_batch
from interp.tasks.pairs import KINDS, Pairs, minimal_pairs
from interp.tasks.populations import usual

FEWEST = 10
"""Least number of pairs of a kind."""


@dataclass(frozen=True)
class Compared:
    """The reads at which the two inputs of a pair have different answers."""

    rows: Int[Tensor, "reads"]
    clean_at: Int[Tensor, "reads"]
    at: Int[Tensor, "reads"]
    clean: Int[Tensor, "reads"]
    corrupted: Int[Tensor, "reads"]

    @property
    def reads(self) -> Reads:
        """The reads in the corrupted inputs."""
        return Reads(self.rows, self.at, self.clean)

    @property
    def swapped(self) -> Compared:
        """The same reads with clean and corrupted inputs in each other's place."""
        return Compared(self.rows, self.at, self.clean_at, self.corrupted, self.clean)


def compared(subject: Subject, pairs: Pairs) -> Compared:
    """Select one read per row, or all positions read in both inputs, and keep those whose right outputs differ.

    A task may have no answer to a changed input (a negative class): such reads are left out.
    """
    mine, theirs = reads_of(subject, pairs.clean), reads_of(subject, pairs.corrupted)
    if subject.read_at != "all":
        here = torch.arange(len(mine))
        there = here
    else:
        place = {(int(r), int(p)): i for i, (r, p) in enumerate(zip(theirs.rows, theirs.positions))}
        matched = [
            (i, place[key]) for i, key in enumerate(zip(mine.rows.tolist(), mine.positions.tolist())) if key in place
        ]
        here, there = (torch.tensor([pair[k] for pair in matched], dtype=torch.long) for k in (0, 1))
    differ = (mine.classes[here] != theirs.classes[there]) & (theirs.classes[there] >= 0)
    here, there = here[differ], there[differ]
    return Compared(
        mine.rows[here], mine.positions[here], theirs.positions[there], mine.classes[here], theirs.classes[there]
    )


def pairs_from(
    subject: Subject, clean: Inputs | Pairs | None = None, corrupted: Inputs | None = None, n: int | None = None
) -> Pairs:
    """Return the given pairs; or pairs of the given inputs, checked; or those that the task makes of `clean`.

    Without inputs, the task makes pairs of n samples (default: of the inputs that measures take, drawn anew).
    """
    if isinstance(clean, Pairs):
        return clean
    if corrupted is None:
        if clean is None and n is not None:
            return make_pairs(subject, n)
        return make_pairs(
            subject, batch=usual(subject.task, fixed=False).batch if clean is None else as_batch(subject, clean)
        )
    if clean is None:
        raise InterpError("corrupted inputs are given without clean ones")
    pairs = Pairs(as_batch(subject, clean), as_batch(subject, corrupted))
    if len(pairs.clean) != len(pairs.corrupted):
        raise InterpError(f"{len(pairs.clean)} clean and {len(pairs.corrupted)} corrupted rows do not form pairs")
    for batch in (pairs.clean, pairs.corrupted):
        check_reads(subject, batch)
    if not len(compared(subject, pairs).rows):
        raise InterpError("the clean and the corrupted inputs have the same answers, so nothing can be recovered")
    return pairs


def pairs_by_kind(model: Model, batch_size: int = 64, batch: Batch | None = None) -> dict[str, Pairs]:
    """Make minimal pairs of the kinds that a task allows: "own", if the task makes its own, and each of KINDS.

    Kinds with fewer than FEWEST pairs are left out, but for the task's own. Raises as make_pairs does if there is none.
    """
    subject = Subject.of(model)
    task = subject.task
    batch = task.sample(batch_size, task.splits[-1], seed=0) if batch is None else batch
    made = {kind: minimal_pairs(task, batch, 0, kind) for kind in KINDS} if task.labels_tokens else {}
    kept = {kind: pairs for kind, pairs in made.items() if len(pairs) >= FEWEST and len(compared(subject, pairs).rows)}
    if type(task).corrupt is Task.corrupt and kept:
        return kept
    return {"own": make_pairs(subject, batch=batch), **kept}


def make_pairs(model: Model, batch_size: int = 200, seed: int = 0, batch: Batch | None = None) -> Pairs:
    """Make minimal pairs of the model's task, from fresh inputs or from those of `batch`.

    Raises UnsupportedError if the task defines neither `corrupt` nor `batch`, and InterpError for invalid pairs.
    """
    subject = Subject.of(model)
    task = subject.task
    batch = task.sample(batch_size, task.splits[-1], seed=seed) if batch is None else batch

    def make(batch: Batch) -> Pairs:
        pairs = task.corrupt(batch, seed)
        if not len(pairs) and not len(pairs.corrupted):
            raise UnsupportedError(f"task {task.name}: no change of one token was found that changes an answer")
        _check_pairs(task, pairs)
        return pairs

    return subject.once(make, batch, ("pairs", seed))


def _check_pairs(task: Task, pairs: Pairs) -> None:
    """Raise InterpError for different numbers of rows, equal answers, or labels that differ from task.batch's."""
    clean, corrupted = pairs.clean, pairs.corrupted
    if len(clean) != len(corrupted):
        raise InterpError(f"task {task.name} corrupts {len(clean)} rows into {len(corrupted)}; return one per row")
    for batch in (clean, corrupted):
        check_batch(task, batch, "corrupt(batch)")
        if task.labels_tokens and not task.batch(batch.tokens).labels.equal(batch.labels):
            raise InterpError(f"task {task.name}: corrupt(batch) labels rows differently from batch(tokens)")
    if clean.labels.shape == corrupted.labels.shape:
        same = (clean.labels == corrupted.labels).reshape(len(clean), -1).all(1)
        if bool(same.any()):
            text = task.format(corrupted.tokens[same][0, : int(corrupted.lengths[same][0])])
            raise InterpError(f"task {task.name} corrupts an input into {short(text)!r}, which has the same answer")
