"""Branch and bound over the sequences with one own token: prove parts of them right or wrong.

Evidence that a model is right: for each own token, sequences split by the counts of other tokens. Parts are split where
the bound is lowest; the checker derives the same bound again. A fixed attention pattern needs one part per position and
count.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from interp.certificates.certificate import Certificate
from interp.certificates.check.model import Model
from interp.certificates.check.sequences import sentence
from interp.certificates.evidence import Finding, register_evidence, round_bound_down
from interp.certificates.evidence_parts import counterexamples
from interp.errors import InterpError
from interp.families.histogram.certificates import spaces
from interp.families.histogram.certificates.tables import Tables, tables_of
from interp.families.histogram.certificates.walk import WalkCounts
from interp.families.histogram.occurrences import declared
from interp.models.architecture.task_model import TaskModel
from interp.models.architecture.ties import TIED
from interp.support.resources import Budget

CHUNK = 256
"""Number of nodes bounded together; with fewer, call overhead dominates in small models."""
MOST_PARTS = 500_000
"""Largest number of parts of evidence."""
PER_NODE = 1000
"""Cost of a node in steps, in addition to its neurons: copying and call overhead."""


@dataclass
class Ledger:
    """Results so far, per count: numbers of (sequence, position) pairs that are right, wrong, close or undecided.

    margin: lower bound on the smallest proved margin. need: its rounding bound, the largest of all margins that are
    equal to it but for rounding. candidates: suspects found so far, as (approximate margin, sequence, position).
    close: pairs that are right in exact arithmetic, but with a margin within rounding.
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
    """Undecided nodes, with the classes not yet proved to be below the right one, and where to split each node."""

    nodes: spaces.Nodes
    classes: np.ndarray
    at: np.ndarray

    def __getitem__(self, rows: np.ndarray | slice) -> Open:
        return Open(self.nodes[rows], self.classes[rows], self.at[rows])


def largest_equal(margin: Any) -> Any:
    """Return the largest number that equals a margin, or each of several, but for rounding; they may be infinite."""
    return margin * (1 + TIED * np.sign(margin))


class Search:
    """The search for one own token, with the thresholds of a proof.

    need[k - 1, j]: threshold for margins in the model's arithmetic. slack: the same for float64, which determines the
    errors in exact arithmetic. target: the threshold in use: need at first; slack once the model cannot be certified
    and only its exact accuracy is searched. steps: approximate number of multiplications so far, which the budget
    counts, so that a verdict does not depend on the machine's load.
    """

    def __init__(self, tables: Tables, space: spaces.Space, need: np.ndarray, slack: np.ndarray) -> None:
        self.tables, self.space, self.need, self.slack, self.target = tables, space, need, slack, need
        self.ledger = Ledger.of(tables.L)
        self.steps = 0.0
        self._wide = tables.lead.shape[2] * (8 + tables.T)
        self.size = CHUNK

    def start(self) -> Open:
        """Bound the roots; return the undecided nodes."""
        roots = self.space.roots()
        classes = np.ones((len(roots), self.tables.lead.shape[1]), dtype=bool)
        classes[np.arange(len(roots)), self.tables.classes[roots.count - 1]] = False
        np.add.at(self.ledger.total, roots.count - 1, self.space.weight(roots))
        left = Open(roots, classes, np.zeros(len(roots), dtype=int))
        return join_open([self.bound(left[s : s + self.size]) for s in range(0, len(roots), self.size)])

    def explore(self, left: Open, steps: float, budget: Budget) -> Open:
        """Split nodes until all are decided, `steps` are used up or time runs out; return the undecided nodes."""
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
        return join_open(stack) if stack else left[:0]

    def bound(self, part: Open) -> Open:
        """Decide nodes by bounds and by single sequences; return the nodes that need splitting."""
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
        # Store a lower bound: the margin as evaluated here minus its rounding.
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
        # Right, but within rounding: splitting could only help if the bound is loose.
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
        self, nodes: spaces.Nodes, row: np.ndarray, weight: np.ndarray, lo: np.ndarray, hi: np.ndarray,
        ends: np.ndarray | None, least: np.ndarray,
    ) -> np.ndarray:  # fmt: skip
        """Return a mask of the (node, class) pairs for which -weight . relu(z) exceeds `least` on the whole node."""
        wrong = np.zeros(len(row), dtype=bool)
        once = np.maximum(self.space.witness(nodes), 0)
        some = np.flatnonzero(-(weight * once[row]).sum(1) > least)
        above, _ = self._below(nodes, row[some], -weight[some], lo, hi, ends, least[some])
        wrong[some] = above > least[some]
        return wrong

    def _note(self, count: np.ndarray, margin: np.ndarray, need: np.ndarray) -> None:
        """Record the smallest margin per count, with the rounding bound of it and of those that are equal to it."""
        book, before = self.ledger, self.ledger.margin.copy()
        np.minimum.at(book.margin, count, margin)
        book.need[before > largest_equal(book.margin)] = 0.0
        equal = margin <= largest_equal(book.margin)[count]
        np.maximum.at(book.need, count[equal], need[equal])

    def _below(
        self, nodes: spaces.Nodes, row: np.ndarray, weight: np.ndarray, lo: np.ndarray, hi: np.ndarray,
        ends: np.ndarray | None, target: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
        """Return a lower bound on weight . relu(z) per (node, class), and values that guide the next split.

        The space's tighter bound needs a product with all tokens' values, so it is computed only if the interval bound
        is not above the target.
        """
        low, high = lo[row], hi[row]
        best = spaces.interval_below(weight, low, high)
        guide = np.zeros((len(row), 0))
        self.steps += 4 * weight.size
        if (todo := np.flatnonzero(~(best > target))).size:
            self.steps += todo.size * self._wide
            bounds, guides = self.space.below(nodes, row[todo], weight[todo], low[todo], high[todo], ends)
            best[todo] = np.maximum(best[todo], bounds)
            guide = np.zeros((len(row), guides.shape[1]))
            guide[todo] = guides
        return best, guide


@dataclass
class OwnToken:
    """State of one own token: its search (None if its softmax weight underflows), its ledger, and undecided nodes.

    rivals: per count, the answers that the root's bound does not exclude.
    """

    token: int
    search: Search | None
    ledger: Ledger
    left: Open | None
    rivals: dict[int, np.ndarray]

    @classmethod
    def of(cls, token: int, search: Search) -> OwnToken:
        """Start the search and bound the roots."""
        left = search.start()
        rivals: dict[int, np.ndarray] = {}
        for count, classes in zip(left.nodes.count.tolist(), left.classes):
            rivals[count] = rivals.get(count, False) | classes
        return cls(token, search, search.ledger, left, rivals)

    @property
    def undecided(self) -> np.ndarray:
        """Return the number of undecided (sequence, position) pairs per count."""
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

    def decide(self, count: int, found: WalkCounts, need: np.ndarray, slack: np.ndarray) -> None:
        """Replace the search's results for one count by an exact count of all sequences."""
        book, k, rivals = self.ledger, count - 1, self.rivals[count]
        book.right[k], book.wrong[k], book.close[k], book.tied[k] = found.right, found.wrong, found.close, found.tied
        # Right margins exceed need + 2 slack as evaluated here; close ones exceed no threshold.
        least = 0.0 if found.close or found.tied else float((need + slack)[rivals].min())
        if found.right or found.close:
            book.margin[k], book.need[k] = min(book.margin[k], least), float(need[rivals].min())
        book.exact = False
        if self.left is not None:
            self.left = self.left[self.left.nodes.count != count]


def join_open(parts: list[Open]) -> Open:
    """Concatenate lists of undecided nodes."""
    if len(parts) == 1:
        return parts[0]
    nodes = spaces.Nodes.joined([part.nodes for part in parts])
    return Open(nodes, *(np.concatenate([getattr(part, name) for part in parts]) for name in ("classes", "at")))


# ---------------------------------------------------------------- evidence


@register_evidence("occurrences of every token")
def sequences_evidence(model: TaskModel, certificate: Certificate, options: dict[str, Any]) -> Finding:
    """Make parts for every own token, split until the model is proved right on each."""
    if certificate.status == "refuted":
        return counterexamples(model, certificate)
    if certificate.accuracy != 1.0 or not certificate.worst_margin > 0:
        raise InterpError("evidence of this kind is for a model that is right on every sequence")
    if not np.isfinite(certificate.worst_margin):
        raise InterpError("a model of one output has no margin: no evidence")
    tables, parts, bounds = tables_of(model), [], []
    for token in range(tables.T):
        space = spaces.space_of(tables, token)
        if space is None:
            raise InterpError(f"no evidence: the softmax weight of token {token} underflows next to another's")
        cuts, least = _cut(tables, space, certificate.worst_margin / 2)
        bounds.append(least)
        parts.append(cuts if isinstance(space, spaces.Multisets) else None)
        if sum(len(part) for part in parts if part) > MOST_PARTS:
            raise InterpError(f"evidence would need more than {MOST_PARTS:,} parts")
    shape = declared(model.task)
    ids = [*shape.tokens, *shape.marks]
    margin = float.fromhex(round_bound_down(min(bounds)))

    def rounding(checked: Model) -> int:
        layer, words, keys = checked.layers[0], [checked.words[token] for token in ids], tables.L + len(shape.marks)
        every = [layer.pattern[0] if layer.linear else [layer.scores(0, row, words, 0)] for row in words[: tables.T]]
        return max(checked.drift(row, words, keys, scores) for row, some in zip(words, every) for scores in some)

    domain = {"counted": list(shape.tokens), "marks": list(shape.marks), "length": shape.length,
              "classes": list(shape.classes)}  # fmt: skip
    subject = sentence(model.task.name, shape.tokens, shape.marks, tables.L, shape.classes)
    return Finding("sequences", domain, parts, margin, subject, rounding)


def _cut(tables: Tables, space: spaces.Space, least: float) -> tuple[list[int | None], float]:
    """Return the parts in order, each as the token by which it is split (None: not split), and the smallest bound."""
    roots, smallest = space.roots(), float("inf")
    cuts: list[int | None] = [None] * len(roots)
    inside: dict[int, list[int]] = {}
    todo = [(roots, np.arange(len(roots)))]
    while todo:
        nodes, numbers = todo.pop()
        if len(nodes) > CHUNK:
            todo.append((nodes[CHUNK:], numbers[CHUNK:]))
            nodes, numbers = nodes[:CHUNK], numbers[:CHUNK]
        bounds, at = _below(tables, space, nodes, least)
        leaf, weak = space.is_leaf(nodes), bounds <= least
        smallest = min(smallest, float(bounds[~weak].min(initial=float("inf"))))
        if (weak & leaf).any() or (weak.any() and not isinstance(space, spaces.Multisets)):
            raise InterpError(f"a margin of {bounds[weak].min():.3g} is too small for evidence")
        if weak.any():
            assert isinstance(space, spaces.Multisets)
            children, parents = space.children(nodes[weak], at[weak])
            new = np.arange(len(cuts), len(cuts) + len(children))
            cuts += [None] * len(children)
            for number, token in zip(numbers[weak], at[weak]):
                cuts[number] = int(space.others[token])
            for number, parent in zip(new, numbers[weak][parents]):
                inside.setdefault(int(parent), []).append(int(number))
            todo.append((children, new))
    ordered: list[int | None] = []
    stack = list(reversed(range(len(roots))))
    while stack:
        number = stack.pop()
        ordered.append(cuts[number])
        stack += reversed(inside.get(number, []))
    return ordered, smallest


def _below(tables: Tables, space: spaces.Space, nodes: spaces.Nodes, least: float) -> tuple[np.ndarray, np.ndarray]:
    """Return, per node, a lower bound on the right output minus any other one, and the token by which to split it."""
    lo, hi, ends = space.interval(nodes)
    row, j = np.nonzero(np.arange(tables.lead.shape[1]) != tables.classes[nodes.count - 1][:, None])
    count = nodes.count[row] - 1
    weight, bias = tables.lead[count, j], tables.lead_bias[count, j]
    best, at = spaces.interval_below(weight, lo[row], hi[row]) + bias, np.zeros(len(nodes), dtype=int)
    if (todo := np.flatnonzero(best <= least)).size:
        bounds, guide = space.below(nodes, row[todo], weight[todo], lo[row[todo]], hi[row[todo]], ends)
        best[todo] = np.maximum(best[todo], bounds + bias[todo])
        weak = best[todo] <= least
        at = space.where(nodes, row[todo[weak]], guide[weak])
    if isinstance(space, spaces.Slots) and (todo := np.flatnonzero(best <= least)).size:
        slope, offset = spaces.affine_below(weight[todo], lo[row[todo]], hi[row[todo]], parallel=True)
        best[todo] = np.maximum(best[todo], space.least_product(nodes[row[todo]], slope) + offset + bias[todo])
    bounds = np.full(len(nodes), np.inf)
    np.minimum.at(bounds, row, best)
    return bounds, at
