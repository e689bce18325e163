"""Tables of all multisets of other tokens, for one own token and the compiled walk (compiled/multisets.py).

The input of the own token's neurons is a sum of one term per other token. The other tokens are split into three groups:
the walk goes through the first group token by token; tables contain the sums over all multisets of the other two.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from itertools import combinations_with_replacement
from math import comb, factorial
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from interp.families.histogram.certificates.tables import Tables

BLOCK = 64
FIRST = 0.3
"""Share of the other tokens in the first group; a larger one makes the tables and blocks smaller."""
EXAMPLES = 64
WORK = 2e5
"""Number of bounds between two checks of the budget, about a tenth of a second."""


@dataclass(frozen=True)
class Seen:
    """The input of one own token's neurons, times the sum of softmax weights (1 without softmax), as a sum of terms.

    The last column is the sum of weights. terms: per copy of another token; tokens with equal terms are merged. alike:
    number of merged tokens; tokens: one of them. own: per copy of the own token. base: the constant term.
    """

    tokens: Int[np.ndarray, " others"]
    terms: Float[np.ndarray, "others columns"]
    alike: Int[np.ndarray, " others"]
    own: Float[np.ndarray, " columns"]
    base: Float[np.ndarray, " columns"]

    @classmethod
    def by(cls, tables: Tables, token: int) -> Seen:
        """Return the terms for one own token of a model without positions."""
        assert tables.scores is not None
        scores, own = tables.scores[token], tables.own[token]
        if tables.softmax:
            weight = np.exp(np.maximum(scores - scores.max(), -745.0))
            terms = np.concatenate([weight[:, None] * (tables.value + own), weight[:, None]], 1)
            base = np.zeros(len(own) + 1)
        else:
            terms = np.concatenate([scores[:, None] * tables.value, np.zeros((len(scores), 1))], 1)
            base = np.append(own, 1.0)
        if tables.bos:
            base = base + terms[tables.T]
        others = np.delete(np.arange(tables.T), token)
        rows, at, alike = np.unique(terms[others], axis=0, return_index=True, return_counts=True)
        return cls(others[at], rows, alike, terms[token], base)


def groups_of(terms: Float[np.ndarray, "others columns"]) -> list[Int[np.ndarray, " _"]]:
    """Split the other tokens into three groups: the most extreme ones, and two of similar tokens."""
    n = len(terms)
    if n == 0:
        return [np.zeros(0, dtype=int)] * 3
    centered = terms - terms.mean(0)
    size = np.abs(centered).max(0)
    centered = np.nan_to_num(centered / np.where(size > 0, size, 1.0))
    outer = np.argsort(-(centered**2).sum(1), kind="stable")
    first, half, _ = group_sizes(n)
    rest = outer[first:]
    direction = np.linalg.svd(centered[rest], full_matrices=False)[2][0]
    rest = rest[np.argsort(centered[rest] @ direction, kind="stable")]
    return [outer[:first], rest[:half], rest[half:]]


def group_sizes(others: int) -> list[int]:
    """Return the number of tokens in each of the three groups."""
    first = round(FIRST * others) if others > 2 else 0
    return [first, (others - first + 1) // 2, (others - first) // 2]


@dataclass(frozen=True)
class Listed:
    """All multisets of a group of tokens with 0, 1, ... slots, in blocks of BLOCK; the same for every own token.

    places: the tokens as indices into the group, -1 beyond `length`. Multisets of s slots start at block start[s]. The
    last block of each s is padded with its last multiset; rows[block] is the number of real rows.
    """

    places: Int[np.ndarray, "padded slots"]
    length: Int[np.ndarray, " blocks"]
    start: Int[np.ndarray, " slots_and_two"]
    rows: Int[np.ndarray, " blocks"]
    counts: Float[np.ndarray, "padded group"]

    @classmethod
    def of(cls, size: int, slots: int) -> Listed:
        places, length, start, rows = [], [], [0], []
        for s in range(slots + 1):
            every_one = list(combinations_with_replacement(range(size), s))
            multisets = np.array(every_one, dtype=np.int16).reshape(len(every_one), s)
            blocks = -(-len(multisets) // BLOCK)
            if blocks:
                padded = np.concatenate([multisets, np.repeat(multisets[-1:], blocks * BLOCK - len(multisets), 0)])
                places.append(np.pad(padded, ((0, 0), (0, slots - s)), constant_values=-1))
                length += [s] * blocks
                rows += [BLOCK] * (blocks - 1) + [len(multisets) - (blocks - 1) * BLOCK]
            start.append(start[-1] + blocks)
        every = np.concatenate(places)
        counts = np.zeros((len(every), size))
        for place in range(slots):
            there = every[:, place] >= 0
            counts[there, every[there, place]] += 1
        return cls(every, np.array(length), np.array(start), np.array(rows), counts)

    def ways(self, alike: Int[np.ndarray, " group"]) -> Float[np.ndarray, " padded"]:
        """Return the number of orders of each multiset, counting merged tokens as different (0: padding)."""
        slots = np.repeat(self.length, BLOCK)
        orders = np.array([float(factorial(s)) for s in range(self.places.shape[1] + 1)])[slots]
        run = np.ones(len(orders))
        for place in range(self.places.shape[1]):
            here, there = self.places[:, place], self.places[:, place] >= 0
            if place:
                run = np.where(here == self.places[:, place - 1], run + 1, 1.0)
            orders = np.where(there, orders / run * np.append(alike, 1)[here], orders)
        return orders * (np.arange(BLOCK) < self.rows[:, None]).reshape(-1)


def _group(kernel: Any, listed: Listed, seen: Seen, group: Int[np.ndarray, " group"], number: int) -> Any:
    """Return the kernel's table of one group."""
    blocks, columns = len(listed.rows), seen.terms.shape[1]
    with np.errstate(over="ignore", invalid="ignore"):
        sums = (listed.counts @ seen.terms[group]).astype(np.float32)
    values = np.ascontiguousarray(sums.reshape(blocks, BLOCK, columns).transpose(0, 2, 1))
    low, high = values.min(2), values.max(2)
    lists = [slice(a, b) if b > a else slice(0, 1) for a, b in zip(listed.start[:-1], listed.start[1:])]
    low = np.concatenate([low, [low[some].min(0) for some in lists]])
    high = np.concatenate([high, [high[some].max(0) for some in lists]])
    ways = listed.ways(seen.alike[group])
    whole = ways.reshape(blocks, BLOCK).sum(1)
    total = np.array([whole[a:b].sum() for a, b in zip(listed.start[:-1], listed.start[1:])])
    tokens = np.append(group, -1)[listed.places]
    return kernel.TokenGroup(
        values, low, high, np.maximum(np.abs(low), np.abs(high)), ways, listed.start, np.ascontiguousarray(tokens),
        listed.length, whole, total, listed.rows, number,
    )  # fmt: skip


def _whole_vectors(rows: Float[np.ndarray, "rows columns"], lanes: int) -> Float[np.ndarray, "rows wide"]:
    """Pad each row with zeros to whole vectors."""
    return np.ascontiguousarray(np.pad(rows, ((0, 0), (0, -rows.shape[1] % lanes))))


@dataclass(frozen=True)
class WalkCounts:
    """Numbers of (sequence, position) pairs with one own token and count (integers), and some wrong sequences.

    evaluated: number of multisets that bounds did not decide. again: how many of these float64 evaluated again.
    """

    right: int
    wrong: int
    close: int
    tied: int
    examples: list[list[int]]
    evaluated: int
    again: int


def multisets_around(others: int, slots: int) -> int:
    """Return the number of multisets of other tokens in `slots` slots."""
    return comb(others + slots - 1, slots) if others else int(slots == 0)


class Walk:
    """The walk over the multisets of one own token, for each of its counts."""

    def __init__(self, tables: Tables, token: int, listed: dict[int, Listed] | None = None) -> None:
        """listed: cache of Listed by group size, shared by own tokens."""
        self.kernel: Any = import_module("interp.families.histogram.compiled.multisets")  # here, as it needs numba
        self.tables, self.token, self.seen = tables, token, Seen.by(tables, token)
        slots, seen, listed = tables.L - 1, self.seen, {} if listed is None else listed
        self.groups = groups_of(seen.terms)
        prefix, *others = self.groups
        for group in others:
            if len(group) not in listed:
                listed[len(group)] = Listed.of(len(group), slots)
        self.a, self.b = (_group(self.kernel, listed[len(group)], seen, group, i) for i, group in enumerate(others))
        rest = [np.concatenate([prefix[depth:], *others]) for depth in range(len(prefix) + 1)]
        self.ends = self._ends(rest)
        sizes = np.array([seen.alike[some].sum() for some in rest], dtype=float)
        choose = np.array([[comb(n, c) for c in range(slots + 2)] for n in range(slots + 2)], dtype=float)
        ways, terms = sizes[:, None] ** np.arange(slots + 1), _whole_vectors(seen.terms, 8)
        self.tokens = self.kernel.Tokens(terms, seen.terms.shape[1], seen.alike.astype(float), prefix, ways, choose)
        self.scratch = self._scratch()

    def _ends(self, rest: list[Int[np.ndarray, " _"]]) -> Any:
        """Return tables of the extreme sums of 0, 1, ... slots with tokens from each depth of the prefix on."""
        terms, slots = self.seen.terms, self.tables.L - 1
        blocks, nodes, columns = max(1, -(-len(terms) // BLOCK)), len(rest) * (slots + 1), terms.shape[1]
        values = np.zeros((nodes + 1, blocks, columns, BLOCK), np.float32)
        with np.errstate(over="ignore", invalid="ignore"):
            for depth, others in enumerate(rest):
                if len(others):
                    some = terms[np.resize(others, blocks * BLOCK)].reshape(blocks, BLOCK, columns).transpose(0, 2, 1)
                    for n in range(slots + 1):
                        values[depth * (slots + 1) + n] = n * some
        low, high = values.min((1, 3)), values.max((1, 3))
        most = np.maximum(np.abs(low), np.abs(high))
        return self.kernel.Ends(values.reshape(-1, columns, BLOCK), low, high, most, blocks, nodes * blocks, nodes)

    def _scratch(self) -> Any:
        """Return the kernel's work arrays."""
        columns, wide = self.seen.terms.shape[1], self.tokens.terms.shape[1]
        answers, depths = self.tables.lead.shape[1], len(self.groups[0]) + 1
        floats, index = partial(np.zeros, dtype=np.float32), partial(np.zeros, dtype=np.int64)
        return self.kernel.Scratch(
            point=floats(columns), active=index(columns), mixed=index(columns), low=floats(columns),
            high=floats(columns), most=floats(-(-columns // 16) * 16), sx=floats((columns, BLOCK)),
            sy=floats((columns, BLOCK)), lx=floats((answers, BLOCK)), ly=floats((answers, BLOCK)),
            weight=floats((columns, answers)), least=floats((BLOCK, BLOCK)), open=index(answers), kept=index(answers),
            bound=floats(columns), row=index(columns), row64=np.zeros(wide), sum64=np.zeros(wide), out=np.zeros(7),
            slip=floats(4), rows64=np.zeros((depths, columns)), left=index(depths), times=index(depths),
            ways=np.zeros(depths), fresh=np.zeros(depths, bool), ahead=index((depths, answers)), n_ahead=index(depths),
            examples=index((EXAMPLES, 3 + depths)), n_examples=index(1),
        )  # fmt: skip

    @property
    def bounds(self) -> float:
        """Number of bounds that the last count took."""
        return float(self.scratch.out[6])

    def count(
        self, count: int, classes: Bool[np.ndarray, " n_out"], need: Float[np.ndarray, " n_out"],
        slack: Float[np.ndarray, " n_out"], go_on: Callable[[], bool] = lambda: True,
    ) -> WalkCounts | None:  # fmt: skip
        """Count all sequences with this count of the own token; None if go_on() returned False.

        classes: the other answers that can win. need, slack: thresholds for margins in the model's format and in
        float64. Margins above need + 2 slack are right; if need is infinite, all that are not wrong are close.
        """
        t, k, w = self.tables, count - 1, self.scratch
        slots, j = t.L - count, np.flatnonzero(classes)
        bounded = bool(np.isfinite(need[j]).all())
        need = need[j] + 2 * slack[j] if bounded else slack[j]
        exact = np.concatenate([t.lead[k, j], t.lead_bias[k, j][:, None]], 1)
        lowered = exact.copy()
        lowered[:, -1] -= need
        with np.errstate(over="ignore"):
            weight = lowered.astype(np.float32)
            size = np.abs(weight)
            sizes = 4 * size.sum(1)
        query = self.kernel.Query(
            weight, _whole_vectors(size, 16), sizes, _whole_vectors(exact, 8), need, slack[j], t.L - 1
        )
        w.out[:], w.n_examples[0] = 0, 0
        w.fresh[0], w.left[0], w.ways[0], w.n_ahead[0] = True, slots, 1.0, len(j)
        w.rows64[0], w.ahead[0, : len(j)] = self.seen.base + count * self.seen.own, np.arange(len(j))
        depth = 0
        while (depth := self.kernel.walk(query, w, self.tokens, self.a, self.b, self.ends, depth, WORK)) >= 0:
            if not go_on():
                return None
        placed = t.L * comb(t.L - 1, k)
        wrong, close, tied = (placed * int(w.out[i]) for i in (1, 2, 3))
        right = placed * (t.T - 1) ** slots - wrong - close - tied
        if not bounded:
            right, close = 0, right + close
        examples = [self._sequence(count, row) for row in w.examples[: int(w.n_examples[0])]]
        return WalkCounts(right, wrong, close, tied, examples, int(w.out[4]), int(w.out[5]))

    def _sequence(self, count: int, row: Int[np.ndarray, " numbers"]) -> list[int]:
        """Return a recorded wrong multiset as a sequence, own token first."""
        depth, parts, times = int(row[0]), row[1:3], row[3:]
        prefix, *others = self.groups
        tokens = [int(token) for token, n in zip(prefix[:depth], times) for _ in range(int(n))]
        for table, at in zip((self.a, self.b), parts):
            if at >= 0:
                tokens += [int(token) for token in table.tokens[at] if token >= 0]
        left = self.tables.L - count - len(tokens)
        tokens += [int(np.concatenate([prefix[depth:], *others])[0])] * left if left else []
        return [self.token] * count + [int(self.seen.tokens[token]) for token in tokens]
