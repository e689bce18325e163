"""What tasks declare: labels of given rows, all inputs, features, minimal pairs; for each of our tasks."""

import itertools

import pytest
import torch

from interp.errors import UnsupportedError
from interp.families.count01 import Count01
from interp.families.histogram import Histogram
from interp.families.languages import Dyck1, First, One, Palindrome, Parity
from interp.families.memorization import Bigram, LookupTask
from interp.tasks import Batch, Task, structure

TASKS: list[Task] = [
    Count01(), Histogram(T=5, L=3), Histogram(T=5, L=3, bos=True), First(length=4), Parity(length=4, shortest=2),
    One(length=4), Palindrome(length=5), Dyck1(length=6), LookupTask(N=3, M=4, k=2), Bigram(N=5, M=4),
]  # fmt: skip


def test_what_every_task_has_is_declared_by_those_that_set_it() -> None:
    assert structure.lacks(Count01(), ("counted", "count_ranges", "label_counts")) is None
    assert structure.lacks(Parity(length=4), ("counted", "multisets")) == "task parity declares no counted, multisets"
    assert structure.lacks(Histogram(T=5, L=3), (("readout", "all"), "counted")) is None
    assert structure.lacks(Count01(), ("counted", ("readout", "all"))) == "task count01 declares no readout = 'all'"


@pytest.mark.parametrize("task", TASKS, ids=repr)
def test_given_rows_get_the_labels_of_samples(task: Task) -> None:
    batch = task.sample(40, "test", seed=3)
    again = task.batch(batch.tokens)
    assert again.labels.equal(batch.labels)
    assert again.lengths.equal(batch.lengths)


@pytest.mark.parametrize("task", [task for task in TASKS if task.n_inputs is not None], ids=repr)
def test_inputs_are_all_different_and_as_many_as_said(task: Task) -> None:
    parts = list(task.inputs(chunk=7))
    assert max(map(len, parts)) <= 7
    rows = [tuple(row) for part in parts for row in part.tokens.tolist()]
    assert len(set(rows)) == len(rows) == task.n_inputs
    for part in parts:
        assert task.batch(part.tokens).labels.equal(part.labels)


def test_the_deciding_place_of_a_long_string_is_changed() -> None:
    batch = First(length=1000).sample(6, "test", seed=0)
    pairs = First(length=1000).corrupt(batch, seed=0)
    assert len(pairs) == 6
    assert (pairs.clean.tokens != pairs.corrupted.tokens).nonzero()[:, 1].tolist() == [1] * 6


def test_inputs_against_itertools() -> None:
    found = [row for part in Histogram(T=3, L=2).inputs() for row in part.tokens.tolist()]
    assert found == [list(row) for row in itertools.product(range(3), repeat=2)]


@pytest.mark.parametrize("task", TASKS, ids=repr)
def test_minimal_pairs_have_other_answers(task: Task) -> None:
    pairs = task.corrupt(task.sample(60, "test", seed=1), seed=2)
    assert len(pairs) > 5
    for side in (pairs.clean, pairs.corrupted):
        task.check_input(side.tokens)
        assert task.batch(side.tokens).labels.equal(side.labels)
    assert (pairs.clean.labels != pairs.corrupted.labels).reshape(len(pairs), -1).any(1).all()
    here = pairs.clean.tokens != pairs.corrupted.tokens
    if isinstance(task, Count01):  # the answer stands in the text, after '='
        at = (pairs.clean.tokens == 4).int().argmax(1)
        here &= torch.arange(here.shape[1]) < at[:, None]
    assert (here.sum(1) == 1).all()


@pytest.mark.parametrize("task", TASKS, ids=repr)
def test_features_and_words_fit_the_batch(task: Task) -> None:
    batch = task.sample(9, "test", seed=0)
    for name, values in task.features(batch).items():
        assert values.shape in ((9,), batch.tokens.shape), name
    assert len(task.answer_words) == max(2, task.n_out)
    assert task.example is not None
    assert len(task.example) == 1
    assert task.describe.endswith((".", ")"))


def test_features_of_count01_by_hand() -> None:
    task = Count01()
    batch = task.batch(torch.tensor([task.parse("[BOS]0112="), task.parse("[BOS]0022=")]))
    assert batch.labels.tolist() == [5, 6]
    assert {name: values.tolist() for name, values in task.features(batch).items()} == {
        "answer": [5, 6],
        "n1 - n0": [1, -2],
        "n2": [1, 2],
    }
    assert task.counted == ("0", "1", "2")
    assert task.contrast == ("4", "5")


class Plain(Task):
    """Nothing declared."""

    name = "plain"
    vocabulary = ("a", "b")
    n_out = 2

    def sample(self, n: int, split: str = "test", seed: int = 0) -> Batch:
        tokens = torch.randint(0, 2, (n, 3), generator=torch.Generator().manual_seed(seed))
        return Batch(tokens, torch.full((n,), 3), tokens)


def test_defaults_say_what_to_define() -> None:
    task = Plain()
    batch = task.sample(4)
    assert task.n_inputs is None
    for asked in (lambda: task.batch(batch.tokens), lambda: task.inputs(), lambda: task.corrupt(batch)):
        with pytest.raises(UnsupportedError, match="define"):
            asked()
    assert list(task.features(batch)) == ["answer"]
    assert (task.answer_words, task.counted, task.contrast, dict(task.cyclic)) == (("a", "b"), (), None, {})
    assert task.describe == "Nothing declared."


@pytest.mark.parametrize("task", TASKS, ids=repr)
def test_no_split_repeats_the_draws_of_another_split_or_seed(task: Task) -> None:
    """A test row may be a train row where the domain is small, but the draws are not the same rows again."""
    drawn = [
        (seed, split, task.sample(60, split, seed=seed).tokens.tolist()) for seed in range(4) for split in task.splits
    ]
    for (*one, rows), (*other, others) in itertools.combinations(drawn, 2):
        assert rows != others, f"{one} and {other} are the same draw"
