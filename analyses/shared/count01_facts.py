"""The facts that Zsámboki et al. (2025) state about their trained models, measured on one model.

`PAPER` holds what they print, `facts` measures the same on a model of 16 heads or fewer, `compare` sets both side by
side. Facts that need more than one model (Figures 2, 10 and 14, Table 1) are studies of their own in analyses/.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from interp.measures.attention_ratios import token_ratios
from interp.measures.heads import HeadOutputs, category, group_metrics, head_outputs
from interp.measures.subsets import select_groups
from interp.models.subject import Model, Subject
from interp.tasks import Batch

PAPER: dict[str, tuple[str, str, str]] = {
    "accuracy": ("near 1", "5.1", "accuracy at '=' on the test set, over all tokens"),
    "successful": (".5", "5.2", "share of heads with s-acc of at least .98"),
    "failed": (".4", "5.2", "share of heads close to a coin flip (s-acc of at most .6)"),
    "mixed": ("few", "5.2", "share of the other heads"),
    "chance_singles": ("15/16 = .94", "5.2, Figure 3a", "share of single heads with l-acc within .05 of .5"),
    "good_pairs": ("2/120 = .017", "5.2, Figure 3a", "share of pairs with l-acc above .8"),
    "improved_pairs": ("rare", "6, Figure 3c", "share of pairs with s-acc more than .01 above the better member's"),
    "best_head": ("above .98", "5.2", "largest s-acc of a single head"),
    "best_pair": ("1", "6, heads (5, 13)", "largest s-acc of a pair"),
    "w01_low": ("about 1", "5.3, Figure 5", "smallest w01 of a successful head"),
    "w01_high": ("about 1", "5.3, Figure 5", "largest w01 of a successful head"),
    "w02_above_10": ("1", "5.3, Figure 5", "share of successful heads with w02 above 10"),
    "eos_singles": (".46", "6.2", "share of single heads with l-acc 1 for [EOS]"),
    "eos_pairs": (".50", "6.2", "share of pairs of heads with l-acc 1 for [EOS]"),
}
"""Fact -> (what the paper states, where, what is measured)."""

CHANCE, GOOD, GAIN, LARGE_W02 = 0.05, 0.8, 0.01, 10.0


def facts(
    model: Model, *, train: Batch | None = None, test: Batch | None = None, with_skip: bool = False, C: float = 1000.0
) -> pd.DataFrame:
    """One row: a column for each fact of `PAPER`, on the task's own training and test set; NaN if there is none.

    train, test: those sets, for many models that share them. with_skip: learned accuracies keep the skip connection
    and the projection bias (erratum 4: the shares of [EOS] depend on it). C: of the separators, as in head_metrics.
    """
    subject = Subject.of(model)
    train = subject.task.dataset("train") if train is None else train
    test = subject.task.dataset("test") if test is None else test
    fitted, tested = head_outputs(subject, train), head_outputs(subject, test)
    metrics = group_metrics(
        fitted, tested, "singles+pairs" if tested.n_heads > 1 else "singles", with_skip=with_skip, C=C
    )
    end = end_accuracies(head_outputs(subject, test, read=1), with_skip)
    singles, pairs = (metrics[metrics["size"] == size] for size in (1, 2))
    kinds = singles["s_acc"].map(category)
    best = singles["s_acc"].to_numpy()
    gains = pairs["s_acc"].to_numpy() - np.array([max(best[a], best[b]) for a, b in pairs["heads"]])
    ratios = token_ratios(subject)[(kinds == "successful").to_numpy()]
    whole = tested.logits(range(tested.n_heads), with_skip=True).argmax(-1) == tested.labels
    row = {
        "accuracy": float(whole.double().mean()),
        **{kind: float((kinds == kind).mean()) for kind in ("successful", "failed", "mixed")},
        "chance_singles": float(((singles["l_acc"] - 0.5).abs() < CHANCE).mean()),
        "good_pairs": float((pairs["l_acc"] > GOOD).mean()),
        "improved_pairs": float(np.mean(gains > GAIN)) if len(gains) else np.nan,
        "best_head": float(best.max()),
        "best_pair": float(pairs["s_acc"].max()),
        "w01_low": float(ratios["w01"].min()),
        "w01_high": float(ratios["w01"].max()),
        "w02_above_10": float((ratios["w02"] > LARGE_W02).mean()),
        "eos_singles": float((end[end["size"] == 1]["l_acc"] == 1).mean()),
        "eos_pairs": float((end[end["size"] == 2]["l_acc"] == 1).mean()),
    }
    return pd.DataFrame([row])[list(PAPER)]


def end_accuracies(outputs: HeadOutputs, with_skip: bool = False) -> pd.DataFrame:
    """l-acc of single heads and pairs where one answer is always right, as [EOS] is: heads, size, l_acc."""
    groups = select_groups("singles+pairs" if outputs.n_heads > 1 else "singles", outputs.n_heads)
    right = [float((outputs.logits(g, with_skip).argmax(-1) == outputs.labels).double().mean()) for g in groups]
    return pd.DataFrame({"heads": groups, "size": [len(group) for group in groups], "l_acc": right})


def compare(rows: pd.DataFrame) -> pd.DataFrame:
    """Paper and ours side by side, from the rows of `facts` of several models: fact, paper, where, ours and spread.

    Columns fact, paper, mean, low, high (over the models that have the fact), measured (what it is), source.
    """
    return pd.DataFrame(
        [
            {
                "fact": name,
                "paper": paper,
                "mean": rows[name].mean(),
                "low": rows[name].min(),
                "high": rows[name].max(),
                "measured": measured,
                "source": source,
            }
            for name, (paper, source, measured) in PAPER.items()
        ]
    )
