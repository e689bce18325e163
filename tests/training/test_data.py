"""What an epoch passes over: drawn anew, and in another order, for every seed and every epoch."""

from __future__ import annotations

from itertools import combinations

import torch

from interp.spec import Layer, ModelSpec, TaskRef, Training
from interp.tasks import make_task
from interp.training.data import epoch_order, fresh_epoch

SPEC = ModelSpec(
    task=TaskRef(name="histogram", parameters={"T": 6, "L": 5}), d_model=4, layers=(Layer(d_head=4),),
    origin=Training(epochs=2, batch_size=5, data="fresh", samples_per_epoch=12),
)  # fmt: skip
RUNS = [(0, 1), (0, 2), (1, 1), (1, 2)]
"""Seeds and epochs."""


def test_every_seed_and_epoch_has_an_order_of_its_own() -> None:
    orders = [epoch_order(SPEC, 30, seed, epoch) for seed, epoch in RUNS]
    assert all(order.sort().values.equal(torch.arange(30)) for order in orders)
    assert not any(one.equal(other) for one, other in combinations(orders, 2))
    assert orders[0].equal(epoch_order(SPEC, 30, 0, 1))


def test_every_seed_and_epoch_has_examples_of_its_own() -> None:
    task = make_task(SPEC.task)
    drawn = [fresh_epoch(SPEC, task, seed, epoch).tokens for seed, epoch in RUNS]
    assert all(len(tokens) == 12 for tokens in drawn)
    assert not any(one.equal(other) for one, other in combinations(drawn, 2))
    assert drawn[0].equal(fresh_epoch(SPEC, task, 0, 1).tokens)
