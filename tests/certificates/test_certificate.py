"""What a certificate says of itself."""

import math
from dataclasses import replace

import pandas as pd
import pytest
import torch
from standins import standin

import interp
from interp.certificates.certificate import (
    Certificate,
    MarginCounts,
    SampledShare,
    Stratum,
    note_rounding,
    within_rounding,
)
from interp.certificates.certify import method_for
from interp.errors import UnsupportedError
from interp.models.spec import Layer, ModelSpec, TaskRef
from interp.report.items import Text
from interp.report.sections.accuracy import certificate_sentence


def refuted(worst: float, rounding: float | None, **also: object) -> Certificate:
    given = {"status": "refuted", "n_errors": 1, "counterexample": "0 1", "accuracy": 0.5, "n_inputs": 2} | also
    return Certificate(model="m", worst_margin=worst, method="by hand", domain="two inputs", seconds=0.0,
                       rounding=rounding, **given)  # type: ignore[arg-type]  # fmt: skip


@pytest.mark.parametrize(("found", "within"), [
    (refuted(-1e-9, 1e-8), True), (refuted(-1e-8, 1e-8), True), (refuted(-2e-8, 1e-8), False),
    (refuted(0.0, 0.0), True),  # tied, and the first of the largest is a wrong one
    (refuted(-1e-9, None), False),
    (refuted(float("nan"), 1e-8), False),
    (refuted(1e-3, 1e-8, n_errors=0), False),  # right everywhere, refuted by a divergence
    (refuted(-1e-9, 1e-8, n_errors=None), True),
    (refuted(1.0, 1e-8, status="certified", n_errors=0, counterexample=None), False),
    (refuted(-1e-9, 1e-8, status="undecided", counterexample=None), False),
])  # fmt: skip
def test_a_certificate_names_refutations_within_rounding(found: Certificate, within: bool) -> None:
    assert within_rounding(found) is within
    once = note_rounding(found)
    assert ("another shape or order" in str(once)) is within
    assert note_rounding(once) is once
    assert "-0," not in str(once)


def test_tables_and_probes_stay_out_of_what_is_printed() -> None:
    found = refuted(-1.0, 1e-8, tables={"errors": pd.DataFrame({"odd": [1]})})
    assert "odd" not in repr(found)
    assert "tables" not in repr(found)


def test_one_line_and_one_row_say_what_a_claim_rests_on() -> None:
    """Somebody may see no more: labels on trust, an interval by a sample, a model that was merely run."""
    plain = refuted(1.0, 1e-8, status="certified", counterexample=None)
    found = refuted(1.0, 1e-8, status="certified", counterexample=None, on_trust=("labels: unchecked",),
                    confidence=0.999, about="the model at hand", notes=("one",))  # fmt: skip
    line, row = str(found).splitlines()[0], found.to_frame().iloc[0]
    assert "(two inputs), if the task labels its inputs as it declares, accuracy 0.5 with confidence 99.9%" in line
    assert list(row[["on_trust", "confidence", "about", "notes"]]) == [
        "labels: unchecked", 0.999, "the model at hand", "one",
    ]  # fmt: skip
    assert "(two inputs), accuracy 0.5" in str(plain)
    assert list(plain.to_frame().iloc[0][["on_trust", "confidence", "notes"]]) == [None, None, None]


@pytest.mark.slow
def test_a_model_that_errs_once_among_8_20_inputs_is_below_1() -> None:
    model = interp.build("algorithmic/max-of-k-exact", K=20, v=8)
    with torch.no_grad():
        model.unembed.b_U[0] -= 100  # only a row of zeros has the answer 0
    found = interp.certify(model)
    assert (found.n_errors, found.n_inputs) == (1, 8**20)
    assert 1 - 1e-15 < found.accuracy < 1
    assert "accuracy 0.9999999999999999; wrong at" in str(found)
    assert "Accuracy 0.99999" in certificate_sentence(found)
    left = refuted(1e-9, 1e-8, status="undecided", n_errors=None)
    assert replace(left, accuracy=(1.0, 1.0)).accuracy == (math.nextafter(1.0, 0.0), 1.0)
    assert replace(left, accuracy=1.0).accuracy == 1.0  # right in exact arithmetic, and not proved as it runs


def test_an_interval_of_a_refuted_model_ends_below_1() -> None:
    """One of n answers is wrong; but an error within rounding may be none in exact arithmetic."""
    assert refuted(-1.0, 1e-8, n_inputs=50, accuracy=(0.5, 1.0)).accuracy == (0.5, 0.98)
    assert refuted(-1.0, 1e-8, n_inputs=50, n_answers=100, accuracy=(0.5, 1.0)).accuracy == (0.5, 0.99)
    assert refuted(-1.0, 1e-8, n_inputs=50, accuracy=(0.5, 0.7)).accuracy == (0.5, 0.7)
    assert refuted(-1.0, 1e-8, n_inputs=10**40, accuracy=(0.5, 1.0)).accuracy == (0.5, math.nextafter(1.0, 0.0))
    assert refuted(-1e-9, 1e-8, n_inputs=50, accuracy=(0.5, 1.0)).accuracy == (0.5, 1.0)
    assert refuted(1e-9, 1e-8, n_inputs=50, accuracy=(0.5, 1.0), status="undecided").accuracy == (0.5, 1.0)


def test_a_refusal_names_each_method_and_what_the_task_lacks() -> None:
    layer = Layer(d_head=2)
    spec = ModelSpec(task=TaskRef(name="count01"), d_model=2, layers=(layer, layer), readout_at="=")
    with pytest.raises(UnsupportedError) as caught:
        method_for(interp.TaskModel(spec, seed=0))
    said = str(caught.value)
    assert "count box: " in said
    assert said.index("count box: ") < said.index("every input, as run: task count01 does not list its inputs")
    assert "every context of the table" not in said  # a method for other kinds of tasks


def test_accuracies_are_quotients_of_whole_numbers() -> None:
    """The quotient is the nearest number: 1 - 302 / 625 would be 0.5167999999999999."""
    counts = MarginCounts(wrong=302)
    assert str(counts.accuracy(625)) == str(SampledShare.of([Stratum(625, 323, 302)]).accuracy) == "0.5168"


def test_why_an_external_model_has_no_certificate_is_said_once() -> None:
    report = interp.analyze(standin("ends"), sections=["accuracy"], inputs=20)
    said = " ".join(item.text for item in report.items if isinstance(item, Text))
    assert "No certificate: every input, as run: task standin_ends does not list its inputs" in said
    assert said.count("does not list its inputs") == 1
    assert "cannot be certified" not in said
