"""Ranges of attention over all inputs that share a few tokens and states: dynamic programming over (place, state).

A head's output is sum_j w_j v_j / sum_j w_j over the visible places j, where w_j and v_j depend on the token there. One
coordinate c of the output is at least m on all inputs of a set if and only if sum_j w_j (c_j - m) >= 0 on each of them.
The least such sum over all paths of an automaton between two places is a shortest-path problem. It is a concave
function of m, so between two grid values of m it lies above its chord, and the chord's zero is a valid lower bound.
(Dinkelbach 1967 iterates to the exact m; one fixed grid serves all cells at once.)

A *cell* is a set of inputs, given by tokens at some places and by automaton states at *cuts* (cut i is before place i).
Between two cuts, all paths are bounded together.

Inputs in a union of such sets are counted exactly: the automaton reads all rows at once, and a bit mask tracks which
sets a row may still belong to. Rows with the same state and mask are counted together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float, Int

from interp.tasks.automata import Paths

GRID = 25
"""Number of values of m, evenly spaced from the smallest to the largest coordinate."""
Array = np.ndarray
STEPS = 3_000_000
"""Largest number of steps in which a union is counted; they take a few seconds."""
MOST_BYTES = 500_000_000
"""Largest memory for the (state, mask) pairs of one place, in a union."""
ENTRY = 250
"""Bytes per pair, in addition to one bit per set."""


@dataclass(frozen=True)
class Cells:
    """Cells with the same cuts. states: the state per cut (places read so far). tokens: the token per fixed place."""

    states: dict[int, Int[Array, "cells"]]
    tokens: dict[int, Int[Array, "cells"]]

    def __len__(self) -> int:
        return len(self.states[0])

    def __getitem__(self, rows: Array | slice) -> Cells:
        return Cells({cut: state[rows] for cut, state in self.states.items()},
                     {place: token[rows] for place, token in self.tokens.items()})  # fmt: skip

    @cached_property
    def cuts(self) -> tuple[int, ...]:
        return tuple(sorted(self.states))

    @property
    def gaps(self) -> list[tuple[int, int]]:
        """Neighboring cuts with no fixed token in between."""
        return [(a, b) for a, b in zip(self.cuts, self.cuts[1:]) if a not in self.tokens]


@dataclass(frozen=True)
class Routes:
    """The steps of an automaton with one token at the read position, and the numbers of paths between cuts.

    steps: per place, arrays (state, token, next state), sorted by state. by_next: per place, the order that sorts the
    steps by the next state.
    """

    paths: Paths
    steps: tuple[tuple[Array, Array, Array], ...]
    by_next: tuple[Array, ...]
    _counts: dict[tuple[int, int], Array] = field(default_factory=dict)

    @classmethod
    def of(cls, paths: Paths, at: int, token: int) -> Routes:
        steps = []
        for position, table in zip(paths.order, paths.following):
            state, read = (table >= 0).nonzero()
            if position == at:
                state, read = state[read == token], read[read == token]
            steps.append((state, read, table[state, read]))
        return cls(paths, tuple(steps), tuple(np.argsort(then, kind="stable") for _, _, then in steps))

    @property
    def length(self) -> int:
        return self.paths.length

    def n_states(self, cut: int) -> int:
        return len(self.paths.completions[cut])

    def counts(self, start: int, stop: int) -> Array:
        """Return the number of paths from each state at one cut to each state at another, exact (Python integers)."""
        if (start, stop) not in self._counts:
            if start == stop:
                self._counts[start, stop] = np.diag([1] * self.n_states(start)).astype(object)
            else:
                before, (state, _, then) = self.counts(start, stop - 1), self.steps[stop - 1]
                ways = np.zeros((len(before), self.n_states(stop)), dtype=object)
                for source, target in zip(state.tolist(), then.tolist()):
                    ways[:, target] += before[:, source]
                self._counts[start, stop] = ways
        return self._counts[start, stop]

    @cached_property
    def endings(self) -> list[Array]:
        """Per cut, the number of paths from each state to the end, exact."""
        ways = [np.ones(self.n_states(self.length), dtype=object)]
        for place in reversed(range(self.length)):
            state, _, then = self.steps[place]
            here = np.zeros(self.n_states(place), dtype=object)
            np.add.at(here, state, ways[0][then])
            ways.insert(0, here)
        return ways

    def all_inputs(self, after: int) -> Cells:
        """Return all inputs, as one cell per state at the cut `after`, where the answer is determined."""
        reached = (self.counts(0, after)[0] > 0) & (self.endings[after] > 0)
        last = np.flatnonzero(reached)
        states = {0: np.zeros(len(last), dtype=np.int64), after: last}
        return Cells(states, {})

    def split(self, cells: Cells, place: int) -> Cells:
        """Split every cell by the token at a place and by the states before and after it."""
        state, token, then = self.steps[place]
        cell, step = self._passable(cells, place).nonzero()
        repeated = cells[cell]
        states = {**repeated.states, place: state[step], place + 1: then[step]}
        return Cells(states, {**repeated.tokens, place: token[step]})

    def fanned(self, cells: Cells, place: int) -> Int[Array, "cells"]:
        """Return the number of cells that `split` makes of each cell."""
        return self._passable(cells, place).sum(1)

    def _passable(self, cells: Cells, place: int) -> Bool[Array, "cells steps"]:
        """Return whether each step at a place lies on a path between the cell's states at the cuts around it."""
        before = max(cut for cut in cells.cuts if cut <= place)
        behind = min((cut for cut in cells.cuts if cut > place), default=self.length)
        bounded = behind in cells.states
        state, _, then = self.steps[place]
        comes = self.counts(before, place)[:, state] > 0
        goes = (self.counts(place + 1, behind)[then] > 0) if bounded else (self.endings[place + 1][then] > 0)[:, None]
        last = cells.states[behind] if bounded else np.zeros(len(cells), dtype=np.int64)
        return comes[cells.states[before]] & goes.T[last]

    def sizes(self, cells: Cells) -> Array:
        """Return the number of inputs in each cell, exact."""
        sizes = np.ones(len(cells), dtype=object)
        for a, b in cells.gaps:
            sizes = sizes * self.counts(a, b)[cells.states[a], cells.states[b]]
        return sizes * self.endings[cells.cuts[-1]][cells.states[cells.cuts[-1]]]

    def example(self, cells: Cells, index: int) -> list[int]:
        """Return one input of a cell: token ids by position."""
        row = [0] * self.length
        # Backwards from the end: the states from which the cell's later states and tokens can be reached.
        alive = [np.ones(self.n_states(self.length), dtype=bool)]
        for cut in reversed(range(self.length + 1)):
            if cut < self.length:
                state, token, then = self.steps[cut]
                goes = alive[0][then]
                if cut in cells.tokens:
                    goes = goes & (token == cells.tokens[cut][index])
                alive.insert(0, np.zeros(self.n_states(cut), dtype=bool))
                alive[0][state[goes]] = True
            if cut in cells.states:
                alive[0] &= np.arange(len(alive[0])) == cells.states[cut][index]
        here = int(cells.states[0][index])
        for place, (state, token, then) in enumerate(self.steps):
            goes = (state == here) & alive[place + 1][then]
            if place in cells.tokens:
                goes &= token == cells.tokens[place][index]
            chosen = int(np.flatnonzero(goes)[0])
            row[self.paths.order[place]], here = int(token[chosen]), int(then[chosen])
        return row


@dataclass(frozen=True)
class HeadTerms:
    """The terms of one head's sums for one query token, by place and token.

    weight: attention weight, up to a common factor; 0 if the place is not visible. coordinates: the coordinates of the
    value. slack: relative error of weights and sums together.
    """

    routes: Routes
    weight: Float[Array, "places tokens"]
    coordinates: Float[Array, "r places tokens"]
    slack: float
    _tables: dict[tuple[int, int | None], Array] = field(default_factory=dict)

    @cached_property
    def ends(self) -> Float[Array, "r 2"]:
        """The smallest and largest value of each coordinate, over all possible tokens at visible places."""
        usable = np.zeros(self.weight.shape, dtype=bool)
        for place, (_, tokens, _) in enumerate(self.routes.steps):
            usable[place, tokens] = True
        usable &= self.weight > 0
        if not usable.any():
            return np.zeros((len(self.coordinates), 2))
        return np.stack([self.coordinates[:, usable].min(1), self.coordinates[:, usable].max(1)], 1)

    @cached_property
    def grid(self) -> Float[Array, "r grid"]:
        low, high = self.ends.T
        grid = np.linspace(low, high, GRID, axis=1)
        grid[:, 0], grid[:, -1] = low, high
        return grid

    @cached_property
    def costs(self) -> Float[Array, "channels places tokens"]:
        """w (c - m) for each coordinate c and grid value m; channel = coordinate * GRID + grid index."""
        lead = self.coordinates[:, None] - self.grid[:, :, None, None]
        return (self.weight * lead).reshape(-1, *self.weight.shape)

    def between(self, start: int, stop: int) -> Float[Array, "2 channels before after"]:
        """Return the smallest and largest sums over all paths between states at two cuts; infinite without a path."""
        if (start, stop) not in self._tables:
            n = self.routes.n_states(start)
            sums = np.full((2, len(self.costs), n, n), np.inf)
            sums[1] *= -1
            sums[:, :, range(n), range(n)] = 0.0
            for place in range(start, stop):
                state, token, then = (part[self.routes.by_next[place]] for part in self.routes.steps[place])
                grown = sums[..., state] + self.costs[:, None, place, token]
                sums = _extremes(grown, then, self.routes.n_states(place + 1))
            self._tables[start, stop] = sums
        return self._tables[start, stop]

    def onward(self, cut: int) -> Float[Array, "2 channels states"]:
        """Return the smallest and largest sums from each state at a cut to the end."""
        if (cut, None) not in self._tables:
            if not (self.weight[cut:] > 0).any():
                sums = np.zeros((2, len(self.costs), self.routes.n_states(cut)))
            else:
                state, token, then = self.routes.steps[cut]
                grown = self.onward(cut + 1)[..., then] + self.costs[:, cut, token]
                sums = _extremes(grown, state, self.routes.n_states(cut))
            self._tables[cut, None] = sums
        return self._tables[cut, None]

    def box(self, cells: Cells) -> tuple[Float[Array, "r cells"], Float[Array, "r cells"]]:
        """Return bounds of each coordinate of the head's output over each cell."""
        mass = np.zeros(len(cells))
        pull = np.zeros((len(self.coordinates), len(cells)))
        for place, token in cells.tokens.items():
            mass += self.weight[place, token]
            pull += (self.weight[place] * self.coordinates[:, place])[:, token]
        rest, kind = self._extremes_elsewhere(cells)
        lows, highs = [], []
        for index, (grid, ends) in enumerate(zip(self.grid, self.ends)):
            channels = slice(index * GRID, (index + 1) * GRID)
            fixed = pull[index] - grid[:, None] * mass
            slip = self.slack * (ends[1] - ends[0]) + 4e-16 * np.abs(ends).max()
            lows.append(np.maximum(_crossing(grid, fixed + rest[0, channels][:, kind]) - slip, ends[0]))
            # An upper bound is minus a lower bound of the negative.
            above = -(fixed + rest[1, channels][:, kind])[::-1]
            highs.append(np.minimum(-_crossing(-grid[::-1], above) + slip, ends[1]))
        return np.array(lows), np.array(highs)

    def _extremes_elsewhere(self, cells: Cells) -> tuple[Float[Array, "2 channels kinds"], Int[Array, "cells"]]:
        """Return extreme sums over all places without a fixed token, per combination of states at the cuts.

        Also returns the index of each cell's combination.
        """
        last = cells.cuts[-1]
        gaps = cells.gaps
        keys = [cells.states[cut] for gap in gaps for cut in gap] + [cells.states[last]]
        code = np.zeros(len(cells), dtype=np.int64)
        for key in keys:
            code = code * (int(key.max(initial=0)) + 1) + key
            _, code = np.unique(code, return_inverse=True)
        _, first, kind = np.unique(code, return_index=True, return_inverse=True)
        total = self.onward(last)[:, :, cells.states[last][first]]
        for a, b in gaps:
            total = total + self.between(a, b)[:, :, cells.states[a][first], cells.states[b][first]]
        return total, kind


def _extremes(sums: Float[Array, "2 *kinds steps"], states: Int[Array, "steps"], n: int) -> Float[Array, "2 *kinds n"]:
    """Return the smallest and largest sum per state, of steps sorted by their state; infinite without a step."""
    reached, first = np.unique(states, return_index=True)
    low, high = (np.full((*sums.shape[1:-1], n), end) for end in (np.inf, -np.inf))
    low[..., reached] = np.minimum.reduceat(sums[0], first, axis=-1)
    high[..., reached] = np.maximum.reduceat(sums[1], first, axis=-1)
    return np.stack([low, high])


def _crossing(grid: Float[Array, "grid"], values: Float[Array, "grid cells"]) -> Float[Array, "cells"]:
    """Return a lower bound on the zero of each column, a decreasing concave function given on the grid."""
    positive = values >= 0
    # Interpolate between the last value that is not negative and the first that is.
    many = np.where(positive.all(0), len(grid), (~positive).argmax(0))
    left = np.clip(many - 1, 0, len(grid) - 2)
    columns = np.arange(values.shape[1])
    above, below = values[left, columns], values[left + 1, columns]
    with np.errstate(all="ignore"):
        share = np.clip(np.nan_to_num(above / (above - below)), 0, 1)
    zero = grid[left] + share * (grid[left + 1] - grid[left])
    return np.where(many == 0, grid[0], np.where(many == len(grid), grid[-1], zero))


@dataclass(frozen=True)
class TokenPattern:
    """The set of inputs with these states (by number of places read) and these tokens (by place)."""

    states: dict[int, int]
    tokens: dict[int, int]

    @property
    def last(self) -> int:
        """Number of places after which the pattern has no more conditions."""
        return max([*self.states, *(place + 1 for place in self.tokens)], default=0)


def union(paths: Paths, patterns: Sequence[TokenPattern], most: int = STEPS) -> int | None:
    """Return the number of inputs that match at least one pattern; None if counting takes more than `most` steps."""
    states = _Conditions(patterns, "states")
    tokens = _Conditions(patterns, "tokens")
    finished = [sum(1 << index for index, pattern in enumerate(patterns) if pattern.last <= cut)
                for cut in range(paths.length + 1)]  # fmt: skip
    # Number of prefixes per state and mask of the patterns that are still possible.
    layer: dict[tuple[int, int], int] = {(0, (1 << len(patterns)) - 1): 1}
    matching = steps = 0
    for cut in range(paths.length + 1):
        kept: dict[tuple[int, int], int] = defaultdict(int)
        for (state, alive), ways in layer.items():
            alive &= states.fits(cut, state)
            if alive & finished[cut]:
                matching += ways * paths.completions[cut][state]
            elif alive:
                kept[state, alive] += ways
        if cut == paths.length:
            break
        layer = defaultdict(int)
        for (state, alive), ways in kept.items():
            for token, then in enumerate(paths.following[cut][state].tolist()):
                if then >= 0:
                    steps += 1
                    if still := alive & tokens.fits(cut, token):
                        layer[then, still] += ways
            if steps > most or len(layer) * (ENTRY + len(patterns) // 8) > MOST_BYTES:
                return None
    return matching


class _Conditions:
    """Bit masks of the patterns that a state at a cut, or a token at a place, matches."""

    def __init__(self, patterns: Sequence[TokenPattern], name: str) -> None:
        self.all = (1 << len(patterns)) - 1
        self.unconditioned: dict[int, int] = defaultdict(lambda: self.all)
        self.matching: dict[tuple[int, int], int] = defaultdict(int)
        for index, pattern in enumerate(patterns):
            for at, value in getattr(pattern, name).items():
                self.unconditioned[at] &= ~(1 << index)
                self.matching[at, value] |= 1 << index

    def fits(self, at: int, value: int) -> int:
        return self.unconditioned.get(at, self.all) | self.matching.get((at, value), 0)
