"""Learned recognizers, layer norm and GELU: every string, against the model's own forward pass and a float64 twin."""

import pytest
import torch
from drawn_weights import draw
from torch import Tensor

import interp
from interp.certificates import certify, rounding
from interp.families.languages import Parity
from interp.families.languages.certificates import enumerated as strings_enumerated
from interp.families.languages.certificates.enumerated import by_counts, strings
from interp.families.languages.tasks.language import decided_by
from interp.models.architecture.task_model import TaskModel
from interp.models.spec import MLP, Bias, Layer, ModelSpec, TaskRef
from interp.tasks.registry import _REGISTRY, register_task

NAME = "every string, with a rounding bound"


def random_model(norm: str, activation: str, seed: int, dtype: str, layers: int = 1, task: str = "parity") -> TaskModel:
    layer = Layer(d_head=4, n_heads=2, norm=norm, mlp=MLP(d_mlp=12, activation=activation),
                  bias=Bias(q=True, k=True, v=True, o=True))  # fmt: skip
    spec = ModelSpec(
        task=TaskRef(name=task), d_model=8, direction="bidirectional", layers=(layer,) * layers, readout="scalar",
        readout_at="[CLS]", decision="sigmoid", final_norm="layer_norm" if norm == "pre" else "none",
    )  # fmt: skip
    model = TaskModel(spec, dtype=dtype)
    draw(model, seed, 0.6, torch.float32)
    return model


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("norm", ["none", "pre", "post"])
def test_float32_stays_within_its_bound(norm: str, activation: str) -> None:
    for seed in range(4):
        single = random_model(norm, activation, seed, "float32")
        double = TaskModel(single.spec, tensors={n: p.double() for n, p in single.named_parameters()}, dtype="float64")
        tokens = single.task.strings(40, 9, seed=seed).tokens
        value, bound = rounding.forward_with_bound(single, tokens)
        with torch.no_grad():
            own, reference = single(tokens)[:, 0].double(), double(tokens)[:, 0]
        torch.testing.assert_close(value, reference, atol=1e-11, rtol=0)
        error = (own - reference).abs()
        assert (error <= bound).all()
        assert bound.max() < 1
        assert error.max() > bound.max() / 1e6


@pytest.mark.parametrize(("name", "longest"), [("languages/parity-learned", 9), ("languages/first-learned", 6)])
def test_learned_recognizers_get_an_answer(name: str, longest: int) -> None:
    model = interp.load(name, dtype="float64")
    assert certify.method_for(model).name == NAME
    found = interp.certify(model, longest=longest)
    batch = model.task.enumerate_up_to(longest)
    right = model.predict(batch.tokens) == batch.labels
    assert found.n_errors == int((~right).sum())
    assert found.accuracy == pytest.approx(float(right.double().mean()))
    assert found.status == ("certified" if right.all() else "refuted")
    assert found.probed > 50
    table = found.tables["lengths"].set_index("length")
    for length in range(1, longest + 1):
        here = right[batch.lengths == length + 1]
        assert table.loc[length, ["right", "wrong", "strings"]].tolist() == [
            int(here.sum()), int((~here).sum()), 2**length,
        ]  # fmt: skip
    if found.counterexample:
        wrong = model.task.encode([found.counterexample])
        assert not torch.equal(model.predict(wrong.tokens), wrong.labels)


def test_rearranged_strings_share_a_proof_only_where_valid() -> None:
    parity, dyck = random_model("post", "relu", 0, "float64"), random_model("none", "relu", 0, "float64", task="dyck1")
    rows, sizes = strings(parity, 6)
    assert rows.sum(1).tolist() == list(range(7))
    assert sizes.tolist() == [1, 6, 15, 20, 15, 6, 1]
    assert by_counts(parity, 100)
    assert not by_counts(dyck, 4)  # "()" is a word and ")(" is none
    assert len(strings(dyck, 4)[0]) == 16
    assert not by_counts(interp.load("languages/first-learned"), 4)


def test_a_single_length_that_fails_is_named() -> None:
    found = interp.certify(interp.load("languages/parity-learned", dtype="float64"), longest=10)
    assert found.status == "refuted"
    assert found.tables["lengths"].set_index("length").loc[10, ["right", "wrong"]].tolist() == [1023, 1]


def test_what_rounding_may_do_is_asked_for_and_taken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Right by less than the bound of the format is not proved; what is stated is below the margin by this one's."""
    model = random_model("pre", "relu", 0, "float64")
    batch = model.task.enumerate(1)
    margin = torch.where(batch.labels, 1, -1) * model(batch.tokens)[:, 0, 0].detach()
    least = float(margin.abs().min())
    seen = torch.stack([margin.abs(), torch.full((2,), least / 4), torch.full((2,), least / 8)])
    for bound, proved in ((least / 4, 2), (2 * float(seen[0].max()), 0)):
        seen[1] = bound
        monkeypatch.setattr(strings_enumerated, "bounded_margins", lambda *_: tuple(seen))
        row = strings_enumerated.certify_every_string(model, longest=1).tables["lengths"].iloc[0]
        assert (row["right"], row["proved"]) == (2, proved)
        assert row["smallest_margin"] == pytest.approx(least * 7 / 8)


@pytest.mark.slow
def test_the_claim_that_counts_decide_is_checked_on_all_strings() -> None:
    """One string stood for its rearrangements wherever the language said so, 1000 for 0001 too."""

    class Tilted(Parity):
        name = "strings-test-tilted"
        first_only = False

        @decided_by(count=True)
        def member(self, symbols: Tensor, lengths: Tensor) -> Tensor:
            if self.first_only:
                return symbols[:, 0] == 1
            odd = (symbols.sum(1) == 1) & (symbols[:, 0] == 1) & (symbols.shape[1] == 4)
            return super().member(symbols, lengths) ^ odd

    plain = random_model("pre", "relu", 0, "float64")
    task = register_task(Tilted)()
    try:
        model = TaskModel(plain.spec.replace(task=task.ref), task, dict(plain.named_parameters()), dtype="float64")
    finally:
        del _REGISTRY[Tilted.name]
    assert [by_counts(model, length) for length in (3, 4, 5, 15)] == [True, False, True, True]
    assert interp.certify(model, longest=4).n_errors == interp.certify(plain, longest=4).n_errors + changed(
        model, plain
    )
    assert interp.certify(model, longest=15).on_trust[0].startswith("labels: compared on every string of up to 14")
    task.first_only = True
    assert not by_counts(model, 15)


def changed(model: TaskModel, plain: TaskModel) -> int:
    """How many more errors 1000 makes under the other label."""
    batch = model.task.encode(["1000"])
    return int(bool((model.predict(batch.tokens) != batch.labels).all())) * 2 - 1
