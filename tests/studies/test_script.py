"""The face of the studies: a page of a smaller run says so at its top."""

import sys
from pathlib import Path

import pandas as pd
import pytest
from shared.script import Arguments, run

from interp.errors import InterpError
from interp.report import Report
from interp.support import figures


def drawing(arguments: Arguments) -> Report:
    report = Report("t")
    report.add_figure("a/b", figures.bars(pd.DataFrame({"x": [1, 2, 3], "y": [1, 2, 4]}), "x", "y"), "Bars.")
    return report


@pytest.mark.parametrize(
    ("options", "wanted", "says"),
    [([], ["a-b.svg"], "1 figures as SVG"), (["--smoke"], [], "0 tables\n"), (["--quick"], ["a-b.svg"], "as SVG")],
)
def test_figures_are_files_too(options, wanted, says, tmp_path: Path, monkeypatch, capsys) -> None:
    drawn: list[Path] = []

    def save(self: Report, folder: Path) -> list[Path]:
        drawn.extend(folder / f"{key.replace('/', '-')}.svg" for key in self.figures)
        return drawn

    monkeypatch.setattr(Report, "save_figures", save)
    monkeypatch.setattr(sys, "argv", ["study.py", "--out", str(tmp_path), *options])
    run(drawing, "A study.")
    assert drawn == [tmp_path / name for name in wanted]
    assert says in capsys.readouterr().err


def test_without_kaleido_the_rest_is_written(tmp_path: Path, monkeypatch, capsys) -> None:
    def refuse(self: Report, folder: Path) -> list[Path]:
        raise InterpError("saving figures needs kaleido")

    monkeypatch.setattr(Report, "save_figures", refuse)
    monkeypatch.setattr(sys, "argv", ["study.py", "--out", str(tmp_path)])
    run(drawing, "A study.")
    assert "no figures as SVG: saving figures needs kaleido" in capsys.readouterr().err
    assert (tmp_path / "report.html").exists()


def study(arguments: Arguments) -> Report:
    report = Report("t", subtitle="About heads.")
    report.verdict = f"{arguments.pick(3, 2, 1)} heads."
    return report


@pytest.mark.parametrize(("options", "says"), [
    ([], "About heads."),
    (["--quick"], "Quick run, smaller than the study. About heads."),
    (["--smoke"], "Smoke run"),
])  # fmt: skip
def test_a_smaller_run_says_so(
    options: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["study.py", "--out", str(tmp_path), *options])
    run(study, "A study.")
    assert f'<p class="subtitle">{says}' in (tmp_path / "report.html").read_text("utf-8")
    assert "heads." in capsys.readouterr().out
