"""The histogram task: labels, samplers with their exact distribution, enumeration, bad input."""

import itertools
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
import torch

import interp
from interp.families.histogram import Histogram, tasks
from interp.tasks import IGNORED


def exact_by_recursion(sampler, L):
    """The expected share of each count, by walking every way in which blocks can be drawn."""
    shares = Counter()

    def walk(left, probability):
        if left == 0:
            return
        last = left - 1 if sampler == "published" and left > 1 else left
        for k in range(1, last + 1):
            shares[k] += probability / last * Fraction(k, L)
            walk(left - k, probability / last)

    walk(L, Fraction(1))
    return {k: shares[k] for k in range(1, L + 1)}


@pytest.mark.parametrize("sampler", ["published", "paper"])
@pytest.mark.parametrize("L", [1, 2, 5, 10])
def test_the_stated_distribution(sampler, L):
    expected = exact_by_recursion(sampler, L)
    assert tasks.count_distribution(sampler, L) == expected
    if L > 2:
        flat = Fraction(1, L)
        assert expected == (
            dict.fromkeys(range(1, L + 1), flat)
            if sampler == "paper"
            else {k: 2 * flat if k == 1 else flat if k < L else Fraction(0) for k in range(1, L + 1)}
        )


@pytest.mark.parametrize("sampler", ["published", "paper"])
@pytest.mark.parametrize(("T", "L"), [(32, 10), (5, 5), (7, 1)])
def test_samples_follow_it(sampler, T, L):
    task, n = Histogram(T=T, L=L, sampler=sampler), 20_000
    batch = task.sample(n, seed=3)
    assert batch.tokens.shape == (n, L)
    for count, share in exact_by_recursion(sampler, L).items():
        per_row = (batch.labels == count).double().mean(1)
        error = 5 * float(per_row.std()) / math.sqrt(n)  # rows are independent, positions of a row are not
        assert abs(float(per_row.mean()) - float(share)) <= error + 1e-12, count
    used = torch.bincount(batch.tokens.flatten(), minlength=T) / batch.tokens.numel()
    assert (used - 1 / T).abs().max() < 0.02
    where = (batch.tokens == batch.tokens[:, :1]).double().mean(0)[1:]  # every place is alike: the rows are shuffled
    assert L == 1 or float(where.max() - where.min()) < 0.03


def test_equal_arguments_give_equal_batches_and_splits_differ():
    task = Histogram()
    assert task.sample(50, seed=1).tokens.equal(task.sample(50, seed=1).tokens)
    assert not task.sample(50, seed=1).tokens.equal(task.sample(50, seed=2).tokens)
    assert not task.sample(50, "train", seed=1).tokens.equal(task.sample(50, "test", seed=1).tokens)
    assert len(task.sample(0)) == 0


@pytest.mark.parametrize("bos", [False, True])
@pytest.mark.parametrize("zero_class", [False, True])
def test_labels_classes_and_answers(bos, zero_class):
    task = Histogram(T=6, L=6, bos=bos, zero_class=zero_class)
    tokens = torch.tensor([task.parse("[BOS] " * bos + "1 2 4 4 2 2")])
    counts = [-1] * bos + [1, 3, 2, 2, 3, 3]
    assert task.counts(tokens).tolist() == [counts]
    batch = task.of_sequences(tokens[:, int(bos) :])
    assert batch.tokens.equal(tokens)
    assert batch.labels.tolist() == [counts]
    classes = task.classes(batch)
    assert classes.tolist() == [[IGNORED if c < 0 else c - (not zero_class) for c in counts]]
    assert task.answers(classes.clamp(min=0), tokens).tolist() == [counts]
    assert task.n_out == 6 + zero_class
    assert task.d_vocab == 6 + bos
    assert task.parse(task.format(tokens[0])) == tokens[0].tolist()


@pytest.mark.parametrize("sampler", ["published", "paper"])
def test_labels_of_samples(sampler):
    batch = Histogram(T=12, L=9, sampler=sampler, bos=True).sample(100)
    for row, labels in zip(batch.tokens.tolist(), batch.labels.tolist()):
        assert labels == [-1] + [row.count(token) for token in row[1:]]
        assert row[0] == 12
    if sampler == "published":
        assert int(batch.labels.max()) <= 8


def test_enumeration():
    task = Histogram(T=4, L=3)
    rows = [tuple(row) for row in next(task.inputs(chunk=task.n_inputs)).tokens.tolist()]
    assert rows == list(itertools.product(range(4), repeat=3))
    assert Histogram(T=32, L=5).n_inputs == 32**5


@pytest.mark.parametrize(("arguments", "message"), [
    ({"T": 0}, "T = 0 must be an integer of at least 1"),
    ({"L": 0}, "L = 0 must be"),
    ({"sampler": "papr"}, "did you mean 'paper'"),
    ({"bos": 1}, "bos = 1 must be a bool"),
])  # fmt: skip
def test_bad_parameters(arguments, message):
    with pytest.raises(interp.InterpError, match=message):
        Histogram(**arguments)


def test_bad_input():
    with pytest.raises(interp.InterpError, match="L = 5 tokens need an alphabet of T >= 5, not T = 4"):
        Histogram(T=4, L=5).sample(1)
    task = Histogram(T=4, L=3, bos=True)
    task.check_input(torch.tensor([[4, 0, 1, 1]]))
    for rows, message in [
        ([[4, 0, 5, 1]], "ids run from 0 to 5; .* T = 4 tokens and \\[BOS\\] has ids 0 to 4"),
        ([[4, 0, -1, 1]], "ids run from -1"),
        ([[4, 0, 1, 1], [0, 1, 2, 3]], "row 1 begins with token 0, not with \\[BOS\\] \\(id 4\\)"),
        ([[4, 0, 4, 1]], "row 0 has a \\[BOS\\] \\(id 4\\) after its first position"),
    ]:
        with pytest.raises(interp.InterpError, match=message):
            task.check_input(torch.tensor(rows))
    with pytest.raises(interp.InterpError, match="no sequence"):
        task.check_input(torch.zeros(1, 0, dtype=torch.long))
    with pytest.raises(interp.InterpError, match="token of task histogram '7'"):
        task.parse("[BOS] 1 7")
    short = Histogram(T=4, L=2)
    with pytest.raises(interp.InterpError, match="a count of 3 has no class"):
        short.classes(interp.Batch(torch.tensor([[1, 1, 1]]), torch.tensor([3]), torch.tensor([[3, 3, 3]])))


def test_the_task_is_known_by_name():
    assert interp.list_tasks().set_index("name").loc["histogram", "family"] == "histogram"
    assert dict(Histogram(T=8, bos=True).ref.parameters) == {"T": 8, "bos": True}
    assert np.isclose(float(sum(tasks.count_distribution("published", 10).values())), 1)
