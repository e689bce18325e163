"""How small things show themselves in a notebook: a line of words and a plain table, in the notebook's own style."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from interp.errors import short

CELL = "style='text-align:left;vertical-align:top'"


def view(title: str, rows: Iterable[Sequence[object]], head: Sequence[str] = ()) -> str:
    """A title and a table as HTML; every value is written as text, long ones cut in the middle."""
    lines = [f"<p><b>{escape(short(title, 200))}</b></p>", "<table>"]
    if head:
        lines.append("<thead><tr>" + "".join(f"<th {CELL}>{escape(name)}</th>" for name in head) + "</tr></thead>")
    for row in rows:
        lines.append("<tr>" + "".join(f"<td {CELL}>{escape(short(value, 400))}</td>" for value in row) + "</tr>")
    return "\n".join([*lines, "</table>"])
