"""The section's numbers are the measure's, and its words are true."""

from unittest.mock import Mock

import pandas as pd
import pytest
import torch
from report.sections.standin_report import one_section
from standins import NAMES, standin

from interp.errors import UnsupportedError
from interp.measures.components import direct_logit_attribution
from interp.report.sections.components import population, sentence


@pytest.mark.parametrize("name", NAMES)
def test_shares_of_a_strangers_model(name) -> None:
    study, report = one_section(name, "components")
    table = report.tables["components"]
    assert table["effect"].sum() == pytest.approx(report.facts["mean_difference"], abs=1e-4)
    assert table.set_index("component")["effect"].abs().idxmax() == report.facts["largest_component"]
    assert {"components", "components_by_answer"} <= set(report.figures)
    assert study.subject.right(study.data("test")).double().mean() > 0.99


def test_answers_are_in_the_order_of_the_outputs(monkeypatch) -> None:
    task = standin("ends").task
    words = tuple(chr(ord("z") - i) for i in range(len(task.answer_words)))
    monkeypatch.setattr(type(task), "answer_words", words)
    _, report = one_section("ends", "components")
    drawn = list(report.figures["components_by_answer"].data[0].x)
    assert drawn == [word for word in words if word in drawn]
    assert len(drawn) > 1


def test_what_is_no_sum_says_so() -> None:
    with pytest.raises(UnsupportedError, match="after a ReLU readout"):
        one_section("histogram/dot", "components")


def test_the_part_that_adds_most_is_named_with_its_own_number() -> None:
    study, report = one_section("recall", "components")
    inputs = study.once(population)
    found = direct_logit_attribution(study.subject, inputs.batch)
    said = sentence(found, inputs, study.task.word)
    assert said in report.html().replace("&#39;", "'")
    for index in found.classes.unique().tolist():
        means = found.centered[found.classes == index].mean(0)
        best = found.parts["component"].iloc[int(means.argmax())]
        assert f"when '{study.task.word(index)}' is right ({float(means.max()):.4g} logits" in said
        assert best in said


@pytest.mark.parametrize("second", ["MLP 0", "head 0.0"])
def test_a_part_that_leads_for_every_answer_is_named_once(second: str) -> None:
    values = torch.tensor([[2.0, 0.5], [2.0, 0.5], [3.0, 1.0], [3.0, 1.0]])
    if second == "head 0.0":
        values[2:] = values[2:].flip(1)
    found = Mock(
        centered=values, classes=torch.tensor([0, 0, 1, 1]), parts=pd.DataFrame({"component": ["MLP 0", "head 0.0"]})
    )
    said = sentence(found, Mock(exact=True), ("no", "yes").__getitem__)
    once = " for each answer: when 'no' is right (2 logits) and when 'yes' is right (3 logits)."
    apart = " when 'no' is right (2 logits); head 0.0 when 'yes' is right (3 logits)."
    beyond = "The part that adds most, beyond what it adds to every input, is MLP 0"
    assert said == f"{beyond}{once if second == 'MLP 0' else apart}"


def test_parts_that_add_the_same_to_every_input_do_not_lead() -> None:
    found = Mock(
        centered=torch.tensor([[0.0, 1e-9], [1e-9, 0.0]]), classes=torch.tensor([0, 1]),
        parts=pd.DataFrame({"component": ["embedding", "MLP 0"]}),
    )  # fmt: skip
    assert sentence(found, Mock(exact=True), ("no", "yes").__getitem__) == "Each part adds the same to every input."


def test_a_single_output_has_no_rival() -> None:
    _, report = one_section("languages/parity", "components")
    assert "Take the output (its negative where the right answer needs it below 0). This is a sum" in report.html()
    assert "rival" not in report.html()
