"""The exact direct effect of every edge between parts; made on request only if there are many edges."""

from __future__ import annotations

from interp import words
from interp.measures.counted import reduces
from interp.measures.edges import edges, nodes, path_patching
from interp.measures.pairs import make_pairs
from interp.measures.runs import operations
from interp.populations import SIZES, SPEED
from interp.report import Report
from interp.sections.base import Study, section
from interp.tasks.batch import Pairs


def needs(study: Study) -> str | None:
    """Require at most 64 nodes with additive outputs, and minimal pairs."""
    nodes(study.subject)
    study.measure(make_pairs, 24)
    return None


ROUNDING = 1e-6
"""Rounding error of a share of a logit difference, in float32."""


def passes(study: Study) -> int:
    """Return the number of forward passes: one per edge, and one per sender and layer."""
    return len(edges(study.subject)) + len(nodes(study.subject)) * study.model.cfg.n_layers


def cost(study: Study) -> float:
    """Return the nominal seconds on the smallest sample."""
    length = study.task.sample(2, study.task.splits[-1], seed=0).tokens.shape[1]
    length = min(length, study.task.d_vocab) if reduces(study.subject) else length
    return SIZES[0] * passes(study) * operations(study.subject, length) / SPEED


def differs(pairs: Pairs) -> str:
    """Say in what the inputs of minimal pairs differ, and which edges they therefore cannot show."""
    clean, corrupted = pairs.clean, pairs.corrupted
    if not clean.lengths.equal(corrupted.lengths):
        return "The inputs of a pair may differ in length."
    longest = int(clean.lengths.max())
    most = int((clean.tokens[:, :longest] != corrupted.tokens[:, :longest]).sum(1).max())
    return (
        f"The inputs of a pair have the same length and differ in {'' if most == 1 else 'at most '}"
        f"{words.counted(most, 'token')}, so an edge that only carries the length has effect 0 here."
    )


@section("edges", title="Edges between parts", order=505, block="where", needs=needs, cost=cost)
def make(study: Study, report: Report) -> None:
    """Show path patching of every edge."""
    inputs = study.population("edges", passes(study), fixed=False, most=5_000)  # the clean inputs of the pairs
    result = path_patching(study.subject, inputs.batch)
    found = result.to_frame()
    best = found.loc[found["recovered"].abs().idxmax()]
    report.heading(
        "Edges between parts",
        "Take what one part writes in the clean run, and put it into the input of one later part in the corrupted "
        "run, and nowhere else. Then run the rest of the model. Nothing is linearized.\n\n"
        f"On {words.counted(result.pairs, 'pair')} of inputs, made {inputs.on}, the strongest edge is from "
        f"{best['sender']} to {best['receiver']}: it recovers "
        f"{words.number(float(best['recovered']), 3, ROUNDING)} of the clean run's logit difference. "
        f"{differs(make_pairs(study.subject, batch=inputs.batch))}",
    )
    report.add_figure("edges", result.plot(), "The effect of every edge. Cells without color are not edges.")
    ordered = found.reindex(found["recovered"].abs().sort_values(ascending=False).index).reset_index(drop=True)
    report.add_table("edges", ordered, "All edges, the strongest first.", max_rows=20)
    report.add_fact("strongest_edge", f"{best['sender']} -> {best['receiver']}")
