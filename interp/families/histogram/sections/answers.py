"""Sections on histogram models: answers by count, logits, and relation or inventory (Behrens et al. 2024)."""

from functools import partial

import pandas as pd
import torch
from jaxtyping import Int
from torch import Tensor

from interp.families.histogram.measures import counting
from interp.families.histogram.measures.counting import CountingModel
from interp.families.histogram.measures.relation_or_inventory import mechanism
from interp.report import Report
from interp.report.aim import inputs, tokens
from interp.report.aim import tokens as piece
from interp.report.sections.base import Study, section
from interp.support import figures as draw
from interp.support import words
from interp.tasks import Batch
from interp.tasks.structure import COUNTS_OWN_TOKEN


def needs_counter(study: Study) -> None:
    """Raise UnsupportedError if the model is not a CountingModel."""
    study.measure(CountingModel.of)


def by_relation(study: Study) -> pd.DataFrame:
    """Return the attention by relation and count."""
    return counting.attention_by_relation(study.measure(CountingModel.of))


counts = partial(section, task=COUNTS_OWN_TOKEN, needs=needs_counter)


@counts("counting_answers", title="Answers by count", order=130)
def counting_answers(study: Study, report: Report) -> None:
    """Show the confusion matrix of counts, and accuracy by count and by the number of distinct tokens."""
    counter = study.measure(CountingModel.of)
    predicted = counting.predicted_counts(counter)
    task = counter.task
    report.heading("Answers by count", f"Measured on {drawn(task.T, task.L, getattr(task, 'sampler', ''))}")
    table = counting.confusion(counter, predicted=predicted)
    by_cell, worst = examples(*predicted)
    report.add_figure(
        "confusion",
        inputs(
            draw.heatmap(
                table.to_numpy(), list(table.columns), list(table.index), "answer", "count", "share", ends=(0.0, 1.0)
            ),
            "tokens",
            [[by_cell.get((count, answer), "") for answer in table.columns] for count in table.index],
        ),
        "How often the right count (row) gets each answer (column); rows add up to 1 (Figure 7, top). Click a cell "
        "to load one of its sequences.",
    )
    by_count, by_distinct = (
        counting.accuracy_by_count(counter, predicted=predicted),
        counting.accuracy_by_distinct(counter, predicted=predicted),
    )
    report.add_figure(
        "accuracy_by_count",
        draw.bars(by_count.assign(input=by_count["count"].map(worst)), "count", "accuracy", tokens="input"),
        "Accuracy by count.",
    )
    text = answers_sentence(by_count.set_index("count")["accuracy"], len(predicted[1]), evenly=task.L <= task.T)
    report.say(text, "what", ["confusion"])
    report.add_table("accuracy_by_count", by_count, "The same as numbers, with the mean answer.")
    report.add_figure(
        "accuracy_by_distinct",
        draw.bars(by_distinct, "distinct", "accuracy", x_title="distinct tokens in the sequence"),
        "Accuracy by the number of distinct tokens in the sequence.",
    )


def drawn(T: int, L: int, sampler: str) -> str:
    """Describe the sequences of the measurement; see histogram.measures.counting.flat_sample."""
    if L > T:
        return "sequences of uniform tokens."
    text = f"sequences in which every count from 1 to {L} is equally frequent, including those of a single token."
    if sampler == "published":
        text += " (The published sampler, which this task uses, never draws those.)"
    return text


def answers_sentence(accuracy: pd.Series, n: int, evenly: bool) -> str:
    """Return a sentence on the counts that are answered correctly, from the accuracy by count in a sample of n
    sequences; "" if all are. evenly: whether every count is equally frequent in it.
    """
    sample = f"In a sample of {words.counted(n, 'sequence')}{' in which every count is equally frequent' * evenly}"
    perfect = accuracy[accuracy == 1]
    if len(perfect) == len(accuracy):
        return ""
    low, high = float(accuracy.min()), float(accuracy.max())
    if low == high:
        return f"{sample}, its accuracy is the same for every count ({words.share(low, 3)})."
    counts = which(accuracy, low)
    least = f"least accurate for {counts} ({words.share(low, 3)})" if low else f"never right for {counts}"
    if perfect.empty:
        most = f"most accurate for {which(accuracy, high)} ({words.share(high, 3)})"
        return f"{sample}, it is {most} and {least}."
    return f"{sample}, it is always right for {which(accuracy, 1.0)} and {least}."


def which(accuracy: pd.Series, value: float) -> str:
    """Return the counts with this accuracy: "count 3", "counts 1 and 2"."""
    counts = accuracy.index[accuracy == value]
    return f"count{'s' * (len(counts) > 1)} {words.joined(map(str, counts))}"


def examples(batch: Batch, answers: Int[Tensor, "rows length"]) -> tuple[dict[tuple[int, int], str], dict[int, str]]:
    """Return one sequence per pair of count and answer, and one wrongly answered sequence per count, if any."""
    by_cell: dict[tuple[int, int], str] = {}
    worst: dict[int, str] = {}
    read, right = batch.labels > 0, answers == batch.labels
    labels, answered = batch.labels.tolist(), answers.tolist()
    for chosen in (read & ~right, read & right):
        for row, place in torch.nonzero(chosen).tolist():
            cell = labels[row][place], answered[row][place]
            if cell not in by_cell:
                by_cell[cell] = f"{tokens(batch.tokens[row].tolist())};at:{place}"
                worst.setdefault(cell[0], by_cell[cell])
    return by_cell, worst


@counts("counting_logits", title="Logits by count", order=712, block="where")
def counting_logits(study: Study, report: Report, tokens: int = 3) -> None:
    """Show each answer's logit by the true count, on sequences of two tokens. tokens: the number of tokens shown."""
    counter = study.measure(CountingModel.of)
    report.heading("Logits by count")
    words = [str(token) for token in range(1, 2 if counter.task.T < 4 else min(tokens + 1, counter.task.T))]
    table = counting.logits_by_count(counter, words)
    first = table[table["token"] == words[0]].assign(
        answer=lambda frame: "answer " + frame["answer"].astype(str),
        input=lambda frame: [_sequence(counter, words[0], count) for count in frame["count"]],
    )
    report.add_figure(
        "logits_by_count",
        draw.lines(
            first, "count", "logit", "answer", x_title="times token 1 occurs, the rest being token 0", tokens="input"
        ),
        "The logit of each answer at a position of token 1, by the count of token 1 (Figures 8 and 9). At each "
        "count, the line of that count should be the highest.",
    )
    right = table.loc[table.groupby(["token", "count"])["logit"].idxmax(), ["token", "count", "answer"]]
    wide = right.pivot(index="token", columns="count", values="answer").reset_index()
    wide.columns = ["token", *(f"count {count}" for count in wide.columns[1:])]
    report.add_table("answers_two_tokens", wide, "The answers to these sequences, token by token.")


def _sequence(counter: CountingModel, word: str, count: int) -> str:
    """Return the sequence of a point: `count` copies of one token, then the token before it in the alphabet."""
    token = counter.task.token_id(word)
    row = [token] * count + [token - 1] * (counter.task.L - count)
    return piece([*([counter.task.T] if counter.task.bos else []), *row])


@counts("counting_mechanism", title="Mechanism", order=702, block="how")
def counting_mechanism(study: Study, report: Report) -> None:
    """Show whether the model counts by relation or by inventory (section 5 of the paper)."""
    counter = study.measure(CountingModel.of)
    result = mechanism(counter)
    report.heading(
        "Mechanism",
        "The readout sees a mixed token, which is exactly the sum of three terms: the current token, the weights "
        "(how much attention is paid, along the mean of the alphabet and [BOS]) and the contents (to which tokens). "
        "In relation-based counting, the weights carry the count; in inventory-based counting, the contents do. To "
        "tell which, weights and contents are taken from two positions with the same token but different counts, and "
        "the answer is regressed on both counts.",
    )
    slopes = pd.DataFrame(
        {"part": ["weights", "contents"], "slope": [result.by_weights, result.by_contents],
         "left": [result.without_contents, result.without_weights]}
    )  # fmt: skip
    report.add_figure(
        "conflict",
        draw.bars(slopes, "part", "slope", x_title="part that holds the count", y_title="rise of the answer per count"),
        "Weights against contents: how much the answer rises when the count in this part rises by one. "
        "Relation-based counting has 1 and 0, inventory-based counting 0 and 1.",
    )
    alone = result.without_contents, result.without_weights
    evidence = [
        ("answer follows the weights by", result.by_weights, "relation 1, inventory 0"),
        ("answer follows the contents by", result.by_contents, "relation 0, inventory 1"),
        ("variance explained by the two counts", result.explained, ""),
        ("information left without contents", alone[0], "relation 1, inventory 0"),
        ("information left without weights", alone[1], "relation 0, inventory 1"),
        ("accuracy lost on a token whose neurons are silenced", result.own_loss, ""),
        ("accuracy lost on the other tokens", result.other_loss, "relation: as much; inventory: none"),
    ]
    report.add_table(
        "mechanism",
        pd.DataFrame(evidence, columns=["evidence", "value", "of the constructions"]),
        f"Causal evidence, from {result.positions:,} positions. Information: squared correlation of answer and count. "
        f"Silenced: {result.neurons} of {counter.W_in.shape[1]} hidden neurons for each token.",
        {"value": ".3f"},
    )
    report.say(str(result), "how", ["conflict", "hidden_by_count"])
    report.add_fact("mechanism", result.verdict)
    report.add_fact("by weights", result.by_weights)
    report.add_fact("by contents", result.by_contents)
    report.add_fact("specificity", result.specificity)


def needs(study: Study) -> None:
    """Raise UnsupportedError if artificial mixtures do not apply (total attention is not fixed)."""
    counting.total_attention(study.measure(CountingModel.of))


@counts("counting_probes", title="The readout on artificial mixtures", order=710, block="how", needs=needs)
def counting_probes(study: Study, report: Report) -> None:
    """Show the readout's answers by the shares of two and of three tokens in a mixture (Figures 3 to 5 and 15)."""
    counter = study.measure(CountingModel.of)
    report.heading(
        "The readout on artificial mixtures",
        "The readout alone, on artificial mixtures of embeddings. What does its answer depend on?",
    )
    pairs = [(own, other) for own, other in (("1", "2"), ("2", "3"), ("3", "0"), ("0", "1"))
             if max(int(own), int(other)) < counter.task.T]  # fmt: skip
    probes = pd.concat([counting.probe_two(counter, *pair) for pair in pairs], ignore_index=True)
    probes["tokens"] = "own " + probes["own"] + ", other " + probes["other"]
    key = probes["key"][0] if counter.task.bos else "the own token"
    if counter.task.bos:
        shares = study.once(by_relation).query("relation == 'BOS'")
        meant = pd.DataFrame({"alpha": shares["mean"], "answer": shares["count"], "tokens": "what attention gives"})
        probes = pd.concat([probes, meant], ignore_index=True)
    report.add_figure(
        "probe_two",
        draw.lines(probes, "alpha", "answer", "tokens", x_title=f"share of {key} in the mixture", y_title="answer"),
        "The current token, plus a mixture of two tokens. If the lines agree for all tokens, only the share matters"
        + (
            "; the last line is the mean share that attention gives [BOS] at each count (Figures 3 and 15)."
            if counter.task.bos
            else "."
        ),
    )
    if counter.task.T >= 4:
        probe = counting.probe_three(counter)
        grid = probe.pivot(index="own_share", columns="other_share", values="answer")
        label = [f"{value:.3f}" for value in grid.columns]
        report.add_figure(
            "probe_three",
            draw.heatmap(
                grid.to_numpy(float), label, label, "share of token 2", "share of the own token 1", "answer",
                ends=(1, counter.task.L),
            ),
            "The current token 1, plus a mixture of 1, 2 and 3 whose shares add up to one. Horizontal bands mean "
            "that the answer depends only on the share of token 1 (Figures 4 and 5).",
        )  # fmt: skip
