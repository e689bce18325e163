"""l-acc and ROC AUC of every group against sklearn and against sums written out."""

import numpy as np
import pytest
from closeness import close
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy import ndarray
from sklearn.metrics import roc_auc_score

from interp.errors import InterpError
from interp.measures.subsets import all_subsets, roc_areas, sample_subsets, subset_logit_metrics


def model(seed: int, rows: int = 200, heads: int = 4, classes: int = 5, whole: bool = False) -> tuple[ndarray, ...]:
    generator = np.random.default_rng(seed)
    contributions = generator.normal(size=(rows, heads, classes))
    bias = generator.normal(size=classes)
    if whole:  # whole numbers tie often
        contributions, bias = np.round(contributions), np.round(bias)
    return contributions, bias, generator.choice([2, 3], size=rows)


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("per_row", [False, True])
def test_every_group(whole: bool, per_row: bool) -> None:
    contributions, bias, labels = model(0, whole=whole)
    if per_row:
        bias = bias + np.round(np.random.default_rng(1).normal(size=(200, 5)))
    table = subset_logit_metrics(contributions, bias, labels, (2, 3), all_subsets(4))
    assert list(table.columns) == ["heads", "size", "l_acc", "roc_auc"]
    assert list(table["heads"]) == all_subsets(4)
    for row in table.itertuples():
        logits = contributions[:, row.heads].sum(axis=1) + bias
        assert row.size == len(row.heads)
        assert row.l_acc == np.mean(logits.argmax(axis=1) == labels)
        areas = [roc_auc_score(labels == column, logits[:, column]) for column in (2, 3)]
        assert row.roc_auc == pytest.approx(max(areas), abs=1e-12)


def test_labels_beyond_the_two_columns() -> None:
    contributions, bias, labels = model(2)
    labels[:40], labels[40:70] = 0, 4
    (row,) = subset_logit_metrics(contributions, bias, labels, (2, 3), subsets=[(3, 1)]).itertuples()
    logits = contributions[:, [1, 3]].sum(axis=1) + bias
    assert row.l_acc == np.mean(logits.argmax(axis=1) == labels)
    assert row.roc_auc == pytest.approx(max(roc_auc_score(labels == c, logits[:, c]) for c in (2, 3)), abs=1e-12)


def test_any_number_of_answers() -> None:
    contributions, bias, labels = model(5)
    labels[:60] = 0
    logits = contributions[:, [2]].sum(axis=1) + bias
    for columns in [(3,), (0, 2, 3)]:
        table = subset_logit_metrics(contributions, bias, labels, columns, subsets=[(2,)])
        expected = max(roc_auc_score(labels == column, logits[:, column]) for column in columns)
        assert table["roc_auc"][0] == pytest.approx(expected, abs=1e-12)


def test_equal_logits_go_to_the_first_class() -> None:
    zero = np.zeros((6, 2, 3))
    labels = np.array([0, 0, 0, 1, 1, 2])
    table = subset_logit_metrics(zero, np.zeros(3), labels, (0, 1), all_subsets(2))
    assert set(table["l_acc"]) == {0.5}
    assert set(table["roc_auc"]) == {0.5}


@settings(max_examples=100, deadline=None)
@given(
    # Signed zeros, ties and neighbors in the last bit, which another CPU could order in another way.
    values=st.lists(
        st.sampled_from([0.0, -0.0, 5e-324, -5e-324, 1.0, 1.0 + 2**-52, 1.0 - 2**-53, -1.0, -1.0 - 2**-52, 0.1, -7.0]),
        min_size=4,
        max_size=12,
    ),
    seed=st.integers(0, 1000),
)
def test_areas_of_scores_that_are_equal_or_nearly(values: list[float], seed: int) -> None:
    scores = np.array([values, values[::-1]])
    positive = np.random.default_rng(seed).permutation(len(values)) < max(1, len(values) // 2)
    expected = []
    for row in scores.round(9):
        wins = (row[positive][:, None] > row[~positive]).sum() + 0.5 * (row[positive][:, None] == row[~positive]).sum()
        expected.append(wins / (positive.sum() * (~positive).sum()))
    if np.ptp(scores) > 1e-9:  # the smallest numbers alone are not equal, but for their spread
        close(roc_areas(scores, positive), expected, atol=1e-12)


def test_blocks_and_samples() -> None:
    contributions, bias, labels = model(3, rows=3000, heads=9)  # several blocks
    whole = subset_logit_metrics(contributions, bias, labels, (2, 3), all_subsets(9)).set_index("heads")
    some = subset_logit_metrics(contributions, bias, labels, (2, 3), sample_subsets(9, 40, seed=5))
    assert list(some["heads"]) == sample_subsets(9, 40, seed=5)
    close(some["l_acc"], whole.loc[list(some["heads"]), "l_acc"], atol=1e-12)
    close(some["roc_auc"], whole.loc[list(some["heads"]), "roc_auc"], atol=1e-12)


CONTRIBUTIONS, BIAS, LABELS = model(4, rows=10)


@pytest.mark.parametrize(("change", "sentence"), [
    ({"contributions": CONTRIBUTIONS * np.nan}, "contributions has 200 values that are NaN"),
    ({"contributions": CONTRIBUTIONS[0]}, "(rows, heads, classes) is needed"),
    ({"columns": (2, 4)}, "no row has the label 4"),
    ({"labels": np.full(10, 2)}, "every row has the label 2"),
    ({"subsets": [()]}, "empty"),
])  # fmt: skip
def test_bad_input(change: dict, sentence: str) -> None:
    usual = {"contributions": CONTRIBUTIONS, "bias": BIAS, "labels": LABELS, "columns": (2, 3), "subsets": [(0,)]}
    with pytest.raises(InterpError) as error:
        subset_logit_metrics(**{**usual, **change})
    assert sentence in str(error.value)


def test_scores_far_closer_than_their_range_are_ranked() -> None:
    positive = np.array([True, False, True, False])
    assert roc_areas(np.array([[3e-9, 0.0, 1.0, 1e-9]]), positive).tolist() == [1.0]


def test_zeros_of_either_sign_are_equal_scores() -> None:
    positive = np.array([True, False, True, False])
    assert roc_areas(np.array([[0.0, -0.0, 0.0, -0.0]]), positive).tolist() == [0.5]
    assert roc_areas(np.array([[-0.0, 0.0, -0.0, 0.0], [-0.0, 0.0, 1.0, -1.0]]), positive).tolist() == [0.5, 0.875]
