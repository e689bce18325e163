"""At which layer and position, and in which part, is what decides the answer? Activation patching on minimal pairs."""

from __future__ import annotations

import numpy as np

from interp import words
from interp.measures.pairs import MAX_POSITIONS, Patched, make_pairs, patch
from interp.measures.runs import affordable, heads_of, mlps_of
from interp.measures.subject import Subject
from interp.report import Report
from interp.report import figures as draw
from interp.sections.base import Study, section

MOST_SITES = 400


def sites(subject: Subject) -> int:
    """About how many forwards it takes."""
    length = subject.task.sample(2, subject.task.splits[-1], seed=0).tokens.shape[1]
    length = length if length <= MAX_POSITIONS else 3
    return (subject.model.cfg.n_layers + 1) * length + len(heads_of(subject)) + len(mlps_of(subject))


def needs(study: Study) -> str | None:
    """Minimal pairs, and few enough sites."""
    if (n := sites(study.subject)) > MOST_SITES:
        return f"{n} sites are too many to patch one by one"
    study.measure(make_pairs, 24)  # says itself why there are none
    return None


def measured(subject: Subject) -> Patched:
    """On as many pairs as seconds allow."""
    length = subject.task.sample(2, subject.task.splits[-1], seed=0).tokens.shape[1]
    return patch(subject, make_pairs(subject, min(200, affordable(subject, length, sites(subject)))))


def told_apart(clean: float, corrupted: float) -> str:
    """A warning where the model, on average, prefers the same answer in both runs: it has nothing to lose, or to
    recover; "" otherwise.
    """
    if clean * corrupted < 0:
        return ""
    return "On average the model prefers the same answer in both runs, so shares of their difference say little. "


@section("patching", title="Patching", order=500, needs=needs)
def make(study: Study, report: Report) -> None:
    """The stream by layer and position, then heads and MLPs."""
    found = study.measure(measured)
    best = found.parts.loc[found.parts["recovered"].idxmax()]
    parts = words.either(found.parts["part"][found.parts["recovered"] == best["recovered"]])
    report.section(
        "Patching",
        "Pairs of inputs that differ in one small change and in their answers. One site of the corrupted run is given "
        "its "
        "value in the clean run, and all else runs on: 0 is the corrupted run's difference of the two answers' logits, "
        "1 "
        f"the clean run's ({words.number(found.corrupted)} and {words.number(found.clean)}, means over "
        f"{words.counted(found.reads, 'answer')}).\n\n"
        f"{told_apart(found.clean, found.corrupted)}"
        f"Of single parts, {parts} recovers most: {words.number(float(best['recovered']), 3)}.",
    )
    stream = found.stream.pivot(index="layer", columns="position", values="recovered")
    stream = stream[list(dict.fromkeys(found.stream["position"]))]
    last = study.model.cfg.n_layers
    names = [f"after layer {last - 1}" if layer == last else f"before layer {layer}" for layer in stream.index]
    report.add_figure(
        "patching_stream",
        draw.heatmap(
            stream.to_numpy(), list(stream.columns), names, "position" if found.by_index else "positions",
            "residual stream", "recovered", 0.0, square=False, show_values=stream.size <= 60,
        ),
        "The residual stream, patched before each layer and at one position at a time."
        if found.by_index
        else "The residual stream, patched before each layer; rows have different lengths, so positions are grouped.",
    )  # fmt: skip
    report.add_figure(
        "patching_parts",
        draw.bars(found.parts, "part", "recovered", "kind", x_title="part that is patched", y_title="recovered"),
        "Heads and MLPs, each patched at all positions.",
    )
    report.add_table(
        "patching",
        found.parts.drop(columns=["layer", "head"]),
        "recovered: share of the clean run's logit difference. flipped: share of the answers that become the clean "
        "input's right ones, and are not without the patch.",
    )
    report.add_fact("patched_most", str(best["part"]))
    report.add_fact("recovered_most", float(np.round(best["recovered"], 6)))
