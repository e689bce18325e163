"""What one part reads from another directly: the exact effect of every edge; on request where there are many."""

from __future__ import annotations

from interp import words
from interp.measures.edges import edge_effects, edges, nodes
from interp.measures.pairs import make_pairs
from interp.report import Report
from interp.report import figures as draw
from interp.sections.base import Study, section


def needs(study: Study) -> str | None:
    """At most 64 nodes whose writings add up, and minimal pairs."""
    nodes(study.subject)
    study.measure(make_pairs, 24)
    return None


def cost(study: Study) -> float:
    """Seconds: a run for each edge and each input of an edge."""
    cfg = study.model.cfg
    runs = 1.5 * len(edges(study.subject))
    length = study.task.sample(2, study.task.splits[-1], seed=0).tokens.shape[1]
    row = length * cfg.n_layers * (24 * cfg.d_model**2 + cfg.n_heads * length * (4 * cfg.d_head + 20))
    return runs * (2e-3 * cfg.n_layers + 64 * row / 3e9)


@section("edges", title="Edges between parts", order=505, needs=needs, cost=cost)
def make(study: Study, report: Report, pairs: int = 64) -> None:
    """Path patching of every edge."""
    given = make_pairs(study.subject, pairs)
    found = edge_effects(study.subject, given)
    best = found.loc[found["recovered"].abs().idxmax()]
    report.section(
        "Edges between parts",
        "What one part writes in the clean run is put into the input of one later part of the corrupted run, and "
        "nowhere "
        "else; then all runs on. Nothing is linearized.\n\n"
        f"On {words.counted(len(given), 'pair')} of inputs, the strongest edge is from {best['sender']} to "
        f"{best['receiver']}: it recovers "
        f"{words.number(float(best['recovered']), 3)} of the clean run's logit difference.",
    )
    order = [str(node) for node in nodes(study.subject)]
    matrix = found.pivot(index="sender", columns="receiver", values="recovered")
    matrix = matrix.reindex(index=order[:-1], columns=order[1:])
    report.add_figure(
        "edges",
        draw.heatmap(
            matrix.to_numpy(), list(matrix.columns), list(matrix.index), "reads", "writes", "recovered", 0.0,
            square=False, show_values=matrix.size <= 100,
        ),
        "The effect of every edge; cells without color are no edges.",
    )  # fmt: skip
    ordered = found.reindex(found["recovered"].abs().sort_values(ascending=False).index).reset_index(drop=True)
    report.add_table("edges", ordered, "All edges, the strongest first.", max_rows=20)
    report.add_fact("strongest_edge", f"{best['sender']} -> {best['receiver']}")
