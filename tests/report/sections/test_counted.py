"""A user's task of Count01's shape, with its own words and ids, gets Count01's report and certificate: same numbers."""

from typing import Any, ClassVar

import pandas as pd
import pytest
import torch

import interp
from interp.families.count01 import Count01
from interp.tasks.pairs import Pairs

WORDS = {"[BOS]": "<s>", "0": "b", "1": "a", "2": ".", "=": "?", "4": "yes", "5": "no", "[EOS]": "</s>"}
ORDER = ("a", "yes", "</s>", "b", "?", ".", "no", "<s>")
NAMES = (("n0", "b"), ("n1", "a"), ("n2", "."))
THEIRS = Count01()
TO_OURS = torch.tensor([ORDER.index(WORDS[token]) for token in THEIRS.vocabulary])
TO_THEIRS = TO_OURS.argsort()


class Majority(interp.Task):
    """Are there more a than b?"""

    name = "sections-test-majority"
    vocabulary = ORDER
    splits = ("train", "test")
    readout = "?"
    pad = "</s>"
    n_out = 8
    counted = ("b", "a", ".")
    contrast = ("yes", "no")
    count_ranges: ClassVar[Any] = {split: Count01.count_ranges[split] for split in ("train", "test")}

    def _mine(self, batch: interp.Batch) -> interp.Batch:
        return interp.Batch(TO_OURS[batch.tokens], batch.lengths, TO_OURS[batch.labels])

    def _theirs(self, batch: interp.Batch) -> interp.Batch:
        return interp.Batch(TO_THEIRS[batch.tokens], batch.lengths, TO_THEIRS[batch.labels])

    def sample(self, n: int, split: str = "test", seed: int = 0) -> interp.Batch:
        return self._mine(THEIRS.sample(n, split, seed))

    def dataset(self, split: str) -> interp.Batch:
        return self._mine(THEIRS.dataset(split))

    def sentences(self, counts: torch.Tensor, seed: int = 0) -> interp.Batch:
        return self._mine(THEIRS.sentences(counts, seed))

    def corrupt(self, batch: interp.Batch, seed: int = 0) -> Pairs:
        pairs = THEIRS.corrupt(self._theirs(batch), seed)
        return Pairs(self._mine(pairs.clean), self._mine(pairs.corrupted))

    def batch(self, tokens: torch.Tensor) -> interp.Batch:
        return self._mine(THEIRS.batch(TO_THEIRS[tokens]))

    def classes(self, batch: interp.Batch) -> torch.Tensor:
        theirs = THEIRS.classes(self._theirs(batch))
        return torch.where(theirs < 0, theirs, TO_OURS[theirs.clamp(min=0)])


@pytest.fixture(scope="module")
def model() -> interp.TaskModel:
    interp.register_task(Majority)
    theirs = interp.load("count01/paper")
    tensors = {name: parameter.detach().clone() for name, parameter in theirs.named_parameters()}
    tensors["embed.W_E"] = tensors["embed.W_E"][TO_THEIRS]
    tensors["unembed.W_U"] = tensors["unembed.W_U"][:, TO_THEIRS]
    tensors["unembed.b_U"] = tensors["unembed.b_U"][TO_THEIRS]
    task = Majority()
    return interp.TaskModel(theirs.spec.replace(task=task.ref, readout_at="?"), task, tensors)


@pytest.mark.slow
def test_the_same_certificate(model: interp.TaskModel) -> None:
    ours, theirs = interp.certify(model), interp.certify("count01/paper")
    for field in ("status", "accuracy", "n_errors", "n_inputs"):
        assert getattr(ours, field) == getattr(theirs, field), field
    for field in ("domain", "counterexample"):  # each task's counts are called after its own tokens
        words = getattr(theirs, field)
        for name, token in NAMES:
            words = words.replace(name, f"count of '{token}'")
        assert getattr(ours, field) == words, field
    assert ours.worst_margin == pytest.approx(theirs.worst_margin)
    assert ours.rounding == pytest.approx(theirs.rounding)
    pd.testing.assert_frame_equal(ours.tables["errors"], theirs.tables["errors"])
    frontier = theirs.tables["frontier"].rename(columns={"n2": "count of '.'"})
    pd.testing.assert_frame_equal(ours.tables["frontier"], frontier)
    assert ours.tables["accuracy"]["accuracy"].tolist() == theirs.tables["accuracy"]["accuracy"].tolist()
    assert ours.tables["accuracy"]["question"].tolist() == ["answer at '?'", "yes against no", "</s> after the answer"]


@pytest.mark.slow
def test_the_same_report(model: interp.TaskModel) -> None:
    ours, theirs = interp.analyze(model, inputs=50), interp.analyze("count01/paper", inputs=50)
    assert set(ours.tables) == set(theirs.tables)
    assert set(ours.figures) == set(theirs.figures)
    for name in ("separation", "groups", "intervention_w01", "intervention_w02"):
        pd.testing.assert_frame_equal(ours.tables[name], theirs.tables[name], rtol=1e-6)
    numbers = ("accuracy", "successful", "failed", "mixed", "best s_acc", "certificate")
    assert {name: ours.facts[name] for name in numbers} == {name: theirs.facts[name] for name in numbers}
