"""A certificate is about the model that predict() runs: every other field, hook or part is refused."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from jaxtyping import Bool, Int
from torch import Tensor

import interp
from interp.certificates import certificate, certify_model, method_for
from interp.certificates.certificate import ANY, Method, fields, registered_methods, unknown
from interp.certificates.enumeration import MOST
from interp.certificates.probes import Mismatch, Probes, compare
from interp.errors import InterpError, UnsupportedError
from interp.families.languages import First
from interp.families.languages.certificates import strings as language_strings
from interp.families.languages.tasks.language import Language, decided, decided_by
from interp.models.constructions import construct
from interp.models.spec import MLP, Layer, ModelSpec, TaskRef
from interp.tasks.registry import _REGISTRY, make_task, register_task

CERTIFIED = ["count01/minimal", "languages/one", "languages/first", "languages/parity", "languages/palindrome",
             "histogram/dot-exact", "histogram/lin-exact", "histogram/bos-softmax-exact"]  # fmt: skip


def spec_with_everything() -> ModelSpec:
    """Every nested field is there."""
    layer = Layer(d_head=2, mlp=MLP(d_mlp=3))
    return ModelSpec(task=TaskRef(name="one"), d_model=2, layers=(layer,))


ARGUED = [name for name, method in registered_methods().items() if method.takes is not None]
"""All methods but the one that runs the model itself on every input."""

ALL_FIELDS = {field.path: field for field in fields(spec_with_everything())}


def with_value(spec: ModelSpec, path: str, value: object) -> ModelSpec:
    """A copy with one field set, without any validation."""
    if path == "layers":
        return spec.model_copy(update={"layers": spec.layers * 7})
    *outer, name = path.split(".")
    if not outer:
        return spec.model_copy(update={name: value})
    inner: Any = spec.layers[0]
    chain = [inner := getattr(inner, part) for part in outer[1:]]
    new = {name: value}
    for part, holder in zip(reversed(outer[1:]), reversed(chain)):
        new = {part: holder.model_copy(update=new)}
    return spec.model_copy(update={"layers": (spec.layers[0].model_copy(update=new),)})


def test_the_walk_meets_every_field_of_the_spec() -> None:
    assert {"direction", "readout_at", "layers", "layers.scale", "layers.bias.q", "layers.mlp.activation"} <= set(
        ALL_FIELDS
    )
    here = sum(len(part.model_fields) for part in (ModelSpec, Layer, MLP, interp.models.spec.Bias))
    assert len(ALL_FIELDS) == here - 2  # `bias` and `mlp` are walked into


@pytest.mark.parametrize("name", ARGUED)
def test_methods_name_real_fields_and_all_that_have_no_default(name: str) -> None:
    takes = registered_methods()[name].takes
    assert set(takes) <= set(ALL_FIELDS)
    assert {"task", "d_model", "layers", "layers.d_head"} <= set(takes)


@pytest.mark.parametrize("name", ARGUED)
def test_a_value_that_a_method_does_not_know_is_refused(name: str) -> None:
    takes, strange = registered_methods()[name].takes, "a value that nobody has heard of"
    for path, field in ALL_FIELDS.items():
        found = unknown(with_value(spec_with_everything(), path, strange), takes)
        assert any(field.where in sentence for sentence in found) == (takes.get(path) is not ANY), path


@pytest.mark.parametrize("name", ARGUED)
def test_a_new_field_is_refused_by_every_method_where_it_is_used(name: str) -> None:
    class NewLayer(Layer):
        gate: str = "none"

    class NewSpec(ModelSpec):
        ending: str = "none"
        layers: tuple[NewLayer, ...]

    takes, layer = registered_methods()[name].takes, {"d_head": 2, "gate": "sigmoid"}
    plain = {"task": TaskRef(name="one"), "d_model": 2}
    new = unknown(NewSpec(**plain, layers=(layer,), ending="norm"), takes)
    assert any("ending = 'norm'" in sentence for sentence in new)
    assert any("layer 0: gate = 'sigmoid'" in sentence for sentence in new)
    old = unknown(NewSpec(**plain, layers=({"d_head": 2},)), takes)
    assert not any("ending" in sentence or "gate" in sentence for sentence in old)


def test_arguments_come_before_lists_whatever_was_imported_first() -> None:
    chosen = {name: method_for(interp.load(name)).name for name in ("languages/palindrome", "languages/parity")}
    assert chosen["languages/palindrome"] == "proof of PALINDROME"
    assert chosen["languages/parity"] == "strings by counts and seen positions"
    *_, one, two, three, last = registered_methods()
    by_paths = "every path of an automaton, by places and states"
    assert {one, two, three} == {"every multiset", "every string, with a rounding bound", by_paths}
    assert last == "every input, as run"


def with_short_strings(model: interp.TaskModel) -> interp.TaskModel:
    """The same model on a task whose inputs are few, where it is one of strings."""
    if "length" not in model.task.defaults:
        return model
    short = TaskRef(name=model.task.name, parameters=(("length", 4),))
    return interp.TaskModel(model.spec.replace(task=short), tensors=dict(model.named_parameters()), dtype="float64")


@pytest.mark.parametrize("name", CERTIFIED)
def test_a_new_field_takes_certificates_away(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = with_short_strings(interp.build(name))
    assert method_for(model).refusal(model) is None
    known = certificate.refusal_of

    def later(spec: ModelSpec, takes: Any) -> str | None:
        return known(with_value(spec, "tolerance", 0.1), takes)

    monkeypatch.setattr(certificate, "refusal_of", later)
    if (model.task.n_inputs or MOST + 1) <= MOST:  # running the model on every input takes no field for granted
        assert certify_model(model).arithmetic.startswith("as run")
        return
    with pytest.raises(UnsupportedError, match=r"does not support tolerance = 0\.1"):
        certify_model(model)


# ---------------------------------------------------------------- false certificates that were found


@pytest.mark.slow
def test_a_palindrome_of_another_scale_is_not_the_proof_s() -> None:
    exact = interp.build("languages/palindrome")
    short = TaskRef(name="palindrome", parameters=(("length", 8),))
    layers = tuple(layer.model_copy(update={"scale": 0.5}) for layer in exact.spec.layers)
    other = interp.TaskModel(
        exact.spec.replace(layers=layers, task=short), make_task(short), dict(exact.named_parameters()), dtype="float64"
    )
    batch = other.task.enumerate_up_to(8)
    assert not torch.equal(other.predict(batch.tokens), batch.labels)
    why = registered_methods()["proof of PALINDROME"].refusal(other)
    assert why == "layer 0: scale = 0.5 differs from the construction's"
    assert interp.certify(other).status != "certified"


def test_positions_that_only_attention_sees_are_not_overlooked() -> None:
    exact = interp.build("languages/one")
    short = TaskRef(name="one", parameters=(("length", 8),))
    spec = exact.spec.replace(task=short, positions="learned", positions_enter="attention", max_length=12)
    tensors = {name: p.detach().clone() for name, p in exact.named_parameters()}
    generator = torch.Generator().manual_seed(0)
    positions = torch.randn(12, spec.d_model, generator=generator, dtype=torch.float64)
    tensors |= {f"blocks.{i}.attn.W_pos": positions for i in range(len(spec.layers))}
    other = interp.TaskModel(spec, make_task(short), tensors, dtype="float64")
    batch = other.task.enumerate_up_to(8)
    assert not torch.equal(other.predict(batch.tokens), batch.labels)
    why = registered_methods()["strings by counts and seen positions"].refusal(other)
    assert "positions in the residual stream" in (why or "")
    assert interp.certify(other).status == "refuted"


@pytest.mark.parametrize("change", [{"direction": "bidirectional"}, {"readout_at": "last"}])
def test_count_boxes_know_where_the_answer_is_read(change: dict[str, str]) -> None:
    exact = interp.build("count01/minimal")
    other = interp.TaskModel(exact.spec.replace(**change), exact.task, dict(exact.named_parameters()), dtype="float64")
    with pytest.raises(UnsupportedError, match=r"direction|the answer is read at 'last'"):
        interp.certify(other)


def test_replaced_parts_and_changed_constants_are_refused() -> None:
    def broken(change: Any) -> str:
        model = interp.build("histogram/dot-exact", T=4, L=3)
        change(model)
        with pytest.raises(UnsupportedError) as error:
            interp.certify(model)
        return str(error.value)

    other = "its outputs are not those that its spec and its parameters give in a fresh model"
    with torch.no_grad():
        assert other in broken(lambda m: m.blocks[0].attn.b_Q.fill_(1.0))
    assert other in broken(lambda m: setattr(m.blocks[0].attn, "attn_scale", 3.0))
    assert "missing unembed.W_in" in broken(lambda m: setattr(m, "unembed", torch.nn.Linear(5, 3).double()))
    assert "stored as torch.float32, torch.float64" in broken(lambda m: m.unembed.to(torch.float32))


class Late(Language):
    """The label of FIRST but for strings of more than 10 symbols, where the last one decides."""

    name = "late-language"

    def member(self, symbols: Int[Tensor, "rows width"], lengths: Int[Tensor, "rows"]) -> Bool[Tensor, "rows"]:
        last = symbols.gather(1, lengths[:, None] - 1)[:, 0] == 1
        return torch.where(lengths > self.late, last, symbols[:, 0] == 1)

    late = 10


def late_model(**changes: Any) -> interp.TaskModel:
    task = register_task(type("Late", (Late,), {"__module__": __name__, "__qualname__": f"Late{changes}", **changes}))()
    del _REGISTRY[task.name]
    exact = construct("languages/first")
    return interp.TaskModel(exact.spec.replace(task=task.ref), task, exact.weights.tensors, dtype="float64")


@pytest.mark.slow
def test_labels_beyond_what_was_compared_are_not_certified() -> None:
    with pytest.raises(InterpError, match=r"strings of length 11 that .* cannot tell apart have different labels"):
        interp.certify(late_model(), longest=12)
    with pytest.raises(InterpError, match=rf"compared on every string up to {language_strings.CHECKED} symbols"):
        interp.certify(late_model(late=100), longest=20)
    found = interp.certify(late_model(late=100))
    assert (found.status, found.domain) == ("certified", f"every string of 1 to {language_strings.CHECKED} symbols")
    assert any("labels compared on every string" in note for note in found.notes)


@pytest.mark.slow
def test_what_a_language_says_of_itself_is_compared_with_strings() -> None:
    """Of up to 14 symbols every one, of longer ones a sample; a promise of `decided_by` was taken for the labels."""
    member = decided_by(places=(0,))(lambda self, symbols, lengths: Late.member(self, symbols, lengths))
    for late, first in ((4, 5), (17, 18)):
        with pytest.raises(InterpError, match=rf"strings of length {first} that .* cannot tell apart have different"):
            interp.certify(late_model(member=member, late=late), longest=20)
    found = interp.certify(late_model(member=member, late=100), longest=15)
    assert found.on_trust[0].startswith("labels: compared on every string of up to 14 symbols and on some longer ones")
    assert found.on_trust[0] in str(found)
    assert interp.certify(late_model(member=member, late=100), longest=14).on_trust == ()


def rare(symbols: Tensor) -> Tensor:
    """Is it 11111? A sample of a few hundred strings does not meet it."""
    return (symbols.sum(1) == 5) & (symbols.shape[1] == 5)


def test_one_string_that_breaks_a_language_s_promise_is_found() -> None:
    """FIRST, but 11111 is not a member, or batch says so, or enumerate leaves it out: all were certified."""
    member = decided_by(places=(0,))(lambda self, symbols, lengths: (symbols[:, 0] == 1) & ~rare(symbols))
    plain = decided_by(places=(0,))(lambda self, symbols, lengths: symbols[:, 0] == 1)

    def batch(self: Language, tokens: Tensor) -> interp.Batch:
        found = Language.batch(self, tokens)
        return replace(found, labels=found.labels & ~rare(self.symbols(tokens)[0]))

    def enumerate(self: Language, length: int) -> interp.Batch:
        found = Language.enumerate(self, length)
        return found[~rare(self.symbols(found.tokens)[0])]

    for changes, sentence in (
        ({"member": member}, "strings of length 5 that .* cannot tell apart"),
        ({"member": plain, "batch": batch}, "labels '.CLS.11111' in two ways, by of_symbols and by batch"),
        ({"member": plain, "enumerate": enumerate}, r"enumerate\(5\) is not every string of 5 symbols once"),
    ):
        with pytest.raises(InterpError, match=sentence):
            interp.certify(late_model(**changes), longest=6)


def test_a_subclass_with_new_membership_keeps_no_promise() -> None:
    assert decided(First()) is not None
    other = type("Other", (First,), {"member": Late.member, "name": "other"})
    assert decided(other()) is None


# ---------------------------------------------------------------- the model itself


@pytest.mark.parametrize("name", ["memorization/lookup", "count01/minimal", "histogram/dot"])
@pytest.mark.thinned(3)
def test_the_model_is_run_on_a_few_hundred_inputs(name: str) -> None:
    options = {"seconds": 0.1, "samples": 0} if name == "histogram/dot" else {}
    assert interp.certify(name, **options).probed > 100


@pytest.mark.parametrize("name", [*CERTIFIED, "memorization/lookup"])
@pytest.mark.thinned(6)
def test_a_proof_that_says_too_much_is_an_error(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a method says, the model has the last word: here the weights change after the proof."""
    model = interp.load(name)
    method = method_for(model)
    found = method.run(model)
    assert compare(model, found.probes) > 100
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(-1.5)
    with pytest.raises(Mismatch, match="no certificate, because"):
        compare(model, found.probes)


def test_an_answer_is_compared_where_margins_are_not() -> None:
    model = interp.build("count01/minimal")
    batch = model.task.sample(20)
    right = torch.nn.functional.one_hot(batch.labels, 8).bool()
    margin, bound = torch.full((20,), 1.0, dtype=torch.float64), torch.zeros(20, dtype=torch.float64)
    assert compare(model, [Probes(batch, right, margin, margin, bound, whole=False)]) == 20
    with pytest.raises(Mismatch, match="is wrong, and predict says otherwise"):
        compare(model, [Probes(batch, right, -margin, -margin, bound, whole=False)])
    wrong = replace(batch, labels=(batch.labels + 1) % 8)
    with pytest.raises(Mismatch, match="is right, and predict says otherwise"):
        compare(model, [Probes(wrong, right, margin, margin, bound, whole=False)])
    with pytest.raises(Mismatch, match="the margin is"):
        compare(model, [Probes(batch, right, margin, margin, bound)])


def test_every_margin_that_a_proof_bounds_is_counted() -> None:
    model = interp.build("count01/minimal")
    batch = model.task.sample(130)
    right = torch.nn.functional.one_hot(batch.labels, 8).bool()
    low, bound = torch.full((130,), -1e9, dtype=torch.float64), torch.zeros(130, dtype=torch.float64)
    right[3], low[70], bound[129] = False, -torch.inf, torch.inf
    wide = Probes(batch, right, low, -low, bound)
    assert compare(model, [wide, wide]) == 2 * 127
    assert compare(model, [replace(wide, whole=False)]) == 0  # answers that the proof leaves open


def test_the_premise_is_asked_of_every_argument() -> None:
    """Also of one that does not ask by itself: a method that a user registers."""
    model = interp.build("count01/minimal")
    takes = registered_methods()["count box"].takes
    method = Method("mine", lambda task: None, lambda model: None, certify_model, takes)
    assert method.refusal(model) is None
    try:
        torch.set_float32_matmul_precision("high")
        assert "precision" in str(method.refusal(model))
    finally:
        torch.set_float32_matmul_precision("highest")
