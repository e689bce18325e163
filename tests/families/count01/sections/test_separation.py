"""Gains of pairs of heads, by hand; the other reading of the separators is an option of each section that separates."""

import numpy as np
import pandas as pd
import pytest
from closeness import close

import interp
from interp import Layer, ModelSpec
from interp.errors import InterpError
from interp.families.count01.sections.head_failures import needs
from interp.families.count01.sections.separation import make, pair_gains
from interp.measures.survey import survey
from interp.models.subject import Subject
from interp.report import Report
from interp.report.sections.base import Study
from interp.tasks.populations import InputsAsked


def test_a_pair_gains_over_its_better_member() -> None:
    alone = {0: 0.5, 3: 0.9, 7: 0.8}
    pairs = {(0, 3): 0.95, (0, 7): 0.8, (3, 7): 0.99}
    rows = [((head,), value) for head, value in alone.items()] + list(pairs.items())
    found = pair_gains(pd.DataFrame(rows, columns=["heads", "s_acc"]), [3, 7, 0])
    assert np.isnan(np.diag(found)).all()
    np.fill_diagonal(found, 0.0)
    close(found, np.array([[0.0, 0.09, 0.05], [0.09, 0.0, 0.0], [0.05, 0.0, 0.0]]), atol=1e-12)


@pytest.mark.parametrize(("normalizer", "says"), [("softmax", None), ("none", "raw scores (no softmax)")])
def test_raw_scores_are_no_shares_of_attention(normalizer: str, says: str | None) -> None:
    spec = interp.build("count01/minimal").spec.replace(origin=None, dtype="float32")
    spec = spec.replace(layers=(Layer(n_heads=2, d_head=1, normalizer=normalizer),))
    reason = needs(Study(Subject.of(interp.build(spec))))
    assert (reason is None) if says is None else says in str(reason)


def test_the_scores_of_two_answers_are_their_logits() -> None:
    spec = ModelSpec(task="count01", d_model=6, layers=(Layer(n_heads=2, d_head=2),), dtype="float64")
    report = Report("two heads")
    make(Study(Subject.of(interp.build(spec, seed=1)), asked=InputsAsked(inputs=30)), report, groups=2)
    assert "ROC AUC: the better of the '4' and '5' logits as a score." in report.items[1].text


@pytest.mark.slow
def test_the_objectives_weight_is_an_option() -> None:
    """Where a section separates, its numbers are those of the measures with the same C, and the page says which."""
    model, C = interp.build("count01/minimal"), 1e-5
    names = ["heads", "reweighting", "head_planes", "separation"]
    options = {name: {"C": C} for name in names}
    options["reweighting"] |= {"w01": (1.0,), "w02": (10.0,)}
    report = interp.analyze(model, sections=names, options=options)
    alone, usual = interp.head_metrics(model, "singles", C=C), interp.head_metrics(model, "singles")
    assert abs(alone["s_acc"][0] - usual["s_acc"][0]) > 0.4  # the case tells the readings apart
    assert report.tables["separation"]["s_acc"][0] == alone["s_acc"][0]
    assert report.tables["heads"]["s_acc"][0] < 0.6
    assert report.tables["intervention_w01"]["s_acc"][0] < 0.6  # .966 at 1000
    assert report.html().count("with errors weighted by C = 1e-05 in its objective") == 4
    with pytest.raises(InterpError, match="C is -1"):
        survey(model, C=-1.0)
