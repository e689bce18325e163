"""Proofs by places and states: certify a one-layer model on every input of a task that an automaton computes.

A *place* is a position, numbered in the order in which the automaton reads. Attention adds up one term per place. The
proof fixes the tokens at a few places, those with the largest measured effect. For all other places together it bounds
each sum by dynamic programming over (place, state), over all inputs that pass through the given automaton states and so
have the same label. The resulting set of residual streams is propagated through the rest of the model. If a set may
contain both right and wrong answers, one more place is fixed. The search ends when every set is decided, or when the
model itself gets an input wrong.

Each answer is checked after the right earlier answers. By induction, a model that is right at every position generates
all answers right. A counterexample is reported only after the model itself has generated it, token by token.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.architecture.answers import Decision, correct, find_positions, word_of
from interp.architecture.task_model import TaskModel
from interp.certificates.arithmetic import ROUNDOFF
from interp.certificates.base import Certificate, Progress, Status, anything, noted, register_method
from interp.certificates.budgets import Budget, SampledShare, Stratum
from interp.certificates.enumeration import sees_its_answers
from interp.certificates.places_count import TokenPattern, union
from interp.certificates.places_forms import FormArithmetic, Forms
from interp.certificates.places_model import OneLayer, one_layer, refusal, token_tables
from interp.certificates.places_ranges import Cells, Routes
from interp.certificates.places_sets import Bounds, Sight, behind_attention, sight
from interp.certificates.probes import Probes
from interp.errors import UnsupportedError
from interp.measures.subject import Subject
from interp.tasks import Task
from interp.tasks.automata import Paths, declared
from interp.tasks.structure import compare, lacks
from interp.threads import one_thread

Array = np.ndarray

FEWEST = 1 << 20
"""Tasks with fewer inputs are certified by running each input instead."""
CELLS, FEW_CELLS = 1 << 14, 64
"""Largest number of sets of inputs (cells) processed per batch, and the number that is always allowed."""
OPERATIONS_A_SECOND = 5e9
SECONDS = 600
"""Default budget, in seconds of one core."""
BATCH = 1e10
"""Largest number of operations per batch."""
COUNTING = 0.05
"""Share of the budget spent on counting the errors of a model that is already known to be wrong."""
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


TAKES = {
    **anything("task", "origin", "dtype", "d_model", "embedding", "readout_bias", "direction", "readout_at", "n_out"),
    **anything("max_length", "final_norm", "tied_embeddings", "rotary_base", "rotary_dim", "rotary_pairs"),
    **anything("layers.n_heads", "layers.d_head", "layers.scale", "layers.log_length", "layers.query_key"),
    **anything("layers.value_output", "layers.norm", "layers.norm_eps", "layers.norm_kind", "layers.key_value_heads"),
    **anything("layers.query_key_norm", "layers.bias.q", "layers.bias.k", "layers.bias.v", "layers.bias.o"),
    **anything("layers.mlp.d_mlp", "layers.mlp.activation", "layers.mlp.gated", "layers.mlp.bias"),
    "layers": (1,), "positions": ("none", "learned", "sinusoidal", "rotary", "alibi"),
    "positions_enter": ("residual", "attention"), "readout": ("linear", "scalar"), "decision": ("argmax", "sigmoid"),
}  # fmt: skip
"""The accepted values of a spec's fields, almost all; `refusal` checks the model's modules."""


def why_not(model: TaskModel) -> str | None:
    """Return the reason why this model cannot be certified by places, or None."""
    if (reason := lacks(model.task, ("automata",)) or refusal(model)) is not None:
        return reason
    try:
        for paths in declared(model.task):
            if paths.length > (model.spec.max_length or paths.length):
                return f"it has {model.spec.max_length} positions, and rows of the task {paths.length} tokens"
            _as_read(model, paths)
            reason = reason or sees_its_answers(Subject.of(model), model.task.batch(paths.draw(1)))
    except UnsupportedError as error:
        return str(error)
    return reason


def _or_few(model: TaskModel) -> str | None:
    """Return the reason of `why_not`, or that all inputs can be run."""
    n = model.task.n_inputs or 0
    return why_not(model) or (f"{n:,} inputs are run one by one" if n < FEWEST else None)


@register_method("every path of an automaton, by places and states", ("automata",), _or_few, TAKES, order=2)
@torch.no_grad()
@one_thread()
def certify_places(
    model: TaskModel, seconds: float | int | None = None, progress: Progress | None = None
) -> Certificate:
    """Certify a one-layer model on every input of a task that declares an automaton.

    seconds: limit of the search (see budgets.py for the default, SECONDS). If it is reached, the accuracy is an
    interval, narrowed by random inputs, of which about as many are run as a second allows.
    The certificate's tables: "answers" (one row per position: inputs, right, wrong, margin, a lower bound over all
    inputs or -inf, and sets, the number of sets processed) and "inputs" (number of inputs, and lower and upper bounds
    on the number with a wrong answer). Raises UnsupportedError if the method does not apply.
    """
    budget = Sets(seconds)
    if (reason := why_not(model)) is not None:
        raise UnsupportedError(f"{model.spec.id} cannot be certified by places: {reason}")
    proofs: list[Proof] = []
    trust = compare(model.task, declared(model.task))
    automata = [_as_read(model, paths) for paths in declared(model.task)]
    total = sum(paths.n_inputs * len(paths.reads) for paths in automata)
    done, false = 0, None
    for paths in automata:
        proof = Proof.of(model, paths)
        proofs.append(proof)
        false = proof.sample(DRAWN, seed=2) or false
        budget.only_counts |= false is not None
        more = proof.affordable()
        for read in proof.reads:
            for decided in budget.spend(read, _reads_left(automata, proofs, read)):
                done += decided
                if more and false is None and budget.spent > OPERATIONS_A_SECOND:
                    false, more = proof.sample(more, seed=4), 0
                    budget.only_counts |= false is not None
                if progress is not None:
                    progress(done, total)
    for proof in proofs:
        proof.count_open()
    found = _conclude(automata, proofs, total, false, budget.ended)
    return replace(found, on_trust=trust, probes=tuple(proof.probes() for proof in proofs))


def _as_read(model: TaskModel, paths: Paths) -> Paths:
    """Return the paths with the model's own read position, which a spec may set differently from the task.

    Raises UnsupportedError if the model is not read at the same position in all rows.
    """
    if (read_at := model.spec.readout_at) == model.task.readout:
        return paths
    rows, places = paths.draw(PROBED, seed=3), []
    if read_at != "all":
        places = find_positions(model.task, rows, read_at).unique().tolist()
    if len(places) != 1 or len(paths.reads) != 1:
        raise UnsupportedError(f"{read_at!r}, where the model is read, is not at one position of every input")
    return replace(paths, reads={places[0]: next(iter(paths.reads.values()))})


def _reads_left(automata: Sequence[Paths], proofs: Sequence[Proof], read: ReadProof) -> int:
    """Return the number of read positions left, including this one; they share the remaining budget equally."""
    here = proofs[-1].reads
    later = sum(len(paths.reads) for paths in automata[len(proofs) :])
    return len(here) - here.index(read) + later


class Sets(Budget):
    """Number of operations that are left, and spent. only_counts: whether the model is already known to be wrong."""

    def __init__(self, seconds: float | int | None) -> None:
        super().__init__(seconds, OPERATIONS_A_SECOND, SECONDS if seconds is None else seconds)
        self.only_counts, self.to_count, self.spent = False, self.steps * COUNTING, 0.0

    def spend(self, read: ReadProof, reads: int) -> Iterator[int]:
        """Explore one of the `reads` positions left; yield the number of inputs decided after each step."""
        spent = 0.0
        for cost, decided in read.explore():
            self.steps -= cost
            self.spent += cost
            spent += cost
            yield decided
            self.only_counts |= read.tally.wrong > 0
            if self.only_counts:
                self.steps = min(self.steps, self.to_count)
            if spent * reads > self.steps + spent or self.is_over():
                break


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
            margin = self._margins(rows)
            if counts:
                self.drawn.append(rows)
            if false is None:
                false = _first_error(self, rows[torch.from_numpy(~(margin > 0).all(1))])
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

    def _margins(self, rows: Int[Tensor, "rows length"]) -> Float[Array, "rows reads"]:
        """Return the margins of the model's own answers."""
        out, right = self.logits(rows).numpy(), self.paths.right(rows).numpy()
        columns = [_margin(out[:, read.at], right[:, read.at]) for read in self.reads]
        return np.stack(columns, 1)

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
        own = score[:, asked[:, None], positions, rows[:, :seen]]  # heads, rows, positions
        top = score[:, asked].max((2, 3))
        mass = np.exp(own - top[:, :, None])
        pull = mass[..., None] * values[:, positions, rows[:, :seen]]
        masses, pulls = mass.sum(2), pull.sum(2)
        stream = self.real.stream.value.numpy()[asked] + net.b_write.numpy()
        states = self.paths.walk(torch.from_numpy(rows))
        right = self.proof.right(self.at)[states[:, self.after]]

        def margin(mixed: Array) -> Array:
            """Return margins (rows, tried) from head outputs (heads, rows, tried, d_head)."""
            x = stream[:, None] + np.einsum("hrtd,hdm->rtm", mixed, net.write.numpy())
            flat = x.reshape(-1, x.shape[-1]).T.copy()
            forms = Forms(flat, np.zeros((len(flat), 0, flat.shape[1])), 0 * flat, 0 * flat)
            last = behind_attention(net, FormArithmetic(net.dtype), forms).center
            found = _margin(last.T @ net.read.numpy() + net.b_read.numpy(), right.repeat(x.shape[1]))
            return found.reshape(x.shape[:2])

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
        for one in self.sights():
            cells = one.routes.whole(self.after)
            stack: list[Cells] = []  # depth first, so that each level has about CELLS cells at most
            while True:
                bounds = one.bounds(cells, right_of[cells.states[self.after]])
                undecided, decided = self._take(one, cells, bounds)
                yield len(cells) * one.cost, decided
                if len(undecided):
                    stack.append(cells[undecided])
                if not stack:
                    break
                cells, waiting = self._front(one, stack.pop())
                if len(waiting):
                    stack.append(waiting)
        self.tally.finished = True

    def _front(self, one: Sight, parents: Cells) -> tuple[Cells, Cells]:
        """Split the first parents by one more place, into one batch of cells; return these and the other parents."""
        place = self._next(parents)
        assert place is not None
        many = one.routes.fanned(parents, place).cumsum()
        most = max(FEW_CELLS, min(CELLS, int(BATCH / one.cost)))
        first = max(1, int(np.searchsorted(many, most, side="right")))
        return one.routes.split(parents[:first], place), parents[first:]

    def _next(self, cells: Cells) -> int | None:
        """Return the place to fix next, or None if all are fixed."""
        return next((place for place in self.order if place not in cells.tokens), None)

    def _take(self, one: Sight, cells: Cells, bounds: Bounds) -> tuple[Array, int]:
        """Add the decided cells to the tally; return the undecided cells' indices and the number of inputs decided."""
        tally = self.tally
        tally.cells += len(cells)
        final = self._next(cells) is None
        over = bounds.right | bounds.wrong
        sizes = one.routes.sizes(cells[np.flatnonzero(over)])
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
            near = [(float(bounds.high[index]), (one.routes, cells[np.array([index])])) for index in first.tolist()]
            tally.nearest = sorted([*tally.nearest, *near], key=lambda pair: pair[0])[:TRIED]
        self._keep(one, cells, np.flatnonzero(bounds.wrong))
        return np.flatnonzero(~decided), n_right + n_wrong

    def _keep(self, one: Sight, cells: Cells, wrong: Array) -> None:
        """Keep the wrong cells, to count the inputs with at least one wrong answer."""
        tally = self.tally
        if tally.patterns is None or len(tally.patterns) + len(wrong) > KEPT:
            tally.patterns = None
            return
        asked = {self.paths.order.index(self.at): one.token}
        for index in wrong.tolist():
            states = {cut: int(part[index]) for cut, part in cells.states.items() if cut}
            tokens = {place: int(part[index]) for place, part in cells.tokens.items()}
            tally.patterns.append(TokenPattern(states, asked | tokens))


# ---------------------------------------------------------------- the certificate


def _conclude(
    automata: Sequence[Paths], proofs: Sequence[Proof], total: int, false: str | None, ended: str
) -> Certificate:
    model, task = proofs[0].model, proofs[0].model.task
    tallies = [read.tally for proof in proofs for read in proof.reads]
    n_inputs = sum(paths.n_inputs for paths in automata)
    right, wrong = (sum(getattr(tally, name) for tally in tallies) for name in ("right", "wrong"))
    least, most = _wrong_inputs(proofs)
    false = false or _nearest_error(proofs)
    nearest = min(tallies, key=lambda tally: tally.margin)
    status: Status = "refuted" if false else "certified" if right == total else "undecided"
    dtype = str(proofs[0].net.dtype).removeprefix("torch.")
    cells = sum(tally.cells for tally in tallies)
    notes: tuple[str, ...] = (f"{cells:,} sets of inputs were bounded, each as a whole",)
    if status == "certified":
        notes += (f"every answer is also right in {dtype} when the model generates token by token",)
    if right + wrong < total:
        notes += (f"{total - right - wrong:,} of {total:,} answers are undecided: their margins are within rounding of "
                  f"0 in {dtype}, or {ended or 'the budget was used up'}",)  # fmt: skip
    if wrong or false:
        between = f"{least:,}" if least == most else f"between {least:,} and {most:,}"
        notes += (f"inputs with a wrong answer: {between} of {n_inputs:,}",)
    share = SampledShare.of(tallies)
    notes += share.notes
    beyond = proofs[0].net.read.shape[1] - max(2, task.n_out)
    if proofs[0].net.read.shape[1] > 1 and beyond > 0:
        notes += (f"an answer is the largest of all {beyond + task.n_out} outputs of the model, including {beyond} "
                  f"besides the answers of task {task.name}",)  # fmt: skip
    found = Certificate(
        model=model.spec.id,
        status=status,
        accuracy=share.accuracy,
        confidence=share.confidence,
        n_inputs=n_inputs,
        worst_margin=nearest.margin,
        counterexample=false,
        method="every path of an automaton, by places and states, float64",
        domain=f"every input of task {_titled(task)}",
        rounding=nearest.error,
        n_errors=wrong if right + wrong == total else None,
        n_answers=total if total != n_inputs else None,
        notes=notes,
        tables={"answers": _answers_frame(proofs), "inputs": _inputs_frame(n_inputs, least, most)},
    )
    return noted(found)


def _wrong_inputs(proofs: Sequence[Proof]) -> tuple[int, int]:
    """Return lower and upper bounds on the number of inputs with a wrong answer."""
    least = most = 0
    for proof in proofs:
        tallies = [read.tally for read in proof.reads]
        patterns = [pattern for tally in tallies for pattern in tally.patterns or ()]
        whole = all(tally.patterns is not None for tally in tallies)
        surely = union(proof.paths, patterns) if len(tallies) > 1 and whole else None
        if len(tallies) == 1:
            surely = tallies[0].wrong
        at_least = max(tally.wrong for tally in tallies) if surely is None else surely
        at_most = sum(tally.wrong for tally in tallies) if surely is None else surely
        least += at_least
        most += min(proof.paths.n_inputs, at_most + sum(tally.open for tally in tallies))
    return least, most


def _answers_frame(proofs: Sequence[Proof]) -> pd.DataFrame:
    rows = [
        (proof.paths.length, tally.at, tally.inputs, tally.right, tally.wrong, tally.margin, tally.cells)
        for proof in proofs
        for tally in (read.tally for read in proof.reads)
    ]
    columns = ["length", "position", "inputs", "right", "wrong", "margin", "sets"]
    return pd.DataFrame(rows, columns=columns).astype(dict.fromkeys(("inputs", "right", "wrong"), object))


def _inputs_frame(n_inputs: int, least: int, most: int) -> pd.DataFrame:
    return pd.DataFrame([(n_inputs, least, most)], columns=["inputs", "wrong at least", "wrong at most"], dtype=object)


def _nearest_error(proofs: Sequence[Proof]) -> str | None:
    """Describe the first input of the smallest-margin cells that the model itself gets wrong, or None."""
    for proof in proofs:
        near = [routes.example(cells, 0) for read in proof.reads
                for high, (routes, cells) in read.tally.nearest if high < 0 or read.tally.open]  # fmt: skip
        if words := _first_error(proof, torch.tensor(near, dtype=torch.long).view(-1, proof.paths.length)):
            return words
    return None


def _first_error(proof: Proof, rows: Int[Tensor, "rows length"]) -> str | None:
    """Describe the first of these inputs on which the model itself generates a wrong answer, or None."""
    if not len(rows):
        return None
    right, out = proof.paths.right(rows), proof.logits(rows).numpy()
    places = [read.at for read in proof.reads]
    for row, (tokens, labels) in enumerate(zip(rows, right)):
        bad = ~(_margin(out[row, places], labels[places].numpy()) > 0)
        if bad.any() and (words := _generated(proof, tokens, labels)) is not None:
            return words
    return None


def _generated(proof: Proof, tokens: Int[Tensor, "length"], labels: Int[Tensor, "length"]) -> str | None:
    """Describe the first wrong answer that the model generates after the row so far, or None if all are right."""
    model, task = proof.model, proof.model.task
    for read in sorted(proof.reads, key=lambda read: read.at):
        row = tokens[None, : read.at + 1] if proof.net.causal else tokens[None]
        out = model(row.to(model.cfg.device))[0, read.at].double().cpu()
        right = int(labels[read.at])
        rule = Decision("argmax" if len(out) > 1 else "sigmoid")
        if not bool(correct(out, torch.tensor(right), rule)):
            said = word_of(task, out, rule)
            return f"{task.format(tokens)}: the answer at position {read.at} is {said}, right is {task.word(right)}"
    return None


def _margin(out: Float[Array, "rows n_out"], right: Int[Array, "rows"]) -> Float[Array, "rows"]:
    """Return the right output minus the best other output; for a single output s: s or -s."""
    if out.shape[1] == 1:
        return out[:, 0] * (2 * right - 1)
    rows = np.arange(len(out))
    others = out.copy()
    others[rows, right] = -np.inf
    return out[rows, right] - others.max(1)


def _titled(task: Task) -> str:
    """Return a task's name, with its non-default parameters."""
    given = ", ".join(f"{name}={value}" for name, value in task.ref.parameters)
    return f"{task.name} with {given}" if given else task.name
