"""Which layers, positions and parts decide the answer? Activation patching on minimal pairs."""

import numpy as np
import pandas as pd

from interp import words
from interp.measures.pairs import make_pairs
from interp.measures.patching import MAX_POSITIONS, Patched, activation_patching
from interp.measures.runs import heads_of, mlps_of
from interp.measures.subject import Subject
from interp.populations import NORMAL_95, Population
from interp.report import Report
from interp.sections.base import Study, section

MOST_SITES, ROUNDING = 400, 1e-6
"""Largest number of forward passes, and rounding error of a share of a logit difference in float32."""


def sites(subject: Subject, by_position: bool = False) -> int:
    """Return the approximate number of forward passes. by_position: if each head is patched at each position, too."""
    length = subject.task.sample(2, subject.task.splits[-1], seed=0).tokens.shape[1]
    length = length if length <= MAX_POSITIONS else 3
    heads = len(heads_of(subject))
    return (subject.model.cfg.n_layers + 1 + heads * by_position) * length + heads + len(mlps_of(subject))


def needs(study: Study) -> str | None:
    """Require minimal pairs, and few enough sites."""
    if (n := sites(study.subject)) > MOST_SITES:
        return f"{n} sites are too many to patch one by one"
    study.measure(make_pairs, 24)  # raises with the reason if there are none
    return None


def places(study: Study) -> bool:
    """Return whether there are few enough heads and positions to patch each head at each position."""
    return sites(study.subject, by_position=True) <= MOST_SITES


def passes(study: Study) -> int:
    """Return the approximate number of forward passes: in the last layer, only patches at the read have an effect."""
    n_heads, alone = study.model.cfg.n_heads, sites(study.subject)
    more = sites(study.subject, by_position=True) - alone if places(study) else 0
    return 2 + alone + more * (len(heads_of(study.subject)) - n_heads) // max(1, len(heads_of(study.subject)))


def population(study: Study) -> Population:
    """Return the clean inputs of the pairs."""
    return study.population("patching", passes(study), fixed=False, most=5_000)


def patched(study: Study) -> Patched:
    """Return the effects of all sites; use it with study.once."""
    return activation_patching(study.subject, study.once(population).batch, by_position=places(study))


def leading(table: pd.DataFrame) -> pd.DataFrame:
    """Return the row that recovers most, then all rows whose 95% intervals overlap its interval, up to rounding."""
    table = table.sort_values("recovered", ascending=False, kind="stable", key=lambda shares: shares.round(6))
    low = table["recovered"].iloc[0] - NORMAL_95 * table["error"].fillna(0).iloc[0]
    return table[table["recovered"] + NORMAL_95 * table["error"].fillna(0) >= low - ROUNDING]


def told_apart(clean: float, corrupted: float) -> str:
    """Return a warning if the model, on average, prefers the same answer in both runs; otherwise ""."""
    if clean * corrupted < 0:
        return ""
    return "On average, the model prefers the same answer in both runs, so these numbers say little. "


@section("patching", title="Patching", order=500, block="where", needs=needs)
def make(study: Study, report: Report) -> None:
    """Patch the residual stream by layer and position, then heads and MLPs."""
    inputs = study.once(population)
    found = study.once(patched)
    first = leading(found.parts)
    best = first.iloc[0]
    most = words.number(float(best["recovered"]), 3, ROUNDING)
    half = NORMAL_95 * float(best["error"])
    error = "" if inputs.exact else f" (95% interval ±{words.number(half, 2, ROUNDING)})"
    parts = words.either(first["site"])
    leader = (
        f"{parts} recovers most: " if best["recovered"] > 0 else f"none recovers anything; nearest is {parts}, with "
    )
    report.heading(
        "Patching",
        "Each pair of inputs, clean and corrupted, differs by one small change and has different answers. One site "
        "of the corrupted run gets its value from the clean run, and the rest of the model runs on. The result is "
        "the difference of the two answers' logits, scaled so that the corrupted run has 0 and the clean run has 1 "
        f"(unscaled: {words.number(found.corrupted)} and {words.number(found.clean)}, means over "
        f"{words.counted(found.reads, 'answer')}). The pairs are made {inputs.on}.\n\n"
        f"{told_apart(found.clean, found.corrupted)}"
        f"Among single parts, {leader}{most}{error}.",
    )
    report.add_figure(
        "patching_stream",
        found.plot("stream"),
        "The residual stream, patched before each layer and at one position at a time."
        if found.by_index
        else "The residual stream, patched before each layer; rows have different lengths, so positions are grouped.",
    )
    report.add_figure("patching_parts", found.plot("parts"), "Heads and MLPs, each patched at all positions.")
    if len(found.at_positions):
        report.add_figure("patching_heads", found.plot("heads"), "Each head, patched at one position at a time.")
    report.add_table(
        "patching",
        found.parts.drop(columns=["layer", "head", "position"]).rename(columns={"site": "part"}),
        f"On {words.counted(found.reads, 'answer')}. recovered: share of the clean run's logit difference; error: its "
        "standard error. flipped: share of the answers that the patch changes to the right answer of the clean input.",
    )
    report.add_fact("patched_most", words.either(first["site"]))
    report.add_fact("recovered_most", float(np.round(best["recovered"], 6)))
