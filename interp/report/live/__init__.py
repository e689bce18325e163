"""The live panel: the model itself inside the page, as plain JavaScript that gives torch's numbers.

The files are joined in this order into one script; each says at its top what it is for. Nothing is compiled, nothing is
loaded: a page opens from disk, and its content security policy allows this one script by its hash.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

ENGINE = ("numbers", "positions", "forward", "counts", "truth", "run", "python")
"""The model and what can be asked of it, without a page around it."""
SHARED = ("dom", "store", "input", "answer")
COUNTS = ("counts_panel",)
SEQUENCES = ("attention", "lengths", "tables")
LAST = ("panel", "start")


def script(panels: Sequence[Mapping[str, Any]]) -> str:
    """The script of a page with these panels, "" where there are none: only the files that they need."""
    if not panels:
        return ""
    counts = [panel.get("counts") is not None for panel in panels]
    names = [*ENGINE, *SHARED, *(COUNTS if any(counts) else ()), *(SEQUENCES if not all(counts) else ()), *LAST]
    return f'(() => {{\n"use strict";\n{_joined(tuple(names))}}})();\n'


def engine() -> str:
    """The forward pass and its edits alone: what other programs need to run a payload's model."""
    return _joined(ENGINE)


@cache
def _joined(names: tuple[str, ...]) -> str:
    """The files, without indentation and without lines that are comments."""
    folder = files("interp.report.live")
    text = "".join((folder / f"{name}.js").read_text(encoding="utf-8") for name in names)
    return re.sub(r"^\s*//.*\n", "", re.sub(r"^ +", "", text, flags=re.MULTILINE), flags=re.MULTILINE)
