"""The live panel: the model itself inside the page, as plain JavaScript that gives torch's numbers.

The files are joined in this order into one script; each says at its top what it is for. Nothing is compiled, nothing is
loaded: a page opens from disk, and its content security policy allows this one script by its hash.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

ENGINE = ("numbers", "positions", "forward", "counts")


@cache
def engine() -> str:
    """The forward pass alone: what other programs need to run a payload's model."""
    return _joined(ENGINE)


def _joined(names: tuple[str, ...]) -> str:
    folder = files("interp.report.live")
    return "\n".join((folder / f"{name}.js").read_text(encoding="utf-8") for name in names)
