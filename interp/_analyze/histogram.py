"""The report on histogram models: does the model count by relation or by inventory? (Behrens et al. 2024)"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import torch

from interp._analyze import generic
from interp.certificates import Certificate
from interp.errors import UnsupportedError
from interp.measures import counting, counting_readout
from interp.measures.accuracy import predictions
from interp.measures.counting import Counter
from interp.measures.mechanism import Mechanism, mechanism
from interp.measures.subject import Subject
from interp.report import Report
from interp.report import figures as draw

SHOWN_NEURONS = 12
FEW = 20_000
"""Sequences that are simply all run."""


def fill(report: Report, subject: Subject) -> dict[str, Any]:
    """All sections; returns the row of the comparison table."""
    try:
        counter = Counter.of(subject)
    except UnsupportedError as error:
        row = generic.fill(report, subject)
        report.add_text(f"The study of counting mechanisms does not apply: {error}.")
        return row
    row = _accuracy(report, subject, counter)
    _answers(report, subject)
    found = _mechanism(report, subject, counter)
    spectrum = _neurons(report, subject, counter)
    _attention(report, subject, counter)
    _embeddings(report, subject, counter)
    _probes(report, subject, counter)
    _logits(report, subject, counter)
    report.verdict = f"{found} {report.verdict}"
    return row | {
        "mechanism": found.verdict,
        "by weights": found.by_weights,
        "by contents": found.by_contents,
        "specificity": found.specificity,
        "dip of W_in": spectrum.dip,
    }


def _accuracy(report: Report, subject: Subject, counter: Counter) -> dict[str, Any]:
    """By a certificate where there is one, on every sequence where these are few, else on a sample."""
    task = counter.task
    found = generic.certificate_of(subject)
    if task.n_sequences > FEW or isinstance(found, Certificate):
        return generic.add_accuracy(report, subject, found)
    batch = task.all_sequences()
    right = predictions(subject, batch) == batch.labels
    wrong, positions = int((~right).sum()), int((batch.labels > 0).sum())
    report.section("Accuracy on every input", f"Nothing is sampled: all {len(batch):,} sequences are run.")
    table = pd.DataFrame([{"accuracy": 1 - wrong / positions, "errors": wrong, "positions": positions}])
    report.add_table("accuracy", table, "A position is right if its count is.")
    share = f"{1 - wrong / positions:.6g}"
    report.verdict = f"Accuracy exactly {share} over all {len(batch):,} sequences, every position."
    return {"accuracy": 1 - wrong / positions, "certificate": "enumeration", "exact": True}


def _answers(report: Report, subject: Subject) -> None:
    report.section(
        "Answers by count",
        "Measured on sequences in which every count from 1 to L is equally frequent, those of a single token included. "
        "(The published sampler, with which the trained models were trained, never draws those.)",
    )
    table = counting.confusion(subject)
    report.add_figure(
        "confusion",
        draw.heatmap(
            table.to_numpy(), list(table.columns), list(table.index), "answer", "count", "share", limits=(0.0, 1.0)
        ),
        "How often each count (row) is answered as each count (column); rows add up to 1 (Figure 7, top).",
    )
    by_count, by_distinct = counting.accuracy_by_count(subject), counting.accuracy_by_distinct(subject)
    report.add_figure(
        "accuracy_by_count", draw.bars(by_count, "count", "accuracy"), "Accuracy of the positions of each count."
    )
    report.add_table("accuracy_by_count", by_count, "The same as numbers, with the mean answer.")
    report.add_figure(
        "accuracy_by_distinct",
        draw.bars(by_distinct, "distinct", "accuracy", x_title="distinct tokens in the sequence"),
        "Accuracy by the number of distinct tokens in the sequence.",
    )


def _mechanism(report: Report, subject: Subject, counter: Counter) -> Mechanism:
    found = mechanism(subject)
    report.section(
        "Mechanism",
        "The mixed token that the readout sees is, exactly, the own token, plus weights (how much is attended, along "
        "the mean of the alphabet and [BOS]), plus contents (to which tokens). In relation-based counting the weights "
        "carry the count, in inventory-based counting the contents do. So weights and contents are taken from "
        "different positions of the same token, with different counts, and the answer is regressed on both counts.",
    )
    slopes = pd.DataFrame(
        {"part": ["weights", "contents"], "slope": [found.by_weights, found.by_contents],
         "left": [found.without_contents, found.without_weights]}
    )  # fmt: skip
    report.add_figure(
        "conflict",
        draw.bars(slopes, "part", "slope", x_title="part that holds the count", y_title="rise of the answer per count"),
        "Weights against contents: how much the answer rises when the count in this part rises by one. A relation has "
        "1 and 0, an inventory 0 and 1.",
    )
    alone = found.without_contents, found.without_weights
    evidence = [
        ("answer follows the weights by", found.by_weights, "relation 1, inventory 0"),
        ("answer follows the contents by", found.by_contents, "relation 0, inventory 1"),
        ("variance explained by the two counts", found.explained, ""),
        ("information left without contents", alone[0], "relation 1, inventory 0"),
        ("information left without weights", alone[1], "relation 0, inventory 1"),
        ("accuracy lost on a token whose neurons are silenced", found.own_loss, ""),
        ("accuracy lost on the other tokens by that", found.other_loss, "relation: as much; inventory: none"),
    ]
    report.add_table(
        "mechanism",
        pd.DataFrame(evidence, columns=["evidence", "value", "of the constructions"]),
        f"Causal evidence, over {found.positions:,} positions. Information: squared correlation of answer and count. "
        f"Silenced: {found.neurons} of {counter.W_in.shape[1]} hidden neurons for each token.",
        {"value": ".3f"},
    )
    return found


def _neurons(report: Report, subject: Subject, counter: Counter) -> counting_readout.Spectrum:
    selectivity = counting_readout.neuron_selectivity(subject)
    tokens = counting_readout.tokens_per_neuron(selectivity)
    spectrum = counting_readout.readout_spectrum(subject)
    T, p = counter.task.T, counter.W_in.shape[1]
    report.section(
        "Hidden neurons",
        f"An inventory needs at least as many neurons as tokens: this model has {p} for {T}. A neuron reads "
        f"{tokens:.1f} tokens on average (1: one token alone, {T}: all alike), weighted by how much it tells.",
    )
    report.add_table(
        "neurons",
        selectivity,
        "Response: how much the neuron tells the readout about the count, summed over tokens. Tokens: the effective "
        "number of tokens it reads. Favorite: the token it tells most about, and that token's share.",
        max_rows=SHOWN_NEURONS,
    )
    activity = counting_readout.hidden_by_count(subject)
    first = selectivity["neuron"].head(3)
    shown = activity[activity["neuron"].isin(first)].groupby(["neuron", "count"], as_index=False)["activation"].mean()
    shown["neuron"] = "neuron " + shown["neuron"].astype(str)
    report.add_figure(
        "hidden_by_count",
        draw.lines(shown, "count", "activation", "neuron", y_title="mean activation", markers=True),
        "The neurons that tell most: activation by the count of the own token, mean over all tokens.",
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
    return spectrum


def _attention(report: Report, subject: Subject, counter: Counter) -> None:
    softmax = counter.model.spec.layers[0].normalizer == "softmax"
    task = counter.task
    # Blocks of about half of what is left, so that one sequence shows several counts side by side.
    example: list[int] = []
    left = task.L
    while left:
        size = left if len(set(example)) == task.T - 1 else (left + 1) // 2
        example += [len(set(example))] * size
        left -= size
    run = counter.run(task.of_sequences(torch.tensor([example])))
    words = [f"{i}: {task.vocabulary[int(token)]}" for i, token in enumerate(run.tokens[0])]
    report.section("Attention")
    report.add_figure(
        "attention",
        draw.heatmap(
            run.pattern[0].numpy(),
            words,
            words,
            "key: position and token",
            "query: position and token",
            "attention weight" if softmax else "raw score",
            center=0.0,
        ),
        "The attention pattern on one sequence: rows look at columns. Blocks mean that it compares tokens.",
    )
    table = counting.attention_by_relation(subject)
    report.add_figure(
        "attention_by_relation",
        draw.lines(
            table, "count", "mean", "relation", markers=True, x_title="count of the position's token",
            y_title="attention weight" if softmax else "raw score",
        ),
        "Mean attention of a position to itself, to the same token elsewhere, to other tokens and to [BOS], by the "
        "position's own count. Where the weight on [BOS] falls with the count, it stands for the count (Figure 3).",
    )  # fmt: skip
    report.add_table(
        "attention_by_relation", table, "The same as numbers; total is the sum over a position's keys.", max_rows=12
    )


def _embeddings(report: Report, subject: Subject, counter: Counter) -> None:
    overlaps = counting.embedding_overlaps(subject)
    task = counter.task
    report.section("Embeddings")
    matrix = overlaps["cosine"].to_numpy().reshape(task.T, task.d_vocab)
    report.add_figure(
        "overlaps",
        draw.heatmap(matrix, task.vocabulary, task.vocabulary[: task.T], "embedding", "token", "cosine", center=0.0),
        "Cosine of every pair of embeddings.",
    )
    for quantity in ("cosine", "score"):
        if overlaps[quantity].notna().all():
            frame = _distribution(overlaps, quantity)
            report.add_figure(
                f"{quantity}_distribution",
                draw.lines(frame, quantity, "share", "relation", y_title="share of the pairs", markers=True),
                "Distribution of the cosines, by relation (Figures 3 and 7)." if quantity == "cosine"
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


def _probes(report: Report, subject: Subject, counter: Counter) -> None:
    try:
        counting_readout.total_attention(counter)
    except UnsupportedError as error:
        report.section("The readout on artificial mixtures", f"Not shown: {error}.")
        return
    report.section(
        "The readout on artificial mixtures",
        "The readout alone, on mixtures of embeddings made by hand: what does its answer depend on?",
    )
    pairs = [(own, other) for own, other in (("1", "2"), ("2", "3"), ("3", "0"), ("0", "1"))
             if max(int(own), int(other)) < counter.task.T]  # fmt: skip
    probes = pd.concat([counting_readout.probe_two(subject, *pair) for pair in pairs], ignore_index=True)
    probes["tokens"] = "own " + probes["own"] + ", other " + probes["other"]
    key = probes["key"][0] if counter.task.bos else "the own token"
    if counter.task.bos:
        given = counting.attention_by_relation(subject).query("relation == 'BOS'")
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
        probe = counting_readout.probe_three(subject)
        grid = probe.pivot(index="own_share", columns="other_share", values="answer")
        label = [f"{value:.3f}" for value in grid.columns]
        report.add_figure(
            "probe_three",
            draw.heatmap(
                grid.to_numpy(float), label, label, "share of token 2", "share of the own token 1", "answer",
                limits=(1, counter.task.L),
            ),
            "The own token 1, plus a mixture of 1, 2 and 3 whose shares add up to one. Horizontal bands: the answer "
            "depends on the own share alone (Figures 4 and 5).",
        )  # fmt: skip


def _logits(report: Report, subject: Subject, counter: Counter) -> None:
    report.section("Logits by count")
    tokens = ("1",) if counter.task.T < 4 else ("1", "2", "3")
    table = counting_readout.logits_by_count(subject, tokens)
    first = table[table["token"] == tokens[0]].assign(answer=lambda frame: "answer " + frame["answer"].astype(str))
    report.add_figure(
        "logits_by_count",
        draw.lines(first, "count", "logit", "answer", x_title="times token 1 occurs, the rest being token 0"),
        "Each answer's logit at a position of token 1, by its count (Figures 8 and 9): the highest line should be the "
        "count's own.",
    )
    right = table.loc[table.groupby(["token", "count"])["logit"].idxmax(), ["token", "count", "answer"]]
    wide = right.pivot(index="token", columns="count", values="answer").reset_index()
    wide.columns = ["token", *(f"count {count}" for count in wide.columns[1:])]
    report.add_table("answers_two_tokens", wide, "The answers to these sequences, for three tokens.")
