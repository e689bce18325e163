"""Circuits of heads: silenced complements by hand, and what is refused."""

import copy
import math
from dataclasses import replace

import pytest
import torch
from standins import standin

import interp
from interp.measures.ablation import AblationSetting, scores_without
from interp.measures.edges import edges
from interp.measures.faithfulness import evaluate_circuit
from interp.measures.runs import heads_of


def test_the_whole_model_is_its_own_circuit() -> None:
    subject = standin("recall")
    test = subject.task.sample(80, seed=1)
    found = evaluate_circuit(subject, heads=range(4), inputs=test)
    assert found.circuit == found.model
    assert found.faithfulness == pytest.approx(1.0)
    assert found.completeness["accuracy_circuit"].equals(found.completeness["accuracy_model"])
    assert list(found.to_frame()["what"]) == ["model", "circuit", "nothing"]


@pytest.mark.parametrize("mode", ["zero", "mean", "resample"])
def test_complements_are_silenced(mode) -> None:
    subject = standin("ends")
    test, reference = subject.task.sample(60, seed=1), subject.task.sample(60, "train", seed=1)
    found = evaluate_circuit(subject, heads=[0, "head 1.1", "2.0"], mode=mode, inputs=test, reference=reference, seed=3)
    heads = heads_of(subject)
    rest = [heads[i] for i in (1, 2, 5)]
    scores = scores_without(
        subject, [rest, heads, [heads[0], *rest], [heads[0]]], AblationSetting(test, mode, reference, seed=3)
    )
    assert (found.circuit, found.nothing) == tuple(scores[:2])
    assert found.minimality["loss_without"][0] == pytest.approx(scores[2].loss)
    assert found.completeness["accuracy_model"][0] == scores[3].accuracy
    assert found.kept == ("head 0.0", "head 1.1", "head 2.0")


def test_mlps_can_be_part_of_it() -> None:
    subject = standin("balance")
    test = subject.task.sample(60, seed=1)
    all_of_it = evaluate_circuit(subject, heads=range(3), mlps=[0], mode="zero", inputs=test)
    without = evaluate_circuit(subject, heads=range(3), mlps=[], mode="zero", inputs=test)
    heads = evaluate_circuit(subject, heads=[0], mode="zero", inputs=test, draws=0)
    again = evaluate_circuit(subject, heads, mode="zero", inputs=test, draws=0)
    assert (again.circuit, again.nothing, again.untouched) == (heads.circuit, heads.nothing, ("MLP 0",))
    assert heads.nothing == scores_without(subject, [heads_of(subject)], AblationSetting(test, "zero"))[0]
    assert (without.over, without.untouched) == ("heads and MLPs", ())
    assert all_of_it.circuit.accuracy == all_of_it.model.accuracy
    assert without.circuit.accuracy < all_of_it.circuit.accuracy


@pytest.mark.parametrize(
    ("arguments", "kept", "ablated"),
    [
        ({"heads": [0, 2]}, "head 0.0, head 0.2, MLP 0 kept and all other heads mean-", "all heads"),
        ({"heads": [], "mode": "zero"}, "MLP 0 kept and all heads zero-", "all heads"),
        ({"heads": [0], "mlps": []}, "head 0.0 kept and everything else mean-", "all heads and MLPs"),
        ({"heads": [], "mlps": []}, "all heads and MLPs mean-", "all heads and MLPs"),
        (
            {"heads": [], "mlps": [0], "mode": "pooled_mean"},
            "MLP 0 kept and everything else pooled_mean-",
            "all heads and MLPs",
        ),
        ({"edges": ["MLP 0 -> output"]}, "MLP 0 -> output kept and all other edges mean-", "all edges"),
        ({"edges": []}, "all edges mean-", "all edges"),
    ],
)
def test_the_sentence_says_what_is_kept(arguments, kept, ablated) -> None:
    subject = standin("balance")
    said = str(evaluate_circuit(subject, inputs=subject.task.sample(20), draws=0, **arguments))
    assert said.startswith(f"With {kept}ablated, accuracy is ")
    assert f"; {ablated} ablated: " in said


def test_where_all_is_kept_nothing_else_is_ablated() -> None:
    subject = standin("balance")
    heads, every = {"heads": range(3)}, [(edge.sender, edge.receiver) for edge in edges(subject)]
    for kept, name in ((heads, "heads"), (heads | {"mlps": [0]}, "heads and MLPs"), ({"edges": every}, "edges")):
        said = str(evaluate_circuit(subject, inputs=subject.task.sample(20), draws=0, **kept))
        assert said.startswith(f"With all {name} kept, accuracy is ")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({}, "name either the heads of the circuit or its edges"),
        ({"heads": [9]}, "unknown head '9'; known: head 0.0"),
        ({"heads": [0], "mlps": [0]}, "unknown layer with an MLP '0'"),
        ({"heads": [0], "mode": "noise"}, "unknown mode of ablation 'noise'"),
        ({"edges": [("embedding", "output")], "mode": "zero"}, "edges cannot be ablated with mode"),
    ],
)
def test_refusals(arguments, sentence) -> None:
    with pytest.raises(interp.InterpError, match=sentence):
        evaluate_circuit(standin("recall"), **arguments)


def test_it_is_public() -> None:
    assert interp.evaluate_circuit is evaluate_circuit


def test_where_no_head_does_anything_no_share_is_recovered() -> None:
    subject = standin("ends")
    idle = copy.deepcopy(subject.model)
    for block in idle.blocks:
        torch.nn.init.zeros_(block.attn.W_O)
    found = evaluate_circuit(replace(subject, model=idle), heads=[0], inputs=subject.task.sample(20), draws=0)
    assert found.nothing.accuracy == found.model.accuracy
    assert found.nothing.loss == pytest.approx(found.model.loss, rel=1e-6)
    assert math.isnan(found.faithfulness)
    with pytest.raises(interp.InterpError, match=r"unknown head '\(0, 1, 2\)'"):
        evaluate_circuit(subject, heads=[(0, 1, 2)])


@pytest.mark.slow
def test_what_find_circuit_returns_is_evaluated_again() -> None:
    """Edges, also by their names, and parts with MLPs: the same scores as those that it has."""
    exact = interp.load("algorithmic/induction-exact")
    inputs = exact.task.sample(100, seed=4)
    edges = interp.find_circuit(exact, inputs, edges=True, reference=inputs)
    for again in (
        interp.evaluate_circuit(exact, edges, inputs=inputs, reference=inputs),
        interp.evaluate_circuit(exact, edges=edges.kept, inputs=inputs, reference=inputs),
    ):
        assert (again.kept, again.circuit) == (edges.kept, edges.circuit)
    model = interp.load("languages/parity")
    inputs = model.task.sample(60, seed=4)
    parts = interp.find_circuit(model, inputs, reference=inputs)
    again = interp.evaluate_circuit(model, parts, inputs=inputs, reference=inputs)
    assert "MLP 0" in again.kept
    assert (again.kept, again.circuit) == (parts.kept, parts.circuit)
    with pytest.raises(interp.InterpError, match="'MLP 0' is no edge"):
        interp.evaluate_circuit(model, edges=parts.kept)
    with pytest.raises(interp.InterpError, match="unknown part 'MLP 0'"):
        interp.evaluate_circuit(exact, parts)
