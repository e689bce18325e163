"""The walk over all multisets around an own token, against all sequences and against plain sums."""

from collections import Counter
from itertools import combinations_with_replacement, product
from math import comb, factorial, prod

import numpy as np
import pytest
import torch
from drawn_weights import draw

import interp
from interp.families.histogram import Histogram
from interp.families.histogram.certificates import walk as walks
from interp.families.histogram.certificates.certify import _thresholds
from interp.families.histogram.certificates.counted import counting_refusal
from interp.families.histogram.certificates.tables import Tables, tables_of
from interp.families.histogram.constructions.models import histogram_spec
from interp.families.histogram.theory.ranges import MixingKind
from interp.models.architecture.task_model import TaskModel

KINDS: tuple[MixingKind, ...] = ("dot", "dot-softmax", "bos", "bos-softmax")
SIZES = [(2, 3), (3, 4), (4, 3), (3, 1), (2, 6), (5, 4), (6, 5), (8, 4)]


def random_model(
    kind: MixingKind, T: int, L: int, p: int, seed: int, scale: float = 1.0, dtype: str = "float64", rows: int = 0
) -> TaskModel:
    """Random weights of size `scale`; embeddings of one of so many rows, where rows > 0."""
    task = Histogram(T=T, L=L, bos=kind.startswith("bos"), zero_class=bool(seed % 2))
    model = interp.build(histogram_spec(kind, task, 3, p, "float64"), seed=seed)
    draw(model, seed, scale, torch.float64)
    with torch.no_grad():
        if rows:
            embedding: torch.Tensor = model.embed.W_E
            embedding.copy_(embedding[torch.arange(len(embedding)) % rows])
    return model.to(getattr(torch, dtype))


def thresholds(model: TaskModel, need: np.ndarray | None, slack: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """Those of the model where none are given."""
    plain = _thresholds(model, tables_of(model))
    return plain[0] if need is None else need, plain[1] if slack is None else slack


def counted(
    model: TaskModel, need: np.ndarray | None = None, slack: np.ndarray | None = None
) -> dict[tuple[int, int], tuple[int, int, int, int]]:
    """By own token and count: right, wrong, close and tied, by the walk with all answers open."""
    tables = tables_of(model)
    (need, slack), found = thresholds(model, need, slack), {}
    for token in range(tables.T):
        walk = walks.Walk(tables, token)
        for count in range(tables.L if tables.T == 1 else 1, tables.L + 1):
            rivals = np.arange(tables.lead.shape[1]) != tables.classes[count - 1]
            one = walk.count(count, rivals, need[token, count - 1], slack[token, count - 1])
            check_examples(tables, token, count, one.examples)
            assert (one.again < one.evaluated) == (one.evaluated > 0), "whole vectors are evaluated, few of them again"
            found[token, count] = (one.right, one.wrong, one.close, one.tied)
    return found


def check_examples(tables: Tables, token: int, count: int, examples: list[list[int]]) -> None:
    for sequence in examples:
        assert len(sequence) == tables.L
        assert sequence.count(token) == count
        assert tables.margins(np.array([sequence]))[0, 0] < 0


def listed(
    model: TaskModel, need: np.ndarray | None = None, slack: np.ndarray | None = None
) -> dict[tuple[int, int], tuple[int, int, int, int]]:
    """The same by running every sequence in float64."""
    tables = tables_of(model)
    need, slack = thresholds(model, need, slack)
    rows = np.array(list(product(range(tables.T), repeat=tables.L)))
    active = np.maximum(tables.hidden(rows), 0)
    counts = (rows[:, :, None] == rows[:, None, :]).sum(-1)
    found = {}
    for token, count in product(range(tables.T), range(1, tables.L + 1)):
        here = active[(rows == token) & (counts == count)]
        if not len(here):
            continue
        j = np.arange(tables.lead.shape[1]) != tables.classes[count - 1]
        leads = (here @ tables.lead[count - 1].T + tables.lead_bias[count - 1])[:, j]
        low, enough = slack[token, count - 1][j], (need + 2 * slack)[token, count - 1][j]
        wrong = (leads < -low).any(1)
        tied = ~wrong & ~(leads > low).all(1)
        right = (leads > enough).all(1)
        found[token, count] = tuple(
            int(n) for n in (right.sum(), wrong.sum(), (~(right | wrong | tied)).sum(), tied.sum())
        )
    return found


def total(found: dict[tuple[int, int], tuple[int, int, int, int]]) -> np.ndarray:
    return np.array(list(found.values())).sum(0)


@pytest.mark.compiles
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(4))
def test_every_multiset_is_what_every_sequence_says(kind: MixingKind, seed: int) -> None:
    T, L = SIZES[(seed + 4 * KINDS.index(kind)) % len(SIZES)]
    model = random_model(kind, T, L, (1, 2, 5)[seed % 3], seed, dtype=("float64", "float32")[seed % 2])
    assert counted(model) == listed(model)


def test_softmax_weights_that_vanish_are_not_summed() -> None:
    """Weights of e^-745 count where no larger one is in the sequence: here 140 right answers were called wrong."""
    model = random_model("dot-softmax", 6, 5, 1, 14, 3.0)
    assert "too much to add" in str(counting_refusal(tables_of(model)))
    assert counting_refusal(tables_of(random_model("dot-softmax", 6, 5, 1, 14, 1.0))) is None
    rows = next(model.task.inputs(chunk=model.task.n_inputs))
    right = float((model.predict(rows.tokens) == rows.labels).double().mean())
    found = interp.certify(model, seconds=5).accuracy
    low, high = found if isinstance(found, tuple) else (found, found)
    assert low <= right <= high


SEEDS = [pytest.param(seed, marks=pytest.mark.slow if seed < 19 else pytest.mark.soak) for seed in range(4, 94)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", SEEDS)
def test_multisets_agree_with_sequences_for_many_models(kind: MixingKind, seed: int) -> None:
    T, L = SIZES[seed % len(SIZES)]
    model = random_model(kind, T, L, 1 + seed % 9, seed, (0.3, 1.0, 3.0)[seed % 3], ("float64", "float32")[seed % 2])
    assert counting_refusal(tables_of(model)) is not None or counted(model) == listed(model)


@pytest.mark.compiles
@pytest.mark.parametrize("kind", KINDS)
def test_tokens_with_equal_rows_are_merged_and_counted_apart(kind: MixingKind) -> None:
    model = random_model(kind, 6, 4, 4, 1, rows=2)
    assert len(walks.Seen.by(tables_of(model), 0).terms) == 2
    assert counted(model) == listed(model)


@pytest.mark.compiles
@pytest.mark.parametrize("kind", KINDS)
def test_ties_are_neither_right_nor_wrong(kind: MixingKind) -> None:
    """Two answers with the same logits everywhere."""
    model = random_model(kind, 4, 3, 3, 5)
    with torch.no_grad():
        for name in ("W_out", "b_out"):
            weight = getattr(model.unembed, name)
            weight[..., 1] = weight[..., 2]
        model.unembed.b_out[[1, 2]] = 3.0
    found = counted(model)
    assert found == listed(model)
    assert total(found)[3] > 0


@pytest.mark.compiles
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_right_by_less_than_the_need_is_close(kind: MixingKind) -> None:
    model = random_model(kind, 5, 4, 4, 3)
    need, _ = _thresholds(model, tables_of(model))
    loose = np.full_like(need, 0.3)
    found = counted(model, loose)
    assert found == listed(model, loose)
    assert total(found)[2] > 0
    tight, wide = np.full_like(need, 0.1), np.full_like(need, 0.2)  # what float64 is not sure of counts twice
    doubtful = counted(model, tight, wide)
    assert doubtful == listed(model, tight, wide)
    assert doubtful != listed(model, tight + wide, wide), "the case tells it from three times"
    unbounded = counted(model, np.full_like(need, np.inf))
    right, wrong, close, tied = total(found)
    assert list(total(unbounded)) == [0, wrong, right + close, tied]


@pytest.mark.compiles
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scale", [1e-9, 1e6, 1e12, 1e30])
def test_sizes_that_float32_cannot_hold_are_decided_in_float64(kind: MixingKind, scale: float) -> None:
    model = random_model(kind, 4, 3, 3, 2)
    with torch.no_grad():
        for parameter in (model.unembed.W_in, model.unembed.b_in, model.unembed.W_out):
            parameter.mul_(scale)
        model.unembed.b_out.mul_(scale**2)
    found = counted(model)
    assert found == listed(model)
    assert total(found)[:2].min() > 0


def test_groups_hold_each_token_once_and_have_the_planned_sizes() -> None:
    for n in (0, 1, 2, 3, 5, 31):
        terms = np.random.default_rng(n).normal(size=(n, 4))
        groups = walks.groups_of(terms)
        assert [len(group) for group in groups] == walks.group_sizes(n)
        assert sorted(np.concatenate(groups).tolist()) == list(range(n))
    first = walks.groups_of(terms)[0]
    assert len(first) == round(walks.FIRST * 31)


def test_listed_multisets_stand_for_all_sequences() -> None:
    listed_, alike = walks.Listed.of(4, 5), np.array([1, 3, 2, 1])
    ways = listed_.ways(alike)
    for slots in range(6):
        blocks = slice(listed_.start[slots], listed_.start[slots + 1])
        rows = slice(blocks.start * walks.BLOCK, blocks.stop * walks.BLOCK)
        real = np.concatenate([np.arange(walks.BLOCK) < n for n in listed_.rows[blocks]])
        found = [tuple(row[:slots]) for row in listed_.places[rows][real].tolist()]
        assert found == list(combinations_with_replacement(range(4), slots))
        expected = [
            factorial(slots) / prod(factorial(n) for n in Counter(row).values()) * prod(int(alike[i]) for i in row)
            for row in found
        ]
        assert ways[rows][real].tolist() == expected
        assert ways[rows].sum() == 7**slots
        assert not ways[rows][~real].any()


def test_multisets_around_a_token() -> None:
    assert sum(walks.multisets_around(31, n) for n in range(10)) == comb(40, 9) == 273_438_880
    assert [walks.multisets_around(0, n) for n in range(3)] == [1, 0, 0]


@pytest.mark.compiles
def test_a_walk_that_is_told_to_stop_says_nothing(monkeypatch) -> None:
    model = random_model("dot", 12, 8, 12, 1)
    tables = tables_of(model)
    need, slack = _thresholds(model, tables)
    rivals = np.arange(tables.lead.shape[1]) != tables.classes[0]
    walk = walks.Walk(tables, 0)
    at_once = walk.count(1, rivals, need[0, 0], slack[0, 0])
    monkeypatch.setattr(walks, "WORK", 10.0)
    assert walk.count(1, rivals, need[0, 0], slack[0, 0], lambda: False) is None
    assert walk.count(1, rivals, need[0, 0], slack[0, 0]) == at_once
