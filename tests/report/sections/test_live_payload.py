"""What the live panel is told of a task is what the task says; the page itself is tested in tests/report."""

import json
import re
from unittest.mock import Mock

import pytest
import torch

import interp
from interp.models.subject import Subject
from interp.report.sections.live import all_rows
from interp.report.sections.live_payload import Inputs, _in_task_order, payload


@pytest.mark.parametrize(("rule", "said"), [(1, "1"), (("=", ("item",), 0), "KeyError: 'item'")])
def test_a_rule_that_says_otherwise_than_the_labels_is_refused(rule: object, said: str) -> None:
    """The page judged every answer by it."""
    model = interp.build("languages/parity")
    model.task.rule = rule
    with pytest.raises(interp.InterpError, match=re.escape(said) + r".* at position 0 of '.*', its classes [01]"):
        payload(Subject.of(model))


@pytest.mark.parametrize(
    ("n_inputs", "alphabet", "marks", "shortest", "lengths"),
    [
        (131_070, 2, 1, 4, [2, 17]),  # every string of 1 to 16 brackets
        (32**10, 32, 1, 11, [11, 11]),
        (792_000, 10, 1, 25, None),  # strings that repeat: most rows of the length are no inputs
        (100, 72, 0, 1, None),  # tokens that no sample had
        (10**12, 1, 0, 1, None),
    ],
)
def test_a_row_is_an_input_by_its_length_where_all_rows_are(n_inputs, alphabet, marks, shortest, lengths) -> None:
    assert all_rows(n_inputs, alphabet, marks, {shortest, marks + 1}) == lengths


def test_longer_inputs_are_asked_of_a_model_that_takes_them() -> None:
    task = interp.models.spec.TaskRef(name="parity", parameters=(("length", 6),))
    spec = interp.ModelSpec(
        task=task, d_model=4, direction="bidirectional", layers=(interp.Layer(d_head=2),), positions="none",
        readout="scalar", readout_at="[CLS]", decision="sigmoid",
    )  # fmt: skip
    assert payload(Subject.of(interp.build(spec)))["lengths"]
    assert not payload(Subject.of(interp.build("count01/minimal")))["lengths"]


@pytest.mark.parametrize("bias", [True, False])
def test_parameters_stand_in_the_order_of_the_task(bias: bool) -> None:
    """Of a model with ids of its own for tokens and answers."""
    given = {"embed.W_E": torch.arange(8.0).view(4, 2), "unembed.W_U": torch.arange(6.0).view(2, 3)}
    given |= {"unembed.b_U": torch.tensor([10.0, 11.0, 12.0])} if bias else {}
    plain = Mock(spec=Subject, token_ids=None, output_ids=None)
    assert _in_task_order(plain, given) == given
    found = _in_task_order(Mock(spec=Subject, token_ids=torch.tensor([3, 0]), output_ids=torch.tensor([2, 1])), given)
    assert found["embed.W_E"].tolist() == [[6, 7], [0, 1]]
    assert found["unembed.W_U"].tolist() == [[2, 1], [5, 4]]
    assert found.keys() == given.keys()
    assert not bias or found["unembed.b_U"].tolist() == [12, 11]
    assert given["embed.W_E"].shape == (4, 2)  # the model's own are left as they are


def test_a_long_input_is_shortened_between_its_fixed_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody reads or clicks a thousand tokens."""
    monkeypatch.setattr("interp.report.sections.live_payload.SHORT", 4)  # of which a quarter stays between the ends
    model = interp.build("count01/minimal")
    first, last = model.task.token_id("[BOS]"), model.task.token_id("=")
    found = Inputs(Subject.of(model)).examples()
    assert {(row[0], len(row), row[-1]) for row in found} == {(first, 3, last)}


def test_counts_are_fixed_and_the_others_have_sliders() -> None:
    """Of Count01's inputs at '=': one [BOS], one '=', and 0, 1 and 2 as often as the splits have them."""
    model = interp.build("count01/minimal")
    subject, task = Subject.of(model), model.task
    found = payload(subject)["counts"]
    assert [slider["token"] for slider in found["sliders"]] == [task.token_id(token) for token in "012"]
    assert [slider["max"] >= 100 for slider in found["sliders"]] == [True] * 3
    once = {task.token_id("[BOS]"), task.token_id("=")}
    assert found["fixed"] == [int(token in once) for token in range(task.d_vocab)]
    assert found["query"] == task.token_id("=")


@pytest.mark.slow
def test_the_panel_starts_within_the_domain_of_the_certificate() -> None:
    """Also where the task's own example is too short for it."""
    model = interp.load("count01/paper")
    page = interp.analyze(model, sections=["live"]).html()
    data = json.loads(re.search(r'<script[^>]* id="live-data"[^>]*>(.*?)</script>', page, re.DOTALL).group(1))
    inside = {token: range(low, high + 1) for token, low, high in data["proved"]["ranges"]}
    assert data["counts"]["start"] == [175, 175, 100]
    assert all(n in inside[one["token"]] for n, one in zip(data["counts"]["start"], data["counts"]["sliders"]))
    assert payload(Subject.of(model))["counts"]["start"] == [2, 4, 1]  # without a certificate: the task's example
