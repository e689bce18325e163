"""Multisets against every sequence: the same errors, counted with their orders."""

import math
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

import interp
from interp.certificates import certificate, certify_model, method_for, multisets, rounding
from interp.certificates.multisets import certify_multisets, check_labels
from interp.families.algorithmic import MaxOfK
from interp.models.spec import Bias, Layer, ModelSpec, TaskRef, Training

TASK = TaskRef(name="max-of-k", parameters={"K": 3, "v": 5})
PLAIN = Layer(n_heads=2, d_head=3)


def spec_of(layer: Layer = PLAIN, **fields: object) -> ModelSpec:
    recipe = Training(init="torch", epochs=0)
    given = {"task": TASK, "d_model": 6, "layers": (layer,), "readout_at": "=", "dtype": "float64", "origin": recipe}
    return ModelSpec(**{**given, **fields})


VARIANTS = {
    "plain": spec_of(),
    "pre-norm and biases": spec_of(Layer(n_heads=2, d_head=3, norm="pre", bias=Bias(q=True, k=True, v=True, o=True))),
    "bidirectional": spec_of(direction="bidirectional"),
    "read at the last token": spec_of(readout_at="last"),
    "with outputs that are no answers": spec_of(n_out=8),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_errors_and_the_worst_margin_are_those_of_all_sequences(name: str) -> None:
    model = interp.TaskModel(VARIANTS[name], seed=2)
    found = certify_model(model)
    assert found.method.startswith("every multiset")
    batch = next(model.task.inputs(4096))
    out = model(batch.tokens)[:, -1].detach()
    right = out.gather(1, batch.labels[:, None])[:, 0]
    margin = right - out.scatter(1, batch.labels[:, None], -torch.inf).amax(1)
    assert (found.n_inputs, found.n_errors) == (125, int((margin <= 0).sum()))
    assert found.worst_margin == pytest.approx(float(margin.min()), abs=1e-9)
    assert found.status == "refuted"
    assert found.accuracy == pytest.approx(float((margin > 0).double().mean()), abs=1e-12)
    assert int(found.tables["errors"]["orders"].sum()) == found.n_errors
    row = torch.tensor([model.task.parse(found.counterexample.split(":")[0])])
    assert int(model.predict(row)) != int(model.task.batch(row).labels)
    assert found.probed > 0


def test_an_exact_model_is_certified_with_its_margin() -> None:
    for dtype in ("float64", "float32"):
        found = certify_multisets(interp.build("algorithmic/max-of-k-exact", K=4, v=9, dtype=dtype))
        assert found.status == "certified"
        assert found.n_inputs == 9**4
        assert "495 multisets stand for 6,561 inputs, 13.3 times as many" in found.notes[0]
    blunt = interp.build("algorithmic/max-of-k-exact", K=4, v=9, beta=1.5)
    assert certify_multisets(blunt).worst_margin == pytest.approx(math.tanh((1.5 - math.log(4)) / 2), abs=1e-9)


def test_a_wrong_weight_is_found() -> None:
    model = interp.build("algorithmic/max-of-k-exact", K=3, v=6)
    with torch.no_grad():
        model.unembed.W_U[0, 4] += 3.0
    found = certify_multisets(model)
    assert found.status == "refuted"
    assert found.n_errors > 0


def test_ties_are_wrong_and_leave_room_for_being_right() -> None:
    """Outputs 0 and 1 are equal and above the others: 8 of 64 inputs have such a maximum, the other 56 are wrong."""
    task = TaskRef(name="max-of-k", parameters={"K": 3, "v": 4})
    model = interp.TaskModel(
        ModelSpec(task=task, d_model=4, layers=(Layer(d_head=4),), readout_at="=", dtype="float64")
    )
    with torch.no_grad():
        for parameter in model.unembed.parameters():
            parameter.zero_()
        model.unembed.b_U[:2] = 1.0
    found = certify_multisets(model)
    assert (found.n_inputs, found.n_errors, found.accuracy) == (64, None, (0.0, 8 / 64))


def test_positions_and_other_tasks_are_left_to_other_methods() -> None:
    refusal = certificate.registered_methods()["every multiset"].refusal
    assert "positions" in (refusal(interp.TaskModel(spec_of(positions="learned", max_length=4))) or "")
    assert method_for(interp.build("count01/minimal")).name == "count box"
    assert "declares no multisets" in (refusal(interp.build("count01/minimal")) or "")


def test_what_rounding_may_do_is_asked_for_and_taken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bound of rounding above the smallest margin: nothing is certified; and what is stated is below the margin."""
    model = interp.build("algorithmic/max-of-k-exact", K=3, v=5)
    batch = next(model.task.inputs(4096))
    out = model(batch.tokens)[:, -1].detach().double()
    right = out.gather(1, batch.labels[:, None])[:, 0]
    least = float((right - out.scatter(1, batch.labels[:, None], -torch.inf).amax(1)).min())
    for error, status in ((least / 8, "certified"), (least, "undecided")):
        monkeypatch.setattr(multisets, "margin_errors", lambda *_, error=error: (2 * error, error))
        found = certify_multisets(model)
        assert found.status == status
        assert found.worst_margin == pytest.approx(least - error, abs=1e-6)


@pytest.mark.parametrize(("changed", "sentence"), [
    ("label", "labels '2 0 1 =' differently from its multiset"),
    ("twice", "lists the multiset of '0 0 0 =' twice"),
    ("orders", "fewer inputs like '0 1 2 =' than its multiset says"),
])  # fmt: skip
def test_multisets_that_do_not_decide_the_labels_are_refused(changed: str, sentence: str) -> None:
    """One word of 27 has another label, though its sorted form has not; or the multisets are wrong."""

    class Rare(MaxOfK):
        name = "multisets-test-rare"

        def batch(self, tokens: torch.Tensor) -> interp.Batch:
            batch = super().batch(tokens)
            rare = (tokens[:, :3] == torch.tensor([2, 0, 1])).all(1)
            return replace(batch, labels=batch.labels.masked_fill(rare, 0)) if changed == "label" else batch

        def multisets(self, chunk: int = 4096) -> Iterator[tuple[interp.Batch, torch.Tensor]]:
            for batch, orders in super().multisets(chunk):
                yield batch, orders + (changed == "orders") * (orders == 6)
                if changed == "twice":
                    yield batch, orders

    with pytest.raises(interp.InterpError, match=sentence):
        check_labels(Rare(K=3, v=3))


def test_longer_rows_have_a_larger_bound() -> None:
    model = interp.build("algorithmic/max-of-k-exact", K=3, v=3)
    every = torch.arange(model.task.d_vocab)
    short, long = (rounding.margin_errors(model, model.task.token_id("="), every, n) for n in (4, 300))
    assert all(after > before for before, after in zip(short, long))


def test_the_note_says_whose_word_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    model = interp.build("algorithmic/max-of-k-exact", K=3, v=3)
    assert certify_multisets(model).on_trust == ()
    monkeypatch.setattr(multisets, "COMPARED", 26)
    assert (
        certify_multisets(model)
        .on_trust[0]
        .startswith("unchecked assumption: the order of tokens does not change the labels of task max-of-k")
    )


def test_multisets_that_leave_samples_out_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where not every input is compared, those of numbers below two stood for all 27."""

    class Few(MaxOfK):
        name = "multisets-test-few"

        def multisets(self, chunk: int = 4096) -> Iterator[tuple[interp.Batch, torch.Tensor]]:
            for batch, orders in super().multisets(chunk):
                few = (batch.tokens[:, :3] < 2).all(1)
                yield (
                    batch[few],
                    torch.full_like(orders[few], 27).div(int(few.sum()), rounding_mode="floor")
                    + (torch.arange(int(few.sum())) < 27 % int(few.sum())),
                )

    monkeypatch.setattr(multisets, "COMPARED", 26)
    plain = ModelSpec(task=TaskRef(name="max-of-k", parameters={"K": 3, "v": 3}), d_model=4,
                      layers=(Layer(n_heads=2, d_head=3),), readout_at="=")  # fmt: skip
    model = interp.TaskModel(plain)
    assert multisets.certify_multisets(model).n_inputs == 27
    model.task.__class__ = Few
    with pytest.raises(interp.InterpError, match=r"samples '.*2.* =' in split 'test', but does not list it"):
        multisets.certify_multisets(model)


def test_a_multiset_is_the_same_however_its_rows_are_padded() -> None:
    task = interp.build("count01/minimal").task
    narrow, wide = (torch.tensor([task.parse(text)]) for text in ("[BOS]0112=4[EOS]", "[BOS]2110=4[EOS]"))
    wide = torch.nn.functional.pad(wide, (0, 2), value=task.pad_id)
    assert multisets._keys(task, task.batch(narrow)) == multisets._keys(task, task.batch(wide))
