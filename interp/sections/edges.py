"""The exact direct effect of every edge between parts; made on request only if there are many edges."""

from collections.abc import Mapping

from interp import words
from interp.measures.counted import reduces
from interp.measures.edges import DIGITS, edge_effects, edges, edges_by_kind, largest, nodes
from interp.measures.pairs import make_pairs, pairs_by_kind
from interp.measures.runs import operations
from interp.populations import SIZES, SPEED
from interp.report import Report
from interp.sections.base import Study, section
from interp.tasks.batch import Pairs
from interp.tasks.pairs import KINDS


def needs(study: Study) -> str | None:
    """Require at most 64 nodes with additive outputs, and minimal pairs."""
    nodes(study.subject)
    study.measure(make_pairs, 24)
    return None


ROUNDING = 1e-6
"""Rounding error of a share of a logit difference, in float32."""


def passes(study: Study) -> int:
    """Return the number of forward passes: for each kind of pair one per edge, and one per sender and layer."""
    return len(KINDS) * (len(edges(study.subject)) + len(nodes(study.subject)) * study.model.cfg.n_layers)


def cost(study: Study) -> float:
    """Return the nominal seconds on the smallest sample."""
    length = study.task.sample(2, study.task.splits[-1], seed=0).tokens.shape[1]
    length = min(length, study.task.d_vocab) if reduces(study.subject) else length
    return SIZES[0] * passes(study) * operations(study.subject, length) / SPEED


WORDS = {
    "own": "of the task's own",
    "changed": "with one token changed",
    "swapped": "with two tokens swapped",
    "longer": "with one token more",
    "shorter": "with one token less",
}
"""Kinds of pairs in words."""


def made_of(kinds: Mapping[str, Pairs]) -> str:
    """How many pairs of each kind there are, and what they cannot show."""
    said = words.joined(f"{words.counted(len(pairs), 'pair')} {WORDS[kind]}" for kind, pairs in kinds.items())
    if not all(pairs.clean.lengths.equal(pairs.corrupted.lengths) for pairs in kinds.values()):
        return said
    return f"{said} (inputs of one length, so an edge that only carries the length has effect 0)"


@section("edges", title="Edges between parts", order=505, block="where", needs=needs, cost=cost)
def make(study: Study, report: Report) -> None:
    """Show path patching of every edge, by kind of pair."""
    inputs = study.population("edges", passes(study), fixed=False, most=1_000)  # the clean inputs of the pairs
    kinds = pairs_by_kind(study.subject, batch=inputs.batch)
    by_kind = edges_by_kind(study.subject, kinds)
    found, whole = edge_effects(by_kind), largest(by_kind)
    best = found.iloc[0]
    kind = str(best[[*by_kind]].astype(float).abs().round(DIGITS).idxmax())
    recovered = words.number(float(best[kind]), 3, ROUNDING)
    on = f" in the pairs {WORDS[kind]}" if len(by_kind) > 1 else ""
    pairs = made_of({one: kinds[one] for one in by_kind})
    report.heading(
        "Edges between parts",
        "Take what one part writes in the clean run, and put it into the input of one later part in the corrupted "
        "run, and nowhere else. Then run the rest of the model. Nothing is linearized.\n\n"
        f"On {pairs}, made {inputs.on}, the strongest edge is from {best['sender']} to {best['receiver']}: it recovers "
        f"{recovered} of the clean run's logit difference{on}.",
    )
    shown = "The effect of every edge" + (", of the kind of pair for which it is largest" if len(by_kind) > 1 else "")
    report.add_figure("edges", whole.plot(), f"{shown}. Cells without color are not edges.")
    listed = "All edges, the strongest first" + ("; one column for each kind of pair" if len(by_kind) > 1 else "")
    report.add_table("edges", found, f"{listed}.", max_rows=20)
    report.add_fact("strongest_edge", f"{best['sender']} -> {best['receiver']}")
