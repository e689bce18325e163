"""A task that asks something else than when the model was built: no claim about it under the old id."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch

import interp
from interp.architecture.task_model import TaskModel
from interp.errors import UnsupportedError
from interp.spec import Layer, ModelSpec
from interp.tasks import MaxOfK, Task, registry
from interp.tasks.state import beyond_ref, changed, state_of
from tests.tasks.test_returns import Three


class Free(Three):
    """Three, with parameters that no spec holds, a cache, a table, and members that are no plain functions."""

    name = "state-test-free"
    least = 1

    def __init__(self, least: int = 1) -> None:
        super().__init__()
        self.least = least
        self._cache: dict[int, int] = {}
        self.odd: dict[str, Any] = {"words": [1, 2], "nan": float("nan")}
        self.weights = np.arange(3.0)
        self.places = torch.arange(3)

    @staticmethod
    def many(tokens: torch.Tensor) -> torch.Tensor:
        return (tokens == 1).sum(1)

    @property
    def more_than(self) -> int:
        return self.least

    def batch(self, tokens: torch.Tensor) -> interp.Batch:
        self._cache[len(self._cache)] = len(tokens)
        batch = super().batch(tokens)
        return interp.Batch(tokens, batch.lengths, (self.many(tokens) > self.more_than).long())


def model_of(task: Task) -> TaskModel:
    return TaskModel(ModelSpec(task=task.ref, d_model=2, layers=(Layer(d_head=2),), readout_at="last"), task)


CHANGES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "a number": (lambda task: setattr(task, "least", 2), "its least was 1 when the model was built, and is 2"),
    "a word inside": (lambda task: task.odd["words"].append(3), r"its odd\['words'\] was \[1, 2\] .* is \[1, 2, 3\]"),
    "an array": (lambda task: task.weights.__setitem__(1, 7.0), "its weights was a ndarray .* and is another"),
    "a tensor": (lambda task: task.places.add_(1), "its places was a Tensor .* and is another"),
    "a method": (lambda task: setattr(task, "batch", lambda tokens: None), "its batch was a function .* is another"),
    "something new": (lambda task: setattr(task, "more", 1), "its more was absent .* and is 1"),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_task_that_was_changed_after_the_model_was_built_is_not_certified(what: str) -> None:
    change, sentence = CHANGES[what]
    model = model_of(Free())
    change(model.task)
    with pytest.raises(UnsupportedError, match=f"task state-test-free was changed .*{sentence}.*; build the"):
        interp.certify(model)
    assert changed(model_of(Free()).task_as_built, Free()) is None


def other_than(word: str) -> Callable[..., Any]:
    return lambda batch: word


def test_functions_are_told_apart_by_what_they_do_and_hold() -> None:
    task, same, other = Free(), Free(), Free()
    for one, word in ((task, "a"), (same, "a"), (other, "b")):
        one.features = other_than(word)
    before = state_of(task)
    assert changed(before, same) is None
    assert "its features was a function" in str(changed(before, other))


@pytest.mark.parametrize("again", [deepcopy, lambda model: pickle.loads(pickle.dumps(model))], ids=["copy", "pickle"])
def test_a_model_is_copied_and_pickled_with_what_its_task_held(again: Callable[..., Any]) -> None:
    """Static methods and properties can be neither copied nor pickled themselves."""
    model = again(interp.build("count01/minimal"))
    assert interp.certify(model, box="test").status == "certified"
    model.task.data_seed = 5
    with pytest.raises(UnsupportedError, match="its data_seed was 0 when the model was built, and is 5"):
        interp.certify(model, box="test")
    mine = again(model_of(Free()))
    assert changed(mine.task_as_built, mine.task) is None
    mine.task.least = 2
    assert "its least was 1" in str(changed(mine.task_as_built, mine.task))


def test_another_task_in_the_place_of_the_one_that_the_spec_names() -> None:
    model = interp.build("algorithmic/max-of-k-exact", K=2, v=3)
    model.task = MaxOfK(K=2, v=3)
    assert interp.certify(model).status == "certified"
    model.task.parameters["v"] = 4
    with pytest.raises(UnsupportedError, match=r"its parameters\['v'\] was 3 when the model was built, and is 4"):
        interp.certify(model)
    with pytest.raises(UnsupportedError, match=r"spec names the task max-of-k\(K=2, v=3\), .* is max-of-k\(K=3, v=3\)"):
        interp.certify(TaskModel(model.spec, MaxOfK(K=3, v=3), dict(model.named_parameters())))


def test_parameters_that_are_not_in_the_spec_are_said_and_caches_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_REGISTRY", dict(registry._REGISTRY))
    model = model_of(Free(2))
    assert "no task named 'state-test-free' is registered" in interp.certify(model).notes[-1]
    kind = type("Made", (Free,), {"__init__": lambda self, data_seed=0, least=1: Free.__init__(self, least)})
    registry._REGISTRY[Free.name] = kind
    for task, words in (
        (kind(least=2), "its least would be 1 by its name and parameters alone"),
        (kind(), ""),
    ):
        model = model_of(task)
        for one in (model, model, deepcopy(model)):
            found = interp.certify(one)
            assert found.n_inputs == 8
            assert (words in found.notes[-1]) if words else not any("at hand" in note for note in found.notes)


@pytest.mark.parametrize(
    "name", ["histogram/dot-exact", "count01/minimal", "languages/palindrome", "memorization/lookup"]
)
def test_our_own_tasks_are_what_their_specs_make_and_stay_so(name: str) -> None:
    task = interp.load(name).task
    before = state_of(task)
    task.features(task.sample(3, task.splits[-1], seed=0))
    assert changed(before, task) is None
    assert beyond_ref(task) is None
