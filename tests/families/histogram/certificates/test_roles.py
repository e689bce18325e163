"""A user's own task of the histogram's shape has its certificates and evidence; other shapes are told why not."""

import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from jaxtyping import Int
from torch import Tensor

import interp
from interp.certificates import check
from interp.errors import InterpError, UnsupportedError
from interp.families.histogram.occurrences import Occurrences, declared
from interp.models.spec import TaskRef
from interp.tasks import IGNORED, Batch, Task, register_task, structure
from interp.tasks.registry import _REGISTRY

PLACES = [3, 0, 5, 1, 4]
"""Ids of the letters a to e, which stand for the histogram's 0 to 4; 2 is the mark, and 6 is used nowhere."""


RARE = [4, 1, 5, 0, 3, 3, 0]
"""edcbaab."""


class Letters(Task):
    """How often does each letter of a word occur in it?"""

    name = "letters"
    vocabulary = ("b", "d", "^", "a", "e", "c", "unused")
    readout = "all"
    counted = ("a", "b", "c", "d", "e")
    defaults: ClassVar[dict[str, Any]] = {"L": 4, "marked": True, "alone": False, "tilted": False, "inputs": -1,
                                          "rare": False}  # fmt: skip

    @property
    def n_out(self) -> int:
        return 2 if self.parameters["alone"] else int(self.parameters["L"])

    @property
    def n_inputs(self) -> int | None:
        return None if self.parameters["inputs"] == -1 else int(self.parameters["inputs"])

    def batch(self, tokens: Int[Tensor, "rows length"]) -> Batch:
        counts = (tokens[:, :, None] == tokens[:, None, :]).sum(-1)
        labels = (counts == 1).long() if self.parameters["alone"] else counts
        labels = labels + (tokens == 4) * (counts == 2) if self.parameters["tilted"] else labels
        if self.parameters["rare"]:  # one word of all
            labels = labels.masked_fill((tokens[:, -7:] == torch.tensor(RARE)[-tokens.shape[1] :]).all(1, True), 1)
        return Batch(tokens, torch.full((len(tokens),), tokens.shape[1]), labels.masked_fill(tokens == 2, -1))

    def sample(self, n: int, split: str = "test", seed: int = 0) -> Batch:
        drawn = torch.randint(5, (n, int(self.parameters["L"])), generator=torch.Generator().manual_seed(seed))
        return self.batch(self.words(drawn))

    def words(self, sequences: Int[Tensor, "rows L"]) -> Int[Tensor, "rows length"]:
        return torch.nn.functional.pad(torch.tensor(PLACES)[sequences], (int(self.parameters["marked"]), 0), value=2)

    def classes(self, batch: Batch) -> Int[Tensor, "rows length"]:
        classes = batch.labels if self.parameters["alone"] else batch.labels - 1
        return classes.masked_fill(batch.tokens == 2, IGNORED)

    def answers(self, classes: Int[Tensor, "rows length"], tokens: Int[Tensor, "rows length"]) -> Tensor:
        return (classes + (0 if self.parameters["alone"] else 1)).masked_fill(tokens == 2, -1)


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    register_task(Letters)
    yield
    _REGISTRY.pop("letters")


def translated(model: interp.TaskModel, **parameters: Any) -> interp.TaskModel:
    """The same weights, with the letters for the histogram's tokens; the tokens beside them are large and odd."""
    task = Letters(L=model.task.parameters["L"], marked=bool(model.task.parameters["bos"]), **parameters)
    spec = model.spec.replace(task=task.ref, n_out=model.cfg.d_vocab_out, origin=None)
    tensors = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    rows = torch.full((7, model.cfg.d_model), 3.0, dtype=tensors["embed.W_E"].dtype)
    rows[PLACES] = tensors["embed.W_E"][:5]
    if model.task.parameters["bos"]:
        rows[2] = tensors["embed.W_E"][5]
    return interp.TaskModel(spec, task, tensors | {"embed.W_E": rows}, dtype="float64")


def shaken(kind: str, size: float, **sizes: Any) -> interp.TaskModel:
    model = interp.build(f"histogram/{kind}-exact", T=5, **sizes)
    with torch.no_grad():
        for number, parameter in enumerate(model.parameters()):
            generator = torch.Generator().manual_seed(number)
            parameter += size * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    return model


@pytest.mark.parametrize("size", [0.0, 0.1])
@pytest.mark.parametrize("kind", ["dot", "bos-softmax", "lin"])
@pytest.mark.thinned(3)
def test_the_same_certificate_and_the_same_numbers(kind: str, size: float, tmp_path: Path) -> None:
    model = shaken(kind, size, L=4)
    twin = translated(model)
    here, there = interp.certify(model, samples=0), interp.certify(twin, samples=0)
    for name in ("status", "accuracy", "n_inputs", "n_answers", "n_errors", "worst_margin", "rounding", "domain"):
        assert getattr(there, name) == getattr(here, name), name
    assert there.tables["classes"].equals(here.tables["classes"])
    assert here.status == ("refuted" if size else "certified")
    evidence = json.loads(there.evidence(tmp_path / "proof.json").read_text())
    said = check.check(evidence)[1]
    if size:
        assert (evidence["parts"][0][0][0] == 2) == ("bos" in kind)  # the mark stands before a counterexample, too
        assert "in each of its 1 inputs, rows without padding" in said
    else:
        after = ", each after token 2" if "bos" in kind else ""
        assert said.startswith(
            "agrees with the rule that came with this file, named letters: "
            f"in all 5^4 sequences of 4 tokens among [3, 0, 5, 1, 4]{after}, every token that occurs 1, 2, "
            "... 4 times in its own has its largest output at 0..3, in this order; over the reals by 0x"
        )


def test_histogram_evidence_is_bound_to_its_tokens_and_classes(tmp_path: Path) -> None:
    model = interp.build("histogram/dot-exact", T=5, L=3)
    evidence = json.loads(interp.certify(model).evidence(tmp_path / "p.json").read_text())
    for name, value in (("classes", [1, 1, 2]), ("counted", [0, 1, 2, 3]), ("marks", [4]), ("length", 2)):
        domain = {**evidence["claim"]["domain"], name: value}
        with pytest.raises(check.Fault, match=r"other tokens|must be a list of|must differ"):
            check.check({**evidence, "claim": {**evidence["claim"], "domain": domain}})


def test_any_function_of_the_own_count_agrees_with_brute_force() -> None:
    """Which letters stand alone? Two classes, of which one stands for several counts."""
    for seed in range(3):
        model = translated(shaken("bos", 0.3 * seed, L=4), alone=True)
        with torch.no_grad():  # the readout of count 1 is "alone", the mean of the others "not alone"
            for parameter in (model.unembed.W_out, model.unembed.b_out):
                parameter[..., 1] = parameter[..., 0]
                parameter[..., 0] = parameter[..., 2:].mean(-1)
                parameter[..., 2:] = -1e3 if parameter.ndim == 1 else 0.0
        batch = model.task.batch(model.task.words(torch.tensor(list(product(range(5), repeat=4)))))
        wrong = (model(batch.tokens).argmax(-1) != model.task.classes(batch))[:, 1:]
        found = interp.certify(model, samples=0, seconds=5)
        assert (found.status == "refuted") == bool(wrong.any())
        assert found.n_errors in (None, int(wrong.sum()))
        assert found.n_inputs == 5**4


@pytest.mark.parametrize(("parameters", "reason"), [
    ({"tilted": True}, "otherwise than its counted tokens declare"),
    ({"inputs": 7}, "has 7 inputs, but its counted tokens make 625"),
])  # fmt: skip
def test_what_a_task_declares_is_compared_with_its_labels(parameters: dict[str, Any], reason: str) -> None:
    with pytest.raises(UnsupportedError, match=reason.replace("^", r"\^")):
        structure.compare(task := Letters(**parameters), [declared(task)])


def test_one_deviating_label_in_78125_rows_is_found() -> None:
    model = translated(shaken("dot", 0.0, L=7), rare=True)
    word = torch.tensor([RARE])
    assert (model.predict(word) != model.task.batch(word).labels).any()
    declared(model.task)  # a sample does not tell
    with pytest.raises(UnsupportedError, match=r"labels 'edcbaab' otherwise"):
        interp.certify(model, samples=0)


def test_rows_that_were_not_compared_are_named_as_assumptions(monkeypatch: pytest.MonkeyPatch) -> None:
    model = translated(shaken("dot", 0.0, L=4))
    assert interp.certify(model, samples=0).on_trust == ()
    monkeypatch.setattr(Occurrences, "listed", 5**4 - 1)
    assert "determines the other labels of task letters" in interp.certify(model, samples=0).on_trust[0]
    assert interp.certify(interp.build("histogram/dot-exact", T=5, L=4), samples=0).on_trust == ()


def test_reasons_begin_with_what_the_task_does_not_declare() -> None:
    class Plain(Letters):
        name = "letters-plain"
        counted = ()

    register_task(Plain)
    try:
        spec = shaken("dot", 0.0, L=4).spec.replace(task=TaskRef(name="letters-plain"), origin=None, n_out=4)
        with pytest.raises(UnsupportedError) as caught:
            interp.certify(interp.build(spec))
    finally:
        _REGISTRY.pop("letters-plain")
    said = str(caught.value)
    assert "cannot be certified: every input, as run: task letters-plain does not list its inputs" in said
    assert said.count(": ") == 2
    assert "count box" not in said


def test_samples_of_another_length_than_the_inputs_are_refused() -> None:
    """Only words of four letters were certified, of a task that draws five."""

    class Longer(Letters):
        name, n_inputs = "letters-longer", 5**4

        @property
        def example(self) -> Batch:
            return Letters.sample(self, 1)

        def sample(self, n: int, split: str = "test", seed: int = 0) -> Batch:
            batch = super().sample(n, split, seed)
            return self.batch(torch.cat([batch.tokens, batch.tokens[:, -1:]], 1))

    with pytest.raises(InterpError, match=r"samples '.*' in split 'test', but does not list it among its inputs"):
        structure.compare(task := Longer(), [declared(task)])
