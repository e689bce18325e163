"""What a task lists as its inputs: each lie of a small task is told in one sentence; honest ones pass as they are."""

from collections.abc import Iterator
from itertools import count, permutations
from typing import Any

import pytest
import torch
from majority import MoreB
from torch import Tensor

import interp
from interp.errors import InterpError, UnsupportedError
from interp.families.algorithmic import MaxOfK
from interp.families.languages import Parity
from interp.models.subject import Subject
from interp.tasks import Batch, Task, domain, register_task
from interp.tasks.domain import every_input

WORDS = MoreB.words


class Five(MoreB):
    """Are there more b than a among five?"""

    name = "domain-test-five"
    listed = WORDS

    def inputs(self, chunk: int = 4096) -> Iterator[Batch]:
        for part in self.listed.split(chunk):
            yield self.batch(part)


def above_its_batch(tokens: Tensor) -> Tensor:
    often = (tokens == 1).sum(1).double()
    return (often > often.mean()).long()


CALLS = count()


def other_each_time(tokens: Tensor) -> Tensor:
    return (tokens[:, 0] + next(CALLS)) % 2


LIES: dict[str, tuple[dict[str, Any], str]] = {
    "twice": ({"listed": WORDS[16:].repeat(2, 1)}, "lists '[ab]{5}[?]' more than once"),
    "fewer": ({"listed": WORDS[:31]}, "lists 31 inputs, but its n_inputs is 32"),
    "more": ({"n_inputs": 31}, "lists 32 inputs, but its n_inputs is 31"),
    "some": ({"listed": WORDS[16:], "n_inputs": 16}, "samples 'a[ab]{4}[?]' in split 'test', but does not list it"),
    "none": ({"n_inputs": 0}, "lists 7 inputs, but its n_inputs is 0"),
    "outside": ({"listed": WORDS + 1}, "has token ids outside 0 to 2"),
    "batch": ({"label": staticmethod(above_its_batch)}, "in two ways, [01] and [01]: a label must be a function"),
    "random": ({"label": staticmethod(other_each_time)}, "in two ways|gives another batch each time"),
}


def told(changes: dict[str, Any]) -> Task:
    return type("Lying", (Five,), {**changes, "__doc__": Five.__doc__})()


@pytest.mark.parametrize("lie", LIES)
def test_a_task_that_misstates_its_inputs_is_refused(lie: str) -> None:
    changes, sentence = LIES[lie]
    with pytest.raises(InterpError, match=sentence):
        list(every_input(told(changes), 7))


def little_endian() -> Tensor:
    return torch.nn.functional.pad(torch.arange(32)[:, None] // 2 ** torch.arange(5) % 2, (0, 1), value=2)


@pytest.mark.parametrize("listed", [WORDS, little_endian(), WORDS[torch.randperm(32)]], ids=["left", "right", "none"])
def test_every_input_is_passed_on_in_any_order(listed: Tensor) -> None:
    task = told({"listed": listed})
    for chunk in (1, 5, 32):
        assert torch.cat([batch.tokens for batch in every_input(task, chunk)]).equal(listed)


def test_where_rows_cannot_be_remembered_an_order_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(domain, "REMEMBERED", 32 * 6 - 1)
    for listed in (WORDS, little_endian()):
        assert len(list(every_input(told({"listed": listed})))) == 1
    for listed in (WORDS.roll(1, 0), torch.cat([WORDS[1:], WORDS[:1]])):
        with pytest.raises(UnsupportedError, match="list them in lexicographic order"):
            list(every_input(told({"listed": listed}), 8))


def test_rows_of_several_lengths_are_told_apart() -> None:
    """Those of a language, padded: 0 and 00 are two strings; each again is found, wherever it stands."""
    assert sum(map(len, every_input(Parity(length=3, shortest=1), 4))) == 14


def test_max_of_k_in_all_orders_of_its_chunks() -> None:
    class Shuffled(MaxOfK):
        name = "domain-test-shuffled"
        order: tuple[int, ...] = ()

        def inputs(self, chunk: int = 4096) -> Iterator[Batch]:
            parts = list(super().inputs(2))
            yield from (parts[place] for place in self.order)

    task = Shuffled(K=2, v=2)
    for order in permutations(range(2)):
        task.order = order
        assert sum(map(len, every_input(task))) == 4
    task.order = (1, 1)
    with pytest.raises(InterpError, match="more than once"):
        list(every_input(task))


def test_tokens_outside_the_vocabulary_are_refused_everywhere() -> None:
    """Counts of tokens do not see an unknown one: it was answered as if it were not there."""
    model = interp.build("algorithmic/max-of-k-exact", K=2, v=3)
    tokens = torch.tensor([[9, 1, 3]])
    for look in (model.read, lambda tokens: Subject.of(model).logits(Batch(tokens, torch.tensor([3]), tokens[:, 1]))):
        with pytest.raises(InterpError, match="token ids run from 1 to 9; task max-of-k has ids 0 to 3"):
            look(tokens)


@pytest.mark.parametrize("lie", ["twice", "batch", "outside"])
def test_no_certificate_report_or_accuracy_rests_on_a_lie(lie: str) -> None:
    """A model that counts b answered 32 times, and was certified and exact on all 32 of them."""
    kind = type("Lying", (Five,), {**LIES[lie][0], "name": f"domain-test-{lie}", "__doc__": Five.__doc__})
    spec = interp.ModelSpec(task=kind().ref, d_model=2, layers=(interp.Layer(d_head=2),), readout_at="last")
    for look in (interp.certify, interp.analyze, interp.accuracy):
        with pytest.raises(InterpError, match=LIES[lie][1]):
            look(interp.TaskModel(spec, kind()))


@pytest.mark.parametrize("lie", ["batch", "random"])
def test_labels_that_are_not_a_function_of_a_row_are_refused(lie: str) -> None:
    kind = type("Lying", (Five,), {**LIES[lie][0], "name": f"domain-test-{lie}", "__doc__": Five.__doc__})
    with pytest.raises(InterpError, match=LIES[lie][1]):
        register_task(kind)
