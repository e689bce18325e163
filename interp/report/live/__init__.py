"""The live panel: the page runs the model itself, in plain JavaScript that gives the same numbers as torch.

The files are joined into one script, in the order of FILES. The page loads nothing else, so it works from disk, and its
content security policy allows this script by its hash.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

Panel = Mapping[str, Any]

FILES: dict[str, Callable[[Panel], bool]] = {
    # The model and its measures, which also run without a page.
    "numbers": lambda panel: True,
    "positions": lambda panel: True,
    "forward": lambda panel: True,
    "counts": lambda panel: bool(panel.get("counts")),
    "truth": lambda panel: True,
    "run": lambda panel: True,
    "generated": lambda panel: bool(panel.get("generates")),
    "python": lambda panel: True,
    # The page.
    "dom": lambda panel: True,
    "store": lambda panel: True,
    "answer": lambda panel: True,
    "counts_panel": lambda panel: bool(panel.get("counts")),
    "input": lambda panel: not panel.get("counts"),
    "attention": lambda panel: not panel.get("counts"),
    "lengths": lambda panel: not panel.get("counts") and bool(panel.get("lengths")),
    "tables": lambda panel: bool(panel.get("table")),
    "panel": lambda panel: True,
    "start": lambda panel: True,
}
"""The files in order, each with a function that tells whether a panel needs it."""

ENGINE = ("numbers", "positions", "forward", "counts", "truth", "run", "generated", "python")


def script(panels: Sequence[Panel]) -> str:
    """The script of a page with these panels, "" if there are none: only the files that they need."""
    names = tuple(name for name, needed in FILES.items() if any(map(needed, panels)))
    return f'(() => {{\n"use strict";\n{_joined(names)}}})();\n' if panels else ""


def engine() -> str:
    """The forward pass and its edits alone: what other programs need to run a payload's model."""
    return _joined(ENGINE)


@cache
def _joined(names: tuple[str, ...]) -> str:
    folder = files("interp.report.live")
    return "".join((folder / f"{name}.js").read_text(encoding="utf-8") for name in names)
