"""Measures on models whose mechanism is known: they find what was put in, and do not find it in a random model."""

import pandas as pd
import pytest
import torch

import interp
from interp.measures import circuits, embeddings


def random_twin(model: interp.TaskModel) -> interp.TaskModel:
    """The same architecture with random weights."""
    return interp.TaskModel(model.spec.replace(origin=interp.Training(init="torch")), seed=0, dtype="float64")


def strong(table: pd.DataFrame, what: str, least: float) -> set[int]:
    return set(table.query("what == @what and power > @least")["frequency"])


def test_fourier_spectra_show_the_frequencies_that_were_put_in() -> None:
    model = interp.build("algorithmic/modular-addition-fourier", p=29, frequencies="2 7 13")
    for what in ("embedding", "readout"):
        assert strong(embeddings.spectra(model), what, 1e-9) == {2, 7, 13}
        twin = embeddings.spectra(random_twin(model))
        assert strong(twin, what, 0.2) == set()
        assert len(strong(twin, what, 0.01)) > 8


def test_scores_grow_with_the_number_and_values_copy_it() -> None:
    model = interp.build("algorithmic/max-of-k-exact", K=3, v=8)
    read = circuits.token_circuits(model, "QK").query("query == '=' and key != '='")["value"]
    assert (read.diff().iloc[1:] > 7.9).all()
    twin = circuits.token_circuits(random_twin(model), "QK").query("query == '=' and key != '='")["value"]
    assert not (twin.diff().iloc[1:] > 0).all()


@pytest.fixture(scope="module")
def circuit() -> interp.TaskModel:
    return interp.build("algorithmic/induction-exact")


def test_the_previous_token_head_feeds_the_induction_head_s_keys(circuit: interp.TaskModel) -> None:
    found = circuits.composition_scores(circuit).to_frame().set_index(["writer", "reader"])
    assert found["K"].idxmax() == ("head 0.0", "head 1.1")
    assert found["K"].max() > 0.1
    rest = found.fillna(0.0).copy()
    rest.loc[("head 0.0", "head 1.1"), "K"] = 0.0
    assert rest.to_numpy().max() < 1e-9
    twin = circuits.composition_scores(random_twin(circuit)).to_frame().set_index(["writer", "reader"])
    assert twin["K"].max() < 3 * twin["K"].min()


def test_path_patching_finds_only_the_edge_between_the_two_heads(circuit: interp.TaskModel) -> None:
    found = interp.path_patching(circuit, circuit.task.corrupt(circuit.task.sample(24, seed=3), seed=1))
    effect = found.to_frame().set_index(["sender", "receiver"])["recovered"]
    assert effect[("head 1.1", "output")] > 0.9
    idle = [edge for edge in effect.index if {"head 0.1", "head 1.0"} & set(edge)]
    assert effect[idle].abs().max() < 1e-6
    assert torch.isfinite(torch.tensor(effect.to_numpy())).all()
    into = effect[[edge for edge in effect.index if edge[1] == "head 1.1"]]
    assert set(into[into.abs() > 0.05].index) <= {("head 0.0", "head 1.1"), ("embedding", "head 1.1")}
    assert effect[("head 0.0", "head 1.1")] > 0.4  # pairs that exchange two tokens need the keys
    twin = random_twin(circuit)
    found = interp.path_patching(twin, circuit.task.corrupt(circuit.task.sample(24, seed=3), seed=1))
    effect = found.to_frame().set_index(["sender", "receiver"])["recovered"]
    assert effect[("head 0.0", "head 1.1")] < 0.1
