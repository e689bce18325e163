"""What a hypothesis is: names, order, tables of values, and what is refused."""

import pytest
import torch

import interp
from interp import Hypothesis, Variable
from interp.measures.hypothesis import CodeTable, Place
from interp.measures.runs import Neuron
from interp.models.subject import Subject


def test_the_answer_comes_from_the_values_nothing_else_uses() -> None:
    found = Hypothesis([Variable("c", of=("a", "b")), Variable("a", at="head 0.0"), Variable("b"), Variable("d")])
    assert found.of == ("c", "d")
    assert [one.name for one in found.order] == ["a", "b", "d", "c"]
    assert found["a"].at == ("head 0.0",)
    assert str(found).splitlines()[-1] == "answer: computed from c, d"
    assert Hypothesis(found.variables, of="c").of == ("c",)


REFUSED = [
    (lambda: Hypothesis([]), "a hypothesis needs at least one variable"),
    (lambda: Hypothesis(["a"]), "a hypothesis needs at least one variable"),
    (lambda: Hypothesis([Variable("a"), Variable("a")]), "two variables are named 'a'"),
    (lambda: Hypothesis([Variable("a", of="b")]), "unknown variable that a is computed from 'b'; known: a"),
    (lambda: Hypothesis([Variable("a", of="b"), Variable("b", of="a")]), "from each other in a circle: a, b"),
    (lambda: Hypothesis([Variable("a")], of="b"), "unknown variable that the answer is computed from 'b'"),
    (lambda: Hypothesis([Variable("a")])["b"], "unknown variable 'b'; known: a"),
]


@pytest.mark.parametrize(("make", "sentence"), REFUSED)
def test_refusals(make, sentence) -> None:
    with pytest.raises(interp.InterpError, match=sentence):
        make()


def test_a_table_knows_what_it_has_seen() -> None:
    a, b = torch.tensor([0, 0, 5, 5]), torch.tensor([-1, 2, -1, -1])
    table = CodeTable([a, b], torch.tensor([7, 8, 9, 9]))
    assert table(torch.tensor([0, 5, 0, 5, 4]), torch.tensor([2, -1, -1, 2, 2])).tolist() == [
        8, 9, 7, CodeTable.NONE, CodeTable.NONE,
    ]  # fmt: skip
    assert table.unanimous
    assert not CodeTable([a], torch.tensor([7, 8, 9, 9])).unanimous
    assert CodeTable([a], torch.tensor([7, 8, 9, 8]))(torch.tensor([5])).tolist() in ([8], [9])


def test_a_neuron_is_a_place() -> None:
    subject = Subject.of(interp.build("languages/parity"))
    assert [str(Place.of(subject, place)) for place in ("neuron 0.1 @ each", Neuron(0, 1))] == [
        "neuron 0.1 @ each",
        "neuron 0.1",
    ]
    with pytest.raises(interp.InterpError, match="its layer has neurons"):
        Place.of(subject, "neuron 0.1000")
