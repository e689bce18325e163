"""The four classics: labels by hand and by brute force, whole domains, splits, and what each declares."""

import itertools
import math

import pytest
import torch

from interp.errors import InterpError
from interp.families.algorithmic import Induction, MaxOfK, ModularAddition
from interp.families.languages import Brackets
from interp.tasks import IGNORED, Task

MAX, ADD = MaxOfK(K=3, v=5), ModularAddition(p=7, share=0.4)
INDUCTION, BRACKETS = Induction(v=9, length=12, shortest=3, longest=7), Brackets(length=8)
TASKS = {task.name: task for task in (MAX, ADD, INDUCTION, BRACKETS)}


# ---------------------------------------------------------------- labels


@pytest.mark.parametrize(("task", "text", "label"), [
    (MAX, "3 1 4 =", 4), (MAX, "0 0 0 =", 0), (MAX, "2, 2, 1 =", 2),
    (ADD, "3 5 =", 1), (ADD, "0 0 =", 0), (ADD, "6 6=", 5),
    (INDUCTION, "[BOS] 7 2 8 7 2", [-1, -1, -1, -1, 2, 8]), (INDUCTION, "[BOS] 4 4 4", [-1, -1, 4, 4]),
    (INDUCTION, "[BOS] 1 2 1 3 1", [-1, -1, -1, 2, -1, 3]),
    (BRACKETS, "(())()", True), (BRACKETS, "())(()", False), (BRACKETS, "(((", False),
    (BRACKETS, "((((()))))", True),
])  # fmt: skip
def test_labels_by_hand(task: Task, text: str, label: object) -> None:
    assert task.batch(torch.tensor([task.parse(text)])).labels[0].tolist() == label


@pytest.mark.parametrize(
    ("task", "text"),
    [(MAX, "1 2 ="), (MAX, "1 2 3"), (MAX, "1 = 3 ="), (ADD, "1 2 3"), (INDUCTION, "1 2"), (INDUCTION, "[BOS] [BOS]")],
)
def test_rows_of_another_form_are_refused(task: Task, text: str) -> None:
    with pytest.raises(InterpError, match=f"task {task.name}: (it must be|give)"):
        task.parse(text)


def test_parameters_that_make_no_task_are_refused() -> None:
    for make in (
        lambda: MaxOfK(v=1), lambda: MaxOfK(K=0), lambda: ModularAddition(p=3, share=0.01),
        lambda: Induction(longest=40), lambda: Induction(shortest=9, longest=8),
    ):  # fmt: skip
        with pytest.raises(InterpError):
            make()


# ---------------------------------------------------------------- the whole domain


@pytest.mark.parametrize("task", [MAX, ADD, BRACKETS], ids=lambda task: task.name)
@pytest.mark.parametrize("chunk", [7, 4096])
def test_inputs_are_all_inputs_once_with_their_labels(task: Task, chunk: int) -> None:
    batches = list(task.inputs(chunk))
    assert all(len(batch) <= chunk for batch in batches)
    found = [task.format(row) for batch in batches for row in batch.tokens]
    labels = [label for batch in batches for label in batch.labels.tolist()]
    assert len(set(found)) == len(found) == task.n_inputs
    if task is BRACKETS:
        strings = ["".join(s) for n in range(1, 9) for s in itertools.product("()", repeat=n)]
        assert {text.replace("[CLS]", "").replace("[PAD]", "") for text in found} == set(strings)
        for text, label in zip(found, labels):
            left = text.replace("[CLS]", "").replace("[PAD]", "")
            while "()" in left:
                left = left.replace("()", "")
            assert label == (left == "")
    else:
        numbers = [tuple(map(int, text.split()[:-1])) for text in found]
        assert numbers == list(itertools.product(range(task.base), repeat=task.terms))
        assert labels == [max(row) if task is MAX else sum(row) % 7 for row in numbers]


def test_inputs_of_induction_are_all_strings_repeated() -> None:
    task = Induction(v=4, length=6, shortest=2, longest=3)
    rows = [row for batch in task.inputs(chunk=5) for row in batch.tokens[:, 1:].tolist()]
    strings = [s for n in (2, 3) for s in itertools.permutations(range(4), n)]
    assert rows == [[s[i % len(s)] for i in range(6)] for s in strings]
    assert task.n_inputs == 36


def test_multisets_stand_for_all_sequences() -> None:
    for task in (MAX, MaxOfK(K=4, v=6)):
        rows, orders = [], []
        for batch, weights in task.multisets(chunk=9):
            assert torch.equal(batch.labels, batch.tokens[:, :-1].amax(1))
            rows += [tuple(row) for row in batch.tokens[:, :-1].tolist()]
            orders += weights.tolist()
        assert len(rows) == len(set(rows)) == task.n_multisets
        assert sum(orders) == task.n_inputs
        assert orders == [len(set(itertools.permutations(row))) for row in rows]
    assert MaxOfK().n_multisets == math.comb(67, 4) == 766_480


# ---------------------------------------------------------------- samples


def test_both_parts_of_all_pairs_are_known() -> None:
    train, test = (ADD.dataset(split).tokens for split in ("train", "test"))
    assert len(train) == 20
    assert len({tuple(row) for row in torch.cat([train, test]).tolist()}) == 49 == len(train) + len(test)
    known = {tuple(row) for row in train.tolist()}
    assert {tuple(row) for row in ADD.sample(300, "train", seed=3).tokens.tolist()} == known
    assert not {tuple(row) for row in ADD.sample(300, "test", seed=3).tokens.tolist()} & known
    assert torch.equal(ADD.dataset("validation").tokens, test[:512])
    other = ModularAddition(data_seed=1, p=7, share=0.4).dataset("train").tokens
    assert {tuple(row) for row in other.tolist()} != known


def test_induction_rows_repeat_tokens_at_every_distance() -> None:
    batch = INDUCTION.sample(400, seed=1)
    distances = set()
    for row, labels in zip(batch.tokens.tolist(), batch.labels.tolist()):
        body = row[1:]
        period = next(n for n in range(1, 12) if body[n] == body[0])
        assert 3 <= period <= 7
        assert len(set(body[:period])) == period
        assert body == [body[i % period] for i in range(12)]
        assert labels == [-1] * (period + 1) + [body[(i + 1) % period] for i in range(period, 12)]
        distances.add(period)
    assert distances == {3, 4, 5, 6, 7}


def test_strings_of_brackets_are_near_the_language() -> None:
    batch = BRACKETS.sample(3000, "train", seed=0)
    features = BRACKETS.features(batch)
    assert set(batch.lengths.tolist()) == set(range(2, 10))
    assert 0.15 < float(batch.labels.double().mean()) < 0.35
    hard = (features["even"] == 1) & ~batch.labels  # as many ( as ), and not balanced
    assert 0.05 < float(hard.double().mean()) < 0.3
    balanced = {tuple(row) for row in batch.tokens[batch.labels].tolist()}
    assert len(balanced) == 1 + 2 + 5 + 14  # each of up to eight brackets: Catalan's numbers


@pytest.mark.parametrize("name", TASKS)
def test_equal_arguments_give_equal_samples_and_splits_differ(name: str) -> None:
    task = TASKS[name]
    first, again, other = task.sample(40, "test", 1), task.sample(40, "test", 1), task.sample(40, "train", 1)
    assert torch.equal(first.tokens, again.tokens)
    assert first.tokens.shape != other.tokens.shape or not torch.equal(first.tokens, other.tokens)
    assert torch.equal(task.batch(first.tokens).labels, first.labels)


# ---------------------------------------------------------------- what a task declares


@pytest.mark.parametrize("name", TASKS)
def test_classes_and_answers_are_inverse(name: str) -> None:
    task = TASKS[name]
    batch = task.sample(30)
    classes = task.classes(batch)
    read = classes if task.readout == "all" else classes[classes != IGNORED]
    assert torch.equal(task.answers(read.clamp(min=0), batch.tokens), batch.labels)
    assert len(task.answer_words) == max(2, task.n_out)


@pytest.mark.parametrize("name", TASKS)
def test_features_have_one_value_a_row_or_a_position(name: str) -> None:
    task = TASKS[name]
    batch = task.sample(30)
    for values in task.features(batch).values():
        assert values.shape in ((30,), tuple(batch.tokens.shape))


@pytest.mark.parametrize("name", TASKS)
def test_a_corrupted_row_is_one_change_and_another_answer_away(name: str) -> None:
    task = TASKS[name]
    pairs = task.corrupt(task.sample(30), seed=2)
    assert len(pairs) > (20 if name != "brackets" else 7)  # few strings that are not balanced are one bracket from it
    changes = 2 if name == "induction" else 1  # two tokens change places
    assert ((pairs.clean.tokens != pairs.corrupted.tokens).sum(1) == changes).all()
    for side in (pairs.clean, pairs.corrupted):
        assert torch.equal(task.batch(side.tokens).labels, side.labels)
    assert (pairs.clean.labels != pairs.corrupted.labels).reshape(len(pairs), -1).any(1).all()


def test_induction_pairs_exchange_two_tokens_of_the_first_copy() -> None:
    pairs = INDUCTION.corrupt(INDUCTION.sample(200), seed=3)
    before = after = 0
    for clean, corrupted in zip(pairs.clean.tokens.tolist(), pairs.corrupted.tokens.tolist()):
        a, b = (i for i in range(len(clean)) if clean[i] != corrupted[i])
        assert (clean[a], clean[b]) == (corrupted[b], corrupted[a])
        assert b < clean.index(clean[1], 2)  # where the second copy begins
        again = [i for i in range(b + 1, len(clean) - 1) if clean[i] in (clean[a], clean[b])]
        before += bool(again)  # a token that is asked about stood elsewhere
        after += any(clean[i + 1] in (clean[a], clean[b]) for i in range(b + 1, len(clean) - 1))
    assert min(before, after) > len(pairs) / 2


def test_features_by_hand() -> None:
    found = MAX.features(MAX.batch(torch.tensor([[4, 1, 4, 5], [0, 3, 2, 5]])))
    assert found["second"].tolist() == [4, 2]
    assert found["times"].tolist() == [2, 1]
    assert found["is_largest"].tolist() == [[1, 0, 1, 0], [0, 1, 0, 0]]
    assert ADD.features(ADD.batch(torch.tensor([[3, 4, 7], [3, 3, 7]])))["carries"].tolist() == [1, 0]
    assert ADD.cyclic == {"residues": tuple("0123456")}
    found = INDUCTION.features(INDUCTION.batch(torch.tensor([[9, 7, 2, 7]])))
    assert found["distance"].tolist() == [[-1, -1, -1, 2]]
    assert found["previous"].tolist() == [[-1, 9, 7, 2]]
    found = BRACKETS.features(BRACKETS.encode(["())(", "(()"]))
    assert found["height"].tolist() == [[0, 1, 0, -1, 0], [0, 1, 2, 1, 1]]
    assert (found["even"].tolist(), found["never_below"].tolist()) == ([1, 0], [0, 1])
