"""The section on strangers' models and on shipped ones; its numbers are tested with the measures."""

import numpy as np
import pandas as pd
import pytest
from report.sections.standin_report import one_section
from some_inputs import every, some
from standins import NAMES

import interp
from interp.errors import UnsupportedError
from interp.models.subject import Subject
from interp.report import Report
from interp.report.sections.base import Study, fill
from interp.report.sections.components import describe_missed_neurons
from interp.tasks.populations import everything


@pytest.mark.parametrize("name", [*NAMES[1:], "histogram/dot"])
@pytest.mark.thinned(2)
def test_neurons(name) -> None:
    _, report = one_section(name, "neurons")
    table = report.tables["neurons"]
    assert len(table) == 24
    assert table["accuracy"].is_monotonic_increasing
    assert set(report.figures) == {"neurons_response"} or len(report.figures) == 4


@pytest.mark.parametrize(("accuracy", "change", "says"), [
    ([0.7, 0.9], [0.4, 0.1], "Accuracy is lowest without neuron 0.3: 0.7000 (1 with all)."),
    ([0.99996, 1.0], [0.1, 0.0], "Accuracy is lowest without neuron 0.3: 0.99996 (1 with all)."),
    ([0.7, 0.7], [0.4, 0.1], "Accuracy is lowest without neuron 0.3 or neuron 0.5: 0.7000 (1 with all)."),
    ([1.0, 1.0], [0.2, 0.1],
     "None of them alone costs accuracy, which is 1 with all; the loss grows most without neuron 0.3."),
    ([1.0, 1.0], [-0.1, -0.2], "None of them alone costs accuracy, which is 1 with all."),
    ([1.0, 1.0], [np.nan, np.nan], "None of them alone costs accuracy, which is 1 with all."),
])  # fmt: skip
def test_which_neuron_is_missed_most(accuracy, change, says) -> None:
    table = pd.DataFrame({"neuron": ["0.3", "0.5"], "accuracy": accuracy, "change": change})
    table.attrs["accuracy"] = 1.0
    assert describe_missed_neurons(table, every(100_000)) == says


def test_a_neuron_is_named_only_if_its_loss_is_beyond_chance() -> None:
    table = pd.DataFrame({"neuron": ["0.3", "0.5"], "accuracy": [0.97, 0.99], "change": [0.4, 0.1]})
    table.attrs["accuracy"] = 0.99
    assert describe_missed_neurons(table, some(200)).startswith(
        "None of them alone is seen to cost accuracy, which is 0.9900"
    )
    table["accuracy"] = [0.7, 0.72]
    assert "without neuron 0.3 or neuron 0.5: 0.7000" in describe_missed_neurons(table, some(200))
    assert "without neuron 0.3: 0.7000" in describe_missed_neurons(table, some(20_000))


def test_no_neurons() -> None:
    with pytest.raises(UnsupportedError, match="neither an MLP nor a readout with neurons"):
        one_section("recall", "neurons")


def test_frequencies_of_neurons_where_addition_acts() -> None:
    task = interp.tasks.make_task(
        interp.models.spec.TaskRef(name="modular-addition", parameters=(("p", 7), ("share", 0.2)))
    )
    layer = interp.Layer(d_head=8, mlp=interp.models.spec.MLP(d_mlp=12, activation="relu"))
    spec = interp.ModelSpec(
        task=task.ref, d_model=8, layers=(layer,), positions="learned", max_length=3, direction="causal",
        dtype="float64",
    )  # fmt: skip
    study, report = Study(Subject.of(interp.build(spec, seed=0))), Report("waves")
    fill(study, report, ["neurons"])
    table = report.tables["neurons_waves_residues"].set_index("neuron")
    batch = everything(task).batch
    _, cache = study.model.run_with_cache(batch.tokens)
    post = cache["blocks.0.mlp.hook_post"][:, -1]
    mean = np.array([post[batch.tokens[:, 0] == a].mean(0).numpy() for a in range(7)])
    power = np.abs(np.fft.rfft(mean - mean.mean(0), axis=0))[1:] ** 2
    live = np.flatnonzero(mean.std(0) > 0)
    assert sorted(table.index) == live.tolist()
    assert [table.loc[i, "frequency"] for i in live] == (power.argmax(0) + 1)[live].tolist()
    assert [table.loc[i, "power"] for i in live] == pytest.approx(power[:, live].max(0) / power[:, live].sum(0))
    assert "neurons_waves_residues" in report.figures
