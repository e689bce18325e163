"""HTML views of small objects in notebooks: a title and a plain table."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from interp.errors import as_path, short
from interp.support.files import write_atomically

CELL = "style='text-align:left;vertical-align:top'"


def view(title: str, rows: Iterable[Sequence[object]], head: Sequence[str] = ()) -> str:
    """Return a title and a table as HTML. Values are written as text, and long values are cut in the middle."""
    lines = [f"<p><b>{escape(short(title, 200))}</b></p>", "<table>"]
    if head:
        lines.append("<thead><tr>" + "".join(f"<th {CELL}>{escape(name)}</th>" for name in head) + "</tr></thead>")
    for row in rows:
        lines.append("<tr>" + "".join(f"<td {CELL}>{escape(short(value, 400))}</td>" for value in row) + "</tr>")
    return "\n".join([*lines, "</table>"])


@dataclass(frozen=True, repr=False)
class InlineSvg:
    """An SVG picture made by interp; a notebook shows it, and `save` writes it to a file."""

    svg: str

    def _repr_html_(self) -> str:
        return self.svg

    def save(self, path: str | Path) -> Path:
        """Write the picture as an .svg file and return its path. Raises InterpError if that is impossible."""
        return write_atomically(as_path(path, "a drawing"), self.svg)
