"""The face of the studies: a page of a smaller run says so at its top."""

import sys
from pathlib import Path

import pytest

from interp.report import Report
from interp.report.script import Arguments, run


def study(arguments: Arguments) -> Report:
    report = Report("t", subtitle="About heads.")
    report.verdict = f"{arguments.pick(3, 2, 1)} heads."
    return report


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ([], "About heads."),
        (["--quick"], "Quick run, smaller than the study. About heads."),
        (["--smoke"], "Smoke run"),
    ],
)
def test_a_smaller_run_says_so(
    options: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["study.py", "--out", str(tmp_path), *options])
    run(study, "A study.")
    assert f'<p class="subtitle">{says}' in (tmp_path / "report.html").read_text("utf-8")
    assert "heads." in capsys.readouterr().out
