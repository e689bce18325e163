"""Branch and bound against every sequence: what it calls right, wrong, too close or tied, and the margin it keeps."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

import interp
from interp.certificates.budgets import Budget
from interp.families.histogram import Histogram
from interp.families.histogram.certificates.search import Search
from interp.families.histogram.certificates.spaces import space_of
from interp.families.histogram.certificates.tables import Tables, tables_of
from interp.families.histogram.constructions.models import histogram_spec
from interp.spec import Training

T, L = 4, 4


def broken(kind: str, damage: float) -> interp.TaskModel:
    """An exact model of T = L = 4 whose readout is damaged so that some sequences are wrong."""
    model = interp.build(f"histogram/{kind}", T=T, L=L, dtype="float64")
    noise = torch.randn(model.unembed.W_out.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    with torch.no_grad():
        model.unembed.W_out += damage * model.unembed.W_out.std() * noise
    return model


def truth(model: interp.TaskModel, token: int) -> dict[int, np.ndarray]:
    """The margins at every position with this token in all T^L sequences, by count, by the model itself."""
    tokens = torch.tensor(list(itertools.product(range(model.task.parameters["T"]), repeat=L)))
    batch = model.task.batch(tokens)
    logits = model(tokens).detach().double().numpy()
    right = model.task.classes(batch).numpy()
    mine = np.take_along_axis(logits, right[..., None], -1)[..., 0]
    np.put_along_axis(logits, right[..., None], -np.inf, -1)
    margins = mine - logits.max(-1)
    here, counts = tokens.numpy() == token, batch.labels.numpy()
    return {k: margins[here & (counts == k)] for k in range(1, L + 1)}


def searched(tables: Tables, token: int, need: float, slack: float) -> Search:
    space = space_of(tables, token)
    assert space is not None
    shape = tables.lead.shape[:2]
    search = Search(tables, space, np.full(shape, need), np.full(shape, slack))
    assert not len(search.explore(search.start(), 1e9, Budget(1e9, 1.0)).nodes)
    return search


@pytest.mark.parametrize("kind", ["dot", "dot-softmax", "lin"])
def test_untrained_models_agree_with_brute_force(kind) -> None:
    """On most nodes of these some sequences are right and some wrong."""
    spec = histogram_spec(kind, Histogram(T=3, L=4), 4, 3, origin=Training(init="normal", init_std=1.0))
    compare(interp.TaskModel(spec, seed=0, dtype="float64"))


@pytest.mark.parametrize("kind", ["dot-exact", "dot-softmax-exact", "lin-exact"])
def test_damaged_models_agree_with_brute_force(kind) -> None:
    compare(broken(kind, 0.4))


def compare(model: interp.TaskModel) -> None:
    tables, n_wrong = tables_of(model), 0
    for token in range(tables.T):
        margins, found = truth(model, token), searched(tables, token, 1e-9, 1e-9).ledger
        for k in range(1, L + 1):
            assert found.total[k - 1] == len(margins[k])
            assert found.right[k - 1] == (margins[k] > 1e-9).sum()
            assert found.wrong[k - 1] == (margins[k] < -1e-9).sum()
        n_wrong += int(found.wrong.sum())
    assert n_wrong > 0


@pytest.mark.parametrize("kind", ["dot-exact", "lin-exact"])
def test_thresholds_and_the_margin_that_is_kept(kind) -> None:
    model = broken(kind, 0.0)
    tables, margins = tables_of(model), truth(model, 1)
    least, most = min(m.min() for m in margins.values()), max(m.max() for m in margins.values())
    assert least > 0
    size = np.array([len(margins[k]) for k in range(1, L + 1)])
    right = searched(tables, 1, least / 2, least / 4).ledger
    assert (right.right == size).all()
    for k in range(1, L + 1):  # a bound of the margin less what rounding did to it: never above, and near
        assert right.margin[k - 1] <= margins[k].min() - least / 4 + 1e-12
    close = searched(tables, 1, 2 * most, least / 2).ledger
    assert (close.right == 0).all()
    assert (close.close == size).all()
    tied = searched(tables, 1, 2 * most, 2 * most).ledger
    assert ((tied.right == 0) & (tied.wrong == 0) & (tied.close == 0) & (tied.tied == size)).all()
