"""Waves on a cyclic group: frequencies of the exact construction, and none if there is no group."""

from __future__ import annotations

import torch

import interp
from interp.measures.runs import Part
from interp.measures.subject import Subject
from interp.mechanisms.base import found, mechanisms
from interp.mechanisms.bench import Bench
from interp.mechanisms.waves import power, restricted
from interp.populations import everything, sample


def test_the_waves_of_the_exact_construction_are_found() -> None:
    model = interp.build("algorithmic/modular-addition-fourier", p=13, frequencies="1 2 4")
    bench = Bench(Subject.of(model), everything(model.task))
    one = found(bench, Part(0), "output", [], 0.99)
    assert one is not None
    assert one.proposal.mechanism == "waves"
    assert one.kept.share >= 0.99
    assert set(one.proposal.facts["frequencies"]) <= {1, 2, 4}


def test_one_wave_is_restricted_to_itself() -> None:
    place = torch.arange(7)[:, None]
    wave = torch.cos(2 * torch.pi * 2 * place / 7) + 3
    assert int(power(wave).argmax()) + 1 == 2
    assert torch.allclose(restricted(wave, [2]), wave, atol=1e-6)
    assert torch.allclose(restricted(wave, [1]), torch.full_like(wave, 3.0), atol=1e-6)


def test_no_waves_without_a_group() -> None:
    model = interp.build("languages/first")
    bench = Bench(Subject.of(model), sample(model.task, 50))
    assert list(mechanisms("output")["waves"](bench, Part(1, 0))) == []
