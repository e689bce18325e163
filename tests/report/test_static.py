import shutil
import sys

import plotly.graph_objects as go
import pytest

from interp.errors import InterpError
from interp.report import Report
from interp.support import figures

BROWSER = any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome")))


@pytest.fixture
def report():
    report = Report("t")
    report.add_figure("seed 0/heat_map", figures.heatmap([[1.0, 2.0]], "ab", "c", "x", "y", "z"), "")
    return report


@pytest.mark.slow
@pytest.mark.skipif(not BROWSER, reason="needs Chrome or Chromium")
@pytest.mark.parametrize(("format", "start"), [("svg", b"<svg"), ("png", b"\x89PNG")])
def test_figures_become_files(report, tmp_path, format, start):
    pytest.importorskip("kaleido")
    (path,) = report.save_figures(tmp_path / "figures", format)
    assert path == tmp_path / "figures" / f"seed-0-heat_map.{format}"
    assert path.read_bytes().startswith(start)


def test_without_kaleido_there_is_one_sentence(report, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "kaleido", None)
    with pytest.raises(InterpError, match=r"saving figures needs kaleido; install it with: pip install kaleido"):
        report.save_figures(tmp_path)


def test_without_a_browser_there_is_one_sentence(report, tmp_path, monkeypatch):
    kaleido = pytest.importorskip("kaleido")
    from kaleido.errors import ChromeNotFoundError

    def fail(*_, **__):
        raise ChromeNotFoundError

    monkeypatch.setattr(kaleido, "write_fig_from_object_sync", fail)
    with pytest.raises(InterpError, match="saving figures needs Chrome or Chromium, and none was found"):
        report.save_figures(tmp_path)


def test_a_figure_that_the_browser_cannot_draw_is_named(report, tmp_path, monkeypatch):
    kaleido = pytest.importorskip("kaleido")
    monkeypatch.setattr(kaleido, "write_fig_from_object_sync", lambda *_, **__: (ValueError("bad figure"),))
    with pytest.raises(InterpError, match=r"cannot save 1 of 1 figures to .*: bad figure"):
        report.save_figures(tmp_path)


def test_bad_requests_are_refused(report, tmp_path):
    with pytest.raises(InterpError, match="unknown image format 'pngs'; known: svg, png"):
        report.save_figures(tmp_path, "pngs")
    (tmp_path / "file").write_text("")
    with pytest.raises(InterpError, match="cannot save figures to"):
        report.save_figures(tmp_path / "file")
    report.add_figure("Seed 0 heat_map", go.Figure(), "")
    with pytest.raises(InterpError, match="would both be saved as"):
        report.save_figures(tmp_path)
