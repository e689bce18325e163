"""Certificates of histogram models, against the model's own forward pass on every sequence."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import interp
from interp.architecture.task_model import TaskModel
from interp.certificates import Certificate
from interp.constructions.histogram_exact import VARIANTS
from interp.constructions.histogram_models import histogram_spec
from interp.tasks import Histogram
from interp.theory.ranges import MixingKind

KINDS: tuple[MixingKind, ...] = ("lin", "lin-softmax", "dot", "dot-softmax", "bos", "bos-softmax")
ALL_VARIANTS = [(kind, variant) for kind, variants in VARIANTS.items() for variant in variants]


def random_model(kind: MixingKind, T: int, L: int, p: int, seed: int, noise: float, zero_class: bool) -> TaskModel:
    """An exact construction with noise (where one fits p), else weights of unit size."""
    generator = torch.Generator().manual_seed(seed)
    task = Histogram(T=T, L=L, bos=kind.startswith("bos"), zero_class=zero_class)
    if noise < 10 and T >= 2:
        weights = interp.build(f"histogram/{kind}-exact", T=T, L=L, p=max(p, T), zero_class=zero_class)
    else:
        weights = interp.build(histogram_spec(kind, task, 3, p, "float64"), seed=seed)
    with torch.no_grad():
        for parameter in weights.parameters():
            size = noise if noise < 10 else 1.0
            draw = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.copy_((parameter if noise < 10 else 0.0) + size * draw)
    return weights


def brute_force(model: TaskModel) -> tuple[int, int]:
    """Wrong and all (sequence, position) pairs, by the model's own forward pass."""
    batch = model.task.all_sequences()
    real = batch.labels >= 0
    wrong = (model.predict(batch.tokens) != batch.labels) & real
    return int(wrong.sum()), int(real.sum())


def agree(model: TaskModel, found: Certificate) -> None:
    wrong, pairs = brute_force(model)
    if found.status == "certified":
        assert wrong == 0
    if found.status == "refuted":
        assert wrong > 0
        assert_wrong(model, found)
    if isinstance(found.accuracy, float):
        assert found.accuracy == pytest.approx(1 - wrong / pairs, abs=1e-12)
        assert found.n_errors == wrong
    else:
        low, high = found.accuracy
        assert low - 1e-12 <= 1 - wrong / pairs <= high + 1e-12
    table = found.tables["classes"]
    assert float(table["inputs"].sum()) == pairs
    assert np.allclose(table[["right", "wrong", "close", "tied", "undecided"]].sum(axis=1), table["inputs"])


def assert_wrong(model: TaskModel, found: Certificate) -> None:
    """The counterexample that the certificate prints is one."""
    assert found.counterexample is not None
    sequence, rest = found.counterexample.split(": ", 1)
    tokens = torch.tensor([model.task.parse(sequence)])
    position = int(rest.split("position ")[1].split()[0])
    batch = model.task.batch(tokens)
    said = model.predict(batch.tokens)[0, position + model.task.bos]
    assert said != batch.labels[0, position + model.task.bos]
    assert found.worst_margin < 0


CASES = [(2, 3), (3, 4), (4, 3), (3, 1), (1, 3), (2, 6)]


def run_many(kind: MixingKind, seeds: range) -> set[str]:
    statuses = set()
    for seed in seeds:
        T, L = CASES[seed % len(CASES)]
        p = (1, 2, 5)[seed // 3 % 3]
        noise = (10.0, 1e-3, 0.03, 10.0, 0.3, 1e-13)[seed // 2 % 6]
        model = random_model(kind, T, L, p, seed, noise, bool(seed % 2))
        found = interp.certify(model, budget_seconds=5, samples=0)
        agree(model, found)
        statuses.add(found.status)
    return statuses


@pytest.mark.parametrize("kind", KINDS)
def test_agrees_with_brute_force_over_all_sequences(kind: MixingKind) -> None:
    assert {"certified", "refuted"} <= run_many(kind, range(40))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_agrees_with_brute_force_on_many_more(kind: MixingKind) -> None:
    assert {"certified", "refuted"} <= run_many(kind, range(1000, 1300))


@pytest.mark.parametrize("kind", KINDS)
def test_without_time_the_interval_is_sound(kind: MixingKind) -> None:
    undecided = 0
    for seed in range(12):
        model = random_model(kind, 3, 4, 6, seed, 0.1 if seed % 2 else 10.0, False)
        found = interp.certify(model, budget_seconds=0, samples=0)
        agree(model, found)
        undecided += not isinstance(found.accuracy, float)
    assert undecided


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    size=st.sampled_from(CASES),
    p=st.integers(1, 6),
    seed=st.integers(0, 2**20),
    noise=st.sampled_from([1e-6, 1e-2, 0.05, 0.1, 10.0]),
    dtype=st.sampled_from(["float64", "float32"]),
    budget=st.sampled_from([0.0, 0.02, 2.0]),
)
def test_never_certified_where_a_sequence_is_wrong(
    kind: MixingKind, size: tuple[int, int], p: int, seed: int, noise: float, dtype: str, budget: float
) -> None:
    model = random_model(kind, *size, p, seed, noise, False).to(getattr(torch, dtype))
    agree(model, interp.certify(model, budget_seconds=budget, samples=0))


@pytest.mark.parametrize(("kind", "variant"), ALL_VARIANTS)
def test_constructions_are_certified_at_full_size(kind: str, variant: str) -> None:
    model = interp.build(f"histogram/{kind}-exact", variant=variant)
    found = interp.certify(model)
    assert (found.status, found.accuracy, found.n_errors, found.n_inputs) == ("certified", 1.0, 0, 32**10)
    assert found.rounding is not None
    assert 0 < found.rounding < found.worst_margin
    assert found.seconds < 5
