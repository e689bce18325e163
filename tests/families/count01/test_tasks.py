"""Count01 against Definition 3.1, written down again here in plain Python."""

import re
from collections import Counter

import pytest
import torch
from cases import COUNT01
from hypothesis import given
from hypothesis import strategies as st

from interp.errors import InterpError
from interp.families.count01 import Count01
from interp.families.count01.tasks import EOS, EQUALS, FIVE, FOUR, CountBox
from interp.tasks import IGNORED, make_task

TASK = Count01()
SPLITS = {  # section 3: inclusive ranges of the numbers of 0s and 1s, and of 2s
    "train": ((0, 100), (0, 100)),
    "validation": ((101, 150), (0, 150)),
    "test": ((151, 200), (0, 200)),
}


def is_member(text: str) -> bool:
    """Definition 3.1, independently."""
    match = re.fullmatch(r"\[BOS\]([012]*)=([45])\[EOS\]", text)
    if match is None:
        return False
    counts = Counter(match[1])
    return match[2] == ("4" if counts["1"] > counts["0"] else "5")


@pytest.mark.parametrize(("body", "answer"), COUNT01.items())
def test_cases(body: str, answer: str) -> None:
    right = f"[BOS]{body}={answer}[EOS]"
    wrong = f"[BOS]{body}={'5' if answer == '4' else '4'}[EOS]"
    assert is_member(right), "the table itself is wrong"
    assert not is_member(wrong), "the table itself is wrong"
    assert TASK.is_member(right)
    assert not TASK.is_member(wrong)
    counts = TASK.counts(torch.tensor([TASK.parse(right)]))
    assert counts.tolist() == [[body.count(symbol) for symbol in "012"]]
    assert TASK.vocabulary[int(TASK.label_counts(counts))] == answer
    assert TASK.format(TASK.parse(right)) == right
    assert TASK.format(TASK.parse(f"[BOS] {' '.join(body)} =")) == f"[BOS]{body}="


@given(st.text(alphabet="012=45", max_size=12))
def test_membership_of_any_string(text: str) -> None:
    for whole in (text, f"[BOS]{text}", f"[BOS]{text}[EOS]"):
        assert TASK.is_member(whole) == is_member(whole)


@pytest.mark.parametrize(
    "text",
    ["[BOS]01=6[EOS]", "[BOS]01=4", "01=", "[BOS]01", "[BOS]0=1=5[EOS]", "[BOS]01=5[EOS][EOS]", "", "[EOS]", "hello"],
)
def test_what_is_no_sentence_is_refused(text: str) -> None:
    assert not TASK.is_member(text)
    with pytest.raises(InterpError):
        TASK.parse(text)


@pytest.mark.parametrize("split", SPLITS)
def test_samples_have_the_paper_s_ranges_and_are_sentences(split: str) -> None:
    (low, high), (low2, high2) = SPLITS[split]
    counts = TASK.sample_counts(20_000, split, seed=1)
    assert counts.min(0).values.tolist() == [low, low, low2]  # 20,000 draws meet every end of the range
    assert counts.max(0).values.tolist() == [high, high, high2]
    # Uniform and independent: the mean of each count within five standard errors, correlations within 0.05.
    middle = torch.tensor([low + high, low + high, low2 + high2]) / 2
    widths = torch.tensor([high - low + 1, high - low + 1, high2 - low2 + 1.0])
    assert ((counts.double().mean(0) - middle).abs() < 5 * widths / (12 * 20_000) ** 0.5).all()
    assert (torch.corrcoef(counts.T.double()) - torch.eye(3)).abs().max() < 0.05
    batch = TASK.sample(50, split, seed=1)
    for row, length, label in zip(batch.tokens, batch.lengths, batch.labels, strict=True):
        text = TASK.format(row[: int(length)])
        assert is_member(text)
        assert TASK.vocabulary[int(label)] in text
        assert (row[int(length) :] == EOS).all()


def test_orders_of_tokens_are_uniform() -> None:
    batch = TASK.sentences(torch.tensor([[1, 1, 1]]).expand(6000, -1), seed=3)
    seen = Counter(TASK.format(row[1:4]) for row in batch.tokens)
    assert len(seen) == 6
    assert all(abs(number - 1000) < 150 for number in seen.values())  # five standard deviations


def test_equal_arguments_give_equal_batches_and_others_do_not() -> None:
    state = torch.get_rng_state()
    first, again, other = TASK.sample(30, seed=4), TASK.sample(30, seed=4), TASK.sample(30, seed=5)
    assert first.tokens.equal(again.tokens)
    assert first.lengths.equal(again.lengths)
    assert not first.lengths.equal(other.lengths)
    assert torch.get_rng_state().equal(state)


def test_splits_share_no_numbers() -> None:
    """Validation and test have 50 values of n0 each: from one stream they would be each other, shifted."""
    validation, test = TASK.sample_counts(200, "validation")[:, 0] - 101, TASK.sample_counts(200, "test")[:, 0] - 151
    assert (validation == test).double().mean() < 0.15


def test_data_sets() -> None:
    assert {split: len(TASK.dataset_counts(split)) for split in TASK.splits} == {
        "train": 7000,
        "validation": 1500,
        "test": 1500,
    }
    assert TASK.counts(TASK.dataset("test").tokens).equal(TASK.dataset_counts("test"))
    assert not Count01(data_seed=1).dataset_counts("test").equal(TASK.dataset_counts("test"))


def test_domains() -> None:
    assert {split: len(TASK.domain(split)) for split in TASK.splits} == {
        "train": 101**3,
        "validation": 50 * 50 * 151,
        "test": 502_500,
    }


def test_boxes_enumerate_each_triple_once() -> None:
    box = CountBox((2, 4), (0, 1), (5, 8))
    wanted = {(a, b, c) for a in (2, 3, 4) for b in (0, 1) for c in (5, 6, 7, 8)}
    rows = [tuple(row) for start in range(0, 24, 7) for row in box.counts(start, start + 7).tolist()]
    assert len(rows) == len(box) == 24
    assert set(rows) == wanted
    assert rows == sorted(rows)


def test_classes_ask_for_the_answer_and_the_end() -> None:
    batch = TASK.sentences(torch.tensor([[1, 2, 0], [0, 0, 0], [3, 1, 2]]), seed=0)
    for row, length, wanted in zip(batch.tokens, batch.lengths, TASK.classes(batch), strict=True):
        at = row.tolist().index(EQUALS)
        assert at == int(length) - 3
        assert wanted[at] == row[at + 1]
        assert wanted[at + 1] == EOS
        assert (wanted != IGNORED).sum() == 2
    assert batch.labels.tolist() == [FOUR, FIVE, FIVE]


def test_masks_and_rows_of_batches() -> None:
    batch = TASK.sentences(torch.tensor([[1, 2, 0], [0, 0, 0]]))
    assert batch.attention_mask.sum(1).tolist() == [7, 4]
    assert len(batch) == 2
    assert batch[1:].lengths.tolist() == [4]
    assert batch[torch.tensor([1, 0])].labels.equal(batch.labels.flip(0))
    empty = TASK.sample(0)
    assert len(empty) == 0
    assert TASK.classes(empty).shape == empty.tokens.shape


@pytest.mark.parametrize(("call", "word"), [
    (lambda: TASK.sample(5, "tset"), "test"),
    (lambda: TASK.sample(5, seed=-1), "seed = -1"),
    (lambda: TASK.domain("all"), "all"),
    (lambda: CountBox((3, 2), (0, 1), (0, 1)), "3..2"),
    (lambda: TASK.token_id("3"), "'3'"),
    (lambda: Count01(n=3), "n"),
    (lambda: make_task("count1"), "count01"),
])  # fmt: skip
def test_bad_input_is_one_sentence(call, word: str) -> None:
    with pytest.raises(InterpError) as error:
        call()
    assert word in str(error.value)
    assert "\n" not in str(error.value)


def test_minimal_pairs_are_a_tie_and_one_1_for_a_0() -> None:
    """3, 5 and 2 become a tie of 3 with 4 noise tokens: as long as before. A row without a 0 cannot be one."""
    batch = TASK.sentences(torch.tensor([[3, 5, 2], [4, 4, 0], [7, 2, 1], [0, 3, 1]]), seed=2)
    pairs = TASK.corrupt(batch, seed=3)
    sides = [TASK.counts(side.tokens).tolist() for side in (pairs.clean, pairs.corrupted)]
    found = sorted(sorted(both) for both in zip(*sides, strict=True))
    assert found == [[[1, 3, 6], [2, 2, 6]], [[2, 4, 4], [3, 3, 4]], [[3, 5, 0], [4, 4, 0]]]
    assert not (pairs.clean.labels == pairs.corrupted.labels).any()
    assert ((pairs.clean.tokens != pairs.corrupted.tokens).sum(1) == 2).all()  # and the answer


def test_either_side_of_a_minimal_pair_is_clean_as_often() -> None:
    """Of 900 pairs half within four standard errors: who only looks at clean rows learns no answer from it."""
    pairs = TASK.corrupt(TASK.sentences(torch.tensor([[2, 2, 0]]).expand(900, -1)), seed=5)
    assert abs((pairs.clean.labels == FOUR).double().mean() - 0.5) < 4 * 0.5 / 30
