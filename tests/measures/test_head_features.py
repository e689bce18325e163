"""Variance, probe and interchange of features by head, on planted heads and against scikit-learn's and loops."""

import math

import numpy as np
import pytest
import torch
from planted import Pairing, planted
from standins import standin

from interp.errors import InterpError
from interp.measures.head_types import explained, head_features
from interp.models.subject import Subject


@pytest.fixture(scope="module")
def pairing() -> Subject:
    return Subject.external(planted(), Pairing())


def test_planted_heads_carry_their_symbols_and_nothing_else(pairing) -> None:
    table = head_features(pairing, pairing.task.sample(400, seed=1)).set_index(["feature", "head"])
    for mine, other in ((0, 1), (1, 0)):
        name = "ab"[mine]
        assert table.loc[(name, mine), "variance"] == pytest.approx(1.0, abs=1e-6)
        assert abs(table.loc[(name, other), "variance"]) < 0.05
        assert table.loc[(name, mine), "probe"] == 1.0
        assert table.loc[(name, other), "probe"] < 0.5
        assert table.loc[(name, mine), "interchange"] == 1.0
        assert table.loc[(name, other), "interchange"] < 0.5
        assert 1 / 3 < table.loc[(name, mine), "chance"] < 0.45
    assert 0.3 < table.loc[("answer", 0), "variance"] <= 1.0


def test_variance_of_random_groups_is_none_however_many_values() -> None:
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(4000, 5, generator=draw, dtype=torch.float64)
    for k in (2, 50, 100):
        assert abs(explained(x, torch.randint(k, (4000,), generator=draw))) < 0.01
    value = (x[:, 0] > 0).long()
    within = sum(float((x[value == c] - x[value == c].mean(0)).pow(2).sum()) for c in (0, 1))
    total = float((x - x.mean(0)).pow(2).sum())
    assert explained(x, value) == pytest.approx(1 - within / 3998 / (total / 3999))


def test_a_constant_output_has_no_share_and_tells_nothing(pairing) -> None:
    idle = planted()
    torch.nn.init.zeros_(idle.blocks[0].attn.W_V)
    table = head_features(Subject.external(idle, Pairing()), pairing.task.sample(60, seed=1))
    assert table["variance"].isna().all()
    assert (table["probe"] == table["chance"]).all()
    assert math.isnan(explained(torch.ones(50, 3, dtype=torch.float64), torch.arange(50) % 2))


@pytest.mark.parametrize("name", ["ends", "balance"])
def test_a_strangers_model_has_a_row_for_each_head(name) -> None:
    subject = standin(name)
    table = head_features(subject, subject.task.sample(120, seed=1))
    assert len(table) == subject.model.cfg.n_layers * subject.model.cfg.n_heads
    assert np.isfinite(table[["probe", "chance"]].to_numpy()).all()
    assert ((table["interchange"] >= 0) & (table["interchange"] <= 1)).all()


def test_what_cannot_be_measured_is_said(pairing) -> None:
    batch = pairing.task.sample(60, seed=1)
    task = Pairing()
    task.features = lambda batch: {  # type: ignore[method-assign]
        "half": batch.tokens[:, 0] / 2 + 0.25, "one": 0 * batch.tokens[:, 0], "many": torch.arange(len(batch)),
    }  # fmt: skip
    table = head_features(Subject.external(planted(), task), batch)
    assert table.empty
    assert table.attrs["reasons"] == {
        "half": "The feature half has values that are not whole numbers",
        "one": "The feature one has only one value on these inputs",
        "many": "The feature many has 60 values, too many for 60 reads",
    }
    with pytest.raises(InterpError, match="39 inputs are too few"):
        head_features(pairing, pairing.task.sample(39))
    with pytest.raises(InterpError, match="unknown feature of task planted_pairing 'c'"):
        head_features(pairing, batch, ("c",))
