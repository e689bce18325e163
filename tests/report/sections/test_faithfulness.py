"""The circuit that the heads suggest: what is said of it is what evaluate_circuit measures."""

import pandas as pd
import pytest
from report.sections.standin_report import one_section
from some_inputs import every, some
from standins import NAMES

from interp.measures.faithfulness import CircuitTest
from interp.measures.runs import ScoreWithLoss
from interp.report.sections.faithfulness import describe_circuit


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.slow
def test_a_circuit_of_heads(name) -> None:
    study, report = one_section(name, "faithfulness")
    table = report.tables["circuit"].set_index("what")
    assert table.loc["circuit", "accuracy"] >= table.loc["model", "accuracy"] - 0.01
    assert len(report.tables.get("circuit_minimality", ())) == report.facts["circuit_heads"]
    assert 0 <= report.facts["circuit_heads"] <= study.model.cfg.n_layers * study.model.cfg.n_heads


@pytest.mark.parametrize(
    ("kept", "accuracies", "says"),
    [
        (
            (),
            (0.4, 0.395, 0.395),
            "On all 8 inputs no head is needed for that: accuracy is 0.3950 with all of them silenced, 0.4000 with",
        ),
        (
            ("head 0.1",),
            (1.0, 0.99996, 0.5),
            "On all 8 inputs 1 head suffices of 2 (head 0.1): accuracy is 0.99996 with the o",
        ),
        (
            ("head 0.0", "head 0.1"),
            (0.99, 0.99, 0.2),
            "On all 8 inputs it takes both heads: accuracy is 0.9900 with them, 0.2000 witho",
        ),
    ],
)
def test_how_many_heads_it_takes(kept, accuracies, says) -> None:
    scores, empty = [ScoreWithLoss(8, 8 * accuracy, 8, total_loss=8.0) for accuracy in accuracies], pd.DataFrame()
    assert describe_circuit(CircuitTest(*scores, "mean", kept, empty, empty), 2, every(8)).startswith(says)


@pytest.mark.parametrize(("circuit", "verb"), [(0.999, "2 heads suffice of 3"), (0.992, "2 heads reach that of 3")])
def test_heads_suffice_only_where_the_interval_says_so(circuit, verb) -> None:
    """The lower end of .999 on 1,000 inputs is .9943, that of .992 is .9843: below .99."""
    scores, empty = (
        [ScoreWithLoss(8, 8 * accuracy, 8, total_loss=8.0) for accuracy in (1.0, circuit, 0.5)],
        pd.DataFrame(),
    )
    said = describe_circuit(CircuitTest(*scores, "mean", ("head 0.0", "head 0.1"), empty, empty), 3, some(1000))
    assert verb in said
    assert ("too few to say" in said) == ("reach" in verb)
