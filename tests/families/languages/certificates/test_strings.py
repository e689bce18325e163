"""Certificates over all strings, against enumeration; and what happens when a weight is off."""

import pytest
import torch
from drawn_weights import set_to_zero

import interp
from interp.certificates import certify_model
from interp.certificates.certificate import registered_methods
from interp.families.languages import Dyck1
from interp.families.languages.certificates import strings as language_strings
from interp.families.languages.certificates.palindrome import binary_margin, certify_palindrome
from interp.families.languages.certificates.strings import classes, counts_matter, seen_positions
from interp.families.languages.constructions.learned import learned_spec
from interp.models.constructions import construct


@pytest.mark.parametrize(
    ("name", "seen", "counted", "n"), [("one", [], True, 9), ("parity", [], True, 9), ("first", [0], False, 2)]
)
def test_classes_are_what_the_proofs_say(name: str, seen: list[int], counted: bool, n: int) -> None:
    model = construct(f"languages/{name}").model()
    assert seen_positions(model, 8).nonzero()[:, 0].tolist() == seen
    assert counts_matter(model) is counted
    assert len(classes(model, 8)) == n


@pytest.mark.parametrize("name", ["one", "parity", "first"])
def test_strings_of_one_class_have_one_output(name: str) -> None:
    model = construct(f"languages/{name}").model()
    batch = model.task.enumerate(9)
    with torch.no_grad():
        logits = model(batch.tokens)[:, 0, 0]
        represented = model(model.task.of_symbols(classes(model, 9), torch.full((len(classes(model, 9)),), 9)).tokens)[
            :, 0, 0
        ]
    distances = (logits[:, None] - represented).abs().amin(1)
    assert distances.max() < 1e-14


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["one", "parity", "first"])
@pytest.mark.thinned(6)
def test_exact_models_are_certified(name: str, dtype: str) -> None:
    made = construct(f"languages/{name}")
    certificate = certify_model(made.model(dtype=dtype), longest=16)
    assert certificate.status == "certified"
    assert certificate.n_inputs == 2**17 - 2
    assert certificate.accuracy == 1.0
    with torch.no_grad():
        logits = made.model()(made.task.enumerate_up_to(12).tokens)[:, 0, 0]
    table = certificate.tables["lengths"]
    assert table["smallest_margin"].iloc[:12].min() == pytest.approx(float(logits.abs().min()), rel=1e-5)
    assert (table["smallest_margin"] > table["rounding"]).all()


def test_a_wrong_weight_is_refuted_with_a_string_that_fails() -> None:
    model = construct("languages/one").model()
    with torch.no_grad():
        model.blocks[0].mlp.W_in[5, 0] = -3.5  # 1/n into max(0, k - 2): now accepts k = 3
        model.blocks[0].mlp.W_out[1, 6] = -1.0
    certificate = certify_model(model, longest=12)
    assert certificate.status == "refuted"
    batch = model.task.encode([certificate.counterexample])
    assert not torch.equal(model.predict(batch.tokens), batch.labels)
    every = model.task.enumerate_up_to(12)
    wrong = int((model.predict(every.tokens) != every.labels).sum())
    assert certificate.n_errors == wrong > 0, "the strings of each class are counted"
    assert certificate.accuracy == (len(every) - wrong) / len(every)


@pytest.mark.parametrize(("name", "longest"), [("languages/first", 9), ("languages/parity", 9), ("languages/one", 9)])
def test_classes_hold_every_string_once(name: str, longest: int) -> None:
    model = construct(name).model()
    for length in range(1, longest + 1):
        seen = language_strings.seen_positions(model, length)
        sizes = language_strings.class_sizes(model, length, seen)
        assert len(sizes) == len(language_strings.classes(model, length, seen))
        assert sum(sizes) == 2**length


@pytest.mark.slow
def test_float32_is_undecided_where_rounding_might_matter() -> None:
    """PARITY's margin falls like 1/n^2, the bound for float32 does not."""
    certificate = certify_model(construct("languages/parity").model(dtype="float32"), longest=100)
    assert certificate.status == "undecided"
    table = certificate.tables["lengths"]
    assert table.loc[table["status"] == "undecided", "length"].min() > 50


def test_models_that_cannot_be_certified_say_why() -> None:
    norm = construct("languages/parity", layer_norm=True).model()
    refusal = registered_methods()["strings by counts and seen positions"].refusal
    assert "does not support layer 0: norm = 'post'" in (refusal(norm) or "")
    assert "declares no alphabet" in (refusal(construct("count01/minimal").model()) or "")
    brackets = interp.build(learned_spec(Dyck1(), "none"))
    assert refusal(brackets) == "task dyck1 is a language over (, ), not 0, 1"
    tampered = construct("languages/palindrome").model()
    with torch.no_grad():
        tampered.blocks[1].attn.W_Q.mul_(1.01)
    palindrome = registered_methods()["proof of PALINDROME"].refusal
    assert "W_Q differs from" in (palindrome(tampered) or "")
    assert "fixed tolerance" in (palindrome(construct("languages/palindrome", tolerance=1e-3).model()) or "")


# ---------------------------------------------------------------- PALINDROME


def test_exact_margin_is_half_of_the_smallest_value() -> None:
    for n in range(4, 60):
        assert binary_margin(n) * (2**n - 1) == 1


@pytest.mark.parametrize(
    ("variant", "dtype", "least"),
    [("binary", "float32", 16), ("binary", "float64", 70), ("mirror", "float32", 60), ("mirror", "float64", 60)],
)
@pytest.mark.thinned(2)
def test_palindrome_is_certified_as_far_as_the_bound_carries(variant: str, dtype: str, least: int) -> None:
    made = construct("languages/palindrome", variant)
    certificate = (
        certify_model(made.model(dtype=dtype), longest=60)
        if variant == "mirror"
        else certify_model(made.model(dtype=dtype))
    )
    assert certificate.status == "certified"
    table = certificate.tables["lengths"]
    assert table["length"].max() >= least
    assert table["length"].max() <= made.weights.length_limit.in_dtype(getattr(torch, dtype))
    # The bound covers what really happens: logits of every short string against the exact margin.
    with torch.no_grad():
        logits = made.model(dtype=dtype)(made.task.enumerate(9).tokens)[:, 0, 0].double()
    margin, bound = table.loc[table["length"] == 9, ["smallest_margin", "rounding"]].to_numpy()[0]
    assert margin - bound <= float(logits.abs().min())


@pytest.mark.slow
def test_palindrome_beyond_the_bound_is_undecided() -> None:
    certificate = certify_palindrome(construct("languages/palindrome").model(dtype="float32"), longest=40)
    assert certificate.status == "undecided"
    assert 0.9 < certificate.accuracy[0] < certificate.accuracy[1] == 1, "random strings say more than the proof"


def test_margins_of_exactly_zero_are_errors() -> None:
    model = interp.build("languages/first")
    set_to_zero(model.unembed)
    found = interp.certify(model, longest=3)
    assert found.tables["lengths"]["rounding"].to_list() == [0.0, 0.0, 0.0]
    assert (found.status, found.worst_margin, found.counterexample) == ("refuted", 0.0, "0")
    assert found.notes[0] == "certified at every length up to 0"


def test_an_error_smaller_than_rounding_leaves_it_undecided(monkeypatch: pytest.MonkeyPatch) -> None:
    model = construct("languages/one").model()
    with torch.no_grad():
        for parameter in model.unembed.parameters():
            parameter.neg_()
    assert set(certify_model(model, longest=4).tables["lengths"]["status"]) == {"refuted"}
    own = language_strings.forward_with_bound

    def unsure(*given: object, **options: object) -> tuple[torch.Tensor, torch.Tensor]:
        value, bound = own(*given, **options)
        return value, bound + 2 * value.abs().max()

    monkeypatch.setattr(language_strings, "forward_with_bound", unsure)
    found = certify_model(model, longest=4)
    assert (found.status, found.counterexample) == ("undecided", None)
    assert set(found.tables["lengths"]["status"]) == {"undecided"}
    assert found.accuracy == (0.0, 1.0), "wrong on every string that was run, by less than rounding"
