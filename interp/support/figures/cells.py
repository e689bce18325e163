"""Format the values of a table, for pages and for the terminal."""

import json
import math
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping
from io import StringIO
from numbers import Integral, Real
from typing import Any, Literal

import pandas as pd
from pandas.api.types import is_bool, is_bool_dtype, is_integer_dtype, is_numeric_dtype, is_scalar

from interp.errors import InterpError, check_one_of

Format = str | Callable[[Any], str]
"""How a column is written: a format specification such as ".3f", or a function from a value to text."""

MISSING = "–"


def cells(frame: pd.DataFrame, formats: Mapping[str, Format] | None = None) -> list[list[str]]:
    """Return the rows of a frame as text. A column without a format of its own gets one that suits its numbers.

    Raises:
        InterpError: a format names a column that the frame lacks, or does not fit the column's values.
    """
    formats = formats or {}
    for name in formats:
        check_one_of("column in formats", name, frame.columns)
    columns = []
    for position, name in enumerate(frame.columns):
        values = frame.iloc[:, position].tolist()
        write = formats.get(name) or _suitable(values)
        try:
            columns.append([_cell(value, write) for value in values])
        except (ValueError, TypeError) as error:
            raise InterpError(f"the format {write!r} does not fit the column {name!r}: {error}") from error
    return [list(row) for row in zip(*columns)]


def for_a_page(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a frame as a page shows it.

    Heads are named "0.3" for layer 0 and head 3 (without a column `layer`: of the only layer), and groups "0.1, 0.2".
    Columns without any value are left out, and those with few values are last, where they push no others out of sight.
    """
    if "head" in frame and is_integer_dtype(frame["head"].dtype) and frame["head"].notna().all():
        layers = frame["layer"] if "layer" in frame else [0] * len(frame)
        frame = frame.assign(head=[f"{layer}.{head}" for layer, head in zip(layers, frame["head"])])
        frame = frame.drop(columns="layer", errors="ignore")
    if "heads" in frame and len(frame) and all(isinstance(group, tuple) for group in frame["heads"]):
        named = [", ".join(f"0.{head}" if isinstance(head, int) else str(head) for head in g) for g in frame["heads"]]
        frame = frame.assign(heads=named)
    missing = [(frame.iloc[:, place].isna() | (frame.iloc[:, place] == "")).mean() for place in range(frame.shape[1])]
    order = sorted(range(frame.shape[1]), key=lambda place: missing[place] > 0.5)
    return frame.iloc[:, [place for place in order if missing[place] < 1 or frame.empty]]


def is_number(column: pd.Series) -> bool:
    """Return whether a column contains numbers; booleans do not count."""
    return is_numeric_dtype(column) and not is_bool_dtype(column)


def is_numeric(frame: pd.DataFrame) -> list[bool]:
    """Return for each column whether it contains numbers (and is aligned to the right)."""
    return [is_number(frame.iloc[:, place]) for place in range(frame.shape[1])]


def _suitable(values: Iterable[object]) -> Format:
    """Return a fixed number of decimals if all numbers have similar sizes, otherwise three digits per number."""
    sizes = [abs(float(v)) for v in values if isinstance(v, Real) and not isinstance(v, Integral)]
    largest = max((size for size in sizes if math.isfinite(size)), default=0.0)
    if largest == 0.0:
        return _natural
    if not 1e-3 <= largest < 1e7:
        return ".3e"
    smallest = min(size for size in sizes if size > 0)
    decimals = 4 if largest <= 1 else max(0, 3 - math.floor(math.log10(largest)))  # four for shares
    is_even = smallest >= 10.0 ** (1 - decimals)

    def write(value: object) -> str:
        if not isinstance(value, Real) or isinstance(value, Integral):
            return _natural(value)
        number = float(value)
        if is_even:
            return format(number, f".{decimals}f")
        return format(number, ".3g" if abs(number) < 100 else ".0f")

    return write


def _cell(value: object, write: Format) -> str:
    if is_scalar(value) and pd.isna(value):
        return MISSING
    if is_bool(value):
        return "yes" if value else "no"
    return write(value) if callable(write) else format(value, write)


def _natural(value: object) -> str:
    if isinstance(value, tuple | list):
        return "(" + ", ".join(map(_natural, value)) + ("," if len(value) == 1 else "") + ")"
    if isinstance(value, float):
        return format(value, "g")
    return str(value)


# ---------------------------------------------------------------- for the terminal


def format_table(frame: pd.DataFrame, fmt: Literal["table", "json", "csv"] = "table") -> str:
    """Return a frame as text without a final newline.

    fmt: "table" for people; "json" (a list of records, with tuples as lists, missing values as null, and infinities as
    strings, because JSON has none) and "csv" for programs, both with every digit.
    """
    if fmt == "json":
        rows = frame.itertuples(index=False, name=None)
        records = [dict(zip(map(str, frame.columns), map(_json_value, row))) for row in rows]
        return json.dumps(records, indent=2, ensure_ascii=False, allow_nan=False)
    if fmt == "csv":
        return frame.to_csv(index=False, lineterminator="\n").removesuffix("\n")
    return _rich_table(frame)


def _rich_table(frame: pd.DataFrame) -> str:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name, numeric in zip(frame.columns, is_numeric(frame)):
        table.add_column(Text(_printable(name)), justify="right" if numeric else "left", overflow="fold")
    for row in cells(frame):
        table.add_row(*(Text(_printable(cell)) for cell in row))
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
    if is_scalar(value) and pd.isna(value):
        return None
    if is_bool(value):
        return bool(value)
    if isinstance(value, Integral):
        return int(value)
    number = float(value) if isinstance(value, Real) else math.nan
    return number if math.isfinite(number) else str(value)
