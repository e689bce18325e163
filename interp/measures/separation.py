"""Separation accuracy (s-acc): how well a linear separator of head outputs answers the task.

The separator is a linear support vector machine with squared hinge loss (Zsamboki et al. 2025, section 4.2 and
appendix C). Its objective is liblinear's, because the printed one lacks the square and scales its terms differently
(errata, reading 3):

    1/2 |w|^2 + 1/2 b^2 + C sum_i max(0, 1 - y_i (x_i w + b))^2,   C = 1000

The penalized bias is liblinear's (intercept_scaling = 1). s-acc is only as good as its optimizer, so every separator
comes with a proof: a bound on how far its objective is above the minimum.

Many groups of heads are solved together. The optimum of a group H is a good start for H + {h}: its weights with zeros
for the new head have the same objective, and nearly the same rows are inside both margins. So the subsets are solved
level by level. Each starts from the best of the solved subsets with one head less, and uses the rows that matter
(`separation_solver`). analyses/benchmarks/subsets.py measures the speed relative to liblinear.

K > 2 classes (`score_groups`) have K separators with the same objective, one for each class against the rest, and the
largest value decides, as in liblinear's one-vs-rest (Fan et al. 2008).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float
from numpy import ndarray
from numpy.typing import ArrayLike

from interp.errors import InterpError
from interp.measures import separation_solver as data
from interp.measures.separation_solver import TOLERANCE, solve_groups
from interp.measures.subsets import Group, check_groups, select_groups
from interp.support.progress import LateBar

_CHUNK = 3_500_000  # rows x groups handled together: about 30 MB per array


class _Optimum(NamedTuple):
    weights: Float[ndarray, " columns"]
    objective: float
    relative_gap: float


class SeparatorPath:
    """Optimal linear separators for any groups of heads, with an interface like scikit-learn's.

        path = SeparatorPath(C=1000.0).fit(train_z, train_labels)     # train_z (rows, heads, d_head)
        table = path.score_subsets(test_z, test_labels)               # every subset of the heads
        table = path.score_subsets(test_z, test_labels, [(0, 3)])     # one group of two heads

    Works for head outputs of any model and any two classes. Solved separators are kept, so scoring a second test set or
    more subsets only solves the new ones. See the module for the objective.
    """

    def __init__(self, C: float = 1000.0) -> None:
        if not (np.isfinite(C) and C > 0):
            raise InterpError(f"C is {C}; a positive number is needed (the paper's is 1000)")
        self.C = C

    def fit(self, train_z: ArrayLike, y: ArrayLike) -> SeparatorPath:
        """Set the training rows: train_z (rows, heads, d_head), two-valued labels y (rows,). Solves nothing yet."""
        z = data.features("train_z", train_z, "rows heads d_head")
        signs, self.classes_ = data.two_classes(y, len(z))
        self.n_heads_, self.d_head_ = z.shape[1:]
        self._rows = data.signed_rows(z.reshape(len(z), -1), signs)
        self._optima: dict[int, _Optimum] = {}
        return self

    def score_subsets(
        self,
        test_z: ArrayLike,
        y: ArrayLike,
        groups: str | Iterable[Any] = "all",
        stop: Callable[[int, int], bool] | None = None,
    ) -> pd.DataFrame:
        """Score groups of heads, one row per group.

        Columns: heads (tuple), size, s_acc (share of test rows on the right side), objective, relative_gap.

        test_z (rows, heads, d_head), y (rows,) with the fitted labels. groups: as in subsets.select_groups.
        `stop(done, total)` is called between pieces of work; if it returns True, only the groups finished so far are
        returned.

        Raises InterpError as select_groups does, for groups with more features than training rows, and for a separator
        whose optimality cannot be proven.
        """
        self._check_fitted()
        test = data.features("test_z", test_z, "rows heads d_head")
        if test.shape[1:] != (self.n_heads_, self.d_head_):
            raise InterpError(
                f"test_z has (heads, d_head) = {test.shape[1:]}, but train_z has {(self.n_heads_, self.d_head_)}"
            )
        signs = data.signs_of(y, len(test), self.classes_)
        wanted = select_groups(groups, self.n_heads_)
        data.enough_rows(len(self._rows), max(map(len, wanted)) * self.d_head_)
        with LateBar("separating groups of heads") as bar:

            def report(done: int, total: int) -> bool:
                bar.update(done, total)
                return stop is not None and stop(done, total)

            self._solve(wanted, report)
        solved = [group for group in wanted if _mask(group) in self._optima]
        optima = [self._optima[_mask(group)] for group in solved]
        return pd.DataFrame(
            {
                "heads": solved,
                "size": [len(group) for group in solved],
                "s_acc": self._accuracies(data.signed_rows(test.reshape(len(test), -1), signs), solved),
                "objective": [optimum.objective for optimum in optima],
                "relative_gap": [optimum.relative_gap for optimum in optima],
            }
        )

    def weights(self, heads: Iterable[Any]) -> tuple[Float[ndarray, "heads d_head"], float]:
        """Return the optimal separator (w, b) of one group of heads; z w + b > 0 predicts the larger label."""
        self._check_fitted()
        (group,) = check_groups([heads], self.n_heads_)
        data.enough_rows(len(self._rows), len(group) * self.d_head_)
        self._solve([group], lambda done, total: False)
        solved = self._optima[_mask(group)].weights
        w = solved[:-1].reshape(-1, self.d_head_)
        return w[np.argsort(np.argsort(group))], float(solved[-1])

    def _check_fitted(self) -> None:
        if not hasattr(self, "_rows"):
            raise InterpError("this SeparatorPath has no training rows yet: call fit(train_z, y) first")

    def _solve(self, groups: Sequence[Group], report: Callable[[int, int], bool]) -> None:
        """Solve the groups and their starts: each group without its last head, and so on down to one head."""
        wanted: set[Group] = set()
        for group in groups:
            prefix = tuple(sorted(group))
            while prefix and prefix not in wanted:
                wanted.add(prefix)
                prefix = prefix[:-1]
        new = [group for group in wanted if _mask(group) not in self._optima]
        todo = sorted(new, key=lambda group: (len(group), group))
        chunk = max(1, min(512, _CHUNK // len(self._rows)))
        begin = 0
        while begin < len(todo):
            size = len(todo[begin])
            piece = [group for group in todo[begin : begin + chunk] if len(group) == size]
            self._solve_level(piece)
            begin += len(piece)
            if report(begin, len(todo)):
                return

    def _solve_level(self, groups: list[Group]) -> None:
        """Solve groups of one size whose starts are solved."""
        starts = np.stack([self._start(group) for group in groups])
        solutions = solve_groups(self._rows, self._columns(groups), starts, self.C)
        worst = int(np.argmax(np.where(np.isnan(solutions.relative_gap), np.inf, solutions.relative_gap)))
        if not solutions.relative_gap[worst] <= TOLERANCE:
            sizes = np.abs(self._rows[:, self._columns([groups[worst]])[0, :-1]]).max(axis=0)
            raise InterpError(
                f"the separator of heads {groups[worst]} was not proven optimal: its relative objective gap is "
                f"{solutions.relative_gap[worst]:.1e}, above {TOLERANCE:.1e}; the largest values of its features run "
                f"from {sizes.min():.1e} to {sizes.max():.1e}: rescale or center them"
            )
        optima = zip(solutions.weights, solutions.objective.tolist(), solutions.relative_gap.tolist())
        self._optima.update((_mask(group), _Optimum(*optimum)) for group, optimum in zip(groups, optima))

    def _columns(self, groups: Sequence[Group]) -> ndarray:
        heads = np.asarray(groups)
        columns = (heads[:, :, None] * self.d_head_ + np.arange(self.d_head_)).reshape(len(groups), -1)
        return np.append(columns, np.full((len(groups), 1), self.n_heads_ * self.d_head_), axis=1)

    def _start(self, group: Group) -> Float[ndarray, " columns"]:
        """Return the best solved separator with one head less, with zeros for the new head."""
        start = np.zeros(len(group) * self.d_head_ + 1)
        mask = _mask(group)
        parents = [(self._optima.get(mask & ~(1 << head)), place) for place, head in enumerate(group)]
        solved = [(parent, place) for parent, place in parents if parent is not None]
        if solved:
            parent, place = min(solved, key=lambda pair: pair[0].objective)
            here = place * self.d_head_
            start[:here] = parent.weights[:here]
            start[here + self.d_head_ :] = parent.weights[here:]
        return start

    def _accuracies(self, test: Float[ndarray, "rows columns"], groups: list[Group]) -> Float[ndarray, " groups"]:
        accuracies = np.empty(len(groups))
        chunk = max(1, _CHUNK // len(test))
        for begin in range(0, len(groups), chunk):
            piece = groups[begin : begin + chunk]
            weights = np.zeros((len(piece), test.shape[1]))
            for i, group in enumerate(piece):
                weights[i, self._columns([tuple(sorted(group))])[0]] = self._optima[_mask(group)].weights
            margin = weights @ test.T
            # A row exactly on the plane gets the first class, as in scikit-learn.
            right = np.where(test[:, -1] > 0, margin > 0, margin >= 0)
            accuracies[begin : begin + chunk] = right.mean(axis=1)
        return accuracies


def fit_separator(x: ArrayLike, y: ArrayLike) -> tuple[Float[ndarray, " features"], float]:
    """Return the optimal separator (w, b) of x (rows, features); x w + b > 0 predicts the larger of two labels y.

    Raises InterpError as SeparatorPath does.
    """
    w, b = SeparatorPath().fit(data.as_array(x)[:, None], y).weights([0])
    return w[0], b


def _mask(group: Iterable[int]) -> int:
    return sum(1 << head for head in group)


def score_groups(
    train_z: ArrayLike,
    train_labels: ArrayLike,
    test_z: ArrayLike,
    test_labels: ArrayLike,
    groups: str | Iterable[Any] = "all",
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
        table = path.score_subsets(test_z, wanted, groups)
        return table[["heads", "size", "s_acc", "relative_gap"]]
    test = data.features("test_z", test_z, "rows heads d_head")
    if len(wanted) != len(test):
        raise InterpError(f"{len(test)} test rows have {len(wanted)} labels; one per row is needed")
    tables, values = [], []
    chosen = groups if isinstance(groups, str) else list(groups)
    for value in classes:
        path = SeparatorPath(C).fit(train_z, labels == value)
        seen = np.resize([True, False], len(test))  # placeholder labels: scores are computed from the weights below
        tables.append(path.score_subsets(test, seen, chosen))
        values.append([_decision(path, test, group) for group in tables[-1]["heads"]])
    answers = classes[np.argmax(np.array(values), axis=0)]  # groups x rows
    gaps = np.max([table["relative_gap"] for table in tables], axis=0)
    return tables[0][["heads", "size"]].assign(s_acc=(answers == wanted).mean(axis=1), relative_gap=gaps)


def _decision(path: SeparatorPath, test: np.ndarray, group: tuple[int, ...]) -> np.ndarray:
    w, b = path.weights(group)
    return np.einsum("rhk,hk->r", test[:, list(group)], w) + b
