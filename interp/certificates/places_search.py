"""The search of a proof by places and states: split sets of inputs until every set is decided.

A Proof is about all rows of one length, a ReadProof about one read position in them. A ReadProof keeps sets of inputs,
the cells, and fixes one more place in those that may contain both right and wrong answers. places.py tells the method.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.certificates.arithmetic import ROUNDOFF
from interp.certificates.certificate import Stratum
from interp.certificates.places_forms import FormArithmetic, Forms
from interp.certificates.places_model import OneLayer, one_layer, token_tables
from interp.certificates.places_ranges import Cells, Routes, TokenPattern
from interp.certificates.places_sets import Bounds, Sight, sight
from interp.certificates.probes import Probes
from interp.certificates.rounding import behind_attention
from interp.models.architecture.answers import margins, right_in_run, said_in_run
from interp.models.architecture.task_model import TaskModel
from interp.tasks.automata import Paths

Array = np.ndarray

CELLS, FEW_CELLS = 1 << 14, 64
"""Largest number of sets of inputs (cells) processed per batch, and the number that is always allowed."""
OPERATIONS_A_SECOND = 5e9
BATCH = 1e10
"""Largest number of operations per batch."""
DRAWN, MOST_DRAWN = 1 << 11, 1 << 15
"""Numbers of random inputs that are run before the search starts, and after its first second."""
PROBED = 256
"""Number of random inputs on which the model itself must agree with the bounds."""
MEASURED = 32
"""Number of inputs on which the effect of each place is measured."""
KEPT = 4096
"""Largest number of wrong cells kept for counting their inputs."""
TRIED, NEAREST = 64, 4
"""Number of cells with the smallest margins that are kept in total, and per batch. The model itself is run on one input
of each."""


@dataclass
class ReadTally(Stratum):
    """Progress of the proof at one read position, `at`.

    cells: number of sets processed. worst: lower bound on the margins in the decided sets; error: the rounding in it.
    finished: whether all inputs are in decided sets. nearest: sets with the smallest margins. patterns: the wrong sets,
    None if there are too many.
    """

    at: int = 0
    cells: int = 0
    worst: float = np.inf
    error: float = 0.0
    finished: bool = False
    nearest: list[tuple[float, tuple[Routes, Cells]]] = field(default_factory=list)
    patterns: list[TokenPattern] | None = field(default_factory=list)

    @property
    def margin(self) -> float:
        """A lower bound on the margin of every input."""
        return self.worst if self.finished or not self.open else -np.inf


@dataclass(frozen=True)
class Proof:
    """The proof for all rows of one length: one ReadProof per read position. drawn: the random inputs that were run."""

    model: TaskModel
    paths: Paths
    net: OneLayer
    reads: list[ReadProof]
    drawn: list[Int[Tensor, "rows length"]]

    @classmethod
    def of(cls, model: TaskModel, paths: Paths) -> Proof:
        proof = cls(model, paths, one_layer(model, paths.length), [], [])
        proof.reads.extend(ReadProof(proof, at) for at in sorted(paths.reads))
        return proof

    def right(self, at: int) -> Int[Array, "states"]:
        """Return the right output for each automaton state that determines the answer."""
        return self.paths.reads[at][1]

    def logits(self, rows: Int[Tensor, "rows length"]) -> Float[Tensor, "rows length n_out"]:
        """Run the model itself."""
        with torch.no_grad():
            return self.model(rows.to(self.model.cfg.device)).double().cpu()

    def affordable(self) -> int:
        """Return the number of random inputs that can be run in about a second."""
        parameters, cfg = sum(p.numel() for p in self.model.parameters()), self.model.cfg
        cost = self.paths.length * (2 * parameters + 100 * (cfg.d_model + (cfg.d_mlp or 0)))
        return max(DRAWN, min(MOST_DRAWN, int(OPERATIONS_A_SECOND / cost)))

    def sample(self, n: int, seed: int) -> str | None:
        """Run n random inputs, keep them to count what stays open, and describe the first error, or None.

        A quarter as many inputs that repeat a few states, such as long chains of carries, are tried for errors only.
        """
        false = None
        drawn, repeating = self.paths.draw(n, seed), self.paths.repeating(n // 4, seed)
        for rows, counts in [(part, True) for part in drawn.split(DRAWN)] + [(repeating, False)]:
            if counts:
                self.drawn.append(rows)
            if false is None:
                false = first_error(self, rows)
        return false

    def count_open(self) -> None:
        """Count the answers to the random inputs at the read positions that the proof leaves open.

        Answers within rounding of a tie count for neither side: the proof is about exact arithmetic, too.
        """
        for read, rows in ((read, rows) for read in self.reads if read.tally.open for rows in self.drawn):
            bounds = read.points(rows, self.right(read.at)[self.paths.walk(rows)[:, read.after]])
            read.tally.drawn += len(rows)
            read.tally.drawn_right += int(bounds.right.sum())
            read.tally.drawn_open += int((~(bounds.right | bounds.wrong)).sum())

    def errs(self, rows: Int[Tensor, "rows length"]) -> Bool[Tensor, "rows"]:
        """Return the rows in which the model's own answers, after the right ones before, are not all right."""
        places = [read.at for read in self.reads]
        out, right = self.logits(rows)[:, places], self.paths.right(rows)[:, places]
        return ~right_in_run(out, right, self.net.decision).all(1)

    def probes(self) -> Probes:
        """Return random inputs with bounds on the model's own margins."""
        rows = self.paths.draw(PROBED, seed=0)
        states = self.paths.walk(rows)
        ends = torch.zeros(2, *rows.shape, dtype=torch.float64)
        marked = torch.zeros(*rows.shape, max(2, self.net.read.shape[1]), dtype=torch.bool)
        for read in self.reads:
            right = self.right(read.at)[states[:, read.after]]
            bounds = read.points(rows, right)
            ends[:, :, read.at] = torch.from_numpy(np.stack([bounds.own_low, bounds.own_high]))
            marked[torch.arange(len(rows)), read.at, torch.from_numpy(right)] = True
        if self.model.spec.readout_at != "all":
            ends, marked = ends[:, :, self.reads[0].at], marked[:, self.reads[0].at]
        return Probes(self.model.task.batch(rows), marked, ends[0], ends[1], torch.zeros_like(ends[0]))


class ReadProof:
    """The proof at one read position.

    order: the places in the order in which the search fixes them, largest effect first. tally: progress so far.
    """

    def __init__(self, proof: Proof, at: int) -> None:
        self.proof, self.at, self.paths = proof, at, proof.paths
        self.after = self.paths.reads[at][0]
        seen = at + 1 if proof.net.causal else self.paths.length
        self.real = token_tables(proof.net, ROUNDOFF[torch.float64], at, seen)
        self.own = token_tables(proof.net, ROUNDOFF[proof.net.dtype], at, seen)
        self.tally = ReadTally(self.paths.n_inputs, at=at)
        self._sights: dict[int, Sight] = {}
        self.order = self._places_that_matter(seen)

    def sights(self) -> Iterator[Sight]:
        """Yield one Sight per token that can stand at the read position."""
        place = self.paths.order.index(self.at)
        for token in np.flatnonzero((self.paths.following[place] >= 0).any(0)).tolist():
            yield self._sight(token)

    def _sight(self, token: int) -> Sight:
        if token not in self._sights:
            routes = Routes.of(self.paths, self.at, token)
            self._sights[token] = sight(self.proof.net, routes, self.at, token, self.real, self.own)
        return self._sights[token]

    # ------------------------------------------------------------ single inputs

    def points(self, rows: Int[Tensor, "rows length"], right: Int[Array, "rows"]) -> Bounds:
        """Return bounds on the margins of single inputs."""
        parts = []
        states = self.paths.walk(rows)
        tokens = rows.numpy()
        asked = tokens[:, self.at]
        for token in np.unique(asked):
            index = np.flatnonzero(asked == token)
            cells = Cells(
                {cut: states[index, cut] for cut in range(self.paths.length + 1)},
                {place: tokens[index, position] for place, position in enumerate(self.paths.order)},
            )
            parts.append((index, self._sight(int(token)).bounds(cells, right[index])))
        return Bounds.joined(parts, len(rows))

    def _places_that_matter(self, seen: int) -> list[int]:
        """Sort the visible places by their effect on the margin, largest first.

        The effect of a place is the largest over its tokens of the mean change in margin over MEASURED inputs.
        """
        rows = self.paths.draw(MEASURED, seed=1).numpy()
        net = self.proof.net
        score, values = self.real.scores.value.numpy(), self.real.values.value.numpy()
        asked = rows[:, self.at]
        positions = np.arange(seen)
        scores = score[:, asked[:, None], positions, rows[:, :seen]]  # heads, rows, positions
        top = score[:, asked].max((2, 3))
        mass = np.exp(scores - top[:, :, None])
        pull = mass[..., None] * values[:, positions, rows[:, :seen]]
        masses, pulls = mass.sum(2), pull.sum(2)
        stream = self.real.stream.value.numpy()[asked] + net.b_write.numpy()
        states = self.paths.walk(torch.from_numpy(rows))
        right = torch.from_numpy(self.proof.right(self.at)[states[:, self.after]])

        def margin(mixed: Array) -> Array:
            """Return margins (rows, tried) from head outputs (heads, rows, tried, d_head)."""
            x = stream[:, None] + np.einsum("hrtd,hdm->rtm", mixed, net.write.numpy())
            flat = x.reshape(-1, x.shape[-1]).T.copy()
            forms = Forms(flat, np.zeros((len(flat), 0, flat.shape[1])), 0 * flat, 0 * flat)
            last = behind_attention(FormArithmetic(net.dtype), net.model, 0, forms).center
            out = (torch.from_numpy(last).T @ net.read + net.b_read).view(*x.shape[:2], -1)
            return margins(out, right[:, None].expand(x.shape[:2]), net.decision).numpy()

        tried = [(place, position, token) for place, position in enumerate(self.paths.order)
                 if position < seen and position != self.at
                 for token in np.flatnonzero((self.paths.following[place] >= 0).any(0)).tolist()]  # fmt: skip
        influence = np.zeros(self.paths.length)
        if not tried:
            return []
        place, position, token = np.array(tried).T
        with np.errstate(all="ignore"):
            base = margin((pulls / masses[..., None])[:, :, None])
            new = np.exp(score[:, asked[:, None], position, token] - top[..., None])  # heads, rows, tried
            mixed = pulls[:, :, None] - pull[:, :, position] + new[..., None] * values[:, None, position, token]
            mixed = mixed / (masses[..., None] - mass[:, :, position] + new)[..., None]
            moved = np.abs(margin(mixed) - base)
        np.maximum.at(influence, place, np.nan_to_num(moved, nan=0.0, posinf=1e300).mean(0))
        order = np.argsort(-influence, kind="stable")
        return [int(p) for p in order if self.paths.order[p] < seen and self.paths.order[p] != self.at]

    # ------------------------------------------------------------ all inputs

    def explore(self) -> Iterator[tuple[float, int]]:
        """Split sets of inputs until all are decided; yield the operations and the inputs decided per step."""
        right_of = self.proof.right(self.at)
        for view in self.sights():
            cells = view.routes.all_inputs(self.after)
            stack: list[Cells] = []  # depth first, so that each level has about CELLS cells at most
            while True:
                bounds = view.bounds(cells, right_of[cells.states[self.after]])
                undecided, decided = self._take(view, cells, bounds)
                yield len(cells) * view.cost, decided
                if len(undecided):
                    stack.append(cells[undecided])
                if not stack:
                    break
                cells, waiting = self._front(view, stack.pop())
                if len(waiting):
                    stack.append(waiting)
        self.tally.finished = True

    def _front(self, view: Sight, parents: Cells) -> tuple[Cells, Cells]:
        """Split the first parents by one more place, into one batch of cells; return these and the other parents."""
        place = self._next(parents)
        assert place is not None
        many = view.routes.fanned(parents, place).cumsum()
        most = max(FEW_CELLS, min(CELLS, int(BATCH / view.cost)))
        first = max(1, int(np.searchsorted(many, most, side="right")))
        return view.routes.split(parents[:first], place), parents[first:]

    def _next(self, cells: Cells) -> int | None:
        """Return the place to fix next, or None if all are fixed."""
        return next((place for place in self.order if place not in cells.tokens), None)

    def _take(self, view: Sight, cells: Cells, bounds: Bounds) -> tuple[Array, int]:
        """Add the decided cells to the tally; return the undecided cells' indices and the number of inputs decided."""
        tally = self.tally
        tally.cells += len(cells)
        final = self._next(cells) is None
        over = bounds.right | bounds.wrong
        sizes = view.routes.sizes(cells[np.flatnonzero(over)])
        right = bounds.right[over]
        n_right, n_wrong = int(sizes[right].sum()), int(sizes[~right].sum())
        tally.right += n_right
        tally.wrong += n_wrong
        decided = bounds.right | bounds.wrong | final
        if decided.any():
            lowest = np.flatnonzero(decided)[bounds.low[decided].argmin()]
            if bounds.low[lowest] < tally.worst:
                tally.worst, tally.error = float(bounds.low[lowest]), float(bounds.rounding[lowest])
            first = np.flatnonzero(decided)[np.argsort(bounds.high[decided])[:NEAREST]]
            # [index]: a copy; a slice would keep the whole batch in memory.
            near = [(float(bounds.high[index]), (view.routes, cells[np.array([index])])) for index in first.tolist()]
            tally.nearest = sorted([*tally.nearest, *near], key=lambda pair: pair[0])[:TRIED]
        self._keep(view, cells, np.flatnonzero(bounds.wrong))
        return np.flatnonzero(~decided), n_right + n_wrong

    def _keep(self, view: Sight, cells: Cells, wrong: Array) -> None:
        """Keep the wrong cells, to count the inputs with at least one wrong answer."""
        tally = self.tally
        if tally.patterns is None or len(tally.patterns) + len(wrong) > KEPT:
            tally.patterns = None
            return
        asked = {self.paths.order.index(self.at): view.token}
        for index in wrong.tolist():
            states = {cut: int(part[index]) for cut, part in cells.states.items() if cut}
            tokens = {place: int(part[index]) for place, part in cells.tokens.items()}
            tally.patterns.append(TokenPattern(states, asked | tokens))


def first_error(proof: Proof, rows: Int[Tensor, "rows length"]) -> str | None:
    """Describe the first of these inputs on which the model itself generates a wrong answer, or None."""
    if not len(rows):
        return None
    wrong = rows[proof.errs(rows)]
    errors = (_generated(proof, *each) for each in zip(wrong, proof.paths.right(wrong)))
    return next((words for words in errors if words is not None), None)


def _generated(proof: Proof, tokens: Int[Tensor, "length"], labels: Int[Tensor, "length"]) -> str | None:
    """Describe the first wrong answer that the model generates after the row so far, or None if all are right."""
    model, task = proof.model, proof.model.task
    for read in sorted(proof.reads, key=lambda read: read.at):
        row = tokens[None, : read.at + 1] if proof.net.causal else tokens[None]
        out = model(row.to(model.cfg.device))[0, read.at].double().cpu()
        right = int(labels[read.at])
        if not bool(right_in_run(out, torch.tensor(right), proof.net.decision)):
            answer = said_in_run(task, out, right, proof.net.decision)
            return f"{task.format(tokens)}: the answer at position {read.at} is {answer}, right is {task.word(right)}"
    return None
