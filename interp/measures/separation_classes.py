"""s-acc for any number of classes.

Two classes have one separator, as in `interp.measures.separation`. K > 2 classes have K separators with the same
objective, one for each class against the rest, and the largest value decides, as in liblinear's one-vs-rest (Fan et al.
2008). Each is proven optimal.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from interp.errors import InterpError
from interp.measures.separation import SeparatorPath
from interp.measures.separation_data import features
from interp.measures.subsets import MAX_SUBSETS


def score_groups(
    train_z: ArrayLike,
    train_labels: ArrayLike,
    test_z: ArrayLike,
    test_labels: ArrayLike,
    groups: Iterable[Any] | None = None,
    sample: int | None = None,
    seed: int = 0,
    max_subsets: int = MAX_SUBSETS,
    progress: bool = False,
    C: float = 1000.0,
) -> pd.DataFrame:
    """Measure s-acc, one row per group of heads: heads, size, s_acc, relative_gap (the largest of its separators).

    Arguments and errors as in SeparatorPath: z (rows, heads, d_head), labels of two or more classes. If there are more
    than two, test rows of a class without training rows count as wrong.
    """
    labels, wanted = np.asarray(train_labels), np.asarray(test_labels)
    classes = np.unique(labels)
    if len(classes) <= 2:
        path = SeparatorPath(C).fit(train_z, labels)
        table = path.score_subsets(test_z, wanted, groups, sample, seed, max_subsets, progress)
        return table[["heads", "size", "s_acc", "relative_gap"]]
    test = features("test_z", test_z, "rows heads d_head")
    if len(wanted) != len(test):
        raise InterpError(f"{len(test)} test rows have {len(wanted)} labels; one per row is needed")
    tables, values = [], []
    chosen = None if groups is None else list(groups)
    for value in classes:
        path = SeparatorPath(C).fit(train_z, labels == value)
        seen = np.resize([True, False], len(test))  # placeholder labels: scores are computed from the weights below
        tables.append(path.score_subsets(test, seen, chosen, sample, seed, max_subsets, progress))
        values.append([_decision(path, test, group) for group in tables[-1]["heads"]])
    answers = classes[np.argmax(np.array(values), axis=0)]  # groups x rows
    gaps = np.max([table["relative_gap"] for table in tables], axis=0)
    return tables[0][["heads", "size"]].assign(s_acc=(answers == wanted).mean(axis=1), relative_gap=gaps)


def _decision(path: SeparatorPath, test: np.ndarray, group: tuple[int, ...]) -> np.ndarray:
    w, b = path.weights(group)
    return np.einsum("rhk,hk->r", test[:, list(group)], w) + b
