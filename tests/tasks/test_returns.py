"""What a user's task may give wrongly: each is one sentence that names the task, wherever it is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from itertools import product
from typing import Any

import pytest
import torch

import interp
from interp.architecture.task_model import TaskModel
from interp.errors import InterpError, UnsupportedError
from interp.measures.accuracy import accuracy
from interp.spec import Layer, ModelSpec, TaskRef
from interp.tasks import IGNORED, Batch, Pairs, Parity, Task
from interp.tasks.checks import check_made
from interp.tasks.problems import TaskError
from interp.tasks.products import Product

WORDS = torch.tensor([[*word, 2] for word in product((0, 1), repeat=3)])


class Three(Task):
    """Are there more b than a among three?"""

    name = "returns-test-three"
    vocabulary = ("a", "b", "?")
    readout = "last"
    n_out: Any = 2
    n_inputs: Any = 8

    def batch(self, tokens: torch.Tensor) -> Batch:
        return Batch(tokens, torch.full((len(tokens),), 4), ((tokens == 1).sum(1) > 1).long())

    def inputs(self, chunk: int = 4096) -> Iterator[Batch]:
        for part in WORDS.split(chunk):
            yield self.batch(part)

    def sample(self, n: int, split: str = "test", seed: int = 0) -> Batch:
        return self.batch(WORDS[torch.randint(8, (n,), generator=torch.Generator().manual_seed(seed))])

    def classes(self, batch: Batch) -> torch.Tensor:
        classes = torch.full_like(batch.tokens, IGNORED)
        classes[:, -1] = batch.labels
        return classes

    def answers(self, classes: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        return classes


def lists(change: Callable[[Batch], Any]) -> dict[str, Any]:
    """Inputs that are listed otherwise than they are sampled."""
    return {"inputs": lambda self, chunk=4096: (change(batch) for batch in Three.inputs(self, chunk))}


def other(what: Any, **parts: Any) -> Any:
    """With other parts, whatever they are: in tests a class looks at what it is made of, and users have no tests."""
    what = copy(what)
    for name, value in parts.items():
        object.__setattr__(what, name, value)
    return what


def labels(change: Callable[[torch.Tensor], Any]) -> dict[str, Any]:
    return lists(lambda batch: other(batch, labels=change(batch.labels)))


def tokens(change: Callable[[torch.Tensor], Any]) -> dict[str, Any]:
    return lists(lambda batch: other(batch, tokens=change(batch.tokens)))


def late(name: str, change: Callable[[Any], Any]) -> dict[str, Any]:
    """A method that is right where the task is made, and wrong for more rows."""

    def method(self: Task, first: Any, *rest: Any) -> Any:
        given = getattr(Three, name)(self, first, *rest)
        return given if len(first) <= 3 else change(given)

    return {name: method}


ROW = "of torch.long or torch.bool"
HOSTILE: dict[str, tuple[dict[str, Any], str]] = {
    "labels by position": (
        labels(lambda y: y[:, None].expand(-1, 4).clone()),
        r"inputs\(4096\) has labels of shape \(8, 4\) and torch.int64; answers are read at 'last', so they must be "
        rf"\(8,\) {ROW}$",
    ),
    "a column of labels": (labels(lambda y: y[:, None]), r"labels of shape \(8, 1\) .* must be \(8,\)"),
    "a label too few": (labels(lambda y: y[1:]), r"labels of shape \(7,\) .* must be \(8,\)"),
    "no labels": (labels(lambda y: None), r"has labels of a NoneType; .* must be \(8,\)"),
    "a list of labels": (labels(lambda y: y.tolist()), "has labels of a list"),
    "labels that are no number": (labels(lambda y: y * float("nan")), "labels of shape .8,. and torch.float32"),
    "labels without values": (labels(lambda y: y.to("meta")), "labels of shape .8,. and torch.int64 on meta"),
    "sparse tokens": (tokens(lambda t: t.to_sparse()), r"tokens of shape .8, 4. and torch.int64 \(sparse_coo\)"),
    "tokens outside": (tokens(lambda t: t - 1), "has token ids outside 0 to 2"),
    "lengths of 0": (lists(lambda b: other(b, lengths=b.lengths * 0)), "lengths from 0 to 0; .* 1 to 4"),
    "rows and no batches": (lists(lambda batch: batch.tokens), "gives a Tensor; it must be an interp.Batch"),
    "nothing": ({"inputs": lambda self, chunk=4096: None}, "gives a NoneType; it must be an iterator of interp.Batch"),
    "no chunk": (
        {"inputs": lambda self: None},
        "inputs.4096. raises TypeError: .* takes 1 positional argument but 2 were given",
    ),
    "an error of its own": (late("batch", lambda b: 1 // 0), r"raises ZeroDivisionError: .* \(test_returns.py, line"),
    "other tokens": ({"batch": lambda self, t: Three.batch(self, 1 - t.clamp(max=1))}, "changes the tokens"),
    "classes that are none": (late("classes", lambda c: None), r"classes\(batch\) gives a NoneType; it must be .8, 4."),
    "classes that are no number": (late("classes", lambda c: c * float("nan")), "torch.float32; it must be .8, 4."),
    "negative classes": (late("classes", lambda c: c.clamp(min=-1)), r"classes\(batch\) runs from -1 to 1, outside"),
    "classes beyond": (late("classes", lambda c: c + 101 * (c >= 0)), "runs from 101 to 102, outside 0 to 1"),
    "answers in a column": (
        late("answers", lambda a: a[:, None]),
        r"gives shape .8, 1. .* for classes of shape .8,.",
    ),
    "answers that are none": (late("answers", lambda a: None), "gives a NoneType for classes of shape .8,."),
    "a verdict": ({"check_input": lambda self, tokens: False}, "gives False; it must return None"),
    "n_inputs": ({"n_inputs": "8"}, "n_inputs = '8' must be a positive integer, or None"),
    "n_out": ({"n_out": 2.0}, "n_out = 2.0 must be a positive integer"),
    "answer_words": ({"answer_words": "no yes"}, "answer_words = 'no yes' must be a tuple of words"),
    "the same word": ({"answer_words": ("no", "no")}, "has a word twice"),
    "splits": ({"splits": "test"}, "splits = 'test' must be a tuple of different names"),
    "counted": ({"counted": "ab"}, "counted = 'ab' must be a tuple of tokens"),
    "contrast": ({"contrast": ("0", "0")}, "must be a tuple of two different answer_words"),
    "cyclic": ({"cyclic": {"a": 3}}, "must be a dict from names to tuples of tokens"),
    "count_ranges": ({"count_ranges": {"test": 3}}, r"count_ranges\['test'\] = 3 must be \(lowest, highest\)"),
    "products": ({"products": 3}, "products = 3 must be a method"),
    "example": ({"example": "ab?"}, "example gives a str; it must be an interp.Batch"),
}


def hostile(changes: dict[str, Any]) -> Task:
    return type("Hostile", (Three,), {"name": "hostile", "__module__": __name__, **changes})()


@pytest.mark.parametrize("what", HOSTILE)
def test_a_task_with_bad_returns_has_no_accuracy_or_certificate(what: str) -> None:
    changes, sentence = HOSTILE[what]
    spec = ModelSpec(task=TaskRef(name="hostile"), d_model=2, layers=(Layer(d_head=2),), readout_at="last")
    for look in (interp.certify, accuracy):
        with pytest.raises(InterpError, match=f"^task hostile: .*{sentence}"):
            look(TaskModel(spec, hostile(changes)))


SET = Product(((0,), (1,), (2,)), 0)
GIVEN: dict[str, tuple[dict[str, Any], Callable[[Any], Any], str]] = {
    "features": ({"features": lambda self, b: {"a": b.lengths[1:]}}, lambda task: task.features(task.batch(WORDS)),
                 r"has 'a' of shape \(7,\) and torch.int64; .* real numbers of shape \(8,\) or \(8, 4\)"),
    "nan": ({"features": lambda self, b: {"a": b.lengths / 0 * 0}}, lambda task: task.features(task.batch(WORDS)),
            "has values of 'a' that are not finite"),
    "pairs": ({"corrupt": lambda self, batch, seed=0: (batch, batch)}, lambda task: task.corrupt(task.batch(WORDS)),
              r"corrupt\(batch\) gives a tuple; it must be an interp.tasks.Pairs"),
    "half a pair": ({"corrupt": lambda self, batch, seed=0: other(Pairs(batch, batch), corrupted=None)},
                    lambda task: task.corrupt(task.batch(WORDS)), "gives a NoneType; it must be an interp.Batch"),
    "orders": ({"multisets": lambda self, chunk=9: iter([(self.batch(WORDS), [1] * 8)])},
               lambda task: list(task.multisets()), r"orders of a list; they must be \(8,\) of torch.long, 1 or more"),
    "a set": ({"products": lambda self: [other(SET, places=({0}, (1,), (2,)))]}, lambda task: list(task.products()),
              r"products\(\) number 0 has the place \{0\}; each must be a tuple, list or range of token ids"),
    "an answer": ({"products": lambda self: [other(SET, right=2)]}, lambda task: list(task.products()),
                  "has right = 2, outside 0 to 1"),
    "counts": ({"label_counts": lambda self, counts: counts[:, 0] > 1},
               lambda task: task.label_counts(torch.ones(5, 3, dtype=torch.long)),
               r"gives shape \(5,\) and torch.bool for counts of shape \(5, 3\); it must be \(5,\) of torch.long"),
}  # fmt: skip


@pytest.mark.parametrize("what", GIVEN)
def test_optional_declarations_of_a_task_are_checked(what: str) -> None:
    changes, ask, sentence = GIVEN[what]
    with pytest.raises(TaskError, match=f"^task hostile: .*{sentence}"):
        ask(hostile(changes))


def test_a_task_s_own_refusal_is_passed_on_unchanged() -> None:
    def none(self: Task, n: int, split: str = "test", seed: int = 0) -> Batch:
        raise UnsupportedError("no sampler")

    with pytest.raises(UnsupportedError, match=r"^no sampler$"):
        hostile({"sample": none}).sample(3)
    assert "returns" not in Parity.sample.__code__.co_filename
    assert hostile({"sample": none}).sample.__doc__ == none.__doc__


def test_a_model_is_built_for_a_task_without_a_sampler() -> None:
    def none(self: Task, n: int, split: str = "test", seed: int = 0) -> Batch:
        raise NotImplementedError

    task = hostile({"sample": none, "n_inputs": None})
    with pytest.raises(UnsupportedError, match=r"^task hostile does not implement sample\(3\)$"):
        task.sample(3)
    check_made(task)
