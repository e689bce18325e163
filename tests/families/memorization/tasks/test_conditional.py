"""What all memorization tasks share: contexts, labels, samples, sequences, text."""

from collections import Counter

import numpy as np
import pytest
import torch

from interp.errors import InterpError
from interp.families.memorization import kgram, lookup, table
from interp.tasks import IGNORED, make_task

SMALL = kgram(N=3, M=3, k=2, concentration=0.5, prior="stationary", seed=4)


def test_every_context_once_with_its_most_likely_next_token() -> None:
    batch = SMALL.all_contexts()
    assert batch.tokens.tolist() == [[a, b] for a in range(3) for b in range(3)]
    assert batch.labels.tolist() == [max(range(3), key=lambda o: row[o]) for row in SMALL.conditional.tolist()]
    classes = SMALL.classes(batch)
    assert (classes[:, 0] == IGNORED).all()
    assert classes[:, 1].equal(batch.labels)
    assert SMALL.answers(batch.labels, batch.tokens).equal(batch.labels)


def test_the_context_of_a_row_is_its_last_tokens() -> None:
    rows = torch.tensor([[2, 2, 0, 1], [0, 0, 2, 2]])
    assert SMALL.context_index(rows).tolist() == [1, 8]
    assert SMALL.batch(rows).labels.equal(SMALL.targets[[1, 8]])
    odd = table([[0.2, 0.8], [0.9, 0.1]], contexts=[(4, 1), (0, 3)])  # contexts in no order, most of them missing
    assert odd.context_index(torch.tensor([[0, 3], [4, 1]])).tolist() == [1, 0]
    assert (odd.d_vocab, odd.n_out, odd.order) == (5, 2, 2)
    for tokens, word in (([[3, 0]], "'3 0'"), ([[1]], "rows of 1 tokens")):
        with pytest.raises(InterpError, match=word):
            odd.check_input(torch.tensor(tokens))


def test_samples_follow_prior_and_table() -> None:
    task = kgram(N=2, M=3, k=2, concentration=1.0, prior="zipf", seed=1)
    n = 40_000
    batch = task.sample(n, "train", seed=3)
    seen = Counter(zip(map(tuple, batch.tokens.tolist()), batch.labels.tolist()))
    for row, context in enumerate(task.contexts):
        for output in range(3):
            expected = task.prior[row] * task.conditional[row, output]
            spread = np.sqrt(expected * (1 - expected) / n)
            assert abs(seen[context, output] / n - expected) < 5 * spread
    again = task.sample(n, "train", seed=3)
    assert again.tokens.equal(batch.tokens)
    assert again.labels.equal(batch.labels)
    tests = task.sample(500, "test", seed=3)
    assert tests.labels.equal(task.targets[task.context_index(tests.tokens)])
    assert len(task.sample(0)) == 0


def test_impossible_tokens_are_never_drawn() -> None:
    task = lookup(N=3, M=5, k=1, seed=2)
    batch = task.sample(2000, "train")
    assert batch.labels.equal(task.targets[task.context_index(batch.tokens)])


def test_the_training_sample_is_fixed() -> None:
    one, other = lookup(N=4, M=4, seed=0), lookup(N=4, M=4, seed=1)
    assert len(one.dataset("train")) == 16_384
    assert one.dataset("train").tokens.equal(make_task(one.ref).dataset("train").tokens)
    assert not one.dataset("train").tokens.equal(other.dataset("train").tokens)
    with pytest.raises(InterpError, match="all_contexts"):
        one.dataset("test")


def test_sequences_follow_the_chain() -> None:
    n, length = 20_000, 6
    tokens = SMALL.sequences(n, length, seed=0).numpy()
    # Stationary: the context before every token has the prior, and the token after it the table's distribution.
    for end in (2, 4, length):
        rows = tokens[:, end - 2] * 3 + tokens[:, end - 1]
        found = np.bincount(rows, minlength=9) / n
        assert np.abs(found - SMALL.prior).max() < 5 * np.sqrt(0.25 / n)
    rows = tokens[:, 2] * 3 + tokens[:, 3]
    row = int(SMALL.prior.argmax())
    after = tokens[rows == row, 4]
    found = np.bincount(after, minlength=3) / len(after)
    assert np.abs(found - SMALL.conditional[row]).max() < 5 * np.sqrt(0.25 / len(after))


@pytest.mark.parametrize(("task", "length", "word"), [
    (kgram(N=3, M=4, k=1), 5, "4 outputs"),
    (table(np.eye(2) * 0.8 + 0.1, contexts=[(0, 1), (1, 0)]), 5, "2 contexts"),
])  # fmt: skip
def test_sequences_that_cannot_be_drawn(task, length, word) -> None:
    with pytest.raises(InterpError, match=word):
        task.sequences(3, length)


def test_text() -> None:
    task = kgram(N=20, M=5, k=1)
    assert task.parse("3, 17 0") == [3, 17, 0]
    assert task.format([3, 17]) == "3 17"
    with pytest.raises(InterpError, match="'20'"):
        task.parse("20")


def test_splits_of_one_seed_are_different_draws() -> None:
    task = kgram(N=6, M=5)
    train, test = (task.sample(200, split, seed=1).tokens for split in ("train", "test"))
    assert not torch.equal(train, test)
    assert not torch.equal(test, task.sample(200, "test", seed=2).tokens)
