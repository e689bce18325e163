"""Tasks whose answer compares two counts, such as Count01 (Zsámboki et al. 2025, Definition 3.1) or a majority vote.

Such a task declares counted = (a, b, noise), contrast = (answer if b occurs more often than a, answer otherwise) and
count_ranges, the range of each count per split. Its inputs are counted tokens in any order, between marks that are the
same in every input. A task may define label_counts, from counts to the right output index; otherwise each count is
compared with the task's labels in one order of the tokens, or in a few orders if there are many.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from interp.errors import InterpError, UnsupportedError, check_one_of, quoted, refuse_if
from interp.tasks.batch import IGNORED, Batch, find_first, find_positions
from interp.tasks.structure import Structure, compare, difference
from interp.tasks.task import Task

CHECKED = 64
"""Number of combinations of counts at which the declarations are always compared with the task's labels."""
ORDERS = 3
"""Number of token orders in which they are compared."""
COUNTS_AT_ONCE, LABELS_AT_ONCE = 1 << 10, 1 << 20
MOST = 1 << 36
"""Largest number of inputs in a box; more would take hours."""


@dataclass(frozen=True)
class CountBox:
    """A finite set of inputs, without regard to token order: all (n0, n1, n2) with each count in an inclusive range.

    names: how text calls the three counts; see `count_names`.
    """

    n0: tuple[int, int]
    n1: tuple[int, int]
    n2: tuple[int, int]
    names: tuple[str, str, str] = field(default=("n0", "n1", "n2"), compare=False, repr=False)

    def __post_init__(self) -> None:
        for name, (low, high) in self.ranges.items():
            if type(low) is not int or type(high) is not int:
                raise InterpError(f"the range of {name} is {quoted(low)}..{quoted(high)}; give two integers")
            if not 0 <= low <= high:
                raise InterpError(f"the range of {name} is {low}..{high}; it must satisfy 0 <= low <= high")
        if (inputs := math.prod(self.sides)) > MOST:
            raise InterpError(f"the box {self} has {inputs:,} inputs, more than the limit of {MOST:,}")

    @property
    def ranges(self) -> dict[str, tuple[int, int]]:
        return dict(zip(self.names, (self.n0, self.n1, self.n2), strict=True))

    @property
    def sides(self) -> tuple[int, int, int]:
        """Number of values of n0, n1 and n2."""
        return tuple(high - low + 1 for low, high in self.ranges.values())  # type: ignore[return-value]

    def __len__(self) -> int:
        a, b, c = self.sides
        return a * b * c

    def counts(self, start: int = 0, stop: int | None = None) -> Int[Tensor, "inputs 3"]:
        """Return rows start..stop - 1 of the enumeration, in which n2 changes fastest."""
        index = torch.arange(start, len(self) if stop is None else min(stop, len(self)))
        _, n1_side, n2_side = self.sides
        low = torch.tensor([low for low, _ in self.ranges.values()])
        return torch.stack([index // (n1_side * n2_side), index // n2_side % n1_side, index % n2_side], 1) + low

    def __str__(self) -> str:
        return ", ".join(f"{name} in {low}..{high}" for name, (low, high) in self.ranges.items())


@dataclass(frozen=True)
class CountedShape:
    """The token ids and output indices of a task whose answers depend only on counts.

    counted: the three tokens. answers: the right output if n1 > n0, and the right output otherwise. query: the token at
    which the answer is read. marks: for each token that is not counted, how often it occurs up to the query.
    """

    counted: tuple[int, int, int]
    answers: tuple[int, int]
    query: int
    marks: Int[Tensor, "d_vocab"]
    after: tuple[tuple[int, int], int] | None = None
    """The read at the next position, if any: its query token after each of the answers, and the right output there."""

    def label(self, counts: Int[Tensor, "*rows 3"]) -> Int[Tensor, "*rows"]:
        """Return the right output at these counts."""
        return torch.where(counts[..., 1] > counts[..., 0], *self.answers)

    def answer_rows(self, counts: Int[Tensor, "rows 3"]) -> tuple[Tensor, Tensor, Tensor]:
        """Return the query token, the count of each visible token, and the right output, at the read position."""
        keys = self.marks.repeat(len(counts), 1)
        keys[:, list(self.counted)] += counts
        return torch.full((len(counts),), self.query), keys, self.label(counts)

    def end_rows(self, counts: Int[Tensor, "rows 3"]) -> tuple[Tensor, Tensor, Tensor]:
        """Return the same as `answer_rows` for the next position, after the right answer.

        Raises UnsupportedError if nothing is read there.
        """
        if self.after is None:
            raise UnsupportedError("nothing is read after the answer")
        _, keys, labels = self.answer_rows(counts)
        first, second = self.after[0]
        query = torch.where(labels == self.answers[0], first, second)
        return query, keys.scatter_add(1, query[:, None], torch.ones_like(query)[:, None]), torch.full(
            (len(counts),), self.after[1]
        )  # fmt: skip


def count_names(counted: Sequence[str]) -> tuple[str, str, str]:
    """Return what text calls the counts of three tokens: n0, n1 and n2 (as in the paper) if they are 0, 1 and 2."""
    if tuple(counted) == ("0", "1", "2"):
        return "n0", "n1", "n2"
    first, second, noise = (f"count of '{token}'" for token in counted)
    return first, second, noise


def count_box(task: Task, split: str | None = None) -> CountBox:
    """Return all inputs of a split (default: the last), without regard to the order of their tokens."""
    known = tuple(task.count_ranges)
    split = known[-1] if split is None else split
    check_one_of(f"split of task {task.name}", split, known)
    n0, n1, n2 = task.count_ranges[split]
    return CountBox(n0, n1, n2, count_names(task.counted))


def sentences(task: Task, counts: Int[Tensor, "rows 3"], seed: int = 0) -> Batch:
    """Make inputs with these counts, in random order: by the task's `sentences`, or else from its example."""
    if hasattr(task, "sentences"):
        return task.sentences(counts, seed)
    before, after = _around(task)
    lengths = counts.sum(1)
    ids = torch.tensor([task.token_id(token) for token in task.counted])
    body = mixed(counts, ids, task.pad_id or 0, torch.Generator().manual_seed(seed))
    width = body.shape[1]
    if len(counts) and int(lengths.min()) < width and task.pad_id is None:
        raise UnsupportedError(f"task {task.name} has inputs of several lengths and no pad token")
    tokens = torch.full((len(counts), len(before) + width + len(after)), task.pad_id or 0)
    tokens[:, : len(before)] = before
    tokens[:, len(before) : len(before) + width] = body
    tokens.scatter_(1, len(before) + lengths[:, None] + torch.arange(len(after)), after.expand(len(counts), -1))
    return task.batch(tokens)


def mixed(
    counts: Int[Tensor, "rows 3"], ids: Int[Tensor, "3"], pad: int, generator: torch.Generator
) -> Int[Tensor, "rows longest"]:
    """Make rows of three tokens with these counts, in random order, padded on the right."""
    lengths, ends = counts.sum(1), counts.cumsum(1)
    place = torch.arange(int(lengths.max()) if len(counts) else 0)
    body = ids[(place >= ends[:, :1]).long() + (place >= ends[:, 1:2]).long()]
    outside = place >= lengths[:, None]
    # Sorting random keys shuffles each row; keys of 2 keep padding at the end.
    keys = torch.rand(body.shape, generator=generator).masked_fill(outside, 2.0)
    return body.gather(1, keys.argsort(1)).masked_fill(outside, pad)


def _around(task: Task) -> tuple[Tensor, Tensor]:
    """Return the marks before and after the counted tokens of the task's example, up to the read position."""
    example = task.example
    if example is None:
        raise UnsupportedError(f"task {task.name} gives no example, so its marks are unknown")
    row = example.tokens[0, : int(example.lengths[0])]
    ids = torch.tensor([task.token_id(token) for token in task.counted])
    places = torch.isin(row, ids).nonzero()[:, 0]
    if not len(places):
        raise UnsupportedError(f"the example of task {task.name} contains none of its counted tokens")
    end = len(row) if task.readout == "last" else int(find_first(row[None], task.token_id(task.readout))) + 1
    return row[: int(places[0])], row[int(places[-1]) + 1 : end]


def undeclared(task: Task) -> str | None:
    """Return a sentence that names the missing declarations, or None if a task has them all."""
    if len(task.counted) != 3 or task.contrast is None or not task.count_ranges:
        return f"task {task.name} does not declare three counted tokens, a contrast of two answers and count_ranges"
    if task.readout in ("all", "first"):
        return f"task {task.name} is read at {task.readout!r}, not after its counted tokens"
    return None


@dataclass(frozen=True)
class Sentences(Structure):
    """The sentences with the counts of a box, as inputs of a task of this shape."""

    task: Task
    shape: CountedShape
    box: CountBox
    what = "its counted tokens and contrast"
    listed = 1 << 15
    orders = True

    @property
    def n_inputs(self) -> int:
        return len(self.box)

    def every(self) -> Iterator[Int[Tensor, "rows length"]]:
        for start in range(0, len(self.box), COUNTS_AT_ONCE):
            yield sentences(self.task, self.box.counts(start, start + COUNTS_AT_ONCE), seed=ORDERS).tokens

    def some(self) -> Int[Tensor, "rows length"]:
        counts = _probe_counts(self.box)
        return torch.cat([sentences(self.task, counts, seed).tokens for seed in range(ORDERS)])

    def answers(self, task: Task, rows: Int[Tensor, "rows length"]) -> Int[Tensor, "rows length"]:
        at = find_positions(task, rows, task.readout)[:, None]
        counts = _keys(task, rows)[:, list(self.shape.counted)]
        return torch.full_like(rows, IGNORED).scatter(1, at, self.shape.label(counts)[:, None])

    def holds(self, batch: Batch) -> Bool[Tensor, "rows"]:
        """Return a mask of the rows with the shape's marks and counts within the task's count_ranges."""
        keys, held = _keys(self.task, batch.tokens), torch.zeros(len(batch), dtype=torch.bool)
        counts = keys[:, list(self.shape.counted)]
        for split in self.task.count_ranges:
            low, high = (torch.tensor(ends) for ends in zip(*count_box(self.task, split).ranges.values()))
            held |= ((counts >= low) & (counts <= high)).all(1)
        keys[:, list(self.shape.counted)] = 0
        return held & (keys == self.shape.marks).all(1)

    def assumption(self, task: Task) -> str:
        return f"counts determine the other labels of task {task.name} (label_counts would define them)"


def shape_of(task: Task) -> CountedShape:
    """Return the shape that a task declares, after checking it on CHECKED inputs in ORDERS orders.

    Raises UnsupportedError, with the reason, if a task declares no such shape or its inputs do not have it.
    """
    refuse_if(undeclared(task))
    assert task.contrast is not None
    counted = tuple(task.token_id(token) for token in task.counted)
    more, otherwise = (task.answer_words.index(word) for word in task.contrast)
    box = count_box(task)
    counts = _probe_counts(box)
    batch = sentences(task, counts)
    at, keys = find_positions(task, batch.tokens, task.readout), _keys(task, batch.tokens)
    query, seen = batch.tokens[torch.arange(len(batch)), at], keys[:, list(counted)]
    keys[:, list(counted)] = 0
    if not seen.equal(counts) or (keys != keys[0]).any() or (query != query[0]).any():
        raise UnsupportedError(f"inputs of task {task.name} do not all have the same marks around their counted tokens")
    after = _after(batch, task.classes(batch), at, counts[:, 1] > counts[:, 0])
    shape = CountedShape(counted, (more, otherwise), int(query[0]), keys[0], after)  # type: ignore[arg-type]
    every = Sentences(task, shape, box)
    refuse_if(difference(task, every, every.some()))
    return shape


def check_box(task: Task, shape: CountedShape, box: CountBox) -> tuple[str, ...]:
    """Compare the declared rule with label_counts, at all counts of a box, and with labels: see structure.compare."""
    if hasattr(task, "label_counts"):
        for start in range(0, len(box), LABELS_AT_ONCE):
            counts = box.counts(start, start + LABELS_AT_ONCE)
            if (wrong := task.label_counts(counts) != shape.label(counts)).any():
                example = counts[wrong][0].tolist()
                raise InterpError(f"task {task.name} labels counts {example} otherwise than its contrast declares")
    return compare(task, [Sentences(task, shape, box)])


def _keys(task: Task, rows: Int[Tensor, "rows length"]) -> Int[Tensor, "rows d_vocab"]:
    """Return how often each token occurs in each row up to its read position."""
    seen = torch.arange(rows.shape[1]) <= find_positions(task, rows, task.readout)[:, None]
    return torch.stack([((rows == token) & seen).sum(1) for token in range(task.d_vocab)], 1)


def _probe_counts(box: CountBox) -> Int[Tensor, "rows 3"]:
    """Return the corners of a box and random counts in it, half of them near n1 = n0."""
    generator = torch.Generator().manual_seed(0)
    low, high = (torch.tensor(ends) for ends in zip(*box.ranges.values()))
    corners = torch.cartesian_prod(*(torch.tensor(ends) for ends in box.ranges.values()))
    drawn = low + (torch.rand(CHECKED - 8, 3, generator=generator) * (high - low + 1)).long()
    near = drawn[: len(drawn) // 2]
    near[:, 1] = (near[:, 0] + torch.randint(-1, 2, (len(near),), generator=generator)).clamp(low[1], high[1])
    return torch.cat([corners, drawn])


def _after(batch: Batch, classes: Tensor, at: Tensor, more: Tensor) -> tuple[tuple[int, int], int] | None:
    """Return CountedShape.after: the read right after the answer, if all inputs have one with the same right output."""
    if int((at + 1).max()) >= batch.tokens.shape[1]:
        return None
    rows = torch.arange(len(batch))
    following, query = classes[rows, at + 1], batch.tokens[rows, at + 1]
    both = [query[more].unique(), query[~more].unique()]
    if (following == IGNORED).any() or (following != following[0]).any() or any(len(ids) != 1 for ids in both):
        return None
    return (int(both[0]), int(both[1])), int(following[0])
