"""The section on strangers' models and on shipped ones; its numbers are tested with the measures."""

import math

import numpy as np
import pytest
from report.sections.standin_report import one_section
from standins import NAMES

import interp
from interp.errors import UnsupportedError
from interp.models.subject import Subject
from interp.report import Report
from interp.report.sections.base import Study, fill
from interp.report.sections.embeddings import count_key_frequencies


@pytest.mark.parametrize("name", [*NAMES[:2], "histogram/dot"])
def test_geometry(name) -> None:
    _, report = one_section(name, "embeddings")
    assert {"embeddings_plane", "embeddings_cosines"} <= set(report.figures)
    assert -1 <= report.facts["largest_cosine"] <= 1.0000001


def test_two_tokens_have_none() -> None:
    with pytest.raises(UnsupportedError, match="geometry of two embeddings"):
        one_section("balance", "embeddings")


def test_key_frequencies_are_those_put_in_and_random_has_none() -> None:
    exact = interp.build("algorithmic/modular-addition-fourier", p=29, frequencies="2 7 13")
    twin = interp.TaskModel(exact.spec.replace(origin=interp.Training(init="torch")), seed=0, dtype="float64")
    for model, found, words in ((exact, "2, 7, 13", "3 of 14 frequencies hold all"), (twin, "none", "Fourier power")):
        report = Report("p = 29")
        fill(Study(Subject.of(model)), report, ["embeddings"])
        assert {report.facts[f"frequencies_of_{what}"] for what in ("embedding", "readout")} == {found}
        assert words in report.html()
        assert "no key freq" not in report.html()
        share = report.facts.get("logits_explained_by_readout")  # of |cos(pi k (a - b) / p)|, the mean over a - b
        assert share == (None if model is twin else pytest.approx(8 / math.pi**2, abs=0.02))


@pytest.mark.parametrize(("power", "n"), [
    ([0.5, 0.3, 0.1, 0.022, *[0.078 / 52] * 52], 4),  # a weak frequency far above the rest is one of them
    ([0.4, 0.3, 0.15, 0.12, 0.02, 0.01], 4),  # four of six, if the others have little
    ([0.5, 0.5, 0, 0, 0], 2),
    ([1 / 14] * 14, 0),
    ([0.3, 0.2, 0.2, 0.15, 0.15], 0),
    ([1.0], 0),
])  # fmt: skip
def test_key_frequencies_end_at_the_largest_drop(power, n) -> None:
    assert count_key_frequencies(np.array(power)) == n
