"""The page as it is used: tables are sorted and opened, what is cut says so, words are explained, figures are read."""

from pathlib import Path

import pandas as pd
import pytest
from browser import Page, find_browser

from interp.report import Report
from interp.support import figures

pytestmark = pytest.mark.skipif(find_browser() is None, reason="no Chromium: the page is not tried in a browser")


def page_with_everything() -> Report:
    report = Report("t")
    report.heading("One", "The s-acc of a head.")
    frame = pd.DataFrame({"n": [3, 1, 20, 2], "x": [0.5, None, -0.25, 1e-9], "word": list("bdac")})
    report.add_table("sorted", frame, "Rows.", max_rows=2)
    frame = pd.DataFrame({f"a long name of column {i}": [1.0, 2.0] for i in range(9)})
    report.add_table("wide", frame, "Columns.")
    bars = pd.DataFrame({"x": list("abc"), "y": [1.0, 2.0, 4.0]})
    report.add_figure("bars", figures.bars(bars, "x", "y"), "Bars.")
    return report


def column(page, place: int) -> list[str]:
    cells = f"[...document.querySelectorAll('#table-sorted tbody tr')].map((row) => row.cells[{place}].textContent)"
    return page.run(cells)


def test_a_page_is_used(page: Page, tmp_path: Path) -> None:
    page.errors.clear()
    page.size(390, 844, mobile=True)
    page.open(page_with_everything().save(tmp_path / "page.html"))
    seen = "[...document.querySelectorAll('#table-sorted tbody:not([hidden]) tr')].length"
    assert page.run(seen) == 2
    page.run("document.querySelector('#table-sorted thead th button').click()")
    assert page.run(seen) == 4  # all rows are sorted, so all are shown
    assert column(page, 0) == ["1", "2", "3", "20"]
    assert page.run("document.querySelector('#table-sorted th').getAttribute('aria-sort')") == "ascending"
    page.run("document.querySelectorAll('#table-sorted thead th button')[1].click()")
    assert [text[:4] for text in column(page, 1)] == ["-0.2", "1e-0", "0.5", "–"]
    assert page.run("document.querySelector('#table-sorted .note')") is None
    assert page.run("document.querySelector('#table-wide').classList.contains('is-cut')")
    page.run("document.querySelector('#table-wide .scroll').scrollLeft = 1e6")
    page.wait("!document.querySelector('#table-wide').classList.contains('is-cut')")
    page.run("document.querySelector('.term').click()")
    assert page.run("document.querySelector('#note-s-acc').matches(':popover-open')")
    page.wait("!!document.querySelector('#figure-bars .js-plotly-plot')")
    assert page.run("document.querySelector('#figure-bars [role=img]').ariaLabel").startswith("3 bars of y")
    stops = "a[href]:not(.anchor), button, [tabindex]"
    assert page.run(f"[...document.querySelectorAll('#figure-bars')[0].querySelectorAll('{stops}')].length") == 1
    assert page.errors == []


def test_figures_far_below_are_drawn_without_scrolling(page: Page, tmp_path: Path) -> None:
    page.errors.clear()
    report = Report("t")
    report.heading("Far", "\n\n".join(["A line."] * 200))
    bars = pd.DataFrame({"x": list("abc"), "y": [1.0, 2.0, 4.0]})
    report.add_figure("bars", figures.bars(bars, "x", "y"), "Bars.")
    page.size(1300, 800)
    page.open(report.save(tmp_path / "page.html"))
    assert page.run("document.querySelector('#figure-bars').getBoundingClientRect().top") > 800 + 600
    page.wait("!!document.querySelector('#figure-bars .js-plotly-plot .main-svg')")
    color = "getComputedStyle(document.querySelector('#figure-bars .ytick text')).fill"
    before = page.run(color)
    page.run("document.getElementById('theme').click()")  # figures out of sight follow the theme, too
    page.wait(f"{color} !== {before!r}")
    assert page.errors == []
