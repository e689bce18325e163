"""Branch and bound against every sequence: what it calls right, wrong, too close or tied, and the margin it keeps.

Affine bounds of sums of ReLUs, against their values; which models a histogram's tables speak of.
"""

import itertools

import numpy as np
import pytest
import torch
from closeness import close

import interp
from interp.families.histogram import Histogram
from interp.families.histogram.certificates.search import Ledger, Search
from interp.families.histogram.certificates.spaces import affine_below, interval_below, space_of
from interp.families.histogram.certificates.tables import Tables, refusal, tables_of
from interp.families.histogram.constructions.models import histogram_spec
from interp.support.resources import Budget

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


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_of_tied_margins_the_largest_bound_is_kept(order) -> None:
    """Which of them is the smallest is up to the CPU: count 1 has two, and a larger one whose bound is no matter."""
    search = searched(tables_of(broken("dot-exact", 0.0)), 0, 0.0, 0.0)
    search.ledger = Ledger.of(L)
    for at in order:
        margin, need = ((0.1, 0.1 + 1e-15, 0.2)[at], (1e-12, 2e-12, 3e-12)[at])
        search._note(np.array([0, 1]), np.array([margin, 0.3]), np.array([need, 4e-12]))
    assert search.ledger.margin.tolist() == [0.1, 0.3, np.inf, np.inf]
    assert search.ledger.need.tolist() == [2e-12, 4e-12, 0.0, 0.0]
    search._note(np.array([1, 1]), np.array([-np.inf, 0.3]), np.array([np.inf, 5e-12]))  # a weight of 1e300, say
    assert search.ledger.margin.tolist() == [0.1, -np.inf, np.inf, np.inf]
    assert search.ledger.need.tolist() == [2e-12, np.inf, 0.0, 0.0]


@pytest.mark.parametrize("kind", ["dot", "dot-softmax", "lin"])
def test_untrained_models_agree_with_brute_force(kind) -> None:
    """On most nodes of these some sequences are right and some wrong."""
    spec = histogram_spec(kind, Histogram(T=3, L=4), 4, 3, origin=interp.Training(init="normal", init_std=1.0))
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


def drawn(seed: int, p: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    ends = np.sort(generator.normal(size=(2, 50, p)), axis=0)
    ends[:, generator.random((50, p)) < 0.2] = 0.0  # intervals that are the point 0
    return generator.normal(size=(50, p)), ends[0], ends[1]


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("p", [1, 4])
def test_nowhere_above(parallel: bool, p: int) -> None:
    weight, lo, hi = drawn(0, p)
    (slope, offset), least = affine_below(weight, lo, hi, parallel), interval_below(weight, lo, hi)
    generator = np.random.default_rng(1)
    for share in [np.zeros_like(lo), np.ones_like(lo), *(generator.random((50, p)) for _ in range(200))]:
        z = lo + share * (hi - lo)
        value = (weight * np.maximum(z, 0)).sum(1)
        assert ((slope * z).sum(1) + offset <= value + 1e-12).all()
        assert (least <= value + 1e-12).all()


def test_fixed_signs_are_equal_and_concave_ones_touch_both_ends() -> None:
    weight, lo, hi = drawn(2, 3)
    fixed = ((lo >= 0) | (hi <= 0)).all(1)
    concave = (weight < 0).all(1)
    assert fixed.any()
    assert concave.any()
    slope, offset = affine_below(weight, lo, hi)
    for z in (lo, hi):
        value = (weight * np.maximum(z, 0)).sum(1)
        bound = (slope * z).sum(1) + offset
        close(bound[fixed | concave], value[fixed | concave], atol=1e-12)


def test_one_neuron_is_exact() -> None:
    weight, lo, hi = drawn(3, 1)
    ends = np.minimum(weight * np.maximum(lo, 0), weight * np.maximum(hi, 0))[:, 0]
    assert np.array_equal(interval_below(weight, lo, hi), ends)


def test_flat_or_steep_leaves_the_smaller_gap() -> None:
    """On [-1, 3] the line z is at most 1 below relu, the line 0 up to 3; on [-3, 1] it is the other way round."""
    one = np.ones((1, 1))
    assert affine_below(one, -one, 3 * one)[0].item() == 1
    assert affine_below(one, -3 * one, one)[0].item() == 0


def test_a_model_that_answers_at_one_position_is_refused() -> None:
    exact = interp.build("histogram/dot-exact", T=4, L=3)
    assert refusal(exact) is None
    last = interp.TaskModel(exact.spec.replace(readout_at="last", origin=None), tensors=dict(exact.named_parameters()))
    assert refusal(last) == "the method needs a ReLU readout at all positions, not 'relu_mlp' at 'last'"
