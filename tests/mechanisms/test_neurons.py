"""Which neurons follow one quantity, on neurons that are planted."""

from __future__ import annotations

import re

import pytest
import torch

import interp
from interp.measures.runs import Part
from interp.measures.subject import Subject
from interp.mechanisms.bench import Bench
from interp.mechanisms.carries import cell_means, coded
from interp.mechanisms.neurons import neurons, shares, thresholds
from interp.mechanisms.quantities import Quantity
from interp.populations import sample


@pytest.fixture(scope="module")
def bench() -> Bench:
    subject = Subject.of(interp.load("languages/parity-learned"))
    return Bench(subject, sample(subject.task, 400))


def test_shares_of_variance_by_hand() -> None:
    codes = torch.tensor([0, 0, 1, 1])
    seen = torch.tensor([[1.0, 0.0], [1.0, 1.0], [3.0, 0.0], [3.0, 1.0]])
    assert shares(seen, codes).tolist() == [1.0, 0.0]


def test_thresholds_are_told_from_other_functions(bench: Bench) -> None:
    ones = Quantity(bench.setting, "count", ("1", "seen"))
    mask = bench.view.mask
    codes = coded([ones], bench, mask)
    assert codes is not None
    count = ones.values(bench.view).double()
    planted = torch.stack([(count - 3).relu(), (count > 4).double(), (count % 2), 5 - count, count * 0 + 1], -1)
    means = cell_means(planted.float(), codes, mask)
    alone = [thresholds(ones, codes[mask], bench, mask, means[:, [n]]) for n in range(4)]
    assert alone == [[3], [4], [], []]


def test_proposals_name_the_neurons_and_are_tested(bench: Bench) -> None:
    for layer in range(bench.subject.model.cfg.n_layers):
        for one in neurons(bench, Part(layer)):
            assert one.facts["neurons"] >= 0.5 * one.fit
            assert re.search(rf"active neurons \((all|{one.facts['neurons']}) depend only on", one.words)
            assert 0 <= bench.kept([one.edit]).share <= 1


def test_a_model_without_mlps_has_no_proposal() -> None:
    subject = Subject.of(interp.build("algorithmic/max-of-k-exact", K=3, v=5))
    assert list(neurons(Bench(subject, sample(subject.task, 50)), Part(0))) == []
