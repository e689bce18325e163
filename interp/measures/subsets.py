"""Groups of heads: checking given groups, all of them, samples of every size; and l-acc and ROC AUC of many at once.

A group H of heads answers with the logits z_H = sum_{i in H} contribution_i + bias (Zsamboki et al. 2025, section
4.2). The paper keeps only the output bias and drops skip connection and projection bias (errata, reading 4). To keep
them, pass a separate bias for every row.
"""

from collections.abc import Iterable, Sequence
from itertools import combinations
from math import comb
from operator import index
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int
from numpy import ndarray

from interp.errors import InterpError, as_list
from interp.measures.separation_solver import features
from interp.support.progress import LateBar

Group = tuple[int, ...]
MAX_SUBSETS = 200_000
"""Most groups that a name stands for: 2^n rows are easily asked for by accident."""
EQUAL = 2.0**-36
"""Scores in float64 that differ by less than this share of the largest are equal: so far above its rounding that equal
sums hardly ever lie on two sides of a multiple."""


def select_groups(groups: str | Iterable[Any], n_heads: int, sample: int | None = None) -> list[Group]:
    """Return groups by name ("singles", "pairs", "singles+pairs", "all") or as given; InterpError if invalid.

    sample: draw so many of "all", spread over the sizes.
    """
    if sample is not None:
        if not isinstance(groups, str) or groups != "all":
            raise InterpError("sample draws some of all groups of heads: it goes with groups='all'")
        return sample_subsets(n_heads, sample, seed=0)
    sizes = {"singles": (1,), "pairs": (2,), "singles+pairs": (1, 2), "all": range(1, n_heads + 1)}
    if not isinstance(groups, str):
        return check_groups(groups, n_heads)
    if groups not in sizes:
        raise InterpError(f"groups = {groups!r} is neither one of {', '.join(sizes)} nor a list of tuples of heads")
    if (total := sum(comb(n_heads, size) for size in sizes[groups])) > MAX_SUBSETS:
        raise InterpError(
            f"groups = {groups!r} are {total:,} groups of {n_heads} heads, more than {MAX_SUBSETS:,}; "
            "give a list of groups"
        )
    return [group for size in sizes[groups] for group in combinations(range(n_heads), size)]


def check_groups(groups: Iterable[Any], n_heads: int) -> list[Group]:
    """Return the groups as tuples of head indices in the given order. Raises InterpError for invalid groups."""
    checked = [_check_group(group, n_heads) for group in as_list(groups, "groups", "[(0,), (0, 3)]")]
    if not checked:
        raise InterpError("no groups of heads were given; give at least one, such as [(0,), (0, 3)]")
    return checked


def _check_group(group: Any, n_heads: int) -> Group:
    if not isinstance(group, Iterable) or isinstance(group, str):
        raise InterpError(f"{group!r} is not a group of heads; give tuples such as (0, 3), or (0,) for a single head")
    heads = tuple(map(index, group))
    if not heads:
        raise InterpError("a group of heads is empty; each needs at least one head")
    if len(set(heads)) < len(heads):
        raise InterpError(f"the group {heads} repeats a head; name each head once")
    outside = [head for head in heads if not 0 <= head < n_heads]
    if outside:
        raise InterpError(f"the group {heads} names head {outside[0]}, but the heads are 0 to {n_heads - 1}")
    return heads


def all_subsets(n_heads: int) -> list[Group]:
    """List every non-empty subset of the heads, small ones first."""
    return [group for size in range(1, n_heads + 1) for group in combinations(range(n_heads), size)]


def sample_subsets(n_heads: int, n: int, seed: int) -> list[Group]:
    """Draw n different subsets, spread over the sizes as evenly as possible, small ones first."""
    total = 2**n_heads - 1
    if not 1 <= n <= total:
        raise InterpError(
            f"a sample of {n} subsets was asked for, but {n_heads} heads have {total:,}; give 1 to {total:,}"
        )
    generator = np.random.default_rng(seed)
    groups: list[Group] = []
    # Sizes with few subsets come first. If they have fewer than their share, the other sizes get more.
    by_number = sorted(range(1, n_heads + 1), key=lambda size: (comb(n_heads, size), size))
    for done, size in enumerate(by_number):
        share = min(comb(n_heads, size), -(-(n - len(groups)) // (n_heads - done)))
        groups += _some_of_size(n_heads, size, share, generator)
    return sorted(groups, key=lambda group: (len(group), group))


def _some_of_size(n_heads: int, size: int, n: int, generator: np.random.Generator) -> list[Group]:
    if 2 * n > comb(n_heads, size):  # drawing until all are different would take long
        everything = list(combinations(range(n_heads), size))
        return [everything[i] for i in generator.permutation(len(everything))[:n]]
    chosen: set[Group] = set()
    while len(chosen) < n:
        chosen.add(tuple(sorted(generator.permutation(n_heads)[:size].tolist())))
    return list(chosen)


_BLOCK = 600_000  # number of logits computed together (5 MB)


def subset_logit_metrics(
    contributions: Float[ndarray, "rows heads classes"],
    bias: Float[ndarray, "..."],
    labels: Int[ndarray, " rows"],
    columns: Sequence[int],
    subsets: Iterable[Any],
) -> pd.DataFrame:
    """Measure groups of heads, one row per group: heads (tuple), size, l_acc, roc_auc.

    contributions and bias, (classes,) or (rows, classes), are in logits; labels are class indices. l_acc: share of rows
    whose largest logit over all classes is the label's (the first of equal logits counts as the largest). roc_auc: the
    largest area over the classes c of `columns` ('4' and '5' in Count01). The area is the probability that logit c is
    larger for a random row labeled c than for another random row; scores that are equal up to rounding count half.

    Raises InterpError for a column whose class is the label of no row or of every row, contributions that are not
    finite, and the groups that `check_groups` refuses.
    """
    parts = features("contributions", contributions, "rows heads classes")
    n_rows, n_heads, _ = parts.shape
    for column in columns:
        if (n_positive := int((labels == column).sum())) in (0, n_rows):
            which = "every row" if n_positive else "no row"
            raise InterpError(f"{which} has the label {column}: an ROC AUC needs rows with and without it")
    groups = check_groups(subsets, n_heads)
    order = np.argsort(labels, kind="stable")  # put rows with equal labels together
    classes, offset = labels[order], (bias[order].T if bias.ndim == 2 else bias[:, None])
    flat = np.ascontiguousarray(parts[order].transpose(1, 2, 0)).reshape(n_heads, -1)
    l_acc, roc_auc = np.empty(len(groups)), np.empty(len(groups))
    block = max(1, _BLOCK // flat.shape[1])
    with LateBar("logits of groups of heads") as bar:
        for begin in range(0, len(groups), block):
            piece = groups[begin : begin + block]
            member = np.zeros((len(piece), n_heads))
            for i, group in enumerate(piece):
                member[i, list(group)] = 1.0
            logits = (member @ flat).reshape(len(piece), -1, n_rows) + offset
            l_acc[begin : begin + block] = _accuracy(logits, classes)
            areas = [roc_areas(logits[:, column], classes == column) for column in columns]
            roc_auc[begin : begin + block] = np.max(areas, axis=0)
            bar.update(begin + len(piece), len(groups))
    return pd.DataFrame({"heads": groups, "size": [len(group) for group in groups], "l_acc": l_acc, "roc_auc": roc_auc})


def roc_areas(scores: Float[ndarray, "groups rows"], positive: Bool[ndarray, " rows"]) -> Float[ndarray, " groups"]:
    """Compute the area under the ROC curve of each group's scores; scores that are equal up to rounding count half.

    Equal: the same multiple of EQUAL times the largest of the group's scores. The label is the last bit of each number,
    so that sorting the numbers also sorts the labels: once with positive rows last among equals, and once first.
    """
    n_rows = len(positive)
    step = np.maximum(EQUAL * np.abs(scores).max(axis=1, keepdims=True), np.finfo(float).tiny)
    twice = 2 * np.rint(scores / step).astype(np.int64)
    last, first = np.sort(twice + positive, axis=1) & 1, 1 - (np.sort(twice + ~positive, axis=1) & 1)
    rank_sum = (last + first) @ np.arange(0.5, n_rows / 2 + 0.5, 0.5)
    n_positive = int(positive.sum())
    smallest = n_positive * (n_positive + 1) / 2
    return (rank_sum - smallest) / (n_positive * (n_rows - n_positive))


def _accuracy(logits: Float[ndarray, "groups classes rows"], classes: Int[ndarray, " rows"]) -> ndarray:
    """Return the share of rows in which the label's logit is the first of the largest; `classes` is sorted."""
    right = np.zeros(len(logits), int)
    for label in np.unique(classes):
        of_label = logits[:, :, np.searchsorted(classes, label) : np.searchsorted(classes, label, side="right")]
        best = np.ones((len(logits), of_label.shape[2]), bool)
        if label > 0:
            best &= of_label[:, label] > of_label[:, :label].max(axis=1)
        if label + 1 < of_label.shape[1]:
            best &= of_label[:, label] >= of_label[:, label + 1 :].max(axis=1)
        right += best.sum(axis=1)
    return right / len(classes)
