"""Sections on the parts of a counting model: attention, embeddings, hidden neurons (Behrens et al. 2024)."""

import numpy as np
import pandas as pd

from interp.families.histogram.measures import counting
from interp.families.histogram.measures.counting import CountingModel
from interp.families.histogram.measures.relation_or_inventory import neuron_selectivity, tokens_per_neuron
from interp.families.histogram.sections import answers
from interp.measures.runs import Neuron
from interp.report import Report
from interp.report.sections.base import Study
from interp.support import figures as draw
from interp.support import words
from interp.support.figures.theme import BLUE, GREEN, PURPLE, VERMILLION

RELATIONS = {"self": BLUE, "same": VERMILLION, "different": GREEN, "BOS": PURPLE}
"""The color of each relation of two tokens, in all figures."""


@answers.counts("counting_attention", title="Attention by relation", order=420, block="where")
def counting_attention(study: Study, report: Report) -> None:
    """Show one attention pattern, and the weight on each kind of key by the position's own count (Figure 3)."""
    counter = study.measure(CountingModel.of)
    softmax = counter.model.spec.layers[0].normalizer == "softmax"
    task = counter.task
    run = counter.run(task.example)
    names = [f"{i}: {task.vocabulary[int(token)]}" for i, token in enumerate(run.tokens[0])]
    report.heading("Attention by relation")
    report.add_figure(
        "attention_blocks",
        draw.heatmap(
            run.pattern[0].numpy(),
            names,
            names,
            "key: position and token",
            "query: position and token",
            "attention weight" if softmax else "raw score",
            center=0.0 if (run.pattern < 0).any() else None,
            ends=(0.0,) if softmax else (),
        ),
        "The attention pattern on one sequence: rows attend to columns. Blocks mean that attention compares tokens.",
    )
    table = study.once(answers.by_relation)
    known = {"self": "itself", "same": "the same token elsewhere", "different": "other tokens", "BOS": "[BOS]"}
    report.add_figure(
        "attention_by_relation",
        draw.lines(
            table, "count", "mean", "relation", markers=True, x_title="count of the position's token",
            y_title="attention weight" if softmax else "raw score", spread="std", colors=RELATIONS,
        ),
        f"Mean attention of a position to {words.joined(known[r] for r in table['relation'].unique())}, by the count "
        f"of the position's token. Bands: one standard deviation of single weights.{_course(table)}",
    )  # fmt: skip
    report.add_table("attention_by_relation", table, "The same as numbers; total: the sum over all keys.", max_rows=12)


def _course(table: pd.DataFrame) -> str:
    """Return a sentence on how the weight on [BOS] changes with the count; "" without [BOS]."""
    bos = table[table["relation"] == "BOS"].sort_values("count")
    if len(bos) < 2:
        return ""
    first, last = bos["mean"].iloc[0], bos["mean"].iloc[-1]
    steps = bos["mean"].diff().dropna()
    course = "falls" if (steps < 0).all() else "rises" if (steps > 0).all() else "goes up and down"
    stands = ", so it can stand for the count (Figure 3)" if course != "goes up and down" else ""
    return (
        f" The weight on [BOS] {course} from {words.number(first)} at count {bos['count'].iloc[0]} to "
        f"{words.number(last)} at {bos['count'].iloc[-1]}{stands}."
    )


@answers.counts("counting_embeddings", title="Overlaps of embeddings", order=620, block="where")
def counting_embeddings(study: Study, report: Report) -> None:
    """Show the cosines of all pairs, and the distributions of cosines and scores by relation (Figures 3 and 7)."""
    counter = study.measure(CountingModel.of)
    overlaps = counting.embedding_overlaps(counter)
    task = counter.task
    report.heading("Overlaps of embeddings")
    matrix = overlaps["cosine"].to_numpy().reshape(task.T, task.d_vocab)
    report.add_figure(
        "overlaps",
        draw.heatmap(matrix, task.vocabulary, task.vocabulary[: task.T], "embedding", "token", "cosine", center=0.0),
        "Cosine of every pair of embeddings.",
    )
    for quantity in ("cosine", "score"):
        if overlaps[quantity].notna().all():
            # The cosine of a token with itself is always 1.
            frame = _distribution(
                overlaps[overlaps["relation"] != "same"] if quantity == "cosine" else overlaps, quantity
            )
            report.add_figure(
                f"{quantity}_distribution",
                draw.lines(
                    frame, quantity, "share", "relation", y_title="share of the pairs", markers=True, colors=RELATIONS
                ),
                "Distribution of the cosines of different tokens, by relation (Figures 3 and 7)."
                if quantity == "cosine"
                else "Distribution of the attention scores of pairs, before any softmax. Do pairs of equal tokens "
                    "differ from pairs of different ones?",
            )  # fmt: skip


BINS = 40


def _distribution(overlaps: pd.DataFrame, quantity: str) -> pd.DataFrame:
    """Return the share of pairs of each relation in each bin."""
    low, high = overlaps[quantity].min(), overlaps[quantity].max()
    edges = np.linspace(low, high if high > low else low + 1, BINS + 1)
    frames = []
    for relation, part in overlaps.groupby("relation", sort=False):
        counts, _ = np.histogram(part[quantity], edges)
        middle = (edges[1:] + edges[:-1]) / 2
        frames.append(pd.DataFrame({"relation": relation, quantity: middle, "share": counts / len(part)}))
    return pd.concat(frames, ignore_index=True)


SHOWN_NEURONS = 12


@answers.counts("counting_neurons", title="Hidden neurons", order=704, block="where")
def counting_neurons(study: Study, report: Report) -> None:
    """Show how many tokens a neuron reads, its activation by count, and the readout's singular values (Figure 6)."""
    counter = study.measure(CountingModel.of)
    selectivity = neuron_selectivity(counter)
    tokens = tokens_per_neuron(selectivity)
    spectrum = counting.readout_spectrum(counter)
    T, p = counter.task.T, counter.W_in.shape[1]
    report.heading(
        "Hidden neurons",
        f"Inventory-based counting needs at least as many neurons as tokens. This model has {p} for {T}. A neuron "
        f"reads {tokens:.1f} tokens on average (1: only one token, {T}: all equally), weighted by how much it says "
        "about the count.",
    )
    report.add_table(
        "counting_neurons",
        selectivity,
        "Response: how much the neuron says about the count, summed over tokens. Tokens: the effective number of "
        "tokens it reads. Favorite: the token it says most about, and that token's share.",
        max_rows=SHOWN_NEURONS,
    )
    activity = counting.hidden_by_count(counter)
    first = selectivity["neuron"].head(3)
    over_tokens = activity[activity["neuron"].isin(first)].groupby(["neuron", "count"], as_index=False)["activation"]
    shown = over_tokens.mean().assign(spread=over_tokens.std(ddof=0)["activation"])
    shown["neuron"] = [str(Neuron(None, index)) for index in shown["neuron"]]
    report.add_figure(
        "hidden_by_count",
        draw.lines(shown, "count", "activation", "neuron", y_title="mean activation", markers=True, spread="spread"),
        "The most informative neurons: activation by the count of the current token, mean over all tokens. Bands: "
        "one standard deviation between tokens.",
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
