"""Gains of pairs of heads, by hand, and what a section on two answers says."""

import numpy as np
import pandas as pd
import pytest
from closeness import close

import interp
from interp import Layer, ModelSpec
from interp.families.count01.sections import head_failures, separation
from interp.models.subject import Subject
from interp.report import Report
from interp.report.sections.base import Study
from interp.tasks.populations import InputsAsked


def test_a_pair_gains_over_its_better_member() -> None:
    alone = {0: 0.5, 3: 0.9, 7: 0.8}
    pairs = {(0, 3): 0.95, (0, 7): 0.8, (3, 7): 0.99}
    rows = [((head,), value) for head, value in alone.items()] + list(pairs.items())
    found = separation.pair_gains(pd.DataFrame(rows, columns=["heads", "s_acc"]), [3, 7, 0])
    assert np.isnan(np.diag(found)).all()
    np.fill_diagonal(found, 0.0)
    close(found, np.array([[0.0, 0.09, 0.05], [0.09, 0.0, 0.0], [0.05, 0.0, 0.0]]), atol=1e-12)


@pytest.mark.parametrize(("normalizer", "says"), [("softmax", None), ("none", "raw scores (no softmax)")])
def test_raw_scores_are_no_shares_of_attention(normalizer: str, says: str | None) -> None:
    spec = interp.build("count01/minimal").spec.replace(origin=None, dtype="float32")
    spec = spec.replace(layers=(Layer(n_heads=2, d_head=1, normalizer=normalizer),))
    reason = head_failures.needs(Study(Subject.of(interp.build(spec))))
    assert (reason is None) if says is None else says in str(reason)


def test_the_scores_of_two_answers_are_their_logits() -> None:
    spec = ModelSpec(task="count01", d_model=6, layers=(Layer(n_heads=2, d_head=2),), dtype="float64")
    report = Report("two heads")
    separation.make(Study(Subject.of(interp.build(spec, seed=1)), asked=InputsAsked(inputs=30)), report, groups=2)
    assert "ROC AUC: the better of the '4' and '5' logits as a score." in report.items[1].text
