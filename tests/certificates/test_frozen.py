"""A certificate is about the spec and the parameters: hooks and swapped functions never reach it, and are refused."""

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from drawn_weights import hooked, set_to_zero
from torch import nn
from torch.nn.modules import module as torch_modules

import interp
from interp.certificates import certificate
from interp.errors import InterpError, UnsupportedError
from interp.families.algorithmic import MaxOfK
from interp.families.count01 import Count01
from interp.families.histogram import Histogram
from interp.models.subject import Subject
from interp.tasks.structure import ProductOfSets
from tests.tasks.test_task_checks import Three


def nothing(x: torch.Tensor, *args: Any, **options: Any) -> torch.Tensor:
    return torch.zeros_like(x)


@pytest.mark.parametrize("name", ["histogram/dot-exact", "languages/one", "count01/minimal"])
@pytest.mark.thinned(3)
def test_a_model_that_runs_something_else_is_refused(name: str) -> None:
    model = interp.build(name)
    object.__setattr__(model.embed, "forward", lambda tokens: model.embed.W_E[tokens] * 2)
    with pytest.raises(InterpError, match=r"that its spec and its parameters give in a fresh model"):
        interp.certify(model)


@pytest.mark.slow
def test_a_model_that_answers_something_else_is_refused() -> None:
    """Most probes of counts are long, and compared in their answers only."""
    model = interp.build("count01/minimal")
    predict = model.predict
    object.__setattr__(model, "predict", lambda tokens: predict(tokens).flip(0))
    with pytest.raises(InterpError, match=r"that its spec and its parameters give in a fresh model"):
        interp.certify(model)


@pytest.mark.parametrize("name", ["languages/first", "languages/parity"])
def test_a_copied_model_is_the_same_model(name: str) -> None:
    model = interp.build(name)
    assert interp.certify(copy.deepcopy(model), longest=3).status == "certified"


@pytest.mark.parametrize("change", [lambda w: w.to(torch.float8_e4m3fn), lambda w: w.to(torch.complex64)])
def test_weights_that_no_model_runs_on_are_refused(change: Callable[[torch.Tensor], torch.Tensor]) -> None:
    model = interp.build("histogram/dot-exact", T=3, L=2)
    for module in model.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            setattr(module, name, nn.Parameter(change(parameter.detach()), requires_grad=False))
    with pytest.raises(UnsupportedError, match=r"its parameters are stored as torch\.[fc]"):
        interp.certify(model)


@pytest.fixture
def global_hook() -> Iterator[None]:
    def hook(module: nn.Module, given: Any, out: Any) -> Any:
        return out * 0 if isinstance(out, torch.Tensor) and isinstance(module, nn.Module) else out

    handle = torch_modules.register_module_forward_hook(hook)
    yield
    handle.remove()


@pytest.mark.parametrize("name", ["count01/minimal", "memorization/lookup"])
def test_a_global_hook_is_refused(name: str, global_hook: None) -> None:
    with pytest.raises(UnsupportedError, match=r"a global forward hook of torch is registered"):
        interp.certify(name)


def test_the_model_at_hand_never_runs_for_the_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    """Method, evidence and sentence take a fresh model; the one at hand answers the probes alone."""
    model = interp.build("languages/one")
    found = interp.certify(model, longest=6)
    assert found.source.model is not model
    assert found.source.model.task is not model.task
    assert found.about == certificate.FRESH
    assert "fresh model" in found._repr_html_()
    before = {name: p.clone() for name, p in found.source.model.named_parameters()}
    set_to_zero(model)
    assert all(p.equal(before[name]) for name, p in found.source.model.named_parameters())


# ---------------------------------------------------------------- tasks that were changed


def test_a_swapped_table_is_refused_and_so_is_its_evidence() -> None:
    """The attack: a refuted model, certified after its task got the table that the model answers."""
    assert interp.certify("memorization/bigram").status == "refuted"
    model = interp.load("memorization/bigram")  # its task has looked nothing up yet
    task: Any = model.task
    table = task.table
    said = torch.nn.functional.one_hot(model.read(torch.tensor(table.contexts)).argmax(-1), table.n_outputs)
    task.table = replace(table, conditional=said.double().numpy())
    with pytest.raises(UnsupportedError, match=r"its task labels .* differently from the task that its class makes"):
        interp.certify(model)


@pytest.mark.parametrize("name", ["languages/first", "count01/minimal"])
@pytest.mark.thinned(2)
def test_labels_that_were_changed_are_refused(name: str) -> None:
    model = interp.load(name)
    batch = model.task.batch

    def other(tokens: torch.Tensor) -> interp.Batch:
        found = batch(tokens)
        return replace(found, labels=found.labels.flip(0))

    model.task.batch = other  # type: ignore[method-assign]
    with pytest.raises(UnsupportedError, match=r"its task labels .* differently from the task that its class makes"):
        interp.certify(model)


def test_a_task_other_than_the_one_in_the_spec_is_refused() -> None:
    model = interp.build("algorithmic/max-of-k-exact", K=2, v=3)
    model.task = MaxOfK(K=2, v=3)
    assert interp.certify(model).status == "certified"
    with pytest.raises(InterpError, match=r"rows of 3 tokens are not inputs of task max-of-k: give 3 numbers"):
        interp.certify(interp.TaskModel(model.spec, MaxOfK(K=3, v=3), dict(model.named_parameters())))


# ---------------------------------------------------------------- tasks of one's own that say two things


def own_model(task: interp.Task, **spec: Any) -> interp.TaskModel:
    plain = {"task": task.ref, "d_model": 4, "layers": (interp.Layer(d_head=4),), "readout_at": task.readout, **spec}
    return interp.TaskModel(interp.ModelSpec(**plain), task, seed=1)


class InOrder(Count01):
    """Count01, but where the first symbol is a 2 the answer is the other one; label_counts is inherited."""

    name = "frozen-test-in-order"

    def batch(self, tokens: torch.Tensor) -> interp.Batch:
        found = super().batch(tokens)
        labels = found.labels.clone()
        labels[tokens[:, 1] == 3] = 11 - labels[tokens[:, 1] == 3]
        return interp.Batch(tokens, found.lengths, labels)

    def sentences(self, counts: torch.Tensor, seed: int = 0) -> interp.Batch:
        return self.batch(super().sentences(counts, seed).tokens)


@pytest.mark.slow
def test_a_spec_may_state_a_default_of_its_task() -> None:
    spec = interp.ModelSpec(
        task=interp.models.spec.TaskRef(name="max-at-last", parameters={"K": 2, "v": 64}),  # 64 is the default
        d_model=4, layers=(interp.Layer(n_heads=1, d_head=4),), positions="learned", max_length=2, readout_at="last",
    )  # fmt: skip
    assert interp.certify(interp.build(spec, seed=0)).status == "refuted"


def test_inherited_label_counts_do_not_label_a_subclass() -> None:
    exact = interp.build("count01/minimal")
    task = InOrder()
    model = interp.TaskModel(exact.spec.replace(task=task.ref), task, dict(exact.named_parameters()), dtype="float64")
    with pytest.raises(InterpError, match=r"labels .* otherwise"):
        interp.certify(model)


class Once(Count01):
    """Count01, but one sentence has the other answer: no sample finds it among so many orders."""

    name = "frozen-test-once"

    def batch(self, tokens: torch.Tensor) -> interp.Batch:
        found, odd = super().batch(tokens), torch.tensor([0, 1, 1, 2, 2, 2, 1, 2, 4])
        rows = (tokens[:, : len(odd)] == odd).all(1) if tokens.shape[1] >= len(odd) else found.labels < 0
        return interp.Batch(tokens, found.lengths, torch.where(rows, 11 - found.labels, found.labels))

    def sentences(self, counts: torch.Tensor, seed: int = 0) -> interp.Batch:
        return self.batch(super().sentences(counts, seed).tokens)


@pytest.mark.slow
def test_labels_that_are_taken_on_trust_are_named() -> None:
    exact, task = interp.build("count01/minimal"), Once()
    model = interp.TaskModel(exact.spec.replace(task=task.ref), task, dict(exact.named_parameters()), dtype="float64")
    (said,) = interp.certify(model).on_trust
    assert "counts determine the other labels of task frozen-test-once" in said


def test_answers_of_a_large_domain_are_taken_on_trust() -> None:
    class Odd(Histogram):
        name = "frozen-test-odd-of-many"

        def answers(self, classes: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
            rows = (tokens == torch.tensor([1, 3, 2, 5, 5, 1, 2, 7])).all(1, keepdim=True)
            return super().answers(classes, tokens) + rows.long()

    exact, task = interp.build("histogram/dot-exact", T=12, L=8), Odd(T=12, L=8)
    model = interp.TaskModel(exact.spec.replace(task=task.ref), task, dict(exact.named_parameters()), dtype="float64")
    (said,) = interp.certify(model).on_trust
    assert "determines the other labels of task frozen-test-odd-of-many" in said


def test_answers_that_are_wrong_on_one_sequence_are_seen() -> None:
    class Odd(Histogram):
        name = "frozen-test-odd"

        def answers(self, classes: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
            found = super().answers(classes, tokens).clone()
            rows = (tokens == torch.tensor([1, 3, 2])).all(1)
            found[rows] = found[rows] + 1
            return found

    exact = interp.build("histogram/dot-exact", T=4, L=3)
    task = Odd(T=4, L=3)
    model = interp.TaskModel(exact.spec.replace(task=task.ref), task, dict(exact.named_parameters()), dtype="float64")
    with pytest.raises(InterpError, match=r"answers\(classes\(batch\)\) is 2 where the label is 1"):
        interp.certify(model)


def test_products_and_inputs_must_list_the_same_rows() -> None:
    class Other(MaxOfK):
        name = "frozen-test-other"

        def digits(self, index: torch.Tensor) -> torch.Tensor:
            """0 0 is listed as 2 2, which is listed twice less often than it seems: see products()."""
            found = super().digits(index)
            return torch.where((index == 0)[:, None], torch.tensor([2, 2]), found)

        def products(self) -> Iterator[Any]:
            return (product for product in MaxOfK.products(self))

    exact = interp.build("algorithmic/max-of-k-exact", K=2, v=3)
    task = Other(K=2, v=3)
    model = interp.TaskModel(exact.spec.replace(task=task.ref), task, dict(exact.named_parameters()), dtype="float64")
    with pytest.raises(InterpError, match=r"more than once"):
        interp.certify(model)


@pytest.mark.parametrize("how", ["another object", "another class"])
def test_a_class_under_the_name_of_another_is_refused(how: str) -> None:
    """The attack: a refuted model, certified on "every input of task max-of-k" by labels of a class of one's own."""

    class Lie(MaxOfK):
        def classes(self, batch: interp.Batch) -> torch.Tensor:
            found = super().classes(batch)
            return torch.where(found > 0, 0, found)

        def batch(self, tokens: torch.Tensor) -> interp.Batch:
            found = super().batch(tokens)
            return interp.Batch(tokens, found.lengths, found.labels * 0)

        def inputs(self, chunk: int = 4096) -> Iterator[interp.Batch]:
            return (self.batch(batch.tokens) for batch in super().inputs(chunk))

        def products(self) -> Iterator[ProductOfSets]:
            return iter([ProductOfSets((range(3), range(3), (3,)), 0)])

    model = interp.build("algorithmic/max-of-k-exact", K=2, v=3)
    with torch.no_grad():
        model.unembed.b_U[0] = 1e3
    assert interp.certify(model).status == "refuted"
    if how == "another class":
        model.task.__class__ = Lie
    else:
        model.task = Lie(K=2, v=3)
    with pytest.raises(UnsupportedError, match=r"'max-of-k' is the name of interp\..*MaxOfK; give your class"):
        interp.certify(model)


def test_an_unregistered_task_is_said() -> None:
    assert "no task named 'validation-test-three' is registered" in interp.certify(own_model(Three())).notes[-1]


# ---------------------------------------------------------------- what torch was told


def test_autocast_is_refused_and_lower_precision_is_named() -> None:
    model = interp.load("memorization/lookup")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for name in ("count01/minimal", "memorization/lookup"):
            with pytest.raises(InterpError, match=r"autocast\('cpu'\) is on"):
                interp.certify(name)
    assert interp.certify(model).status in ("certified", "refuted")


def test_products_of_less_precision_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interp.certificates.enumeration.lowered", lambda: "torch multiplies float32 in 'bf16'")
    found = interp.certify(own_model(Three()))
    assert found.arithmetic.startswith("as run: float32")
    assert found.arithmetic.endswith("torch multiplies float32 in 'bf16'")


# ---------------------------------------------------------------- a model of someone else's


def test_an_output_that_the_task_lacks_is_not_a_right_answer() -> None:
    """Its largest output is always one that no answer of the task has."""
    model = hooked(
        n_layers=1, d_model=4, d_head=4, n_heads=1, n_ctx=4, d_vocab=3, d_vocab_out=5, act_fn="relu", attn_only=True
    )
    generator, task = torch.Generator().manual_seed(0), Three()
    for parameter in model.parameters():
        parameter.data.normal_(generator=generator)
    outputs = {word: i for i, word in enumerate(task.answer_words)}
    with torch.no_grad():
        model.unembed.b_U[2:] = -1e6
    plain = interp.certify(Subject.external(model, task=task, outputs=outputs))
    with torch.no_grad():
        model.unembed.b_U[4] = 1e6
    found = interp.certify(Subject.external(model, task=task, outputs=outputs))
    assert (found.status, found.accuracy, found.n_errors) == ("refuted", 0.0, 8)
    assert found.about == certificate.AT_HAND
    said = (
        f"8 answers are outputs that the task does not name; among those that it names, {plain.n_errors} of 8 answers"
    )
    assert said in str(found)
    assert "the answer at position 3 is an output that the task does not name" in str(found.counterexample)
