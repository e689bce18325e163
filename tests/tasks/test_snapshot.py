"""The task that a certificate is about is made anew: what was put on the object is refused or left behind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

import interp
from interp.errors import UnsupportedError
from interp.tasks import Count01, Histogram, MaxOfK, registry
from interp.tasks.snapshot import snapshot
from tests.tasks.test_returns import Three


@dataclass
class Rule:
    least: int = 1
    words: list[str] = field(default_factory=lambda: ["a"])


class Free(Three):
    """Three, with members of every kind that a task of someone's own may hold."""

    name = "snapshot-test-free"

    def __init__(self, **parameters: Any) -> None:
        super().__init__(**parameters)
        self.rule = Rule()
        self.nan = float("nan")
        self.arrays = {"numpy": np.arange(3.0), "torch": torch.arange(3)}
        self.more = partial(max, 1)
        self.many: Callable[[torch.Tensor], torch.Tensor] = lambda tokens: (tokens == 1).sum(1)
        self.random = torch.Generator().manual_seed(3)
        self._cache: dict[int, int] = {}

    def batch(self, tokens: torch.Tensor) -> interp.Batch:
        self._cache[len(self._cache)] = len(tokens)
        found = super().batch(tokens)
        return interp.Batch(tokens, found.lengths, (self.many(tokens) > self.rule.least).long())


CHANGES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "an attribute of a dataclass": (lambda task: setattr(task.rule, "least", 2), "its rule is another Rule"),
    "a list in a dataclass": (lambda task: task.rule.words.append("b"), "its rule is another Rule"),
    "a dataclass": (lambda task: setattr(task, "rule", Rule(0)), "its rule is another Rule"),
    "an array": (lambda task: task.arrays["numpy"].__setitem__(1, 7.0), "its arrays is"),
    "a tensor": (lambda task: task.arrays["torch"].add_(1), "its arrays is"),
    "a partial": (lambda task: setattr(task, "more", partial(max, 2)), "its more is another partial"),
    "a function": (lambda task: setattr(task, "many", lambda tokens: tokens[:, 0]), "its many is another function"),
    "a method": (lambda task: setattr(task, "batch", lambda tokens: None), "its batch was replaced by a function"),
    "a method by a partial": (lambda task: setattr(task, "batch", partial(Three.batch, task)), ".*by a partial"),
    "random numbers": (lambda task: task.random.manual_seed(4), "its random is another Generator"),
    "something new": (lambda task: setattr(task, "other", 1), "its other is 1, not absent"),
    "something gone": (lambda task: delattr(task, "nan"), "its nan is absent, not nan"),
    "what nobody can compare": (lambda task: setattr(task, "rule", object()), "its rule is another object"),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_task_that_holds_something_else_is_refused(what: str) -> None:
    change, sentence = CHANGES[what]
    task = Free()
    assert snapshot(task) is not task
    change(task)
    with pytest.raises(UnsupportedError, match=rf"snapshot-test-free differs from it: {sentence}"):
        snapshot(task)


class Sealed:
    """Without anything that could be compared."""

    __slots__ = ("value",)


def test_what_cannot_be_compared_is_refused() -> None:
    kind = type("Odd", (Free,), {"__init__": lambda self: (Free.__init__(self), setattr(self, "rule", Sealed()))[0]})
    with pytest.raises(UnsupportedError, match=r"its rule contains .*Sealed.*, which cannot be compared"):
        snapshot(kind())


def test_a_class_that_makes_no_task_of_its_parameters_is_refused() -> None:
    class Needy(Three):
        def __init__(self, rows: int) -> None:
            super().__init__()
            self.rows = rows

    with pytest.raises(UnsupportedError, match=r"Needy cannot make task .* from them: .*rows.*; declare all"):
        snapshot(Needy(3))

    class Quiet(Three):
        def __init__(self, rows: int = 1) -> None:
            super().__init__()
            self.rows = rows

    assert snapshot(Quiet()).rows == 1
    with pytest.raises(UnsupportedError, match=r"its rows is 2, not 1"):
        snapshot(Quiet(2))


OURS = ["histogram/dot-exact", "count01/minimal", "languages/palindrome", "memorization/lookup", "memorization/bigram",
        "algorithmic/max-of-k-exact"]  # fmt: skip


@pytest.mark.parametrize("name", OURS)
def test_our_own_tasks_are_made_anew_with_their_tables(name: str) -> None:
    task = interp.load(name).task
    task.features(task.sample(3, task.splits[-1], seed=0))
    fresh = snapshot(task)
    assert fresh is not task
    assert fresh.ref == task.ref
    for one, other in zip(task.tables().values(), fresh.tables().values(), strict=True):
        assert one is not other
        assert one.equal(other)


def test_parameters_decide_and_a_subclass_is_another_task(monkeypatch: pytest.MonkeyPatch) -> None:
    assert snapshot(MaxOfK(K=2, v=3)).parameters == {"K": 2, "v": 3}
    task = MaxOfK(K=2, v=3)
    task.parameters["v"] = 4
    with pytest.raises(UnsupportedError, match=r"its .* is .*, not"):
        snapshot(task)
    mine = type("Mine", (Histogram,), {})
    assert type(snapshot(mine(T=3, L=2))) is mine
    monkeypatch.setattr(registry, "_REGISTRY", dict(registry._REGISTRY))
    registry._REGISTRY["histogram"] = mine
    assert type(snapshot(mine(T=3, L=2))) is mine


def test_a_class_of_ours_that_was_patched_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Count01, "label_counts", lambda self, counts: counts[:, 0])
    with pytest.raises(UnsupportedError, match=r"Count01\.label_counts was replaced by"):
        snapshot(Count01())
