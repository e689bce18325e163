"""Write tables to the terminal as text, JSON or CSV."""

import json
import math
import shutil
import sys
from collections.abc import Mapping
from io import StringIO
from numbers import Integral, Real
from typing import Any

import pandas as pd

from interp.errors import InterpError, one_of
from interp.report.cells import Format, cells, is_numeric

TABLE_FORMATS = ("table", "json", "csv")


def format_table(
    frame: pd.DataFrame, fmt: str = "table", formats: Mapping[str, Format] | None = None, width: int | None = None
) -> str:
    """Return a frame as text without a final newline.

    Args:
        fmt: "table" for people; "json" (a list of records, with tuples as lists, missing values as null, and infinities
            as strings, because JSON has none) and "csv" for programs, both with every digit.
        formats: formats of the columns of a "table", e.g. {"s_acc": ".3f"}.
        width: width of a "table" in characters (default: that of the terminal, or unlimited without a terminal).

    Raises:
        InterpError: `fmt` is unknown, or `formats` does not fit the frame.
    """
    if fmt == "json":
        rows = frame.itertuples(index=False, name=None)
        records = [dict(zip(map(str, frame.columns), map(_json_value, row))) for row in rows]
        return json.dumps(records, indent=2, ensure_ascii=False, allow_nan=False)
    if fmt == "csv":
        return frame.to_csv(index=False, lineterminator="\n").removesuffix("\n")
    if fmt != "table":
        raise InterpError(one_of("table format", fmt, TABLE_FORMATS))
    return _rich_table(frame, formats, width)


def _rich_table(frame: pd.DataFrame, formats: Mapping[str, Format] | None, width: int | None) -> str:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name, numeric in zip(frame.columns, is_numeric(frame)):
        table.add_column(Text(_printable(name)), justify="right" if numeric else "left", overflow="fold")
    for row in cells(frame, formats):
        table.add_row(*(Text(_printable(cell)) for cell in row))
    if width is None:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 100_000
    # `Table` is only as wide as its columns need, so a wide console does no harm.
    page = Console(file=StringIO(), width=width, color_system=None, force_terminal=False, legacy_windows=False)
    with page.capture() as capture:
        page.print(table)
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


def _printable(value: object) -> str:
    """Escape control characters, so that a name from a file cannot control the terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(value))


def _json_value(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [_json_value(item) for item in value]
    if value is None or type(value).__name__ in ("NaTType", "NAType"):
        return None
    if isinstance(value, bool | str):
        return value
    if type(value).__name__ == "bool":  # numpy's
        return bool(value)
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        number = float(value)
        return None if math.isnan(number) else number if math.isfinite(number) else str(number)
    return str(value)
