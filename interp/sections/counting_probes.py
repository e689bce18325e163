"""The readout of a counting model alone, on mixtures made by hand (Behrens et al. 2024, Figures 3 to 5 and 15)."""

from __future__ import annotations

import pandas as pd

from interp.errors import UnsupportedError
from interp.measures import counting_readout
from interp.report import Report
from interp.report import figures as draw
from interp.sections import _shared as shared
from interp.sections.base import Study, section


def needs(study: Study) -> str | None:
    """A mixture of a given sum."""
    if (reason := shared.needs_counter(study)) is not None:
        return reason
    try:
        counting_readout.total_attention(study.once(shared.counter))
    except UnsupportedError as error:
        return str(error)
    return None


@section("counting_probes", title="The readout on artificial mixtures", order=710, needs=needs)
def make(study: Study, report: Report) -> None:
    """Answers against the shares of two and of three tokens in the mixture."""
    counter = study.once(shared.counter)
    report.section(
        "The readout on artificial mixtures",
        "The readout alone, on mixtures of embeddings made by hand: what does its answer depend on?",
    )
    pairs = [(own, other) for own, other in (("1", "2"), ("2", "3"), ("3", "0"), ("0", "1"))
             if max(int(own), int(other)) < counter.task.T]  # fmt: skip
    probes = pd.concat([counting_readout.probe_two(counter, *pair) for pair in pairs], ignore_index=True)
    probes["tokens"] = "own " + probes["own"] + ", other " + probes["other"]
    key = probes["key"][0] if counter.task.bos else "the own token"
    if counter.task.bos:
        given = study.once(shared.by_relation).query("relation == 'BOS'")
        meant = pd.DataFrame({"alpha": given["mean"], "answer": given["count"], "tokens": "what attention gives"})
        probes = pd.concat([probes, meant], ignore_index=True)
    report.add_figure(
        "probe_two",
        draw.lines(probes, "alpha", "answer", "tokens", x_title=f"share of {key} in the mixture", y_title="answer"),
        "The own token, plus a mixture of two. Lines that agree for all tokens mean that the share alone decides"
        + (
            "; the last line is the mean share that attention gives [BOS] at each count (Figures 3 and 15)."
            if counter.task.bos
            else "."
        ),
    )
    if counter.task.T >= 4:
        probe = counting_readout.probe_three(counter)
        grid = probe.pivot(index="own_share", columns="other_share", values="answer")
        label = [f"{value:.3f}" for value in grid.columns]
        report.add_figure(
            "probe_three",
            draw.heatmap(
                grid.to_numpy(float), label, label, "share of token 2", "share of the own token 1", "answer",
                ends=(1, counter.task.L),
            ),
            "The own token 1, plus a mixture of 1, 2 and 3 whose shares add up to one. Horizontal bands: the answer "
            "depends on the own share alone (Figures 4 and 5).",
        )  # fmt: skip
