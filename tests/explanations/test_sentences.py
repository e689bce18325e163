"""What is said of an explanation, case by case."""

from __future__ import annotations

import pytest

from interp.explanations.findings import Agreement, PartRole
from interp.explanations.sentences import how, nothing_found, parts_sentence, truth

ALL = "on all 64 inputs"


@pytest.mark.parametrize(
    ("agreement", "said"),
    [
        (
            Agreement(64, 0, 1.0, 1.0, 1.0, 1.0, None, ALL),
            "This program gives all of the model's answers on all 64 inputs.",
        ),
        (
            Agreement(64, 32, 0.5, 0.5, 0.5, 1.0, 0.0, ALL),
            "This program gives 0.5000 of the model's answers on all 64 inputs: all where the model is right "
            "and none where it is wrong.",
        ),
        (
            Agreement(100000, 1, 0.99999, 0.9999, 0.999999, 0.99999, None, "on a sample"),
            "This program gives 0.99999 of the model's answers on a sample (95% interval 0.9999 to 0.999999).",
        ),
        (
            Agreement(200, 0, 1.0, 0.98, 1.0, 1.0, 1.0, "on a sample"),
            "This program gives all of the model's answers on a sample (95% interval 0.9800 to 1).",
        ),
    ],
)  # fmt: skip
def test_truth(agreement: Agreement, said: str) -> None:
    assert truth(agreement) == said


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ([], "The parts of the model were not tested: time ran out."),
        ([PartRole("head 0.0", "cut")], ""),
        ([PartRole("head 0.0", "kept")], "The output of head 0.0 is not explained."),
        ([PartRole("MLP 0", "explained", carries="carries x")], "In the model: MLP 0 carries x."),
        (
            [PartRole("head 0.0", "kept", "looks at itself", 1.0), PartRole("MLP 1", "kept")],
            "In the model: head 0.0 looks at itself. The outputs of head 0.0 and MLP 1 are not explained.",
        ),
        (
            # What a part carries is not said where it broke the whole.
            [PartRole("head 0.0", "kept", "looks at itself", carries="carries x")],
            "In the model: head 0.0 looks at itself. The output of head 0.0 is not explained.",
        ),
        (
            [PartRole(f"head 0.{n}", "explained", carries="carries x") for n in range(6)],
            "In the model: heads 0.0, 0.1, 0.2, 0.3 and 2 more: each carries x.",
        ),
        (
            # Explained parts come first, and parts that do the same are said once.
            [
                PartRole("head 0.0", "kept", "looks at itself"),
                PartRole("head 0.1", "kept", "looks at itself"),
                PartRole("MLP 0", "explained", carries="carries x"),
            ],
            "In the model: MLP 0 carries x; heads 0.0 and 0.1: each looks at itself. The outputs "
            "of heads 0.0 and 0.1 are not explained.",
        ),
        (
            [PartRole(f"head 0.{n}", "explained", carries=f"carries {n}") for n in range(6)],
            "In the model: head 0.0 carries 0; head 0.1 carries 1; head 0.2 carries 2; head 0.3 carries 3; "
            "for heads 0.4 and 0.5 see the table of parts.",
        ),
    ],
)  # fmt: skip
def test_parts(parts: list[PartRole], said: str) -> None:
    assert parts_sentence(parts) == said


def test_the_method_stands_on_the_first_screen() -> None:
    agreement = Agreement(64, 0, 1.0, 1.0, 1.0, 1.0, None, ALL)
    notes = ["It is a sum of waves that hold 0.8829 of it. They keep all answers. Measured on all inputs."]
    said = how("The answer is a + b.", [PartRole("head 0.0", "cut")], agreement, notes)
    assert said == f"The answer is a + b. It is a sum of waves that hold 0.8829 of it. {truth(agreement)}"


def test_nothing() -> None:
    assert nothing_found("") == "No explanation found."
    assert nothing_found("the model answers 0") == "No explanation found: the model answers 0."


def test_parts_of_one_kind_are_told_layer_by_layer() -> None:
    parts = [PartRole(name, "explained", carries=f"carries {name[-1]}") for name in ("head 0.2", "head 1.5", "MLP 0")]
    assert parts_sentence(parts) == "In the model: head 0.2 carries 2; MLP 0 carries 0; head 1.5 carries 5."
