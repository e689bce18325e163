"""The exact direct effect of every edge between parts; made on request only if there are many edges."""

from __future__ import annotations

import time

from interp import words
from interp.measures.edges import edges, nodes, path_patching
from interp.measures.pairs import make_pairs
from interp.measures.runs import forward
from interp.measures.subject import Subject
from interp.populations import SIZES
from interp.report import Report
from interp.sections.base import CHEAP, Study, section
from interp.tasks import Batch


def needs(study: Study) -> str | None:
    """Require at most 64 nodes with additive outputs, and minimal pairs."""
    nodes(study.subject)
    study.measure(make_pairs, 24)
    return None


ROUNDING = 1e-6
"""Rounding error of a share of a logit difference, in float32."""
TIMED = 64
"""Number of inputs on which a forward pass is timed."""


def cost(study: Study) -> float:
    """Return the estimated seconds: the time of a forward pass times one run per edge and one per sender and layer."""
    subject = study.subject
    batch = study.task.sample(TIMED, study.task.splits[-1], seed=0)
    forward(subject, batch)
    started = time.perf_counter()
    forward(subject, batch)
    one = time.perf_counter() - started
    return one * SIZES[0] / TIMED * (len(edges(subject)) + len(nodes(subject)) * study.model.cfg.n_layers)


def _some(subject: Subject, batch: Batch) -> None:
    path_patching(subject, batch)


@section("edges", title="Edges between parts", order=505, block="where", needs=needs, cost=cost)
def make(study: Study, report: Report) -> None:
    """Show path patching of every edge."""
    inputs = study.population("edges", _some, fixed=False, seconds=CHEAP)  # the clean inputs of the pairs
    result = path_patching(study.subject, inputs.batch)
    found = result.to_frame()
    best = found.loc[found["recovered"].abs().idxmax()]
    report.heading(
        "Edges between parts",
        "Take what one part writes in the clean run, and put it into the input of one later part in the corrupted "
        "run, and nowhere else. Then run the rest of the model. Nothing is linearized.\n\n"
        f"On {words.counted(result.pairs, 'pair')} of inputs, made {inputs.on}, the strongest edge is from "
        f"{best['sender']} to {best['receiver']}: it recovers "
        f"{words.number(float(best['recovered']), 3, ROUNDING)} of the clean run's logit difference.",
    )
    report.add_figure("edges", result.plot(), "The effect of every edge. Cells without color are not edges.")
    ordered = found.reindex(found["recovered"].abs().sort_values(ascending=False).index).reset_index(drop=True)
    report.add_table("edges", ordered, "All edges, the strongest first.", max_rows=20)
    report.add_fact("strongest_edge", f"{best['sender']} -> {best['receiver']}")
