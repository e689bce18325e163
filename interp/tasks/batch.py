"""Batches of labeled inputs, and minimal pairs for any task that labels given tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.errors import InterpError, UnsupportedError, check_one_of, check_size, of_type, short
from interp.support.views import view

if TYPE_CHECKING:
    from interp.tasks.base import Task

IGNORED = -100
"""The class of a position whose output is not read (the ignore_index of torch's cross_entropy)."""

ABSENT = -1e4
"""Instead of ln 0: a score so low that the weight is 0 in every number format."""


@dataclass(frozen=True)
class Batch:
    """Inputs with their labels: tokens padded on the right to one length.

    labels: one answer per row, or one per position (-1 where there is no answer), in the task's own units. task: the
    task whose `sample` or `batch` made it, in whose words it is shown. counts: how many equal tokens each one stands
    for, if they are held once (see measures.counted); None: itself.

    Example:

        >>> task = interp.build("languages/parity").task
        >>> batch = task.batch(task.encode(["101", "1"]).tokens)
        >>> batch.lengths.tolist(), batch.labels.tolist()  # an odd number of ones?
        ([4, 2], [False, True])
        >>> batch
        Batch of 2 inputs of task parity: '[CLS]101' -> not a member, '[CLS]1' -> a member
    """

    tokens: Int[Tensor, "rows length"]
    lengths: Int[Tensor, "rows"]
    labels: Int[Tensor, "rows *length"] | Bool[Tensor, "rows"]
    task: Any = field(default=None, repr=False, compare=False)
    counts: Int[Tensor, "rows length"] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for name in ("tokens", "lengths", "labels"):
            if not isinstance(value := getattr(self, name), Tensor):
                raise InterpError(
                    f"{name} of a Batch must be a tensor, not {of_type(value)}; task.batch(tokens) makes a Batch"
                )

    @property
    def attention_mask(self) -> Bool[Tensor, "rows length"]:
        """True at tokens, False at padding."""
        return torch.arange(self.tokens.shape[1], device=self.tokens.device) < self.lengths[:, None]

    @property
    def log_counts(self) -> Float[Tensor, "rows length"] | None:
        """The logarithms of the counts; ABSENT for a token that only fills its row. None without counts."""
        if self.counts is None:
            return None
        return torch.where(self.counts > 0, self.counts.clamp(min=1).double().log(), ABSENT)

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, rows: slice | Tensor) -> Batch:
        counts = None if self.counts is None else self.counts[rows]
        return Batch(self.tokens[rows], self.lengths[rows], self.labels[rows], self.task, counts)

    def to(self, device: str | torch.device) -> Batch:
        return replace(
            self, tokens=self.tokens.to(device), lengths=self.lengths.to(device), labels=self.labels.to(device)
        )

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"task": None}  # a task of one's own may not be picklable

    def __repr__(self) -> str:
        rows = [f"{text!r} -> {answer}" for text, answer in self._words(3)]
        return f"{self._title}: {', '.join(rows)}{', ...' if len(self) > len(rows) else ''}"

    def _repr_html_(self) -> str:
        """Show the first rows in the task's words, or as token ids if the task is unknown."""
        shown = self._words(8)
        more = f", the first {len(shown)} shown" if len(self) > len(shown) else ""
        return view(self._title + more, shown, ("input", "answer"))

    @property
    def _title(self) -> str:
        of = "" if self.task is None else f" of task {self.task.name}"
        return f"Batch of {len(self):,} input{'s' * (len(self) != 1)}{of}"

    def _words(self, n: int) -> list[tuple[str, str]]:
        """Return the first inputs and their answers as text."""
        first, task = self[:n], self.task
        rows = [tokens[: int(length)].tolist() for tokens, length in zip(first.tokens, first.lengths)]
        try:
            classes = task.classes(first)
            if task.readout != "all":
                classes = classes.gather(1, find_positions(task, first.tokens, task.readout)[:, None])
            answers = [[task.word(c) for c in row if c != IGNORED] for row in classes.tolist()]
            return [(short(task.format(row)), short(" ".join(answer))) for row, answer in zip(rows, answers)]
        except (AttributeError, InterpError, LookupError):  # no task, or no longer its inputs
            return [(" ".join(map(str, row)), str(label)) for row, label in zip(rows, first.labels.tolist())]


def joined(batches: Sequence[Batch], pad: int | None) -> Batch:
    """Concatenate batches, with shorter ones padded on the right."""
    width = max(batch.tokens.shape[1] for batch in batches)

    def wide(rows: Tensor, fill: int) -> Tensor:
        return torch.nn.functional.pad(rows, (0, width - rows.shape[1]), value=fill) if rows.ndim == 2 else rows

    return replace(
        batches[0],
        tokens=torch.cat([wide(batch.tokens, pad or 0) for batch in batches]),
        lengths=torch.cat([batch.lengths for batch in batches]),
        labels=torch.cat([wide(batch.labels, -1) for batch in batches]),
    )


@dataclass(frozen=True)
class Pairs:
    """Minimal pairs: row i of `corrupted` is row i of `clean` with a small change that changes the answer.

    Example:

        >>> task = interp.build("languages/parity").task
        >>> pairs = task.corrupt(task.sample(4, seed=0))
        >>> bool((pairs.clean.labels != pairs.corrupted.labels).all())
        True
    """

    clean: Batch
    corrupted: Batch

    def __len__(self) -> int:
        return len(self.clean)

    def __getitem__(self, rows: slice | Tensor) -> Pairs:
        return Pairs(self.clean[rows], self.corrupted[rows])


def digits_of(index: Int[Tensor, "rows"], base: int, length: int) -> Int[Tensor, "rows length"]:
    """Return the rows of digits below `base` that have these indices in lexicographic order."""
    powers = [min(base**place, 2**62) for place in reversed(range(length))]  # an int64 index divided by more is 0
    return index[:, None] // torch.tensor(powers) % base


def find_first(tokens: Int[Tensor, "rows length"], token: int) -> Int[Tensor, "rows"]:
    """Return the position of a token's first occurrence in each row; -1 if it does not occur."""
    here = tokens == token
    at = here.int().argmax(1)
    return torch.where(here.gather(1, at[:, None])[:, 0], at, -1)  # faster than here.any(1)


def find_positions(task: Any, tokens: Int[Tensor, "rows length"], token: str) -> Int[Tensor, "rows"]:
    """Return the first position of `token` in each row; "first" and "last" mean the first and last non-pad position.

    task: an interp.Task. Raises InterpError if a row does not contain the token.
    """
    if token == "first":
        return torch.zeros(len(tokens), dtype=torch.long, device=tokens.device)
    if token == "last":
        if task.pad_id is None:
            return torch.full((len(tokens),), tokens.shape[1] - 1, device=tokens.device)
        return (tokens != task.pad_id).sum(1) - 1
    at = find_first(tokens, task.token_id(token))
    if (at < 0).any():
        row = int((at < 0).int().argmax())
        raise InterpError(f"row {row} has no {token!r}, at which the answer of task {task.name} is read")
    return at


# ---------------------------------------------------------------- minimal pairs

MOST_LISTED = 2**16
"""If a task lists at most this many inputs, a changed row must be one of them."""

MANY = 100
"""Number of rows from which one try that finds no pair shows that the task has none of the kind."""

KINDS = ("changed", "swapped", "longer", "shorter")
"""What differs in a minimal pair: one token, the places of two, or one token more or less."""


def minimal_pairs(
    task: Task,
    batch: Batch,
    seed: int = 0,
    kind: str = "changed",
    tries: int = 16,
    places: Int[Tensor, "places"] | None = None,
) -> Pairs:
    """Make pairs of one of KINDS, for any task with `batch`: see Task.corrupt. places: positions that may change.

    Rows without such a pair are left out. A changed row must be labeled by the task, keep any read token in place (at
    the end, if its length changes), and be a listed input if the task lists at most MOST_LISTED. Marks, such as [BOS],
    stay. Raises InterpError for another kind.
    """
    check_size("seed", seed, least=0)
    check_one_of("kind of pairs", kind, KINDS)
    generator = torch.Generator().manual_seed(seed)
    clean, tokens = task.batch(batch.tokens), batch.tokens
    changed, found = tokens.clone(), torch.zeros(len(tokens), dtype=torch.bool)
    listed, free = _listed(task), _free(batch)
    for attempt in range(tries):
        rows = (~found).nonzero()[:, 0]
        if not len(rows) or (attempt and len(rows) == len(tokens) >= MANY):
            break
        rows, tried = _edited(task, batch, rows, kind, places, free, generator)
        lengths = batch.lengths[rows] + {"longer": 1, "shorter": -1}.get(kind, 0)
        if not len(rows):
            continue
        kept = _as_before(task, tokens[rows], tried, kind)
        rows, tried, lengths = rows[kept], tried[kept], lengths[kept]
        allowed = _accepted(task, tried)
        if listed is not None:
            within = [(*row[:n],) in listed for row, n in zip(tried.tolist(), lengths.tolist())]
            allowed &= torch.tensor(within, dtype=torch.bool)
        rows, tried = rows[allowed], tried[allowed]
        if not len(rows):
            continue
        labels, before = task.batch(tried).labels, clean.labels[rows]
        other = (labels != before).reshape(len(rows), -1).any(1)
        changed[rows[other]], found[rows[other]] = tried[other], True
    return Pairs(clean[found], task.batch(changed[found]))


def _edited(
    task: Task, batch: Batch, rows: Tensor, kind: str, places: Tensor | None, free: Tensor, generator: torch.Generator
) -> tuple[Int[Tensor, "some"], Int[Tensor, "some length"]]:
    """Draw a change of some rows, those where one was found, and the changed rows."""
    tokens, mask = batch.tokens, batch.attention_mask

    def places_of(rows: Tensor) -> Tensor:
        draw = torch.rand(len(rows), generator=generator, dtype=torch.float64)
        return (draw * batch.lengths[rows]).long() if places is None else places[(draw * len(places)).long()]

    at = places_of(rows)
    donor = torch.randint(len(tokens), (len(rows),), generator=generator)
    order = torch.arange(tokens.shape[1])[None]
    if kind == "changed":
        # Take the token of another row at the same position, so that marks shared by all rows never change.
        new = tokens[donor, at]
        good = mask[donor, at] & (new != tokens[rows, at])
        return rows[good], torch.where(order == at[good, None], new[good, None], tokens[rows[good]])
    good = free[rows, at]
    if kind == "swapped":
        to = places_of(rows)
        good &= free[rows, to] & (tokens[rows, at] != tokens[rows, to])
        rows, at, to = rows[good], at[good, None], to[good, None]
        from_ = torch.where(order == at, to, torch.where(order == to, at, order))
        return rows, tokens[rows].gather(1, from_)
    if task.pad_id is None:
        good &= False
    if kind == "longer":
        source = (torch.rand(len(rows), generator=generator, dtype=torch.float64) * batch.lengths[donor]).long()
        good &= (batch.lengths[rows] < tokens.shape[1]) & free[donor, source]
        rows, at, new = rows[good], at[good, None], tokens[donor, source][good, None]
        moved = tokens[rows].gather(1, (order - (order > at).long()).expand(len(rows), -1))
        return rows, torch.where(order == at, new, moved)
    rows, at = rows[good], at[good, None]
    moved = tokens[rows].gather(1, (order + (order >= at).long()).clamp(max=tokens.shape[1] - 1))
    return rows, moved.masked_fill(order >= batch.lengths[rows, None] - 1, task.pad_id or 0)


def _free(batch: Batch) -> Bool[Tensor, "rows length"]:
    """The positions of tokens that are no marks: a mark is at the same place from the start or the end in all rows."""
    rows, found = torch.arange(len(batch)), batch.attention_mask.clone()
    for place in (torch.zeros_like(batch.lengths), batch.lengths - 1):
        there = batch.tokens[rows, place]
        if len(batch) > 1 and bool((there == there[0]).all()):
            found[rows, place] = False
    return found


def _listed(task: Task) -> set[tuple[int, ...]] | None:
    """Return all inputs, without padding, if the task lists at most MOST_LISTED; otherwise None."""
    try:
        if task.n_inputs is None or task.n_inputs > MOST_LISTED:
            return None
        return {
            (*row[:length],)
            for part in task.inputs()
            for row, length in zip(part.tokens.tolist(), part.lengths.tolist())
        }
    except UnsupportedError:
        return None


def _as_before(
    task: Task, clean: Int[Tensor, "rows length"], tried: Int[Tensor, "rows length"], kind: str
) -> Bool[Tensor, "rows"]:
    """Whether the token at which the answer is read, if any, is where it was, or is as often if the length changes."""
    if task.readout not in task.vocabulary:
        return torch.ones(len(tried), dtype=torch.bool)
    before, after = (rows == task.token_id(task.readout) for rows in (clean, tried))
    return (before == after).all(1) if kind in ("changed", "swapped") else before.sum(1) == after.sum(1)


def _accepted(task: Task, tokens: Int[Tensor, "rows length"]) -> Bool[Tensor, "rows"]:
    """Test whether the task accepts and labels each row."""
    try:
        task.check_input(tokens)
        task.batch(tokens)
    except InterpError:
        if len(tokens) == 1:
            return torch.zeros(1, dtype=torch.bool)
        half = len(tokens) // 2
        return torch.cat([_accepted(task, tokens[:half]), _accepted(task, tokens[half:])])
    return torch.ones(len(tokens), dtype=torch.bool)
