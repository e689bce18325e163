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
from dataclasses import replace

import pandas as pd
import torch

from interp.certificates.certificate import (
    Certificate,
    Progress,
    SampledShare,
    Status,
    anything,
    note_rounding,
    register_method,
)
from interp.certificates.places_model import refusal
from interp.certificates.places_ranges import union
from interp.certificates.places_search import DRAWN, OPERATIONS_A_SECOND, PROBED, Proof, ReadProof, first_error
from interp.certificates.probes import sees_its_answers
from interp.errors import UnsupportedError
from interp.models.architecture.answers import find_positions
from interp.models.architecture.task_model import TaskModel
from interp.models.subject import Subject
from interp.support.resources import Budget, one_thread
from interp.tasks.automata import Paths, declared
from interp.tasks.structure import compare

FEWEST = 1 << 20
"""Tasks with fewer inputs are certified by running each input instead."""
SECONDS = 600
"""Default budget, in seconds of one core."""
COUNTING = 0.05
"""Share of the budget spent on counting the errors of a model that is already known to be wrong."""
TAKES = {
    **anything("task", "origin", "dtype", "d_model", "embedding", "readout_bias", "direction", "readout_at", "n_out"),
    **anything("max_length", "final_norm", "tied_embeddings", "rotary_base", "rotary_dim", "rotary_pairs"),
    **anything("layers.n_heads", "layers.d_head", "layers.scale", "layers.log_length", "layers.query_key"),
    **anything("layers.value_output", "layers.norm", "layers.norm_eps", "layers.norm_kind", "layers.key_value_heads"),
    **anything("layers.query_key_norm", "layers.bias.q", "layers.bias.k", "layers.bias.v", "layers.bias.o"),
    **anything("layers.mlp.d_mlp", "layers.mlp.gated", "layers.mlp.bias"),
    "layers.mlp.activation": ("relu", "gelu", "gelu_new", "silu"),
    "layers": (1,), "positions": ("none", "learned", "sinusoidal", "rotary", "alibi"),
    "positions_enter": ("residual", "attention"), "readout": ("linear", "scalar"), "decision": ("argmax", "sigmoid"),
}  # fmt: skip
"""The accepted values of a spec's fields, almost all."""


def places_refusal(model: TaskModel) -> str | None:
    """Return the reason why this model cannot be certified by places, or None."""
    if (n := model.task.n_inputs or 0) < FEWEST:
        return f"{n:,} inputs are run one by one"
    if (reason := refusal(model)) is not None:
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


@register_method("every path of an automaton, by places and states", ("automata",), places_refusal, TAKES, order=2)
@torch.no_grad()
@one_thread()
def certify_places(
    model: TaskModel, seconds: float | int | None = None, progress: Progress | None = None
) -> Certificate:
    """Certify a one-layer model on every input of a task that declares an automaton.

    seconds: limit of the search (see resources.py for the default, SECONDS). If it is reached, the accuracy is an
    interval, narrowed by random inputs, of which about as many are run as a second allows.
    The certificate's tables: "answers" (one row per position: inputs, right, wrong, margin, a lower bound over all
    inputs or -inf, and sets, the number of sets processed) and "inputs" (number of inputs, and lower and upper bounds
    on the number with a wrong answer). Raises UnsupportedError if the method does not apply.
    """
    budget = Sets(seconds)
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
    certificate = _conclude(automata, proofs, total, false, budget.ended)
    return replace(certificate, on_trust=trust, probes=tuple(proof.probes() for proof in proofs))


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
    parameters = ", ".join(f"{name}={value}" for name, value in task.ref.parameters)  # those that are not the default
    columns = ["inputs", "wrong at least", "wrong at most"]
    inputs = pd.DataFrame([(n_inputs, least, most)], columns=columns, dtype=object)
    certificate = Certificate(
        model=model.spec.id,
        status=status,
        accuracy=share.accuracy,
        confidence=share.confidence,
        n_inputs=n_inputs,
        worst_margin=nearest.margin,
        counterexample=false,
        method="every path of an automaton, by places and states, float64",
        domain=f"every input of task {task.name}{f' with {parameters}' if parameters else ''}",
        rounding=nearest.error,
        n_errors=wrong if right + wrong == total else None,
        n_answers=total if total != n_inputs else None,
        notes=notes,
        tables={"answers": _answers_frame(proofs), "inputs": inputs},
    )
    return note_rounding(certificate)


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


def _nearest_error(proofs: Sequence[Proof]) -> str | None:
    """Describe the first input of the smallest-margin cells that the model itself gets wrong, or None."""
    for proof in proofs:
        near = [routes.example(cells, 0) for read in proof.reads
                for high, (routes, cells) in read.tally.nearest if high < 0 or read.tally.open]  # fmt: skip
        if words := first_error(proof, torch.tensor(near, dtype=torch.long).view(-1, proof.paths.length)):
            return words
    return None
