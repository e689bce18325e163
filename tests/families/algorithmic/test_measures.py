"""Waves in logits: planted sums of cosines are found with their shares; losses against a formula by hand."""

import math

import pytest
import torch

import interp
from interp.families.algorithmic.measures import cosines, key_waves, waves
from interp.models.subject import Subject
from interp.tasks.populations import everything

P = 13
A, B = (each.flatten() for each in torch.meshgrid(torch.arange(P), torch.arange(P), indexing="ij"))
SUMS = (A + B) % P


def planted(amplitudes: dict[int, float]) -> torch.Tensor:
    c = torch.arange(P)
    angle = 2 * math.pi * (SUMS[:, None] - c) / P
    return sum((w * torch.cos(k * angle) for k, w in amplitudes.items()), torch.zeros(P * P, P)).double()


def test_planted_waves_are_found_strongest_first() -> None:
    found = waves(planted({2: 3.0, 5: 7.0}), SUMS)
    assert found.frequencies[:2] == (5, 2)
    assert found.share == pytest.approx(1.0)
    assert found.kept == 1.0
    assert found.restricted == pytest.approx(found.loss)
    assert found.excluded == pytest.approx(math.log(P))


def test_weak_waves_are_left_out() -> None:
    found = waves(planted({2: 1.0, 5: 7.0}), SUMS)
    assert found.frequencies == (5,)
    assert found.share == pytest.approx(49 / 50)
    assert found.restricted > found.loss


def test_amplitudes_by_least_squares() -> None:
    logits = (
        planted({1: 0.5, 4: -2.0}) + torch.randn(P * P, P, generator=torch.Generator().manual_seed(0)).double() / 10
    )
    means = torch.stack([logits[s == SUMS].mean(0) for s in range(P)])
    number = torch.arange(P)
    angle = 2 * math.pi * (number[:, None] - number).double() / P
    design = torch.stack([torch.cos(k * angle).flatten() for k in range(P // 2 + 1)], 1).double()
    wanted = torch.linalg.lstsq(design, means.flatten()[:, None]).solution[1:, 0]
    assert torch.allclose(cosines(means), wanted, atol=1e-9)


def test_noise_is_no_wave() -> None:
    noise = torch.randn(P * P, P, generator=torch.Generator().manual_seed(1))
    found = waves(noise, SUMS)
    assert found.share < 0.2
    assert found.kept < 0.9


def test_key_waves_leave_out_the_constant() -> None:
    means = planted({3: 1.0})[:P] + 5
    assert key_waves(means, (3,)).mean(0).abs().max() < 1e-9


def test_a_missing_sum_is_refused() -> None:
    with pytest.raises(interp.InterpError, match="every sum from 0 to 12"):
        waves(planted({1: 1.0})[:5], SUMS[:5])


@pytest.mark.slow
def test_the_fourier_construction_has_the_waves_of_its_proof() -> None:
    subject = Subject.of(interp.build("algorithmic/modular-addition-fourier"))
    batch = everything(subject.task).batch
    found = waves(subject.logits(batch), subject.classes(batch))
    assert found.kept == 1.0
    assert {14, 41, 52} <= set(found.frequencies)  # others are harmonics, made by the kinks of ReLUs
    assert found.share > 0.4
    assert "cos(2πk(a + b − c)/113)" in str(found)
