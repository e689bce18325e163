"""The page in a real browser: what a reader sees, not what the text says."""

import re
import shutil
import subprocess

import pandas as pd
import pytest

from interp.report import Report, render
from interp.support import figures
from interp.support.figures import theme

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
in_browser = [pytest.mark.slow, pytest.mark.skipif(BROWSER is None, reason="needs Chrome or Chromium")]


def open_page(path, folder, scheme="light"):
    """The document after its scripts have run."""
    quiet = ["--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"]
    view = ["--window-size=1280,15000", f"--blink-settings=preferredColorScheme={0 if scheme == 'dark' else 1}"]
    dump = ["--virtual-time-budget=20000", "--dump-dom", f"--user-data-dir={folder / 'profile'}"]
    command = [BROWSER, "--headless", "--no-sandbox", *quiet, *view, *dump, path.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


def without_scripts(document):
    return re.sub(r"<script.*?</script>", "", document, flags=re.DOTALL)


class TestInBrowser:
    pytestmark = in_browser

    @pytest.mark.parametrize("scheme", ["light", "dark"])
    def test_every_figure_is_drawn_in_the_theme(self, report, tmp_path, scheme):
        shown = without_scripts(open_page(report.save(tmp_path / "report.html"), tmp_path, scheme))
        assert "could not be" not in shown
        drawn = re.findall(r'<div class="plot js-plotly-plot(?: aimed)?"[^>]*data-source="([^"]+)"', shown)
        assert len(set(drawn)) == len(report.figures)
        colors = {
            color: "rgb({}, {}, {})".format(*bytes.fromhex(color[1:])) for color in ("#FFFFFF", theme.DARK["#FFFFFF"])
        }
        paper, other = colors.values() if scheme == "light" else reversed(colors.values())
        assert shown.count(f"background: {paper}") >= len(report.figures)
        assert f"background: {other}" not in shown

    def test_names_inside_figures_are_shown_as_they_are(self, tmp_path):
        report = Report("t")
        name = "<s></script><b>x</b>"
        frame = pd.DataFrame({"x": [name, "b"], "y": [1.0, 2.0]})
        report.add_figure("f", figures.bars(frame, "x", "y"), "")
        shown = without_scripts(open_page(report.save(tmp_path / "report.html"), tmp_path))
        assert ">&lt;s&gt;&lt;/script&gt;&lt;b&gt;x&lt;/b&gt;</text>" in shown

    def test_an_old_browser_gets_a_sentence(self, tmp_path, monkeypatch):
        old = "delete window.DecompressionStream;\n"
        monkeypatch.setattr(render, "live_script", lambda panels: old)
        report = Report("t")
        report.add_figure("f", figures.heatmap([[1.0]], "a", "b", "x", "y", "z"), "The caption.")
        shown = without_scripts(open_page(report.save(tmp_path / "report.html"), tmp_path))
        assert re.search(r'id="trouble" role="alert">This browser is too old for the figures', shown)
        assert "The caption." in shown


def test_figures_are_stored_without_their_template(report):
    for figure in report.figures.values():
        assert '"template"' not in render._figure_json(figure)


def test_json_cannot_end_its_script_element():
    text = "</script><!--&\u2028\u2029"
    assert not set(render._json_block(text)) & set("<>&\u2028\u2029")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("w01_curve", "w01_curve"), ("Seed 1/heads", "seed-1-heads"), ("../../etc", "etc"), ("..", "untitled"),
        ("é", "untitled"),
    ],
)  # fmt: skip
def test_slug(name, expected):
    assert render.slug(name) == expected
