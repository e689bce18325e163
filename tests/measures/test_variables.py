"""Probes and interchange interventions on a model whose variables are known, and against loops."""

from __future__ import annotations

import pytest
import torch
from closeness import close
from sklearn.linear_model import RidgeClassifier
from standins import standin

import interp
from interp.errors import InterpError
from interp.measures.runs import reads
from interp.measures.variables import _pairs, others_that_decide, probe, variables


def test_probe_is_a_ridge_classifier() -> None:
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(400, 6, generator=draw, dtype=torch.float64)
    value = (x[:, 0] + 0.3 * torch.randn(400, generator=draw) > 0).long() + 2 * (x[:, 1] > 0).long()
    rows = torch.arange(400)
    accuracy, projection = probe(x, value, rows)
    theirs = RidgeClassifier(alpha=1e-3 * float((x[::2] - x[::2].mean(0)).pow(2).sum(0).mean()))
    theirs.fit(x[::2].numpy(), value[::2].numpy())
    assert accuracy == pytest.approx(theirs.score(x[1::2].numpy(), value[1::2].numpy()), abs=0.01)
    torch.testing.assert_close(projection @ projection, projection, rtol=0, atol=1e-9)
    moved = x + (x.roll(1, 0) - x) @ projection.T  # what the fitted probe reads is now the row above's
    close(theirs.decision_function(moved.numpy()), theirs.decision_function(x.roll(1, 0).numpy()), atol=0.01)


def test_which_others_decide() -> None:
    a, b = torch.arange(60) % 5, torch.arange(60) // 12
    known = {"a": a, "b": b, "sum": (a + b) % 5}
    assert others_that_decide("a", known, (a + b) % 5) == ("b",)
    assert others_that_decide("sum", known, (a + b) % 5) == ()
    assert others_that_decide("a", {"a": a}, (a + b) % 5) is None


@pytest.mark.parametrize("name", ["recall", "ends", "balance"])
def test_the_answer_is_there_and_used_at_the_end_and_not_at_the_start(name) -> None:
    subject = standin(name)
    table = variables(subject, subject.task.sample(300, seed=2))
    read = table[(table["position"] == "read") & (table["feature"] == "answer")].set_index("layer")
    last = subject.model.cfg.n_layers
    assert read.loc[last, "interchange"] > 0.97  # what the readout sees is the source's, so the answer is
    assert read.loc[last, "probe"] > 0.95
    assert read.loc[last, "along_probe"] > 0.9
    assert read.loc[0, "interchange"] < 0.5  # the token at the readout alone does not decide
    assert (table["pairs"] > 0).all()


def test_too_few_inputs() -> None:
    with pytest.raises(InterpError, match="39 inputs are too few for a probe"):
        variables(standin("recall"), standin("recall").task.sample(39))


@pytest.mark.parametrize("answer", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_an_interchange_without_effect_scores_nothing_even_if_the_answer_was_that_before(answer: int) -> None:
    """A model that always gives one answer: half of all pairs demand just that one."""
    model = interp.build(interp.load("languages/parity-learned").spec, seed=1)
    with torch.no_grad():
        model.unembed.W_U.zero_()
        model.unembed.b_U.fill_(answer - 0.5)
    table = variables(model, model.task.sample(200, seed=2))
    assert (table["pairs"] > 0).any()
    assert (table["interchange"].dropna() == 0).all()
    assert (table["along_probe"].dropna() == 0).all()


def test_features_of_another_shape_and_of_broken_numbers_are_refused() -> None:
    """Halves were cut to whole numbers."""
    model = interp.build("languages/parity")
    batch = model.task.sample(200)
    halves = (torch.arange(200) % 3).double() / 2
    model.task.features = lambda batch: {"half": halves[: len(batch)], "whole": 2 * halves[: len(batch)]}  # type: ignore[method-assign]
    table = variables(model, batch)
    assert set(table["feature"]) == {"whole"}
    assert table.attrs["reasons"]["half"] == "half has values that are no whole numbers"
    model.task.features = lambda batch: {"short": batch.labels[:1]}  # type: ignore[method-assign]
    with pytest.raises(InterpError, match=r"feature short of task parity has shape \(1,\); it must be \(200,\)"):
        variables(model, batch)


def test_the_reason_is_true_where_another_feature_alone_decides() -> None:
    """`bit` and `sum` together determine the answer, but so does `sum` alone: nothing says what `bit` would change."""
    subject = standin("ends")
    batch = subject.task.sample(60, seed=1)
    values = {"bit": torch.arange(60) % 2, "sum": reads(subject, batch).classes}
    assert _pairs(subject, batch, "bit", values, 20, 0) == (
        "no other features determine the answer together with bit but not without it, so nothing says what it alone "
        "would change"
    )
