"""Pseudo-ensembles of heads over seeds, against the facts of the paper's section and against planted numbers."""

import pandas as pd
import pytest
from shared.count01_facts import facts
from shared.pseudo_ensembles import heads_alone, pseudo_ensembles

import interp


@pytest.mark.slow
def test_heads_alone_are_those_of_the_facts() -> None:
    model = interp.load("count01/paper/seed-1")
    found, wanted = heads_alone(["count01/paper/seed-1"]).iloc[0], facts(model).iloc[0]
    assert found["successful"] == 16 * wanted["successful"]
    assert found["better pairs"] == pytest.approx(wanted["improved_pairs"])
    heads = interp.head_metrics(model).to_frame()["s_acc"]
    assert heads.min() < found["weighted s_acc"] < heads.max()
    assert found["weighted s_acc"] != pytest.approx(heads.mean(), abs=0.01)  # the readout weighs heads


def test_two_successful_heads_are_a_pseudo_ensemble() -> None:
    models = pd.DataFrame({
        "heads": [4] * 5 + [2] * 2,
        "accuracy": [0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.0],
        "successful": [0, 1, 2, 3, 4, 1, 1],
        "better pairs": [0.5, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0],
        "weighted s_acc": [0.6, 0.5, 0.8, 0.7, 0.9, 0.9, 0.8],
    })  # fmt: skip
    four, two = pseudo_ensembles(models).to_dict("records")
    assert (four["models"], four["pseudo-ensembles"], two["pseudo-ensembles"]) == (5, 3, 0)
    assert (four["successful"], two["successful"]) == (0.5, 0.5)
    assert (four["better pairs"], two["better pairs"]) == (0.1, 0.5)
    assert four["r"] == pytest.approx(0.8)  # of ranks 2 1 4 3 5: 1 - 6 * 4 / (5 * 24)
    assert (four["r_low"], four["r_high"]) == (pytest.approx(-0.279, abs=1e-3), pytest.approx(0.986, abs=1e-3))
    assert pd.isna(two["r"])
