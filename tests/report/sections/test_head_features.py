"""Heads by feature: the sentence, and the section of models of ours and of strangers."""

import pandas as pd
import pytest
from standins import standin

import interp
from interp.report.sections.heads import describe_best_explained as sentence


def rows(*values: tuple[int, str, float]) -> pd.DataFrame:
    return pd.DataFrame(
        [(0, head, name, v) for head, name, v in values], columns=["layer", "head", "feature", "variance"]
    )


NAN = float("nan")
CASES = {
    "perfect": (rows((0, "a", 1.0), (1, "a", 0.2)),
        "Features that explain at least half of the variance of a head's output: a (1 of head 0.0)."),
    "two": (rows((0, "a", 0.999), (1, "b", 0.7)),
        "Features that explain at least half of the variance of a head's output: a (0.999 of head 0.0); b (0.70 of "
        "head 0.1)."),
    "random": (rows((0, "a", -0.01), (1, "a", 0.02)), ""),
    "broken": (rows((0, "a", NAN)), ""),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_sentences(case) -> None:
    table, said = CASES[case]
    assert sentence(table) == said


@pytest.mark.parametrize("name", ["recall", "ends", "balance"])
@pytest.mark.thinned(3)
def test_a_strangers_report_has_it(name) -> None:
    report = interp.analyze(standin(name), sections=["head_features"])
    assert "head_features" in report.tables
    assert "head_features_variance" in report.figures
