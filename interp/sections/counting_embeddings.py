"""Overlaps of a counting model's embeddings, and of its attention scores (Behrens et al. 2024, Figures 3 and 7)."""

from __future__ import annotations

import numpy as np
import pandas as pd

from interp.measures import counting
from interp.report import Report
from interp.report import figures as draw
from interp.sections import _shared as shared
from interp.sections.base import Study, section


@section("counting_embeddings", title="Overlaps of embeddings", order=620, needs=shared.needs_counter)
def make(study: Study, report: Report) -> None:
    """Cosines of all pairs, and the distributions of cosines and scores by relation."""
    counter = study.once(shared.counter)
    overlaps = counting.embedding_overlaps(counter)
    task = counter.task
    report.section("Overlaps of embeddings")
    matrix = overlaps["cosine"].to_numpy().reshape(task.T, task.d_vocab)
    report.add_figure(
        "overlaps",
        draw.heatmap(matrix, task.vocabulary, task.vocabulary[: task.T], "embedding", "token", "cosine", center=0.0),
        "Cosine of every pair of embeddings.",
    )
    for quantity in ("cosine", "score"):
        if overlaps[quantity].notna().all():
            # The cosine of a token with itself is 1 and says nothing.
            frame = _distribution(
                overlaps[overlaps["relation"] != "same"] if quantity == "cosine" else overlaps, quantity
            )
            report.add_figure(
                f"{quantity}_distribution",
                draw.lines(frame, quantity, "share", "relation", y_title="share of the pairs", markers=True),
                "Distribution of the cosines of different tokens, by relation (Figures 3 and 7)."
                if quantity == "cosine"
                else "Distribution of the attention scores of pairs, before any softmax: is same apart from different?",
            )  # fmt: skip


def _distribution(overlaps: pd.DataFrame, quantity: str, bins: int = 40) -> pd.DataFrame:
    """The share of pairs of each relation in each bin."""
    low, high = overlaps[quantity].min(), overlaps[quantity].max()
    edges = np.linspace(low, high if high > low else low + 1, bins + 1)
    frames = []
    for relation, part in overlaps.groupby("relation", sort=False):
        counts, _ = np.histogram(part[quantity], edges)
        middle = (edges[1:] + edges[:-1]) / 2
        frames.append(pd.DataFrame({"relation": relation, quantity: middle, "share": counts / len(part)}))
    return pd.concat(frames, ignore_index=True)
