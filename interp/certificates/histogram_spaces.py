"""Sets of sequences that share a part, for branch and bound: what the neurons of one own token can see.

A node fixes the own token, its count, and some of the other slots. Two kinds, with the same methods:

Multisets  dot and bos mixing. Order does not matter, so a node says how often each of the first tokens occurs (in an
           order that puts influential tokens first); the rest are any of the later tokens. The neurons see
           own + (top + sum n_o) / (bottom + sum d_o); without a softmax bottom = 1 and d = 0. Every direction of it is
           extreme where all the rest is one token (`interp.theory.ranges`).
Slots      linear mixing. A node fixes the tokens of the heaviest slots of one position's row of the pattern; in the
           others every slot takes its best other token, and the own token's copies go where they gain most.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int

from interp.certificates.histogram_tables import Tables

DEEPEST = -300.0  # exponent below which an own token's softmax weight is lost next to another's


@dataclass(frozen=True)
class Nodes:
    """One set of sequences a row. `start`: the next token in order, or the next slot; `left`: free slots of others
    (Multisets) or free slots of any kind, `copies` of them own tokens (Slots). `picks`: tokens chosen so far."""

    position: Int[np.ndarray, " n"]
    count: Int[np.ndarray, " n"]
    start: Int[np.ndarray, " n"]
    left: Int[np.ndarray, " n"]
    copies: Int[np.ndarray, " n"]
    top: Float[np.ndarray, "n p"]
    bottom: Float[np.ndarray, " n"]
    ways: Float[np.ndarray, " n"]
    picks: Int[np.ndarray, "n picks"]

    def __len__(self) -> int:
        return len(self.count)

    def __getitem__(self, rows: np.ndarray | slice) -> Nodes:
        return Nodes(**{name: getattr(self, name)[rows] for name in self.__dataclass_fields__})


@runtime_checkable
class Space(Protocol):
    """What branch and bound needs to know of the sequences around one own token."""

    token: int

    def roots(self) -> Nodes: ...
    def interval(self, nodes: Nodes) -> tuple[np.ndarray, np.ndarray]: ...
    def lowest(self, nodes: Nodes, slope: np.ndarray) -> np.ndarray: ...
    def is_leaf(self, nodes: Nodes) -> np.ndarray: ...
    def children(self, nodes: Nodes) -> tuple[Nodes, np.ndarray]: ...
    def weight(self, nodes: Nodes) -> np.ndarray: ...
    def sequence(self, node: Nodes, slope: np.ndarray) -> tuple[list[int], int]: ...


def space_of(tables: Tables, token: int) -> Space | None:
    """The space around one own token; None where its softmax weight vanishes next to another token's."""
    if tables.pattern is not None:
        return Slots(tables, token)
    space = Multisets(tables, token)
    return space if space.sound else None


class Multisets:
    """Sequences around one own token, up to the order of the others."""

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
        others = np.array([token]) if self.alone else others  # never placed: only the count L occurs
        # Tokens that move the neurons most come first, so that what is left open soon moves them little.
        size = np.abs(tables.lead).max((0, 1))
        center = value[others].mean(0) if tables.softmax else terms[others].mean(0)
        moved = weights[others, None] * (value[others] - center) if tables.softmax else terms[others] - center
        order = others[np.argsort(-np.abs(moved) @ size, kind="stable")]
        self.order, self.n, self.dn = order, terms[order], self.d[order]
        self.suffix_lo = np.minimum.accumulate(self.n[::-1])[::-1]
        self.suffix_hi = np.maximum.accumulate(self.n[::-1])[::-1]
        self.softmax = tables.softmax

    def roots(self) -> Nodes:
        """All sequences with the token at a position, one node a count that occurs."""
        k = np.array([self.L]) if self.alone else np.arange(1, self.L + 1)
        zero = np.zeros(len(k), dtype=int)
        return Nodes(
            zero, k, zero, self.L - k, zero, self.base + k[:, None] * self.copy, self.base_d + k * self.copy_d,
            np.ones(len(k)), np.full((len(k), self.L), -1),
        )  # fmt: skip

    def interval(self, nodes: Nodes) -> tuple[np.ndarray, np.ndarray]:
        """Smallest and largest pre-activation of every neuron, exact."""
        start, left = np.minimum(nodes.start, len(self.order) - 1), nodes.left[:, None]
        if not self.softmax:
            fixed = self.own + nodes.top
            return fixed + left * self.suffix_lo[start], fixed + left * self.suffix_hi[start]
        lo, hi = np.empty_like(nodes.top), np.empty_like(nodes.top)
        size = max(1, 2_000_000 // (len(self.order) * self.p))
        for first in range(0, len(nodes), size):
            s = slice(first, first + size)
            mixed = nodes.top[s, None] + left[s, :, None] * self.n
            mixed /= (nodes.bottom[s, None] + left[s] * self.dn)[:, :, None]
            gone = (np.arange(len(self.order)) < start[s, None])[:, :, None]
            lo[s] = np.where(gone, np.inf, mixed).min(1)
            hi[s] = np.where(gone, -np.inf, mixed).max(1)
        return self.own + lo, self.own + hi

    def _mixed(self, nodes: Nodes, slope: np.ndarray) -> np.ndarray:
        """slope . (mixed value) with every later token in all free slots: (n, others), inf for earlier ones."""
        start, left = np.minimum(nodes.start, len(self.order) - 1), nodes.left[:, None]
        mixed = (slope * nodes.top).sum(1)[:, None] + left * (slope @ self.n.T)
        mixed /= nodes.bottom[:, None] + left * self.dn
        return np.where(np.arange(len(self.order)) < start[:, None], np.inf, mixed)

    def lowest(self, nodes: Nodes, slope: np.ndarray) -> np.ndarray:
        """The smallest slope . z of each row's node, exact."""
        return np.asarray(slope @ self.own + self._mixed(nodes, slope).min(1))

    def is_leaf(self, nodes: Nodes) -> np.ndarray:
        return (nodes.left == 0) | (nodes.start >= len(self.order) - 1)

    def children(self, nodes: Nodes) -> tuple[Nodes, np.ndarray]:
        """Every number of the next token in order, from none to all that are left; and each child's parent."""
        sizes = nodes.left + 1
        parent = np.repeat(np.arange(len(nodes)), sizes)
        more = np.arange(len(parent)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        old = nodes[parent]
        choose = np.array([[comb(n, c) for c in range(self.L + 1)] for n in range(self.L + 1)], dtype=float)
        column = np.arange(self.L)
        filled = (self.L - old.count - old.left)[:, None]
        new = (column >= filled) & (column < filled + more[:, None])
        return Nodes(
            old.position, old.count, old.start + 1, old.left - more, old.copies,
            old.top + more[:, None] * self.n[old.start], old.bottom + more * self.dn[old.start],
            old.ways * choose[old.left, more], np.where(new, self.order[old.start][:, None], old.picks),
        ), parent  # fmt: skip

    def weight(self, nodes: Nodes) -> np.ndarray:
        """In how many (sequence, position) pairs a node's multisets occur."""
        rest = np.maximum(len(self.order) - nodes.start, 0).astype(float)
        placed = np.array([self.L * comb(self.L - 1, k - 1) for k in range(1, self.L + 1)], dtype=float)
        return np.asarray(placed[nodes.count - 1] * nodes.ways * np.where(nodes.left > 0, rest**nodes.left, 1.0))

    def sequence(self, node: Nodes, slope: np.ndarray) -> tuple[list[int], int]:
        """A sequence of a one-row node where slope . z is smallest, and a position of the own token."""
        best = int(self.order[self._mixed(node, slope[None])[0].argmin()])
        k, left = int(node.count[0]), int(node.left[0])
        picked = node.picks[0][: self.L - k - left].tolist()
        return [self.token] * k + picked + [best] * left, 0


class Slots:
    """Sequences around one own token at every position, for a fixed pattern."""

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
        """sign times the largest sign * (sum over slots from `start` on), by neuron."""
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
        """One node a position and a count that occurs."""
        counts = np.array([self.L]) if self.alone else np.arange(1, self.L + 1)
        position, k = (a.ravel() for a in np.meshgrid(np.arange(self.L), counts, indexing="ij"))
        n = len(k)
        return Nodes(
            position, k, np.zeros(n, dtype=int), np.full(n, self.L - 1), k - 1,
            self.own + self.diagonal[position][:, None] * self.value, np.ones(n), np.ones(n),
            np.full((n, self.L), -1),
        )  # fmt: skip

    def interval(self, nodes: Nodes) -> tuple[np.ndarray, np.ndarray]:
        """Smallest and largest pre-activation of every neuron, exact."""
        at = (nodes.position, nodes.start, nodes.copies)
        return nodes.top + self.lo[at], nodes.top + self.hi[at]

    def lowest(self, nodes: Nodes, slope: np.ndarray) -> np.ndarray:
        """The smallest slope . z of each row's node, exact."""
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

    def children(self, nodes: Nodes) -> tuple[Nodes, np.ndarray]:
        """Every token in the heaviest free slot; and each child's parent."""
        own, free = np.flatnonzero(nodes.copies > 0), np.flatnonzero(nodes.left > nodes.copies)
        parts = [self._child(nodes[own], self.token, self.value, 1)]
        parts += [self._child(nodes[free], int(o), self.v[i], 0) for i, o in enumerate(self.others)]
        parents = np.concatenate([own, np.tile(free, len(self.others))])
        return Nodes(**{name: np.concatenate([getattr(part, name) for part in parts])
                        for name in Nodes.__dataclass_fields__}), parents  # fmt: skip

    def _child(self, nodes: Nodes, token: int, value: np.ndarray, copies: int) -> Nodes:
        picks = nodes.picks.copy()
        picks[np.arange(len(nodes)), self.slot[nodes.position, nodes.start]] = token
        top = nodes.top + self.a[nodes.position, nodes.start][:, None] * value
        return Nodes(
            nodes.position, nodes.count, nodes.start + 1, nodes.left - 1, nodes.copies - copies, top,
            nodes.bottom, nodes.ways, picks,
        )  # fmt: skip

    def weight(self, nodes: Nodes) -> np.ndarray:
        """How many sequences a node holds, each with its one position."""
        choose = np.array([[comb(n, c) for c in range(self.L + 1)] for n in range(self.L + 1)], dtype=float)
        return np.asarray(choose[nodes.left, nodes.copies] * float(len(self.others)) ** (nodes.left - nodes.copies))

    def sequence(self, node: Nodes, slope: np.ndarray) -> tuple[list[int], int]:
        """A sequence of a one-row node where slope . z is smallest, and the own token's position."""
        position, start = int(node.position[0]), int(node.start[0])
        a, slots = self.a[position, start:], self.slot[position, start:]
        each = self.v @ slope
        best = np.where(a > 0, each.argmin(), each.argmax())
        gain = a * (self.value @ slope) - a * each[best]
        tokens = node.picks[0].copy()
        tokens[position] = self.token
        if not self.alone:
            tokens[slots] = self.others[best]
        tokens[slots[np.argsort(gain, kind="stable")[: int(node.copies[0])]]] = self.token
        return [int(t) for t in tokens], position
