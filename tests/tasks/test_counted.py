"""Tasks of three counted tokens: shapes that are taken from declarations, and declarations that are not true."""

import re
from dataclasses import replace
from typing import Any

import pytest
import torch
from majority import Majority

import interp
from interp.errors import InterpError, UnsupportedError
from interp.families.count01 import Count01
from interp.families.count01.tasks import BOS, EOS, EQUALS, FIVE, FOUR, ONE, TWO, ZERO
from interp.tasks import Batch, counted
from interp.tasks.counted import CountBox, Sentences, check_box, count_box, sentences, shape_of


def test_the_shape_of_count01_is_that_of_its_definition() -> None:
    shape = shape_of(Count01())
    assert (shape.counted, shape.answers, shape.query) == ((ZERO, ONE, TWO), (FOUR, FIVE), EQUALS)
    assert shape.marks.nonzero()[:, 0].tolist() == [BOS, EQUALS]
    assert shape.after == ((FOUR, FIVE), EOS)
    query, keys, right = shape.end_rows(torch.tensor([[3, 4, 5], [2, 2, 0]]))
    assert query.tolist() == [FOUR, FIVE]
    assert keys.tolist() == [[1, 3, 4, 5, 1, 1, 0, 0], [1, 2, 2, 0, 1, 0, 1, 0]]
    assert right.tolist() == [EOS, EOS]


def test_a_task_that_only_declares() -> None:
    task = Majority()
    shape = shape_of(task)
    assert (shape.counted, shape.answers, shape.query, shape.after) == ((1, 0, 2), (1, 0), 4, None)
    query, keys, right = shape.answer_rows(torch.tensor([[2, 3, 1], [2, 2, 0]]))
    assert (query.tolist(), right.tolist()) == ([4, 4], [1, 0])
    assert keys.tolist() == [[3, 2, 1, 1, 1, 0], [2, 2, 0, 1, 1, 0]]
    box = count_box(task)
    assert (str(box), len(box)) == ("count of 'b' in 0..4, count of 'a' in 1..5, count of '.' in 0..2", 75)
    assert str(count_box(Count01())) == "n0 in 151..200, n1 in 151..200, n2 in 0..200"  # of '0', '1' and '2'
    written = sentences(task, box.counts())
    assert written.labels.tolist() == [int(n1 > n0) for n0, n1, _ in box.counts().tolist()]
    with pytest.raises(UnsupportedError, match="nothing is read after the answer"):
        shape.end_rows(box.counts())
    with pytest.raises(InterpError, match="unknown split of task counted-test-majority 'tets'"):
        count_box(task, "tets")


def test_a_certificate_names_the_counts_after_the_tokens() -> None:
    """Untrained weights answer "yes" or "no" whatever the counts, so at least one input is wrong."""
    interp.register_task(Majority)
    spec = interp.ModelSpec(task=Majority().ref, d_model=4, readout_at="?", layers=(interp.Layer(n_heads=1, d_head=4),))
    found = interp.certify(interp.build(spec), box=CountBox((0, 2), (0, 2), (0, 1)))
    assert found.domain == "count of 'b' in 0..2, count of 'a' in 0..2, count of '.' in 0..1"
    assert re.fullmatch(r"count of 'b' = \d, count of 'a' = \d, count of '\.' = \d", found.counterexample or "")
    assert found.tables["frontier"].columns[0] == "count of '.'"


@pytest.mark.parametrize(("changes", "sentence"), [
    ({"counted": ("b", "a")}, "does not declare three counted tokens"),
    ({"contrast": None}, "does not declare"),
    ({"count_ranges": {}}, "does not declare"),
    ({"contrast": ("no", "yes")}, "labels .* otherwise"),
    ({"counted": ("b", ".", "a")}, "labels .* otherwise"),
    ({"readout": "all"}, "is read at 'all'"),
    ({"example": None}, "gives no example"),
])  # fmt: skip
def test_declarations_that_are_missing_or_not_true(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UnsupportedError, match=sentence):
        shape_of(type("Changed", (Majority,), changes)())


@pytest.mark.parametrize(
    ("ends", "sentence"),
    [((0, 10**7), "more than the limit of 68,719,476,736"), ((0, 2**64), "more than"),
     ((True, True), "give two integers"), ((3, 1), "0 <= low <= high")],
)  # fmt: skip
def test_boxes_of_no_integers_or_of_too_many_inputs(ends: Any, sentence: str) -> None:
    with pytest.raises(InterpError, match=sentence):
        CountBox(ends, ends, ends)


def test_every_label_of_a_box_is_compared() -> None:
    class OneOff(Count01):
        name = "counted-test-one-off"

        @staticmethod
        def label_counts(counts: torch.Tensor) -> torch.Tensor:
            labels = Count01.label_counts(counts)
            return torch.where((counts == torch.tensor([160, 199, 7])).all(-1), FIVE, labels)

    task = OneOff()
    with pytest.raises(InterpError, match=r"labels counts \[160, 199, 7\] otherwise"):
        check_box(task, shape_of(task), count_box(task))
    check_box(task, shape_of(task), CountBox((0, 9), (0, 9), (0, 9)))


def test_without_label_counts_every_count_of_a_box_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    class Rare(Majority):
        """More a than b? But not where 3 a stand against 2 b without noise."""

        name = "counted-test-rare"

        def batch(self, tokens: torch.Tensor) -> Batch:
            numbers = torch.stack([(tokens == token).sum(1) for token in (1, 0, 2)], 1)
            rare = (numbers == torch.tensor([2, 3, 0])).all(1)
            right = super().batch(tokens)
            return Batch(tokens, right.lengths, right.labels.masked_fill(rare, 0))

    def sampled(box: CountBox) -> torch.Tensor:
        return torch.tensor([[4, 5, 2], [0, 1, 0]])

    monkeypatch.setattr(counted, "_probe_counts", sampled)  # a sample that does not tell
    task, box = Rare(), count_box(Rare())
    shape = shape_of(task)
    with pytest.raises(InterpError, match=r"labels .* otherwise than its counted tokens and contrast declare"):
        check_box(task, shape, box)
    monkeypatch.undo()
    assert check_box(Majority(), shape_of(Majority()), box)[0].startswith("labels: compared on 75 inputs; unchecked")
    monkeypatch.setattr(Sentences, "listed", 1)
    assert check_box(Majority(), shape_of(Majority()), box)[0].startswith("labels: compared on 192 inputs; unchecked")
    assert check_box(Count01(), shape_of(Count01()), CountBox((0, 3), (0, 3), (0, 3))) == ()


def flipped(self: Majority, tokens: torch.Tensor) -> Batch:
    found = Majority.batch(self, tokens)
    return replace(found, labels=1 - found.labels)


def ordered(self: Majority, tokens: torch.Tensor) -> Batch:
    """An answer is no where the row's first counted token is an a."""
    found = Majority.batch(self, tokens)
    return replace(found, labels=torch.where(tokens[:, 1] == 0, 0, found.labels))


def twice_marked(self: Majority, n: int, split: str = "test", seed: int = 0) -> Batch:
    tokens = Majority.sample(self, n, split, seed).tokens
    return self.batch(torch.cat([tokens[:, :1], tokens], 1))


def many(self: Majority, n: int, split: str = "test", seed: int = 0) -> Batch:
    return sentences(self, torch.full((n, 3), 9), seed)


@pytest.mark.parametrize(("changes", "sentence"), [
    ({"sample": twice_marked}, r"samples '\^\^.*' in split 'test', but does not list it"),
    ({"sample": many}, "samples .* but does not list it"),
    ({"batch": flipped}, "labels .* otherwise"),
    ({"batch": ordered}, "labels .* otherwise"),
])  # fmt: skip
def test_inputs_and_labels_that_the_declarations_do_not_describe(changes: dict[str, Any], sentence: str) -> None:
    """Each was certified on every count of the box."""
    task = type("Other", (Majority,), {**changes, "name": "counted-test-other", "__doc__": Majority.__doc__})()
    with pytest.raises(InterpError, match=sentence):
        check_box(task, shape_of(task), count_box(task))


def test_label_counts_too_is_compared_with_the_labels() -> None:
    class Rare(Majority):
        """More a than b? But not where 3 a stand against 2 b without noise, which label_counts does not say."""

        name = "counted-test-says"

        def label_counts(self, counts: torch.Tensor) -> torch.Tensor:
            return (counts[..., 1] > counts[..., 0]).long()

        def batch(self, tokens: torch.Tensor) -> Batch:
            numbers = torch.stack([(tokens == token).sum(1) for token in (1, 0, 2)], 1)
            right = super().batch(tokens)
            return replace(right, labels=right.labels.masked_fill((numbers == torch.tensor([2, 3, 0])).all(1), 0))

    task = Rare()
    with pytest.raises(InterpError, match=r"labels .* otherwise than its counted tokens and contrast declare"):
        check_box(task, shape_of(Majority()), count_box(task))
