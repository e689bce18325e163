"""The section: drawn beside the task's own automaton, in the words of the measure."""

from collections.abc import Iterator
from itertools import product

import pytest
import torch
from standins import standin

import interp
from interp.errors import UnsupportedError
from interp.tasks.registry import _REGISTRY


def test_a_right_recognizer_is_drawn_once() -> None:
    report = interp.analyze("languages/parity", sections=["automaton"], options={"automaton": {"longest": 6}})
    assert set(report.figures) == {"automaton_model"}
    assert report.facts == {
        "automaton_states": 2, "automaton_states_task": 2, "automaton_longest": 6, "automaton_wrong": 0,
    }  # fmt: skip
    assert report.said[0].text.startswith("On every string of 1 to 6 symbols (126), the model is an automaton of 2")


def test_one_that_errs_is_drawn_beside_the_tasks_own() -> None:
    report = interp.analyze(standin("ends"), sections=["automaton"], options={"automaton": {"longest": 2}})
    assert report.facts["automaton_longest"] == 2
    tables = (
        {"automaton_model_table", "automaton_task_table"}
        if report.facts["automaton_wrong"]
        else {"automaton_model_table"}
    )
    assert set(report.tables) == tables


@pytest.mark.slow
def test_left_to_itself_it_takes_seconds() -> None:
    report = interp.analyze("languages/first-learned", sections=["automaton"])
    assert 4 <= report.facts["automaton_longest"] <= 19


def test_other_tasks_have_none() -> None:
    with pytest.raises(UnsupportedError, match="section automaton does not apply"):
        interp.analyze("algorithmic/max-of-k-exact", sections=["automaton"])


class ShortMajority(interp.Task):
    """Are there more b than a among at most three letters?"""

    name = "automaton-short-majority"
    vocabulary = ("a", "b", "?", "_")
    pad = "_"
    readout = "?"
    n_out = 2
    n_inputs = 2 + 4 + 8

    def inputs(self, chunk: int = 4096) -> Iterator[interp.Batch]:
        for length in (1, 2, 3):
            yield self.batch(torch.tensor([[*word, 2] for word in product((0, 1), repeat=length)]))

    def batch(self, tokens: torch.Tensor) -> interp.Batch:
        return interp.Batch(tokens, (tokens != 3).sum(1), ((tokens == 1).sum(1) > (tokens == 0).sum(1)).long())

    def sample(self, n: int, split: str = "test", seed: int = 0) -> interp.Batch:
        rows = [[*word, 2] + [3] * (3 - k) for k in (1, 2, 3) for word in product((0, 1), repeat=k)]
        drawn = torch.randint(len(rows), (n,), generator=self.generator(split, seed))
        return self.batch(torch.tensor(rows)[drawn])


@pytest.fixture
def short_majority() -> Iterator[interp.TaskModel]:
    """The mean over all tokens, 1 for b and -1 for a, must exceed 0.2: wrong from five letters on."""
    task = interp.register_task(ShortMajority)()
    spec = interp.ModelSpec(
        task=task.ref, d_model=2, layers=(interp.Layer(d_head=2, value_output="identity"),), readout_at="?"
    )
    zero = torch.zeros(1, 2, 2)
    tensors = {
        "embed.W_E": torch.tensor([[-1.0, 0], [1, 0], [0, 0], [0, 0]]), "unembed.b_U": torch.tensor([0, -0.2]),
        "blocks.0.attn.W_Q": zero, "blocks.0.attn.W_K": zero, "unembed.W_U": torch.tensor([[0.0, 1], [0, 0]]),
    }  # fmt: skip
    yield interp.TaskModel(spec, task, tensors)
    del _REGISTRY[ShortMajority.name]


def test_strings_outside_the_proof_are_named(short_majority: interp.TaskModel) -> None:
    report = interp.analyze(short_majority, sections=["accuracy", "automaton"], options={"automaton": {"longest": 5}})
    wrong = [word for n in range(1, 6) for word in product((-1, 1), repeat=n) if 0 < sum(word) / (n + 1) <= 0.2]
    assert report.facts["certificate"] == "certified"
    assert report.facts["automaton_wrong"] == len(wrong) == 10
    (said,) = [one.text for one in report.said if "an automaton of" in one.text]
    assert said.startswith("On every string of 1 to 5 symbols (62 strings, inputs of the task or not), the model is")
    assert said.endswith(
        "The model is wrong on 10 of them, such as 'aabbb' (they may not be inputs of the task). None of these is one "
        "of the inputs on which the model is proved right (every input of task automaton-short-majority)."
    )
