"""Branch and bound over the sequences around one own token: which are surely right, which surely wrong?"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from interp.certificates.budgets import Budget
from interp.certificates.histogram_spaces import Nodes, Space
from interp.certificates.histogram_tables import Tables
from interp.certificates.histogram_walk import Found
from interp.theory.relu_bounds import interval_below

CHUNK = 256
"""Nodes that are bounded together: with fewer, models of few neurons spend their time between calls."""
PER_NODE = 1000
"""Steps that a node costs besides its neurons: copying it, and its share of every call."""


@dataclass
class Ledger:
    """What is known, by count: numbers of (sequence, position) pairs that are right, wrong, too close, or open.

    margin: bound from below of the least margin proved. worst: the smallest distance between a margin and its rounding
    bound, with that bound. candidates: (approximate margin, sequence, position), the suspects found on the way.
    close: pairs that are right in exact arithmetic but nearer than rounding can be trusted.
    """

    total: np.ndarray
    right: np.ndarray
    wrong: np.ndarray
    close: np.ndarray
    tied: np.ndarray
    margin: np.ndarray
    need: np.ndarray
    nodes: int = 0
    exact: bool = True
    candidates: list[tuple[float, list[int], int]] = field(default_factory=list)

    @classmethod
    def of(cls, length: int) -> Ledger:
        total, right, wrong, close, tied, need = np.zeros((6, length))
        return cls(total, right, wrong, close, tied, np.full(length, np.inf), need)

    def suspect(self, margin: float, sequence: tuple[list[int], int]) -> None:
        self.candidates.append((margin, *sequence))
        self.candidates.sort(key=lambda c: c[0])
        del self.candidates[8:]


@dataclass(frozen=True)
class Open:
    """Nodes with the classes j that are not yet proved to stay below the right one, and where to split each."""

    nodes: Nodes
    classes: np.ndarray
    at: np.ndarray

    def __getitem__(self, rows: np.ndarray | slice) -> Open:
        return Open(self.nodes[rows], self.classes[rows], self.at[rows])


class Search:
    """One own token's space with the thresholds that a proof needs.

    need[k - 1, j]: what a margin must exceed to hold in the model's arithmetic; slack: the same for float64, which
    decides what is wrong in exact arithmetic. target: what is proved, need at first; slack once the model cannot be
    certified any more and only its exact accuracy is left to find. steps: multiplications so far, roughly; they are
    what a budget counts, so that a verdict does not depend on how busy a machine is.
    """

    def __init__(self, tables: Tables, space: Space, need: np.ndarray, slack: np.ndarray) -> None:
        self.tables, self.space, self.need, self.slack, self.target = tables, space, need, slack, need
        self.ledger = Ledger.of(tables.L)
        self.steps = 0.0
        self._wide = tables.lead.shape[2] * (8 + tables.T)
        self.size = CHUNK

    def start(self) -> Open:
        """The roots, bounded once; what remains open."""
        roots = self.space.roots()
        classes = np.ones((len(roots), self.tables.lead.shape[1]), dtype=bool)
        classes[np.arange(len(roots)), self.tables.classes[roots.count - 1]] = False
        np.add.at(self.ledger.total, roots.count - 1, self.space.weight(roots))
        left = Open(roots, classes, np.zeros(len(roots), dtype=int))
        return join([self.bound(left[s : s + self.size]) for s in range(0, len(roots), self.size)])

    def explore(self, left: Open, steps: float, budget: Budget) -> Open:
        """Split nodes until all is decided, so many more steps are made or it is too late; what stays open."""
        stack, last = [left] if len(left.nodes) else [], self.steps + steps
        while stack and self.steps < last and not budget.is_over():
            top = stack.pop()
            if len(top.nodes) > self.size:
                stack.append(top[: -self.size])
                top = top[-self.size :]
            children, parents = self.space.children(top.nodes, top.at)
            for first in range(0, len(children), self.size):
                s = slice(first, first + self.size)
                rest = self.bound(Open(children[s], top.classes[parents[s]], top.at[parents[s]]))
                if len(rest.nodes):
                    stack.append(rest)
        return join(stack) if stack else left[:0]

    def bound(self, part: Open) -> Open:
        """Settle what bounds and single sequences settle; return the nodes that need splitting."""
        nodes, classes, book = part.nodes, part.classes.copy(), self.ledger
        book.nodes += len(nodes)
        self.steps += len(nodes) * (PER_NODE + self._wide)
        count = nodes.count - 1
        lo, hi, ends = self.space.interval(nodes)
        row, j = np.nonzero(classes)
        weight, bias = self.tables.lead[count[row], j], self.tables.lead_bias[count[row], j]
        below, guide = self._below(nodes, row, weight, lo, hi, ends, self.target[count[row], j] - bias)
        below = below + bias
        leaf = self.space.is_leaf(nodes)
        proved = below > self.target[count[row], j]
        classes[row[proved], j[proved]] = False
        # What is kept is a bound: of the margin as evaluated here, less what rounding did to it.
        sure = below - self.slack[count[row], j]
        self._note(count[row[proved]], sure[proved], self.need[count[row], j][proved])
        tight = leaf | ~((lo < 0) & (hi > 0)).any(1) | (lo.shape[1] == 1)
        book.exact &= bool(tight.all())
        share = self.space.weight(nodes)
        right = ~classes.any(1)
        np.add.at(book.right, count[right], share[right])

        open_rows = ~proved
        row, j, below, bias, guide = row[open_rows], j[open_rows], below[open_rows], bias[open_rows], guide[open_rows]
        sure = sure[open_rows]
        if not len(row):
            return part[:0]
        weight = weight[open_rows]
        wrong = np.zeros(len(nodes), dtype=bool)
        wrong[row[self._surely_wrong(nodes, row, weight, lo, hi, ends, self.slack[count[row], j] + bias)]] = True
        np.add.at(book.wrong, count[wrong], share[wrong])
        # Right, but nearer than rounding can be trusted: splitting could only help where the bound is loose.
        close = ~right & ~wrong & tight
        close[row[~(below > self.slack[count[row], j])]] = False
        np.add.at(book.close, count[close], share[close])
        tied = leaf & ~right & ~wrong & ~close
        np.add.at(book.tied, count[tied], share[tied])
        here = (close | tied)[row]
        self._note(count[row[here]], sure[here], self.need[count[row[here]], j[here]])
        worst = int(below.argmin())
        book.suspect(float(below[worst]), self.space.sequence(nodes[row[worst] : row[worst] + 1], guide[worst]))
        rest = ~right & ~wrong & ~close & ~leaf
        kept, number = rest[row], np.cumsum(rest) - 1
        at = self.space.where(nodes[rest], number[row[kept]], guide[kept])
        return Open(nodes[rest], classes[rest], at)

    def _surely_wrong(
        self, nodes: Nodes, row: np.ndarray, weight: np.ndarray, lo: np.ndarray, hi: np.ndarray,
        ends: np.ndarray | None, least: np.ndarray,
    ) -> np.ndarray:  # fmt: skip
        """For which (node, class) -weight . relu(z) exceeds `least` on the whole node: not where it does not once."""
        found = np.zeros(len(row), dtype=bool)
        once = np.maximum(self.space.witness(nodes), 0)
        some = np.flatnonzero(-(weight * once[row]).sum(1) > least)
        above, _ = self._below(nodes, row[some], -weight[some], lo, hi, ends, least[some])
        found[some] = above > least[some]
        return found

    def _note(self, count: np.ndarray, margin: np.ndarray, need: np.ndarray) -> None:
        """Keep the smallest margin of every count, with its rounding bound."""
        order = np.argsort(-margin)
        smaller = margin[order] < self.ledger.margin[count[order]]
        chosen = order[smaller]  # ascending towards the smallest, which is written last
        self.ledger.margin[count[chosen]] = margin[chosen]
        self.ledger.need[count[chosen]] = need[chosen]

    def _below(
        self, nodes: Nodes, row: np.ndarray, weight: np.ndarray, lo: np.ndarray, hi: np.ndarray,
        ends: np.ndarray | None, target: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
        """Bound from below of weight . relu(z) for each (node, class), and what guides the next split of a node.

        The space's own bound costs a product with every token's values: taken where the interval's is not above target.
        """
        low, high = lo[row], hi[row]
        best = interval_below(weight, low, high)
        guide = np.zeros((len(row), 0))
        self.steps += 4 * weight.size
        if (todo := np.flatnonzero(~(best > target))).size:
            self.steps += todo.size * self._wide
            found, guides = self.space.below(nodes, row[todo], weight[todo], low[todo], high[todo], ends)
            best[todo] = np.maximum(best[todo], found)
            guide = np.zeros((len(row), guides.shape[1]))
            guide[todo] = guides
        return best, guide


@dataclass
class Part:
    """One own token: its search (None if the method's numbers vanish), its ledger, and what is open.

    rivals: by count, the answers that the root's bound leaves open.
    """

    token: int
    search: Search | None
    ledger: Ledger
    left: Open | None
    rivals: dict[int, np.ndarray]

    @classmethod
    def of(cls, token: int, search: Search) -> Part:
        """With the roots bounded once."""
        left = search.start()
        rivals: dict[int, np.ndarray] = {}
        for count, classes in zip(left.nodes.count.tolist(), left.classes):
            rivals[count] = rivals.get(count, False) | classes
        return cls(token, search, search.ledger, left, rivals)

    @property
    def undecided(self) -> np.ndarray:
        """Open (sequence, position) pairs by count."""
        book = self.ledger
        if self.search is None:
            return np.array(book.total)
        out = np.zeros_like(book.total)
        if self.left is not None and len(self.left.nodes):
            np.add.at(out, self.left.nodes.count - 1, self.search.space.weight(self.left.nodes))
        return out

    @property
    def is_open(self) -> bool:
        return self.search is None or (self.left is not None and len(self.left.nodes) > 0)

    def decide(self, count: int, found: Found, need: np.ndarray, slack: np.ndarray) -> None:
        """All sequences with the own token so often were counted: in place of what the search knows of them."""
        book, k, rivals = self.ledger, count - 1, self.rivals[count]
        book.right[k], book.wrong[k], book.close[k], book.tied[k] = found.right, found.wrong, found.close, found.tied
        # What is right exceeds need + 2 slack as evaluated here, what is close nothing.
        least = 0.0 if found.close or found.tied else float((need + slack)[rivals].min())
        if found.right or found.close:
            book.margin[k], book.need[k] = min(book.margin[k], least), float(need[rivals].min())
        book.exact = False
        if self.left is not None:
            self.left = self.left[self.left.nodes.count != count]


def join(parts: list[Open]) -> Open:
    """Several lists of open nodes as one."""
    if len(parts) == 1:
        return parts[0]
    merged = {
        name: np.concatenate([getattr(part.nodes, name) for part in parts]) for name in Nodes.__dataclass_fields__
    }
    return Open(
        Nodes(**merged), np.concatenate([part.classes for part in parts]), np.concatenate([part.at for part in parts])
    )
