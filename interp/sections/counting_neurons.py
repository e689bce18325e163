"""What the hidden neurons of a counting model read (Behrens et al. 2024, Figure 6)."""

from __future__ import annotations

import numpy as np

from interp.measures import counting_readout
from interp.report import Report
from interp.report import figures as draw
from interp.sections import _shared as shared
from interp.sections.base import Study, section

SHOWN_NEURONS = 12


@section("counting_neurons", title="Hidden neurons", order=704, needs=shared.needs_counter)
def make(study: Study, report: Report) -> None:
    """How many tokens a neuron reads, its activation by count, and the singular values of the readout."""
    counter = study.once(shared.counter)
    selectivity = counting_readout.neuron_selectivity(counter)
    tokens = counting_readout.tokens_per_neuron(selectivity)
    spectrum = counting_readout.readout_spectrum(counter)
    T, p = counter.task.T, counter.W_in.shape[1]
    report.section(
        "Hidden neurons",
        f"An inventory needs at least as many neurons as tokens: this model has {p} for {T}. A neuron reads "
        f"{tokens:.1f} tokens on average (1: one token alone, {T}: all alike), weighted by how much it tells.",
    )
    report.add_table(
        "counting_neurons",
        selectivity,
        "Response: how much the neuron tells the readout about the count, summed over tokens. Tokens: the effective "
        "number of tokens it reads. Favorite: the token it tells most about, and that token's share.",
        max_rows=SHOWN_NEURONS,
    )
    activity = counting_readout.hidden_by_count(counter)
    first = selectivity["neuron"].head(3)
    over_tokens = activity[activity["neuron"].isin(first)].groupby(["neuron", "count"], as_index=False)["activation"]
    shown = over_tokens.mean().assign(spread=over_tokens.std(ddof=0)["activation"])
    shown["neuron"] = "neuron " + shown["neuron"].astype(str)
    report.add_figure(
        "hidden_by_count",
        draw.lines(shown, "count", "activation", "neuron", y_title="mean activation", markers=True, spread="spread"),
        "The neurons that tell most: activation by the count of the own token, mean over all tokens; the bands are one "
        "standard deviation between tokens.",
    )
    if counter.W_in.shape[1] > 1 and (spectrum.values > 0).any():
        frame = spectrum.to_frame()
        frame = frame[frame["value"] > 1e-12 * frame["value"].max()]
        dip = (
            f"After value {T} it falls by a factor of {spectrum.dip:.2f}; the usual factor is {spectrum.usual:.2f}."
            if np.isfinite(spectrum.dip)
            else f"There are no more than {T} values, so there is no dip to measure."
        )
        report.add_figure(
            "spectrum",
            draw.lines(frame, "index", "value", y_type="log", markers=True, y_title="singular value"),
            f"Singular values of the readout's first matrix (Figure 6). {dip}",
        )
    report.add_fact("dip of W_in", spectrum.dip)
