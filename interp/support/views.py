"""HTML views of small objects in notebooks: a title and a plain table."""

from collections.abc import Iterable, Sequence
from html import escape

from interp.errors import short

CELL = "style='text-align:left;vertical-align:top'"


def view(title: str, rows: Iterable[Sequence[object]], head: Sequence[str] = ()) -> str:
    """Return a title and a table as HTML. Values are written as text, and long values are cut in the middle."""
    lines = [f"<p><b>{escape(short(title, 200))}</b></p>", "<table>"]
    if head:
        lines.append("<thead><tr>" + "".join(f"<th {CELL}>{escape(name)}</th>" for name in head) + "</tr></thead>")
    for row in rows:
        lines.append("<tr>" + "".join(f"<td {CELL}>{escape(short(value, 400))}</td>" for value in row) + "</tr>")
    return "\n".join([*lines, "</table>"])
