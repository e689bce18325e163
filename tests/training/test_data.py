"""What an epoch passes over: drawn anew, and in another order, for every seed and every epoch."""

from itertools import combinations

import torch

from interp.families.languages import Parity
from interp.models.spec import Layer, ModelSpec, TaskRef, Training
from interp.tasks import make_task
from interp.training.data import epoch_order, fresh_epoch, validation_set

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


def test_splits_of_other_names_are_the_first_and_the_last() -> None:
    class Renamed(Parity):
        name, splits = "data-test-renamed", ("seen", "unseen")

    task, plain = Renamed(length=9), Parity(length=9)
    spec = SPEC.replace(task=task.ref)
    assert task.sample(5, "seen", seed=3).tokens.equal(plain.sample(5, "train", seed=3).tokens)
    assert fresh_epoch(spec, task, 0, 1).tokens.shape == (12, 10)
    assert validation_set(task).tokens.equal(plain.sample(1000, "test", seed=0).tokens)
