"""Certificates by running every input, against loops written out; models of ours and of others."""

from collections.abc import Iterator
from fractions import Fraction
from itertools import chain, count, product
from typing import Any, ClassVar

import mpmath
import numpy as np
import pytest
import torch
from drawn_weights import hooked, set_to_zero
from jaxtyping import Int
from majority import MoreB
from torch import Tensor

import interp
from interp.certificates import certificate, certify, enumeration
from interp.certificates.enumeration import certify_inputs
from interp.errors import InterpError, UnsupportedError
from interp.measures.accuracy import accuracy
from interp.models.lens import HookedTransformer, HookedTransformerConfig, quiet_construction
from interp.models.spec import MLP, Layer, ModelSpec, TaskRef
from interp.models.subject import Subject
from interp.tasks import Batch, Task, register_task
from interp.tasks.registry import _REGISTRY


class Majority(MoreB):
    """Are there more b than a among five? Three of the seven tokens are never used."""

    name = "five-majority"
    vocabulary = ("a", "b", "?", "x", "y")
    defaults: ClassVar[dict[str, Any]] = {"everywhere": False}


class Always(Majority):
    """The answer is 0."""

    name = "always"

    def batch(self, tokens: Int[Tensor, "rows length"]) -> Batch:
        return Batch(tokens, torch.full((len(tokens),), 6), torch.zeros(len(tokens), dtype=torch.long))


@pytest.fixture
def majority() -> Iterator[Task]:
    yield register_task(Majority)()
    del _REGISTRY[Majority.name]


def counting(task: Task, lead: float, dtype: str = "float32") -> interp.TaskModel:
    """The mean of the tokens' first component, which is positive for b: logits (0, mean + lead)."""
    layer = Layer(d_head=2, value_output="identity")
    spec = ModelSpec(task=task.ref, d_model=2, layers=(layer,), readout_at="last", dtype=dtype)
    zero = torch.zeros(1, 2, 2)
    embedding = torch.tensor([[-1.0, 0], [1, 0], [0, 0], [0, 0], [0, 0]])
    tensors = {
        "embed.W_E": embedding, "blocks.0.attn.W_Q": zero, "blocks.0.attn.W_K": zero,
        "unembed.W_U": torch.tensor([[0.0, 1], [0, 0]]), "unembed.b_U": torch.tensor([0.0, lead]),
    }  # fmt: skip
    return interp.TaskModel(spec, task, {name: t.to(getattr(torch, dtype)) for name, t in tensors.items()}, dtype=dtype)


def test_a_model_that_is_right_everywhere(majority: Task) -> None:
    found = interp.certify(counting(majority, 0.0), batch_size=7)
    assert (found.status, found.n_inputs, found.n_errors, found.accuracy) == ("certified", 32, 0, 1.0)
    assert found.worst_margin == pytest.approx(1 / 6)
    assert found.arithmetic == f"as run: float32 on cpu, torch {torch.__version__}, batches of 7, one thread each"


@pytest.mark.parametrize("lead", [-0.4, 0.2, 3.0])
def test_every_error_is_found_and_shown(majority: Task, lead: float) -> None:
    found = interp.certify(counting(majority, lead), batch_size=5)
    wrong = [word for word in product("ab", repeat=5)
             if ((word.count("b") - word.count("a")) / 6 + lead > 0) != (word.count("b") > 2)]  # fmt: skip
    assert (found.status, found.n_errors) == ("refuted", len(wrong))
    assert found.accuracy == pytest.approx(1 - len(wrong) / 32)
    assert list(found.tables["wrong inputs"]["input"]) == ["".join(word) + "?" for word in wrong]
    assert (
        found.counterexample
        == f"{''.join(wrong[0])}?: the answer at position 5 is {int(lead > 0)}, right is " + str(int(lead < 0))
    )
    steps = [abs((2 * k - 5) / 6 + lead) for k in range(6) if ((2 * k - 5) / 6 + lead > 0) != (k > 2)]
    assert found.worst_margin == pytest.approx(-max(steps), abs=1e-6)


def test_answers_that_hang_on_summation_order_are_not_certified(majority: Task) -> None:
    """The margin of three b is 1/6 - lead: about as large as the last bit of float32."""
    single = counting(majority, -1 / 6 + 2e-8)
    with torch.no_grad():
        right = (single.predict(next(majority.inputs()).tokens) == next(majority.inputs()).labels).all()
    found = interp.certify(single)
    assert found.status == ("undecided" if right else "refuted")
    assert found.n_errors == 0 or not right
    if right:
        assert len(found.tables["close inputs"]) == 10
        assert "right by less than 8 times that" in found.notes[1]
    assert interp.certify(counting(majority, -1 / 6 + 1e-5)).status == "certified"


def test_outputs_that_are_no_numbers_are_errors(majority: Task) -> None:
    model = counting(majority, 0.0)
    with torch.no_grad():
        model.embed.W_E[1, 0] = 3e38
        model.unembed.W_U.mul_(1e30)
    assert interp.certify(model).status == "refuted"


def test_a_model_of_someone_else_with_other_ids(majority: Task) -> None:
    """Stock, two layers, final layer norm; its ids and outputs are not the task's."""
    config = HookedTransformerConfig(
        n_layers=2, d_model=8, n_ctx=6, d_head=4, n_heads=2, d_vocab=9, d_vocab_out=3, attn_only=True, seed=3,
        normalization_type="LN", device="cpu",
    )  # fmt: skip
    with quiet_construction():
        model = HookedTransformer(config)
    ids, outputs = {"a": 4, "b": 7, "?": 0, "x": 1, "y": 2}, {"0": 2, "1": 1}
    found = interp.certify(Subject.external(model, task=majority, tokens=ids, outputs=outputs), batch_size=9)
    margins = []
    for word in product("ab", repeat=5):
        out = model(torch.tensor([[ids[letter] for letter in (*word, "?")]]))[0, -1].tolist()
        right = out.pop(1 if word.count("b") > 2 else 2)  # output 0 is not an answer of the task, and competes
        margins.append(right - max(out))
    assert found.n_errors == sum(margin < 0 for margin in margins)
    assert found.worst_margin == pytest.approx(min(margins), abs=1e-5)
    assert found.n_inputs == 32
    model.blocks[0].hook_attn_out.add_hook(lambda out, hook: out)
    with pytest.raises(UnsupportedError, match=r"there is a hook at blocks\.0\.hook_attn_out"):
        interp.certify(Subject.external(model, task=majority, tokens=ids, outputs=outputs))


def test_an_answer_tied_with_one_that_is_none_is_an_error() -> None:
    """Outputs (right, wrong, no answer) = (1, 0, 1)."""
    model = hooked(
        n_layers=1, d_model=2, n_ctx=6, d_head=2, n_heads=1, d_vocab=5, d_vocab_out=3, attn_only=True, device="cpu",
        normalization_type=None, positional_embedding_type="alibi",
    )  # fmt: skip
    with torch.no_grad():
        set_to_zero(model)
        model.unembed.b_U[:] = torch.tensor([1.0, 0.0, 1.0])
    model(torch.zeros(1, 2, dtype=torch.long))
    task = Always()
    found = interp.certify(Subject.external(model, task=task, outputs={"0": 0, "1": 1}))
    assert (found.status, found.worst_margin, found.n_errors) == ("refuted", 0.0, 32)
    with torch.no_grad():
        model.unembed.b_U[2] = 0.75
    assert interp.certify(Subject.external(model, task=task, outputs={"0": 0, "1": 1})).worst_margin == 0.25
    assert (
        model.blocks[0].attn.alibi.shape[-1] == 2
    )  # TransformerLens keeps the longest bias: the caller's is as it was


def test_models_without_an_argument_are_run() -> None:
    """Three layers with GELU on strings of five symbols: no other method holds."""
    layer = Layer(d_head=4, mlp=MLP(d_mlp=8, activation="gelu"))
    spec = ModelSpec(
        task=TaskRef(name="one", parameters=(("length", 5),)), d_model=4, layers=(layer,) * 3, positions="learned",
        max_length=6, readout="scalar", decision="sigmoid", readout_at="last",
    )  # fmt: skip
    model = interp.build(spec, seed=1)
    found = interp.certify(model)
    batch = model.task.enumerate(5)
    assert found.method == "every input, as run"
    assert found.n_errors == int((model.predict(batch.tokens) != batch.labels).sum())


def test_answers_at_every_position_are_counted() -> None:
    spec = ModelSpec(
        task=TaskRef(name="histogram", parameters=(("T", 3), ("L", 4))), d_model=4, positions="learned", max_length=4,
        layers=(Layer(d_head=4),),
    )  # fmt: skip
    model = interp.build(spec, seed=2)
    found, batch = interp.certify(model, batch_size=10), next(model.task.inputs(chunk=model.task.n_inputs))
    assert (found.n_inputs, found.n_answers) == (81, 324)
    assert found.n_errors == int((model.predict(batch.tokens) != batch.labels).sum())
    assert found.accuracy == pytest.approx(1 - found.n_errors / 324)


@pytest.mark.slow
def test_several_threads_find_the_same() -> None:
    model = interp.build("histogram/dot-exact", T=4, L=4)
    one = enumeration.certify_inputs(model, batch_size=16)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        two = enumeration.certify_inputs(model, batch_size=16)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert (one.worst_margin, one.n_errors, one.status) == (two.worst_margin, two.n_errors, "certified")


def test_refusals(majority: Task) -> None:
    model = counting(majority, 0.0)
    with pytest.raises(UnsupportedError, match="32 inputs, more than most = 31"):
        interp.certify(model, most=31)
    assert interp.certify(model, most=32).status == "certified"
    spec = interp.load("count01/paper").spec.replace(positions="learned", max_length=700)
    with pytest.raises(UnsupportedError, match="task count01 does not list its inputs"):
        interp.certify(interp.build(spec))


def test_a_task_that_lists_less_than_it_says_is_refused(majority: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(majority), "n_inputs", property(lambda self: 33))
    model = counting(majority, 0.0)
    with pytest.raises(InterpError, match="lists 32 inputs, but its n_inputs is 33"):
        interp.certify(model)


def test_inputs_that_never_end_are_refused(majority: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    row, drawn = torch.tensor([[0, 1, 0, 1, 0, 2]]), majority.sample(3)
    monkeypatch.setattr(type(majority), "sample", lambda self, n, split="test", seed=0: drawn[slice(0, n)])
    monkeypatch.setattr(type(majority), "inputs", lambda self, chunk=1: (self.batch(row) for _ in count()))
    with pytest.raises(InterpError, match="lists 33 inputs, but its n_inputs is 32"):
        interp.certify(counting(majority, 0.0))


def test_a_batch_without_rows_is_left_out(majority: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, drawn = type(majority).inputs, next(majority.inputs())
    monkeypatch.setattr(type(majority), "sample", lambda self, n, split="test", seed=0: drawn[slice(0, n)])
    empty = torch.zeros(0, 6, dtype=torch.long)
    monkeypatch.setattr(type(majority), "inputs", lambda self, chunk=9: chain([self.batch(empty)], plain(self, chunk)))
    assert interp.certify(counting(majority, 0.0)).status == "certified"


def test_a_model_of_one_output_is_right(majority: Task) -> None:
    """No other output is larger: both margins are infinite, and differ by nothing."""
    only = type("Only", (type(majority),), {
        "name": "five-only", "n_out": property(lambda self: 1),
        "batch": lambda self, tokens: Batch(tokens, torch.full((len(tokens),), 6), torch.zeros(len(tokens)).long()),
    })()  # fmt: skip
    spec = ModelSpec(task=only.ref, d_model=2, layers=(Layer(d_head=2),), readout_at="last", dtype="float64")
    found = interp.certify(interp.TaskModel(spec, only, seed=0))
    assert (found.status, found.accuracy) == ("certified", 1.0)


def test_outputs_that_share_a_label_have_no_margin() -> None:
    """A task that calls both outputs right was undecided "by less than" a margin that was far below zero."""

    class Generous(Majority):
        name = "five-generous"

        def batch(self, tokens: Int[Tensor, "rows length"]) -> Batch:
            return Batch(tokens, torch.full((len(tokens),), 6), torch.zeros(len(tokens), dtype=torch.long))

        def answers(self, classes: Int[Tensor, "rows"], tokens: Int[Tensor, "rows length"]) -> Int[Tensor, "rows"]:
            return torch.zeros_like(classes)

    task = register_task(Generous)()
    try:
        with pytest.raises(UnsupportedError, match="counts output 1 as right where its classes name another"):
            interp.certify(counting(task, 0.0))
    finally:
        del _REGISTRY[Generous.name]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_outputs_that_are_not_finite_are_no_answer_anywhere(majority: Task, value: float) -> None:
    """The first of them counted as an answer: accuracy .5, exact, beside a certificate of 0 that said "is 0, right is
    0"."""
    model = counting(majority, 0.0)
    with torch.no_grad():
        model.unembed.b_U[0] = value
    subject = Subject.of(model)
    found = enumeration.certify_inputs(subject)
    assert found.accuracy == accuracy(subject).accuracy == subject.right(next(majority.inputs())).double().mean() == 0
    assert "the answer at position 5 is none, for its outputs are not finite, right is 0" in str(found)


def test_the_float64_copy_of_a_norm_has_no_bfloat16_left(majority: Task) -> None:
    """Its norms kept the format of their config, and margins seemed to differ by less than they do."""
    layer = Layer(n_heads=2, d_head=4, norm="pre", mlp=MLP(d_mlp=8))
    fields = {"task": majority.ref, "d_model": 8, "layers": (layer,), "readout_at": "last", "final_norm": "layer_norm"}
    model = interp.TaskModel(ModelSpec(**fields, dtype="bfloat16"), majority, seed=1)
    exact = interp.TaskModel(
        ModelSpec(**fields, dtype="float64"), majority, {n: p.double() for n, p in model.named_parameters()}
    )
    batch = next(majority.inputs())
    lead = [
        (2 * batch.labels - 1) * one.read(batch.tokens).detach().double().diff(dim=-1)[:, 0] for one in (model, exact)
    ]
    difference = float((lead[0] - lead[1]).abs().max())
    assert difference > 1e-4
    assert enumeration._difference(Subject.of(model), 32, 32) >= difference - 1e-9


def test_the_model_is_no_option() -> None:
    assert [*certify.options_of(certificate.registered_methods()[enumeration.EVERY_INPUT])] == ["batch_size", "most"]


def near_tie(seed: int, task: Task) -> tuple[interp.TaskModel, Fraction]:
    """A float64 model whose inner numbers are a thousand times its outputs, and the exact margin of one input, abbba.

    A bias was chosen so that this margin is computed as 60 roundings of the outputs.
    """
    draw = torch.Generator().manual_seed(seed)
    layer = Layer(d_head=6, value_output="identity")
    spec = ModelSpec(task=task.ref, d_model=6, layers=(layer,), readout_at="last", dtype="float64")
    zero = torch.zeros(1, 6, 6, dtype=torch.float64)
    large = 1000 * torch.randn(6, generator=draw, dtype=torch.float64)
    embedding, weight = (torch.randn(n, 6, generator=draw, dtype=torch.float64) for n in (5, 2))
    embedding[:2, 0] = torch.tensor([-30.0, 30.0])
    weight[:, 0] += torch.tensor([-10.0, 10.0])
    weight -= (weight @ large)[:, None] * large / (large @ large)
    tensors = {"embed.W_E": embedding + large, "blocks.0.attn.W_Q": zero, "blocks.0.attn.W_K": zero,
               "unembed.W_U": weight.T.contiguous(), "unembed.b_U": torch.zeros(2, dtype=torch.float64)}  # fmt: skip
    model = interp.TaskModel(spec, task, tensors, dtype="float64")
    row = torch.tensor([[0, 1, 1, 1, 0, 2]])
    with torch.no_grad():
        for _ in range(3):
            out = Subject.of(model).logits(task.batch(row))[0]
            model.unembed.b_U[0] += float(out[1] - out[0]) - 60 * 2.0**-52 * float(out.abs().max())
    return model, exact_margin(model, row[0].tolist())


def exact_margin(model: interp.TaskModel, row: list[int]) -> Fraction:
    """The margin of output 1 in fractions: even attention, so that the stream is an embedding plus a mean of them."""
    given = {name: [[Fraction(x) for x in part] for part in p.detach().double().reshape(-1, p.shape[-1]).tolist()]
             for name, p in model.named_parameters()}  # fmt: skip
    rows = [given["embed.W_E"][token] for token in row]
    stream = [x + sum(column) / len(row) for x, column in zip(rows[-1], zip(*rows))]
    logits = [sum(x * weight[i] for x, weight in zip(stream, given["unembed.W_U"])) + given["unembed.b_U"][0][i]
              for i in (0, 1)]  # fmt: skip
    return logits[1] - logits[0]


@pytest.mark.slow
def test_near_ties_of_a_float64_model_are_not_decided(majority: Task) -> None:
    """Against fractions: some are wrong, although the model as run is right by more than the last bits of its output.

    In batches of one row, another float64 run is the same arithmetic.
    """
    wrong = 0
    for seed in range(12):
        model, margin = near_tie(seed, majority)
        found = certify_inputs(model, batch_size=1)
        assert (found.status, found.n_errors, found.accuracy) == ("undecided", 0, 1.0)
        assert abs(margin - Fraction(found.worst_margin)) <= Fraction(found.rounding or 0)
        wrong += margin <= 0
    assert wrong >= 2
    assert found.arithmetic.startswith("as run on this machine: float64")
    assert "rounding is estimated, not bounded, from a run of some inputs in float32 and of the" in found.notes[0]
    assert certify_inputs(counting(majority, 0.0, "float64")).status == "certified"


@pytest.mark.slow
def test_many_digits_find_what_the_estimate_misses(majority: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    """With no estimate at all, no near tie that is wrong in exact arithmetic is certified."""
    monkeypatch.setattr(enumeration, "_difference", lambda *args: 0.0)
    for seed in range(12):
        model, margin = near_tie(seed, majority)
        assert margin > 0 or certify_inputs(model).status != "certified"  # on some machines a run errs as well


def test_what_is_not_the_specs_function_is_certified_as_run(majority: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the numbers of the spec are others than those of the model, only the estimate is left, and a note says so."""
    assert not any("digits" in note for note in certify_inputs(counting(majority, 0.0, "float32")).notes)
    model = counting(majority, 0.0, "float64")
    assert any("digits" in note for note in certify_inputs(model).notes)
    monkeypatch.setattr(enumeration.Precise, "outputs_at", lambda *args: np.array([mpmath.mpf(9), mpmath.mpf(-9)]))
    found = certify_inputs(model)
    assert found.status == "certified"
    assert "not bounded, from a run of some inputs in float32: it changes margins" in found.notes[0]
    assert "the model at hand computes something else" in found.notes[1]
