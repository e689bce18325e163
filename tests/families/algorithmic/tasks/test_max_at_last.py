"""Maximum of K numbers, read at the last one."""

from itertools import product

import pytest
import torch

from interp.errors import InterpError
from interp.families.algorithmic import MaxAtLast
from interp.tasks.structure import check_products, declared_products


def test_every_input_has_its_maximum() -> None:
    task = MaxAtLast(K=3, v=4)
    rows = [row for batch in task.inputs(10) for row in zip(batch.tokens.tolist(), batch.labels.tolist())]
    assert rows == [(list(numbers), max(numbers)) for numbers in product(range(4), repeat=3)]
    assert (task.n_inputs, task.n_out, task.d_vocab, task.readout) == (64, 4, 4, "last")


def test_the_answer_is_read_at_the_last_number() -> None:
    task = MaxAtLast(K=3, v=4)
    assert task.classes(task.of_numbers(torch.tensor([[3, 0, 1]]))).tolist() == [[-100, -100, 3]]
    assert task.format(torch.tensor(task.parse("3, 0, 1"))) == "3 0 1"


def test_products_are_the_inputs() -> None:
    task = MaxAtLast(K=3, v=4)
    assert check_products(task, declared_products(task)) == ()
    assert sum(part.n_inputs for part in declared_products(task)) == 64


def test_samples_are_uniform_and_seeded() -> None:
    task = MaxAtLast(K=4, v=5)
    rows = task.sample(5000, seed=1).tokens
    assert torch.equal(rows, task.sample(5000, seed=1).tokens)
    assert rows.double().mean(0).tolist() == pytest.approx([2.0] * 4, abs=0.1)


def test_features() -> None:
    task = MaxAtLast(K=4, v=6)
    found = task.features(task.of_numbers(torch.tensor([[1, 5, 5, 2]])))
    assert {name: value.tolist() for name, value in found.items()} == {
        "answer": [5], "last": [2], "second": [5], "times": [2], "is_largest": [[0, 1, 1, 0]]
    }  # fmt: skip


@pytest.mark.parametrize("tokens", [[[1, 2, 4]], [[1, 2]], [[-1, 0, 0]]])
def test_what_is_no_input_is_refused(tokens: list[list[int]]) -> None:
    with pytest.raises(InterpError, match=r"(give|must be) 3 numbers below 4"):
        MaxAtLast(K=3, v=4).batch(torch.tensor(tokens))
