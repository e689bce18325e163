"""The section on models of others and on shipped ones, and how probes grow; numbers are tested with the measures."""

import pandas as pd
import pytest
import torch
from report.sections.standin_report import one_section
from standins import standin

from interp.measures.variables import fit_probe
from interp.report.sections.embeddings import describe_growing_probes
from interp.tasks.populations import Population


@pytest.mark.parametrize("name", ["ends", "recall", "balance", "memorization/bigram"])
@pytest.mark.thinned(4)
def test_variables(name) -> None:
    study, report = one_section(name, "variables")
    if name == "memorization/bigram":
        assert report.html()  # its answer has more values than are probed, or as many: either is said
        return
    table = report.tables["variables"]
    assert set(table["layer"]) == set(range(study.model.cfg.n_layers + 1))
    drawn = {f"variables_{name}" for name in ("probe", "along_probe") if table[name].count() >= 3}
    assert drawn == set(report.figures)
    assert drawn or name == "balance"


def test_a_probe_that_more_inputs_would_raise_is_named() -> None:
    table = pd.DataFrame(
        [("a", 0, 0.2, 0.2), ("a", 1, 0.46, 0.30), ("b", 0, 0.9, 0.89)], columns=["feature", "layer", "probe", "half"]
    )
    inputs = Population("sample", standin("recall").task.sample(1000))
    said = " More inputs would raise the probe of a (0.300 with half of the inputs, 0.460 with all)."
    assert describe_growing_probes(table, inputs) == said
    assert describe_growing_probes(table[table["feature"] == "b"], inputs) == ""


def test_half_of_the_inputs_fit_a_worse_probe_of_a_hard_value() -> None:
    """Eight values in twenty noisy dimensions: a probe of a hundred inputs is worse than one of two hundred."""
    draw = torch.Generator().manual_seed(0)
    value = torch.randint(8, (200,), generator=draw)
    centers = torch.randn(8, 20, dtype=torch.float64, generator=draw)
    noise = 2.0 * torch.randn(200, 20, dtype=torch.float64, generator=draw)
    found = fit_probe(centers[value] + noise, value, torch.arange(200))
    assert found.half < found.accuracy < found.fitted
