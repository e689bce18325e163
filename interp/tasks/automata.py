"""Tasks whose labels a finite automaton computes while it reads a row.

Such a task defines automata() -> Iterator[Automaton], with one automaton per row length. Typical states are the carry
of an addition, the parity of a string, the depth of brackets, or the largest number so far. The automaton determines
the inputs (its paths) and the right answer at each read position.
"""

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from interp.errors import UnsupportedError, quoted, refuse_if
from interp.tasks.batch import IGNORED, Batch
from interp.tasks.structure import Structure, lacks
from interp.tasks.task import Task

SAMPLED = 4096
"""Number of inputs per length whose labels are compared if there are too many."""
ROWS_AT_ONCE = 1 << 16
MOST_STATES = 4096
"""Largest number of states after the same number of tokens."""
MOST_LENGTHS = 256


@dataclass(frozen=True)
class Read:
    """One read position.

    at: the position in the row. after: the number of tokens after which the automaton's state determines the answer.
    answer: the right output index, as a function of that state.
    """

    at: int
    after: int
    answer: Callable[[Any], int]


@dataclass(frozen=True)
class Automaton:
    """An automaton that reads the rows of one length.

    order: all positions of the row, in the order in which the automaton reads them. start: the initial state.
    step(state, position, token): the next state, or None if no input has this token there. reads: the read positions
    with their right answers.

    Example, the parity of two bits before "=" (token 2), where it is read:

        Automaton(order=(0, 1, 2), start=0, step=lambda s, p, t: s ^ t if t < 2 and p < 2 else s if t == p == 2 else
                  None, reads=(Read(at=2, after=3, answer=lambda s: s),))
    """

    order: tuple[int, ...]
    start: Hashable
    step: Callable[[Any, int, int], Any]
    reads: tuple[Read, ...]


@dataclass(frozen=True)
class Paths(Structure):
    """An automaton as tables.

    A place is an index into `order`: place i is the (i + 1)-th token that the automaton reads. At each place, the
    reachable states are numbered from 0.
    order: the position read at each place. following: for each place, a table of the next state by state and token; -1
    if no input has the token there. reads: for each read position, (after, answers): the number of tokens after which
    the answer is known, and the right output index by state. completions: the number of ways to read to the end, by
    place and state.
    """

    order: tuple[int, ...]
    following: tuple[Int[np.ndarray, "_ tokens"], ...]
    reads: dict[int, tuple[int, Int[np.ndarray, "_"]]]
    completions: tuple[tuple[int, ...], ...]
    what = "its automata"
    listed = 1 << 20  # takes a few seconds

    @property
    def length(self) -> int:
        """Number of tokens per row."""
        return len(self.order)

    @property
    def n_inputs(self) -> int:
        """The exact number of rows that the automaton reads to the end."""
        return self.completions[0][0]

    @cached_property
    def _shares(self) -> tuple[np.ndarray, ...]:
        """Cumulative token probabilities by place and state, such that all rows are equally likely."""
        shares = []
        for place, table in enumerate(self.following):
            after = (*self.completions[place + 1], 0)
            ways = [[after[state] for state in row] for row in table.tolist()]
            shares.append(np.cumsum([[way / sum(row) for way in row] for row in ways], axis=1))
        return tuple(shares)

    def draw(self, n: int, seed: int = 0) -> Int[Tensor, "n length"]:
        """Draw n independent inputs, uniformly over all rows."""
        rng, states = np.random.default_rng(seed), np.zeros(n, dtype=np.int64)
        rows = np.zeros((n, self.length), dtype=np.int64)
        for position, table, shares in zip(self.order, self.following, self._shares):
            chosen = (rng.random(n)[:, None] * shares[states, -1:] >= shares[states]).sum(1)
            # Rounding may select a token of probability 0 at the upper end; replace it by the last possible token.
            last = table.shape[1] - 1 - (table >= 0)[:, ::-1].argmax(1)
            chosen = np.minimum(chosen, last[states])
            rows[:, position] = chosen
            states = table[states, chosen]
        return torch.from_numpy(rows)

    def some(self) -> Int[Tensor, "rows length"]:
        return self.draw(SAMPLED)

    def repeating(self, n: int, seed: int = 0) -> Int[Tensor, "n length"]:
        """Draw n inputs that return to the same few states every one to four tokens, as in long chains of carries."""
        rng, states = np.random.default_rng(seed), np.zeros(n, dtype=np.int64)
        liked, every = rng.random((4, n, max(map(len, self.completions)))), rng.integers(1, 5, n)
        often, rows = rng.choice([0.5, 0.9, 1.0], n), np.zeros((n, self.length), dtype=np.int64)
        for place, (position, table) in enumerate(zip(self.order, self.following)):
            then = table[states]
            known = liked[(place % every)[:, None], np.arange(n)[:, None], np.maximum(then, 0)]
            score = np.where((rng.random(n) < often)[:, None], known, rng.random(then.shape))
            rows[:, position] = np.where(then >= 0, score, -1.0).argmax(1)
            states = then[np.arange(n), rows[:, position]]
        return torch.from_numpy(rows)

    def every(self) -> Iterator[Int[Tensor, "rows length"]]:
        """Yield every input once, in batches."""
        stack = [(0, np.zeros((1, self.length), dtype=np.int64), np.zeros(1, dtype=np.int64))]
        while stack:
            place, rows, states = stack.pop()
            if place == self.length:
                yield torch.from_numpy(rows)
                continue
            which, token = (self.following[place][states] >= 0).nonzero()
            grown = rows[which]
            grown[:, self.order[place]] = token
            states = self.following[place][states[which], token]
            for start in range(0, len(grown), ROWS_AT_ONCE):
                stack.append((place + 1, grown[start : start + ROWS_AT_ONCE], states[start : start + ROWS_AT_ONCE]))

    def walk(self, rows: Int[Tensor, "rows length"]) -> Int[np.ndarray, "rows places"]:
        """Return the state before each place and after the last; -1 after a token that no input has there."""
        tokens, width = rows.numpy(), self.following[0].shape[1]
        states = np.zeros((len(tokens), self.length + 1), dtype=np.int64)
        for place, (position, table) in enumerate(zip(self.order, self.following)):
            here, token = states[:, place], tokens[:, position]
            inside = (here >= 0) & (token >= 0) & (token < width)
            states[:, place + 1] = np.where(inside, table[np.where(inside, here, 0), np.where(inside, token, 0)], -1)
        return states

    def holds(self, batch: Batch) -> Bool[Tensor, "rows"]:
        """Return a mask of the rows that the automaton accepts as inputs."""
        fits = batch.lengths == self.length
        if batch.tokens.shape[1] < self.length:
            return torch.zeros(len(batch), dtype=torch.bool)
        return fits & torch.from_numpy(self.walk(batch.tokens[:, : self.length])[:, -1] >= 0)

    def answers(self, task: Task, rows: Int[Tensor, "rows length"]) -> Int[Tensor, "rows length"]:
        return self.right(rows)

    def assumption(self, task: Task) -> str:
        return f"the automaton of task {task.name} gives the right answers on the others"

    def right(self, rows: Int[Tensor, "rows length"]) -> Int[Tensor, "rows length"]:
        """Return the right output index at each read position of inputs, IGNORED elsewhere."""
        states = self.walk(rows)
        classes = torch.full(rows.shape, IGNORED)
        for at, (after, answers) in self.reads.items():
            classes[:, at] = torch.from_numpy(answers[states[:, after]])
        return classes


def tabulated(task: Task, automaton: Automaton) -> Paths:
    """Convert an automaton to tables. Raises UnsupportedError, with the reason, if it does not fit its task."""
    name, length = f"an automaton of task {task.name}", len(automaton.order)
    if sorted(automaton.order) != list(range(length)) or not length:
        raise UnsupportedError(f"{name} reads the positions {quoted(automaton.order)}; it must read each of a row once")
    if not automaton.reads:
        raise UnsupportedError(f"{name} gives no answer: its reads are empty")
    for read in automaton.reads:
        if not 0 <= read.at < length or not 0 <= read.after <= length:
            raise UnsupportedError(
                f"{name} gives the answer at position {read.at} after {read.after} tokens, but rows have {length}"
            )
    states: list[dict[Hashable, int]] = [{automaton.start: 0}]
    tables: list[np.ndarray] = []
    for position in automaton.order:
        numbers: dict[Hashable, int] = {}
        table = np.full((len(states[-1]), task.d_vocab), -1, dtype=np.int64)
        for state, row in zip(states[-1], table):
            for token in range(task.d_vocab):
                if (then := automaton.step(state, position, token)) is not None:
                    row[token] = numbers.setdefault(then, len(numbers))
            if len(numbers) > MOST_STATES:
                raise UnsupportedError(f"{name} has more than {MOST_STATES:,} states after position {position}")
        states.append(numbers)
        tables.append(table)
    return _pruned(task, name, automaton, states, tables)


def _pruned(
    task: Task, name: str, automaton: Automaton, states: list[dict[Hashable, int]], tables: list[np.ndarray]
) -> Paths:
    """Remove the states from which no row can be read to the end."""
    ways: list[list[int]] = [[1] * len(states[-1])]
    for table in reversed(tables):
        after = (*ways[0], 0)
        ways.insert(0, [sum(after[then] for then in row) for row in table.tolist()])
    if not ways[0][0]:
        raise UnsupportedError(f"{name} reads no row to the end")
    number = [np.cumsum([way > 0 for way in here]) - 1 for here in ways]
    alive = [np.array([way > 0 for way in here]) for here in ways]
    kept = []
    for place, table in enumerate(tables):
        goes = (table >= 0) & alive[place + 1][table]
        kept.append(np.where(goes, number[place + 1][table], -1)[alive[place]])
    reads: dict[int, tuple[int, np.ndarray]] = {}
    for read in automaton.reads:
        here = [state for state, ok in zip(states[read.after], alive[read.after]) if ok]
        answers = np.array([read.answer(state) for state in here])
        if read.at in reads or ((answers < 0) | (answers >= max(2, task.n_out))).any():
            raise UnsupportedError(f"{name} has two answers at position {read.at}, or one that is not an output index")
        reads[read.at] = read.after, answers
    completions = tuple(tuple(way for way in here if way) for here in ways)
    return Paths(automaton.order, tuple(kept), reads, completions)


def declared(task: Task) -> list[Paths]:
    """Return the automata that a task declares, as tables.

    Raises UnsupportedError, with the reason, if there are none, too many, or two for one length.
    """
    refuse_if(lacks(task, ("automata",)))
    tables = [tabulated(task, automaton) for automaton in islice(task.automata(), MOST_LENGTHS + 1)]  # type: ignore[attr-defined]
    if not 0 < len(tables) <= MOST_LENGTHS or len({paths.length for paths in tables}) < len(tables):
        raise UnsupportedError(f"task {task.name} has no automaton, more than {MOST_LENGTHS}, or two for one length")
    return tables
