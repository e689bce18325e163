"""The curve survives a checkpoint, in a few kB."""

from pathlib import Path

import pandas as pd
import pytest
from report.sections.standin_report import one_section

import interp
from interp.errors import UnsupportedError
from interp.models.subject import Subject
from interp.models.training_curves import compact, training_curve
from interp.report import Report
from interp.report.sections.base import Study, fill


def test_a_long_history_is_a_hundred_points_at_most() -> None:
    history = pd.DataFrame({"epoch": range(1, 5001), "loss": [1 / i for i in range(1, 5001)], "accuracy": 0.123456789})
    found = compact(history)
    assert len(found["epoch"]) <= 100
    assert (found["epoch"][0], found["epoch"][-1]) == (1.0, 5000.0)
    assert found["loss"][-1] == 0.0002
    assert found["accuracy"][0] == 0.12346


def test_the_curve_travels_with_the_checkpoint(tmp_path: Path) -> None:
    model = interp.build("count01/minimal")
    model.history = pd.DataFrame(
        {"epoch": [1, 2, 3], "loss": [0.5, 0.25, 0.125], "accuracy": [0.5, 0.75, 1.0], "seed": 0}
    )
    loaded = interp.load(interp.save(model, tmp_path / "one.safetensors"))
    pd.testing.assert_frame_equal(
        training_curve(loaded)[["loss", "accuracy"]], model.history[["loss", "accuracy"]], check_dtype=False
    )
    report = Report("one")
    fill(Study(Subject.of(loaded)), report, ["training"])
    assert report.facts["final_loss"] == 0.125
    assert len(training_curve(interp.load(interp.save(loaded, tmp_path / "two.safetensors")))) == 3


def test_without_history() -> None:
    with pytest.raises(UnsupportedError, match="the checkpoint contains no training curve"):
        one_section("count01/minimal", "training")
