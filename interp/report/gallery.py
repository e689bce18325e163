"""The gallery: static pages with one report per model, and an index.

The pages are self-contained: they open from disk and can be put on any static host.
"""

import html
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from interp.errors import InterpError
from interp.models import zoo
from interp.models.listing import list_models
from interp.report.analyze import analyze
from interp.report.render import resource, slug, variables
from interp.support.files import write_atomically
from interp.support.progress import LateBar
from interp.support.words import counted

STATES = {
    "certified": ("proved", "proved right on every input of its domain"),
    "refuted": ("refuted", "proved wrong on some inputs"),
    "undecided": ("undecided", "proved neither right nor wrong"),
}
COLUMNS = ("model", "what is asked", "what it computes", "how", "state")


@dataclass(frozen=True)
class Card:
    """One row of the index. page: file name, or "" if no report could be made; `computes` is then the reason."""

    name: str
    page: str
    asked: str
    computes: str
    how: str
    state: str


def gallery(out: str | Path, models: Sequence[str] | None = None, sections: Sequence[str] | None = None) -> Path:
    """Write the pages and their index into a folder, which is created if needed, and return the index's path.

    models: names (default: all). sections: of each report (default: all that apply). If a report cannot be made, the
    index gives the reason. Raises InterpError for an unknown name, and if the folder cannot be written to.
    """
    out = Path(out)
    known = [str(name) for name in list_models()["name"]]
    for name in models or ():
        if name not in known:
            raise InterpError(f"no model is named {name!r}; see `interp models`")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InterpError(f"cannot write to {out}: {error.strerror or error}") from None
    entries = []
    wanted = list(models or known)
    with LateBar("gallery") as bar:
        for number, name in enumerate(wanted):
            bar.update(number, len(wanted), name)
            entries.append(_entry(name, out, sections))
    return write_atomically(out / "index.html", _index(entries))


def _entry(name: str, out: Path, sections: Sequence[str] | None) -> Card:
    try:
        model = zoo.load(name)
        report = analyze(name, sections=sections)
    except InterpError as error:
        return Card(name, "", "", str(error), "", "none")
    page = f"{slug(name)}.html"
    report.save(out / page)
    state = str(report.facts.get("certificate", "none"))
    texts = {
        about: [paragraph.text for paragraph in report.said if paragraph.about == about]
        for about in ("what", "how", "proof")
    }
    computes = (texts["what"] or texts["proof"] or [report.subtitle])[0]
    how = texts["how"][-1] if texts["how"] else ""  # the last sentence is the most specific
    return Card(name, page, model.task.describe, computes, how, state)


def _index(entries: Sequence[Card]) -> str:
    columns = [word for word in COLUMNS if word != "how" or any(entry.how for entry in entries)]
    pages = sum(bool(entry.page) for entry in entries)
    rows = "\n".join(_row(entry, columns) for entry in entries)
    head = "".join(f'<th scope="col">{word}</th>' for word in columns)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Models taken apart</title>
<style>
{variables()}{resource("page.css")}
td {{ white-space: normal; min-width: 8em; }}
main {{ margin-top: 20px; }}
@media (max-width: 700px) {{
  thead {{ display: none; }}
  tr, td {{ display: block; }}
  tr {{ padding: 10px 0; border-bottom: 1px solid var(--muted); }}
  td, td + td {{ padding: 2px 0; border: 0; }}
  td:not(:first-child):not(:empty)::before {{ content: attr(data-label) ": "; color: var(--muted); }}
}}
.proved {{ color: var(--series-2); font-weight: 600; }}
.refuted {{ color: var(--warning); font-weight: 600; }}
</style>
</head>
<body>
<header><h1>Models taken apart</h1>
<p class="subtitle">{counted(len(entries), "model")}, {counted(pages, "report")}.</p></header>
<main><div class="scroll"><table>
<thead><tr>{head}</tr></thead>
<tbody>
{rows}
</tbody></table></div></main>
</body>
</html>
"""


def _row(entry: Card, columns: Sequence[str]) -> str:
    name = html.escape(entry.name)
    link = f'<a href="{html.escape(entry.page)}">{name}</a>' if entry.page else name
    word, title = STATES.get(entry.state, ("measured" if entry.page else "no report", ""))
    state = f'<span class="{word.split()[0]}" title="{title}">{word}</span>'
    words = (html.escape(_first_sentences(text)) for text in (entry.asked, entry.computes, entry.how))
    cells = zip(COLUMNS, (link, *words, state))
    return (
        "<tr>" + "".join(f'<td data-label="{label}">{cell}</td>' for label, cell in cells if label in columns) + "</tr>"
    )


def _first_sentences(text: str, limit: int = 200) -> str:
    """Cut text to whole sentences of at most about `limit` characters, but keep at least the first sentence."""
    sentences = text.replace("\n", " ").split(". ")
    shown = sentences[0]
    for sentence in sentences[1:]:
        if len(shown) + len(sentence) > limit:
            break
        shown += f". {sentence}"
    return shown if shown.endswith(".") or not shown else f"{shown}."
