"""Sets of sequences for branch and bound, with bounds on the neurons' inputs at one own token.

A node is a set of sequences with the same own token and count, and with some of the other slots fixed. Two kinds:

Multisets  Scores from queries and keys. Order does not matter, so a node fixes how often some tokens occur; the free
           slots may contain any of the remaining tokens. A node is split by the count of the token that lowers an
           undecided bound most. The neurons' input is own + (top + sum n_o) / (bottom + sum d_o); without softmax,
           bottom = 1 and d = 0. It lies between the "ends", where all free slots have the same token
           (`interp.families.histogram.theory.ranges`). So every concave function of it is smallest at an end.
Slots      Fixed patterns (linear mixing). A node fixes the tokens in the slots with the largest weights in one row of
           the pattern. Each free slot takes its best other token, and the own token's copies go to the slots where they
           gain most.

Sums w . relu(z) are bounded from below by affine functions of z, given an interval [lo, hi] for each neuron's input z.
A neuron of fixed sign is affine. One that changes sign is bounded by
- w < 0: the chord w hi (z - lo) / (hi - lo), the best affine bound, touching at both ends;
- w > 0: any line w a z with 0 <= a <= 1: a = 0 or 1, whichever leaves the smaller gap, or, if `parallel`, the slope of
  the chord.
The minimum of an affine function over token sequences is exact (see `ranges.py`), so these give sound bounds, exact
where no neuron changes its sign. Bounds from above follow with -w.
Source: errata on Behrens et al. (2024), section C; the relaxation is that of Wong & Kolter (2018) and CROWN (2018).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb
from typing import TypeAlias

import numpy as np
from jaxtyping import Bool, Float, Int

from interp.families.histogram.certificates.tables import Tables

DEEPEST = -300.0  # exponent below which an own token's softmax weight is lost next to another's
IN_CACHE = 1 << 17
"""Number of elements of an array that fits in the cache."""


@dataclass(frozen=True)
class Nodes:
    """Nodes, one per row.

    rest: mask of the tokens allowed in the free slots (Multisets). start: the next slot (Slots). left: number of free
    slots; in Slots, `copies` of them have the own token. picks: tokens chosen so far.
    """

    position: Int[np.ndarray, " n"]
    count: Int[np.ndarray, " n"]
    start: Int[np.ndarray, " n"]
    left: Int[np.ndarray, " n"]
    copies: Int[np.ndarray, " n"]
    top: Float[np.ndarray, "n p"]
    bottom: Float[np.ndarray, " n"]
    ways: Float[np.ndarray, " n"]
    picks: Int[np.ndarray, "n picks"]
    rest: Bool[np.ndarray, "n others"]

    def __len__(self) -> int:
        return len(self.count)

    def __getitem__(self, rows: np.ndarray | slice) -> Nodes:
        return Nodes(**{name: getattr(self, name)[rows] for name in self.__dataclass_fields__})

    @classmethod
    def joined(cls, parts: list[Nodes]) -> Nodes:
        return cls(
            **{name: np.concatenate([getattr(part, name) for part in parts]) for name in cls.__dataclass_fields__}
        )


def space_of(tables: Tables, token: int) -> Space | None:
    """Return the space of one own token; None if its softmax weight underflows next to another token's."""
    if tables.pattern is not None:
        return Slots(tables, token)
    space = Multisets(tables, token)
    return space if space.sound else None


class Multisets:
    """Sequences with one own token, up to the order of the others."""

    def __init__(self, tables: Tables, token: int) -> None:
        assert tables.scores is not None
        T, self.token, self.L = tables.T, token, tables.L
        row, value = tables.scores[token], tables.value
        weights = np.exp(np.maximum(row - row.max(), -745.0)) if tables.softmax else row
        self.d = weights if tables.softmax else np.zeros_like(weights)
        self.own, self.p = tables.own[token], value.shape[1]
        terms = weights[:, None] * value
        here = row[[token, T]] if tables.bos else row[[token]]
        self.sound = not tables.softmax or float(here.max() - row.max()) > DEEPEST
        self.copy, self.copy_d = terms[token], self.d[token]
        self.base = np.array(terms[T]) if tables.bos else np.zeros(self.p)
        self.base_d = 1.0 if not tables.softmax else float(self.d[T]) if tables.bos else 0.0
        others = np.array([o for o in range(T) if o != token], dtype=int)
        self.alone = len(others) == 0
        self.others = np.array([token]) if self.alone else others  # never placed: only the count L occurs
        self.n, self.dn, self.softmax = terms[self.others], self.d[self.others], tables.softmax

    def roots(self) -> Nodes:
        """Return all sequences with the own token, as one node per possible count."""
        k = np.array([self.L]) if self.alone else np.arange(1, self.L + 1)
        zero = np.zeros(len(k), dtype=int)
        return Nodes(
            zero, k, zero, self.L - k, zero, self.base + k[:, None] * self.copy, self.base_d + k * self.copy_d,
            np.ones(len(k)), np.full((len(k), self.L), -1), np.ones((len(k), len(self.others)), dtype=bool),
        )  # fmt: skip

    def interval(self, nodes: Nodes) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the exact smallest and largest pre-activation of every neuron, and the ends.

        ends (nodes, others, p): pre-activations with one token in all free slots; for tokens that are not allowed,
        those of an allowed one.
        """
        left, ends = nodes.left[:, None], np.empty((len(nodes), *self.n.shape))
        np.multiply(left[:, :, None], self.n, out=ends)
        ends += nodes.top[:, None]
        if self.softmax:
            ends *= (1 / (nodes.bottom[:, None] + left * self.dn))[:, :, None]
        ends += self.own
        row, gone = np.nonzero(~nodes.rest)
        ends[row, gone] = ends[row, nodes.rest.argmax(1)[row]]
        return ends.min(1), ends.max(1), ends

    def below(
        self, nodes: Nodes, row: np.ndarray, weight: np.ndarray, lo: np.ndarray, hi: np.ndarray, ends: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return a lower bound on weight . relu(z) per (row, weight), and its value at every end.

        z lies between the ends. Terms with w < 0 are concave in z. For w > 0, w a z <= w relu(z) for any 0 <= a <= 1;
        a = 0 or 1, whichever leaves the smaller gap. So the sum of these bounds is smallest at an end.
        """
        assert ends is not None
        line = np.where(weight > 0, weight * (hi > -lo), 0.0)
        at_ends = np.empty((len(row), len(self.others)))
        size = max(1, IN_CACHE // self.n.size)
        for first in range(0, len(row), size):
            s = slice(first, first + size)
            z = ends[row[s]]
            at_ends[s] = np.matmul(z, line[s, :, None])[:, :, 0]
            np.maximum(z, 0, out=z)
            at_ends[s] += np.matmul(z, np.minimum(weight[s], 0)[:, :, None])[:, :, 0]
        at_ends = np.where(nodes.rest[row], at_ends, np.inf)
        return at_ends.min(1), at_ends

    def witness(self, nodes: Nodes) -> np.ndarray:
        """Return the pre-activations of one sequence per node, with the first allowed token in all free slots."""
        left, at = nodes.left[:, None], nodes.rest.argmax(1)
        return np.asarray(
            self.own + (nodes.top + left * self.n[at]) / (nodes.bottom[:, None] + left * self.dn[at, None])
        )

    def where(self, nodes: Nodes, row: np.ndarray, guide: np.ndarray) -> np.ndarray:
        """Return the token by which to split each node row[i]: its end is furthest below the mean of the ends."""
        there = nodes.rest[row]
        average = np.where(there, guide, 0.0).sum(1) / there.sum(1)
        # Choose an allowed token even if the ends overflow: the children of another one would not cover their parent.
        harm = np.where(nodes.rest, np.finfo(float).min, -np.inf)
        below = np.where(there, average[:, None] - guide, -np.inf)
        np.maximum.at(harm, row, np.where(np.isnan(below), -np.inf, below))
        return np.asarray(harm.argmax(1))

    def is_leaf(self, nodes: Nodes) -> np.ndarray:
        return (nodes.left == 0) | (nodes.rest.sum(1) <= 1)

    def children(self, nodes: Nodes, at: np.ndarray) -> tuple[Nodes, np.ndarray]:
        """Return one child per count of the token `at`, from 0 to all free slots, and each child's parent's index."""
        sizes = nodes.left + 1
        parent = np.repeat(np.arange(len(nodes)), sizes)
        more = np.arange(len(parent)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        old, token = nodes[parent], at[parent]
        choose = np.array([[comb(n, c) for c in range(self.L + 1)] for n in range(self.L + 1)], dtype=float)
        column = np.arange(self.L)
        filled = (self.L - old.count - old.left)[:, None]
        new = (column >= filled) & (column < filled + more[:, None])
        return Nodes(
            old.position, old.count, old.start, old.left - more, old.copies,
            old.top + more[:, None] * self.n[token], old.bottom + more * self.dn[token],
            old.ways * choose[old.left, more], np.where(new, self.others[token][:, None], old.picks),
            old.rest & (np.arange(len(self.others)) != token[:, None]),
        ), parent  # fmt: skip

    def weight(self, nodes: Nodes) -> np.ndarray:
        """Return the number of (sequence, position) pairs of each node."""
        rest = nodes.rest.sum(1).astype(float)
        placed = np.array([self.L * comb(self.L - 1, k - 1) for k in range(1, self.L + 1)], dtype=float)
        return np.asarray(placed[nodes.count - 1] * nodes.ways * np.where(nodes.left > 0, rest**nodes.left, 1.0))

    def sequence(self, node: Nodes, guide: np.ndarray) -> tuple[list[int], int]:
        """Return the sequence of a one-row node at its lowest end, and a position of the own token."""
        best = int(self.others[guide.argmin()])
        k, left = int(node.count[0]), int(node.left[0])
        picked = node.picks[0][: self.L - k - left].tolist()
        return [self.token] * k + picked + [best] * left, 0


class Slots:
    """Sequences with one own token at each position, for a fixed attention pattern."""

    def __init__(self, tables: Tables, token: int) -> None:
        assert tables.pattern is not None
        T, L, self.token, self.L = tables.T, tables.L, token, tables.L
        self.own, self.value = tables.own[token], tables.value[token]
        self.others = np.array([o for o in range(T) if o != token], dtype=int)
        self.alone = len(self.others) == 0
        self.v = tables.value[[token]] if self.alone else tables.value[self.others]
        rows = tables.pattern[~np.eye(L, dtype=bool)].reshape(L, L - 1)
        slots = np.argsort(-np.abs(rows), axis=1, kind="stable")
        self.a = np.take_along_axis(rows, slots, 1)  # heaviest slot first
        self.slot = slots + (slots >= np.arange(L)[:, None])
        self.diagonal = tables.pattern.diagonal()
        self.lo, self.hi = -self._extremes(-1.0), self._extremes(1.0)

    def _extremes(self, sign: float) -> Float[np.ndarray, "position start copies p"]:
        """Return the largest (sign = 1) or smallest (sign = -1) sum over the slots from `start` on, per neuron."""
        L, p = self.L, len(self.own)
        out = np.zeros((L, L, L, p))
        v, own = sign * self.v, sign * self.value
        best = np.where(self.a[:, :, None] > 0, self.a[:, :, None] * v.max(0), self.a[:, :, None] * v.min(0))
        gain = self.a[:, :, None] * own - best
        for start in range(L - 1):
            ordered = -np.sort(-gain[:, start:], axis=1)
            out[:, start, 0] = best[:, start:].sum(1)
            out[:, start, 1 : L - start] = best[:, start:].sum(1)[:, None] + ordered.cumsum(1)
        return out

    def roots(self) -> Nodes:
        """Return one node per position and possible count."""
        counts = np.array([self.L]) if self.alone else np.arange(1, self.L + 1)
        position, k = (a.ravel() for a in np.meshgrid(np.arange(self.L), counts, indexing="ij"))
        n = len(k)
        return Nodes(
            position, k, np.zeros(n, dtype=int), np.full(n, self.L - 1), k - 1,
            self.own + self.diagonal[position][:, None] * self.value, np.ones(n), np.ones(n),
            np.full((n, self.L), -1), np.ones((n, 0), dtype=bool),
        )  # fmt: skip

    def interval(self, nodes: Nodes) -> tuple[np.ndarray, np.ndarray, None]:
        """Return the exact smallest and largest pre-activation of every neuron."""
        at = (nodes.position, nodes.start, nodes.copies)
        return nodes.top + self.lo[at], nodes.top + self.hi[at], None

    def below(
        self, nodes: Nodes, row: np.ndarray, weight: np.ndarray, lo: np.ndarray, hi: np.ndarray, ends: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return a lower bound on weight . relu(z) per (row, weight), and the slopes of the linear bound."""
        slope, offset = affine_below(weight, lo, hi)
        return self.least_product(nodes[row], slope) + offset, slope

    def least_product(self, nodes: Nodes, slope: np.ndarray) -> np.ndarray:
        """Return the smallest slope . z of each row's node, exact."""
        fixed = (slope * nodes.top).sum(1)
        if self.L == 1:
            return np.asarray(fixed)
        a = self.a[nodes.position]
        each = slope @ self.v.T
        best = np.where(a > 0, a * each.min(1)[:, None], a * each.max(1)[:, None])
        gone = np.arange(self.L - 1) < nodes.start[:, None]
        extra = np.sort(np.where(gone, np.inf, a * (slope @ self.value)[:, None] - best), axis=1)
        extra = np.where(np.arange(self.L - 1) < nodes.copies[:, None], extra, 0.0)
        return np.asarray(fixed + np.where(gone, 0.0, best).sum(1) + extra.sum(1))

    def is_leaf(self, nodes: Nodes) -> np.ndarray:
        return (nodes.left == 0) | (nodes.copies == nodes.left) | ((nodes.copies == 0) & (len(self.others) == 1))

    def witness(self, nodes: Nodes) -> np.ndarray:
        """Return the pre-activations of one sequence per node: first own tokens in free slots, then one other token."""
        sums = np.concatenate([np.zeros((self.L, 1)), self.a.cumsum(1)], 1)[nodes.position]
        at = np.arange(len(nodes))
        first, middle = sums[at, nodes.start], sums[at, nodes.start + nodes.copies]
        own, rest = middle - first, sums[:, -1] - middle
        return np.asarray(nodes.top + own[:, None] * self.value + rest[:, None] * self.v[0])

    def where(self, nodes: Nodes, row: np.ndarray, guide: np.ndarray) -> np.ndarray:
        """Return the next slot: slots are filled in order."""
        return nodes.start

    def children(self, nodes: Nodes, at: np.ndarray) -> tuple[Nodes, np.ndarray]:
        """Return one child per token in the free slot with the largest weight, and the index of each child's parent."""
        own, free = np.flatnonzero(nodes.copies > 0), np.flatnonzero(nodes.left > nodes.copies)
        parts = [self._child(nodes[own], self.token, self.value, 1)]
        parts += [self._child(nodes[free], int(o), self.v[i], 0) for i, o in enumerate(self.others)]
        parents = np.concatenate([own, np.tile(free, len(self.others))])
        return Nodes.joined(parts), parents

    def _child(self, nodes: Nodes, token: int, value: np.ndarray, copies: int) -> Nodes:
        picks = nodes.picks.copy()
        picks[np.arange(len(nodes)), self.slot[nodes.position, nodes.start]] = token
        top = nodes.top + self.a[nodes.position, nodes.start][:, None] * value
        return Nodes(
            nodes.position, nodes.count, nodes.start + 1, nodes.left - 1, nodes.copies - copies, top,
            nodes.bottom, nodes.ways, picks, nodes.rest,
        )  # fmt: skip

    def weight(self, nodes: Nodes) -> np.ndarray:
        """Return the number of sequences of each node."""
        choose = np.array([[comb(n, c) for c in range(self.L + 1)] for n in range(self.L + 1)], dtype=float)
        return np.asarray(choose[nodes.left, nodes.copies] * float(len(self.others)) ** (nodes.left - nodes.copies))

    def sequence(self, node: Nodes, guide: np.ndarray) -> tuple[list[int], int]:
        """Return a sequence of a one-row node where guide . z is smallest, and the own token's position."""
        position, start = int(node.position[0]), int(node.start[0])
        a, slots = self.a[position, start:], self.slot[position, start:]
        each = self.v @ guide
        best = np.where(a > 0, each.argmin(), each.argmax())
        gain = a * (self.value @ guide) - a * each[best]
        tokens = node.picks[0].copy()
        tokens[position] = self.token
        if not self.alone:
            tokens[slots] = self.others[best]
        tokens[slots[np.argsort(gain, kind="stable")[: int(node.copies[0])]]] = self.token
        return [int(t) for t in tokens], position


Space: TypeAlias = Multisets | Slots
"""The sequences with one own token, as branch and bound sees them."""


def affine_below(
    weight: Float[np.ndarray, "rows p"], lo: Float[np.ndarray, "rows p"], hi: Float[np.ndarray, "rows p"],
    parallel: bool = False,
) -> tuple[Float[np.ndarray, "rows p"], Float[np.ndarray, " rows"]]:  # fmt: skip
    """Return slopes and offsets of affine functions at most sum_i weight_i relu(z_i) for all lo <= z <= hi."""
    bends = (lo < 0) & (hi > 0)
    chord = np.divide(hi, hi - lo, out=np.zeros_like(hi), where=bends)
    line = chord if parallel else (hi > -lo).astype(hi.dtype)
    share = np.where(bends, np.where(weight < 0, chord, line), lo >= 0)
    offset = -(np.where(bends & (weight < 0), weight * chord, 0.0) * np.where(bends, lo, 0.0)).sum(1)
    return weight * share, offset


def interval_below(
    weight: Float[np.ndarray, "rows p"], lo: Float[np.ndarray, "rows p"], hi: Float[np.ndarray, "rows p"]
) -> Float[np.ndarray, " rows"]:
    """Return the smallest sum_i weight_i relu(z_i) if each z_i varies freely in its interval; exact for p = 1."""
    return np.where(weight > 0, weight * np.maximum(lo, 0), weight * np.maximum(hi, 0)).sum(1)
