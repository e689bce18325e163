"""The Count01 report: do the heads compete or cooperate? (Zsámboki et al. 2025)"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from interp._analyze import generic
from interp.certificates import Certificate
from interp.errors import UnsupportedError
from interp.measures.ablation import ablate_heads
from interp.measures.accuracy import sampled_accuracy
from interp.measures.attention import attention_ratios, ov_circuit, qk_circuit
from interp.measures.heads import (
    category,
    end_accuracy,
    head_metrics,
    head_outputs,
    head_weights,
    logit_distributions,
)
from interp.measures.interventions import reweight_attention
from interp.measures.planes import head_planes
from interp.measures.subject import Subject
from interp.report import Report
from interp.report import figures as draw
from interp.tasks import Batch

SWEEP_W01 = tuple(float(r) for r in np.logspace(-3, 3, 13))
SWEEP_W02 = tuple(float(r) for r in np.logspace(-1, 3, 9))
SAMPLED_GROUPS = 320
"""Groups of heads behind Figure 4: every size 20 times, where there are 16 heads."""
OWN_MODEL_ROWS = 300
"""Sentences of each split for a model whose outputs must be computed from whole sequences."""


def fill(report: Report, subject: Subject) -> dict[str, Any]:
    """All sections; returns the row of the comparison table."""
    row = _accuracy(report, subject)
    train, test = _data(subject)
    if (reason := subject.no_decomposition()) is not None:
        report.section("Heads", f"Not shown: {reason}.")
        report.verdict = f"Accuracy {row['accuracy']:.4f}. The heads could not be told apart: {reason}."
        return row
    metrics = head_metrics(subject, "singles+pairs", train=train, test=test)
    heads = _heads_table(subject, metrics, test)
    row |= _verdict(report, subject, metrics, heads, row)
    _heads(report, metrics, heads)
    if len(heads) > 2:
        _groups(report, subject, train, test)
    _attention(report, subject, heads)
    _planes(report, subject, heads, train, test)
    _interventions(report, subject, train, test)
    _logits(report, subject, test)
    _circuits(report, subject)
    return row


def _data(subject: Subject) -> tuple[Batch, Batch]:
    """The paper's data sets; a small part of them where every sequence has to be run."""
    train, test = subject.task.dataset("train"), subject.task.dataset("test")
    if subject.count_space:
        return train, test
    return train[slice(0, OWN_MODEL_ROWS)], test[slice(0, OWN_MODEL_ROWS)]


# ---------------------------------------------------------------- accuracy


def _accuracy(report: Report, subject: Subject) -> dict[str, Any]:
    found = generic.certificate_of(subject)
    if isinstance(found, Certificate):
        report.section(
            "Accuracy on every input", f"Nothing is sampled: all {found.n_inputs:,} inputs with {found.domain}."
        )
        accuracies = found.tables["accuracy"]
        report.add_table(
            "accuracy",
            accuracies,
            "Exact accuracy at '=' (over all tokens, and between '4' and '5'), and of [EOS].",
            {"accuracy": ".6f"},
        )
        report.add_figure(
            "errors",
            draw.error_by_difference(found.tables["errors"]),
            "Where the errors lie: the share of wrong answers among all inputs with the same difference n1 - n0.",
        )
        if found.n_errors:
            report.add_figure(
                "frontier",
                draw.error_frontier(found.tables["frontier"]),
                "The frontier of errors: the range of n1 - n0 in which the model still errs, for each number of 2s.",
            )
        exact = float(accuracies["accuracy"][0])
        end = float(accuracies["accuracy"][2])
        return {"accuracy": exact, "exact": True, "eos accuracy": end, "certificate": found.status}
    sample = sampled_accuracy(subject, n=OWN_MODEL_ROWS)
    report.section("Accuracy on a sample", f"Not exact: {found}.")
    report.add_table("accuracy", sample.to_frame(), f"{sample.n} sentences of the test split; Wilson's 95% interval.")
    return {"accuracy": sample.accuracy, "exact": False, "certificate": "none"}


# ---------------------------------------------------------------- heads


def _heads_table(subject: Subject, metrics: pd.DataFrame, test: Batch) -> pd.DataFrame:
    singles = metrics[metrics["size"] == 1].reset_index(drop=True)
    heads = pd.DataFrame({"head": [group[0] for group in singles["heads"]]})
    heads["category"] = [category(value) for value in singles["s_acc"]]
    heads = heads.join(singles[["s_acc", "l_acc", "roc_auc"]])
    heads = heads.merge(attention_ratios(subject, batch=None if subject.count_space else test), on="head")
    heads = heads.merge(head_weights(subject), on="head")
    heads["eos_l_acc"] = end_accuracy(subject, "singles", test=test)["l_acc"]
    ablated = ablate_heads(subject, "singles", test=test)
    heads["accuracy_without"] = ablated["accuracy"][1:].to_numpy()
    return heads


def _verdict(
    report: Report, subject: Subject, metrics: pd.DataFrame, heads: pd.DataFrame, row: dict[str, Any]
) -> dict[str, Any]:
    """The answer in words, from the numbers alone."""
    numbers = heads["category"].value_counts()
    good, failed, mixed = (int(numbers.get(name, 0)) for name in ("successful", "failed", "mixed"))
    pairs, best = metrics[metrics["size"] == 2], heads.set_index("head")["s_acc"]
    gains = pairs["s_acc"] - [max(best[a], best[b]) for a, b in pairs["heads"]]
    improved = int((gains > 0.01).sum())
    alone = int((heads["l_acc"] > 0.8).sum())
    pairs_alone = int((pairs["l_acc"] > 0.8).sum())
    if len(heads) == 1:
        kind = f"The model has one head, whose outputs a linear separator splits with accuracy {best.max():.4f}."
    elif good >= 2:
        kind = "The heads are a pseudo-ensemble: several of them each solve the counting alone."
    elif good == 1:
        kind = "One head counts alone; the others do not."
    elif improved:
        kind = "The heads cooperate: none separates the answers alone, and pairs do better than their members."
    else:
        kind = "No head and no pair of heads separates the answers."
    exactly = "exactly, over every input" if row["exact"] else "on a sample"
    sentences = [
        kind,
        f"{good} of {len(heads)} heads are successful (s-acc of at least .98), {failed} failed, {mixed} mixed.",
    ]
    if len(pairs):
        sentences.append(
            f"{improved} of {len(pairs)} pairs separate better than their better member by more than a point. "
            f"Left alone with the readout, {alone} of {len(heads)} heads and {pairs_alone} of {len(pairs)} pairs "
            "answer with l-acc above .8" + ("; the readout balances the biases of many heads." if alone < good else ".")
        )
    sentences.append(f"Accuracy at '=' is {row['accuracy']:.4f}, measured {exactly}.")
    report.verdict = " ".join(sentences)
    return {"heads": len(heads), "successful": good, "failed": failed, "mixed": mixed, "best s_acc": float(best.max())}


def _heads(report: Report, metrics: pd.DataFrame, heads: pd.DataFrame) -> None:
    report.section(
        "Heads",
        "s-acc: accuracy of the best linear separator of the head's outputs, fitted on the training set. l-acc: "
        "accuracy when all other heads are silenced. ROC AUC: the better of the '4' and '5' logits as a score. w01, "
        "w02: attention to '0' relative to '1' and '2'. weight: the head's share in the readout of '4' against '5'.",
    )
    report.add_table("heads", heads, "Every head, measured on the test set (section 5 of the paper).")
    names = {"s_acc": "separation accuracy", "l_acc": "learned accuracy", "roc_auc": "ROC AUC"}
    if len(heads) == 1:
        return
    for metric, name in names.items():
        report.add_figure(
            f"heads_{metric}",
            draw.heads_heatmap(metrics, metric),
            f"{name[0].upper()}{name[1:]} of single heads (diagonal) and of pairs (Figure 3 of the paper).",
        )
    report.add_table("groups", metrics, "The same as numbers: single heads, then pairs.", max_rows=20)


def _groups(report: Report, subject: Subject, train: Batch, test: Batch) -> None:
    """Groups of every size: all of them where they are few, else a sample."""
    n_heads = subject.model.cfg.n_heads
    few = 2**n_heads - 1 <= SAMPLED_GROUPS
    groups = head_metrics(subject, "all", train=train, test=test, sample=None if few else SAMPLED_GROUPS)
    which = f"all {len(groups)}" if few else f"{len(groups)} random"
    report.add_figure(
        "groups_by_size",
        draw.metrics_by_size(groups),
        f"{which[0].upper()}{which[1:]} groups of heads by size: median, quartiles, least and largest (Figure 4). "
        "analyses/count01_subsets.py takes every group, and adds Shapley values and synergies.",
    )


def _attention(report: Report, subject: Subject, heads: pd.DataFrame) -> None:
    report.section("Attention at '='")
    report.add_figure(
        "attention_ratios",
        draw.attention_ratios(heads),
        "Each dot is a head. The paper finds successful heads where '0' and '1' get about equal attention (w01 near 1) "
        "and '2' much less (w02 above 10; Figure 5). Ratios beyond 10^-12 or 10^12 are drawn at that edge.",
    )


def _planes(report: Report, subject: Subject, heads: pd.DataFrame, train: Batch, test: Batch) -> None:
    """Head outputs in their plane, with the value vectors and the separator."""
    fitted, tested = head_outputs(subject, train), head_outputs(subject, test)
    d_head = tested.z.shape[-1]
    axes = (
        "their two coordinates"
        if d_head == 2
        else "their one coordinate"
        if d_head == 1
        else "two principal components"
    )
    report.section("Head outputs", f"A dot is a sentence of the test set; the axes are {axes}.")
    planes = head_planes(subject, fitted, tested)
    points, values, lines = planes.points, planes.values, planes.lines
    notes = {int(head): f"s-acc {s_acc:.3f}" for head, s_acc in zip(heads["head"], heads["s_acc"])}
    best, worst = int(heads["s_acc"].idxmax()), int(heads["s_acc"].idxmin())
    chosen = {"best": best} if best == worst else {"best": best, "worst": worst}
    vectors = ", with the value vectors of '0', '1' and '2'" if len(values) else ""  # with positions there are none
    for word, head in chosen.items():
        mine, its_values = (frame[frame["head"] == head] for frame in (points, values))
        report.add_figure(
            f"{word}_head",
            draw.head_plane(mine, its_values, lines.get(head), head),
            f"The {word} head by s-acc ({notes[head]}){vectors}; the line is the separator that was fitted on the "
            "training set (Figures 6 and 7).",
        )
    if len(heads) > 1:
        report.add_figure(
            "all_heads",
            draw.head_planes_grid(points, values, lines, notes),
            "The same for every head (Figure 15).",
        )


# ---------------------------------------------------------------- interventions, logits, circuits


def _interventions(report: Report, subject: Subject, train: Batch, test: Batch) -> None:
    report.section(
        "Interventions on attention",
        "The attention at '=' is set by hand, everything else stays: what a head could do if it looked elsewhere.",
    )
    if not subject.count_space:
        report.add_text("Left out for a model that is run on whole sequences; call interp.reweight_attention for it.")
        return
    swept = {
        "w01": (reweight_attention(subject, w01=SWEEP_W01, train=train, test=test), "Figure 8"),
        "w02": (reweight_attention(subject, w02=SWEEP_W02, train=train, test=test), "Figure 9"),
    }
    captions = {
        "w01": "No attention to '2', and the ratio between '0' and '1' varied",
        "w02": "Equal attention to '0' and '1', and the ratio between '0' and '2' varied",
    }
    for key, (frame, figure) in swept.items():
        report.add_figure(
            f"intervention_{key}",
            draw.intervention_curve(frame.rename(columns={key: "ratio"}), x=key),
            f"{captions[key]}: mean s-acc over the heads, the band is one standard deviation ({figure}).",
        )
        report.add_table(f"intervention_{key}", frame, "The same as numbers, head by head.", max_rows=8)


def _logits(report: Report, subject: Subject, test: Batch) -> None:
    report.section("Logits of single heads")
    report.add_figure(
        "logit_distributions",
        draw.logit_distributions(logit_distributions(subject, test[slice(0, 300)])),
        "What each head alone, and the whole model, gives to '4', '5' and [EOS], by current and true next token: most "
        "heads are biased toward one of the answers (Figure 1).",
    )


def _circuits(report: Report, subject: Subject) -> None:
    report.section("QK and OV circuits")
    try:
        attention, logits = qk_circuit(subject), ov_circuit(subject)
    except UnsupportedError as error:
        report.add_text(f"Not shown: {error}.")
        return
    report.add_figure(
        "qk",
        draw.circuit(attention.rename(columns={"score": "value"})),
        "QK: the attention score of every query token (rows) for every key token (columns), before the softmax.",
    )
    report.add_figure(
        "ov",
        draw.circuit(logits.rename(columns={"logit": "value", "token": "logit"})),
        "OV: what a head adds to every token's logit (columns) when it attends to one token alone (rows).",
    )
