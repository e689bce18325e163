"""Reports of shipped models with every figure that applies: all figures are looked at, and some of them clicked."""

import importlib
from functools import cache
from pathlib import Path

import interp
from interp.report import Report, sections
from interp.report.analyze import list_sections

INPUTS = 300
"""Of each section: figures look the same on more."""


def drawing_sections() -> list[str]:
    """Sections whose file draws a figure."""
    files = {one.name: importlib.import_module(one.make.__module__).__file__ for one in sections.all_sections()}
    return [name for name, path in files.items() if path and "add_figure" in Path(path).read_text()]


CLICKED = (
    "count01/paper", "histogram/dot", "languages/first-learned", "memorization/lookup", "algorithmic/max-of-k-exact",
)  # fmt: skip
"""Models whose figures are clicked as well (test_clicks.py): their reports are made once for both."""


def drawn(name: str, *others: str) -> Report:
    """Every section that draws and applies, after the others."""
    applies = list_sections(name).query("status == 'applies'")["section"]
    wanted = [*others, *sorted({*drawing_sections()} & {*applies} - {*others})]
    return interp.analyze(name, sections=wanted, inputs=INPUTS)


@cache
def whole(name: str) -> Report:
    """With the live panel that clicks load."""
    return drawn(name, "live")
