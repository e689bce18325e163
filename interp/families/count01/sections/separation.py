"""Do the heads compete or cooperate? Separation and learned accuracy of heads, pairs and groups.

Zsámboki et al. 2025, sections 5 and 6.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from interp.measures.heads import SUCCESSFUL, head_weights, learned_accuracy
from interp.measures.variables import chance
from interp.report import Report
from interp.report.sections import _shared as shared
from interp.report.sections.base import Study, section
from interp.support import figures as draw
from interp.support import words
from interp.support.figures.heads import METRICS

GAIN = 0.01
"""Least gain in s-acc over the better member for a pair to count as better."""
ALONE = 0.8
"""Least l-acc of a group that answers alone."""
SOLVES = 0.5
"""A model solves the task if it closes this share of the gap between the best constant answer and perfect accuracy."""


@section(
    "separation", title="Heads that separate the answers", order=310, block="where", needs=shared.needs_two_answers
)
def make(study: Study, report: Report, groups: int = shared.SAMPLED_GROUPS) -> None:
    """Show single heads and pairs as tables and maps, and sampled groups of every size as distributions."""
    metrics = study.once(shared.metrics, groups)
    heads = study.once(heads_table)
    pairs = metrics[metrics["size"] == 2]
    facts = facts_of(heads, pairs) | {"model": study.once(whole_model), "guess": study.once(best_guess)}
    for name in ("successful", "failed", "mixed", "best s_acc"):
        report.add_fact(name, facts[name])
    a, b = study.task.contrast or ("", "")
    two = len(study.once(shared.outputs, "test").labels.unique()) == 2
    scored = f"the better of the '{a}' and '{b}' logits as a score" if two else "the best of the answers' logits"
    report.heading(
        "Heads that separate the answers",
        "s-acc: accuracy of the best linear separator of the head's outputs, fitted on the training set. l-acc: "
        f"accuracy when all other heads and the skip connection are silenced. ROC AUC: {scored}. weight: the head's "
        f"share in the readout of '{a}' against '{b}'. accuracy_without: of the model when the head is silenced.",
    )
    report.say(sentence(facts), "where", ["best_head", "heads_s_acc"])
    report.add_table("separation", heads, "Every head, measured on the test set (section 5 of the paper).")
    if len(heads) == 1:
        return
    small = metrics[metrics["size"] <= 2].drop(columns="sampled")
    for metric, name in METRICS.items():
        report.add_figure(
            f"heads_{metric}",
            draw.heads_heatmap(small, metric, study.once(shared.by_category)),
            f"{name[0].upper()}{name[1:]} of single heads (diagonal) and of pairs, the successful heads first "
            "(Figure 3 of the paper).",
        )
    if len(heads) > 2:
        order = study.once(shared.by_category)
        names = [f"0.{head}" for head in order]
        report.add_figure(
            "pair_gain",
            draw.heatmap(pair_gains(small, order), names, names, "head", "head", "gain of s-acc", center=0.0),
            "Pair gain: s-acc of a pair minus that of its better head (Figure 12), heads as above.",
        )
    report.add_table("groups", small, "The same as numbers: single heads, then pairs.", max_rows=20)
    if len(heads) > 2:
        sampled = metrics[metrics["sampled"]]
        which = "All" if len(sampled) == 2 ** len(heads) - 1 else "Random"
        report.add_figure(
            "groups_by_size",
            draw.metrics_by_size(sampled),
            f"{which} groups of heads by size, {len(sampled)} in all: median, quartiles, least and largest (Figure 4). "
            "analyses/count01_subsets.py uses every group, and adds Shapley values and synergies.",
        )


def pair_gains(small: pd.DataFrame, order: Sequence[int] | Sequence[str]) -> np.ndarray:
    """Return s-acc of each pair minus that of its better head: symmetric, NaN on the diagonal, in the given order."""
    alone = {group[0]: value for group, value in zip(small["heads"], small["s_acc"]) if len(group) == 1}
    place = {head: at for at, head in enumerate(order)}
    gains = np.full((len(order), len(order)), np.nan)
    for group, value in zip(small["heads"], small["s_acc"]):
        if len(group) == 2:
            a, b = group
            gains[place[a], place[b]] = gains[place[b], place[a]] = value - max(alone[a], alone[b])
    return gains


def heads_table(study: Study) -> pd.DataFrame:
    """Return one row per head with all measures of single heads."""
    tested, heads = study.once(shared.outputs, "test"), study.once(shared.singles)
    if len(study.task.counted) == 3:
        heads = heads.merge(study.once(shared.ratios), on="head")
    heads = heads.merge(head_weights(study.subject), on="head")
    if study.once(shared.n_reads) > 1:
        after = study.once(shared.outputs, "test", 1)
        heads["next_l_acc"] = [learned_accuracy(after, (head,)) for head in heads["head"]]
    heads["accuracy_without"] = [
        learned_accuracy(tested, [other for other in range(tested.n_heads) if other != head], with_skip=True)
        for head in heads["head"]
    ]
    return heads


def whole_model(study: Study) -> float:
    """Return the accuracy of the whole model on the same inputs as the heads."""
    tested = study.once(shared.outputs, "test")
    return learned_accuracy(tested, range(tested.n_heads), with_skip=True)


def best_guess(study: Study) -> float:
    """Return the share of the most frequent answer on these inputs, which a constant answer reaches."""
    return chance(study.once(shared.outputs, "test").labels)


def facts_of(heads: pd.DataFrame, pairs: pd.DataFrame) -> dict[str, int | float]:
    """Return the numbers behind the verdict."""
    numbers, best = heads["category"].value_counts(), heads.set_index("head")["s_acc"]
    gains = [value - max(best[a], best[b]) for (a, b), value in zip(pairs["heads"], pairs["s_acc"])]
    return {
        "heads": len(heads),
        **{name: int(numbers.get(name, 0)) for name in ("successful", "failed", "mixed")},
        "best s_acc": float(best.max()),
        "best pair": float(pairs["s_acc"].max()) if len(pairs) else float("nan"),
        "pairs": len(pairs),
        "better pairs": int(sum(gain > GAIN for gain in gains)),
        "heads alone": int((heads["l_acc"] > ALONE).sum()),
        "pairs alone": int((pairs["l_acc"] > ALONE).sum()),
    }


def sentence(facts: Mapping[str, int | float]) -> str:
    """Return the verdict in words, from `facts_of` plus "model" and "guess"."""
    heads, good, pairs = int(facts["heads"]), int(facts["successful"]), int(facts["pairs"])
    if facts["model"] < facts["guess"] + SOLVES * (1 - facts["guess"]):
        sentences = [
            f"The model does not solve the task: it is right on {words.portion(facts['model'])} of the test inputs, "
            f"and always giving the most frequent answer is right on {words.share(facts['guess'])}. So its heads "
            "neither compete nor "
            "cooperate in solving it."
        ]
    elif heads == 1:
        return "The model has only one head."
    elif good >= 2:
        sentences = ["The heads are a pseudo-ensemble: several of them each separate the answers alone."]
    elif good == 1:
        sentences = ["One head separates the answers alone; the others do not."]
    elif facts["best pair"] >= SUCCESSFUL:
        sentences = ["The heads cooperate: none separates the answers alone, and some pair does."]
    else:
        sentences = [
            "No head and no pair of heads separates the answers. Larger groups, or other parts of the model, "
            "must do it."
        ]
    sentences.append(
        f"{good} of {words.counted(heads, 'head')} {'is' if good == 1 else 'are'} successful (s-acc of at least 0.98), "
        f"{facts['failed']} failed, {facts['mixed']} mixed."
    )
    if pairs:
        sentences.append(
            f"{facts['better pairs']} of {words.counted(pairs, 'pair')} separate better than their better member by "
            f"more than a point. Left alone with the readout, {facts['heads alone']} of {heads} heads and "
            f"{facts['pairs alone']} of {pairs} pairs answer with l-acc above 0.8."
        )
    return " ".join(sentences)
