"""Render a page to HTML.

The page contains plotly.js once, compressed, and figures as JSON blocks, which a small script draws when they scroll
into view. A content security policy allows only these two scripts, by their hashes, and no external resources.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from interp.errors import InterpError
from interp.report.aim import aimed
from interp.report.glossary import annotated, notes
from interp.report.items import (
    BLOCKS,
    MOST_ROWS,
    Drawing,
    FigureItem,
    Heading,
    Item,
    Listing,
    LiveItem,
    Metadata,
    Page,
    Said,
    TableItem,
    Text,
    Verdict,
)  # fmt: skip
from interp.report.live import script as live_script
from interp.report.reading import finding
from interp.support.figures import theme
from interp.support.figures.cells import is_numeric
from interp.support.words import MARKS, counted

if TYPE_CHECKING:
    import plotly.graph_objects as go

DEFAULT_HEIGHT = 420


def render(report: Page) -> str:
    """Render a report; equal reports give equal text."""
    from markupsafe import Markup

    taken: set[str] = {"top"}
    told: set[str] = set()
    pictures = {item.key: item for item in report.items if isinstance(item, FigureItem)}
    verdict = _verdict(report.said, report.mark, pictures, told)
    chapters = list(_chapters(report, taken, told, pictures))
    panels = [item.data for item in report.items if isinstance(item, LiveItem) and not isinstance(item.data, str)]
    script = live_script(panels) + resource("page.js")
    plotly, plotly_hash = _plotly()
    return _template().render(
        report=report,
        verdict=verdict,
        notes=notes(told),
        chapters=chapters,
        contents=any(block["sections"] for chapter in chapters for block in chapter["blocks"]),
        policy=f"default-src 'none'; script-src 'sha256-{_sha256(script)}' 'sha256-{plotly_hash}'; "
        "style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'",
        style=Markup(variables() + resource("page.css") + (resource("live/live.css") if panels else "")),
        script=Markup(script),
        plotly=Markup(plotly),
        settings=Markup(_json_block(json.dumps(_settings(), sort_keys=True))),
        has_figures=bool(pictures),
    )


@cache
def _template() -> Any:
    """Return the template of a page, compiled."""
    from jinja2 import Environment

    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(resource("page.html.jinja"))


Pictures = Mapping[str, FigureItem]


def _verdict(paragraphs: Iterable[Said], mark: str, pictures: Pictures, told: set[str]) -> list[dict[str, Any]]:
    """Return the parts of a verdict: topic, paragraphs, and a picture, which is shown only once.

    The mark goes with the part about the proof, or alone if there is none.
    """
    parts: list[dict[str, Any]] = []
    shown: set[str] = set()
    for paragraph in paragraphs:
        if not parts or parts[-1]["about"] != paragraph.about:
            parts.append(
                {"about": paragraph.about, "label": LABELS.get(paragraph.about, ""), "paragraphs": [], "picture": None}
            )
        parts[-1]["paragraphs"] += [annotated(text, told) for text in _paragraphs(paragraph.text)]
        key = next((key for key in paragraph.pictures if key in pictures and key not in shown), None)
        if key is not None:  # the last paragraph is the most specific
            shown.add(key)
            parts[-1]["picture"] = _thumbnail(pictures[key])
    if mark and parts:
        bears = next((part for part in parts if part["about"] == "proof"), parts[0])
        bears["mark"], bears["marked"] = mark, MARKS[mark]
    return parts


LABELS: dict[str, str] = {"task": "The task", **BLOCKS}
THUMBNAIL = 280, 150
"""Largest width and height of the pictures on the first screen, in pixels; they are drawn larger and scaled down."""


def _thumbnail(item: FigureItem) -> dict[str, Any]:
    """Return a figure's data block, its size, its scale, and the room that it then takes."""
    hints, height = size_hints(item.figure), height_of(item.figure)
    width = hints.get("max_width", max(600, hints.get("min_width", 0)))
    scale = min(THUMBNAIL[0] / width, THUMBNAIL[1] / height)
    room = {"across": round(width * scale), "down": round(height * scale)}
    return {"id": f"figure-{slug(item.key)}", "width": width, "height": height, "scale": round(scale, 3), **room}


def _chapters(report: Page, taken: set[str], told: set[str], pictures: Pictures) -> Iterator[dict[str, Any]]:
    """Yield the parts of a page: what comes before the first model of several, then one chapter per model.

    Heading levels have no gaps: blocks are below the page's title, or below their model's title if there are several.
    """
    starts = [i for i, item in enumerate(report.items) if isinstance(item, Heading) and item.level == 1]
    bounds = [0, *starts, len(report.items)]
    for start, end in pairwise(bounds):
        items = list(report.items[start:end])
        titled = bool(items) and start in starts
        if not items and starts:
            continue
        verdict = next((item for item in items if isinstance(item, Verdict)), None)
        first, remaining = (report.said, report.rest) if verdict is None else (verdict.said, verdict.rest)
        seen = {part for paragraph in first for part in _paragraphs(paragraph.text)}
        heading: Any = items.pop(0) if titled else Heading("")
        start_of = next((i for i, item in enumerate(items) if isinstance(item, Heading)), len(items))
        yield {
            "title": heading.title,
            "id": _identifier("section", heading.title, taken) if titled else "top",
            "views": [_view(item, taken, told, pictures) for item in items[:start_of]],
            "blocks": list(
                _blocks(_unsaid(items[start_of:], seen), remaining, 3 if titled else 2, taken, told, pictures)
            ),
        }


def _unsaid(items: Sequence[Item], seen: Container[str]) -> list[Item]:
    """Leave out the paragraphs of sections that stand on the first screen."""
    unsaid: list[Item] = []
    for item in items:
        if isinstance(item, Text):
            left = [part for part in _paragraphs(item.text) if part not in seen]
            unsaid += [Text("\n\n".join(left))] if left else []
        else:
            unsaid.append(item)
    return unsaid


def _blocks(
    items: Sequence[Item], remaining: Sequence[Said], level: int, taken: set[str], told: set[str], pictures: Pictures
) -> Iterator[dict[str, Any]]:
    """Yield the blocks of a page in their order, each with its paragraphs and sections; sections without one first."""
    starts = [i for i, item in enumerate(items) if isinstance(item, Heading)]
    sections = [(items[a], items[a + 1 : b]) for a, b in zip(starts, [*starts[1:], len(items)])]
    for name, title in (("", ""), *BLOCKS.items()):
        mine = [(head, rest) for head, rest in sections if isinstance(head, Heading) and head.block == name]
        mine = [(head, rest) for head, rest in mine if rest or not name]  # a heading alone says nothing
        if not mine:
            continue
        identifier = _identifier("block", name, taken) if name else ""
        texts = "\n".join(item.text for _, rest in mine for item in rest if isinstance(item, Text))
        lead = [
            paragraph.text
            for paragraph in remaining
            if name and paragraph.about == name and paragraph.text not in texts
        ]
        paragraphs = [annotated(part, told) for text in lead for part in _paragraphs(text)]
        made = []
        for head, rest in mine:
            here: set[str] = set()  # terms are explained once per section
            made.append(_section(head.title, rest, bool(name), taken, here, pictures))
            told |= here
        yield {"title": title, "id": identifier, "lead": paragraphs, "sections": made, "level": level + bool(name)}


FIRST_ROWS = 4
"""Number of rows that are shown at first of a table that is not folded."""
WIDE, TALL, HIGH = 560, 360, 520
"""A section with a live panel, code or a figure that needs WIDE pixels is as wide as the page. A figure that is both
wide and taller than TALL pixels is folded, and if the section has no other, one that is taller than HIGH."""


def _section(
    title: str, items: Sequence[Item], folds: bool, taken: set[str], told: set[str], pictures: Pictures
) -> dict[str, Any]:
    """Return a section. folds: show only the first figure, and fold the others and the tables below it."""
    identifier = _identifier("section", title, taken)
    views = [_view(item, taken, told, pictures) for item in items]
    of = {kind: [view for view in views if view["kind"] == kind] for kind in HELD}
    small = [view for view in of["figure"] if view["width"] <= WIDE or view["height"] <= TALL]
    alone = [view for view in of["figure"][:1] if view["height"] <= HIGH]
    kept = of["drawing"] + (small or alone)[:1] if of["figure"] or of["drawing"] else of["table"][:1]
    folded = [view for view in of["figure"] + of["table"] if folds and view not in kept]
    shown = [view for view in views if view not in folded]
    for table in kept if folds and kept == of["table"][:1] else ():
        table["rows"], table["rest"] = table["rows"][:FIRST_ROWS], table["rows"][FIRST_ROWS:] + table["rest"]
    if of["figure"] and not shown:  # a figure without words is folded under its caption
        shown = [{"kind": "text", "paragraphs": [of["figure"][0]["caption"]]}]
    return {
        "title": title,
        "id": identifier,
        "views": shown,
        "figures": [view for view in folded if view["kind"] == "figure"],
        "tables": [view for view in folded if view["kind"] == "table"],
        "holds": ", ".join(counted(len(of[kind]), word) for kind, word in HELD.items() if of[kind]),
        "wide": any(view["kind"] in ("live", "code") or view.get("width", 0) > WIDE for view in shown),
    }


HELD = {"live": "live panel", "code": "program", "drawing": "drawing", "figure": "figure", "table": "table"}
"""What the contents list counts, by kind of item."""


def _view(item: Item, taken: set[str], told: set[str], pictures: Pictures) -> dict[str, Any]:
    from markupsafe import Markup

    match item:
        case Heading(title):  # sections and chapters have their own views
            raise InterpError(f"a heading {title!r} in the middle of a section")
        case Text(text):
            return {"kind": "text", "paragraphs": [annotated(part, told) for part in _paragraphs(text)]}
        case Listing(text):
            return {"kind": "code", "text": text}
        case Drawing(svg, caption):
            return {"kind": "drawing", "svg": Markup(svg), "caption": annotated(caption, told)}
        case Verdict(paragraphs, mark):
            return {"kind": "verdict", "verdict": _verdict(paragraphs, mark, pictures, told)}
        case Metadata(entries):
            return {"kind": "metadata", "entries": entries}
        case FigureItem(key, caption, figure):
            return {
                "kind": "figure",
                "id": _identifier("figure", key, taken),
                "caption": annotated(caption, told),
                "finding": finding(figure),
                "size": _size(figure),
                "width": size_hints(figure).get("min_width", 0),
                "height": height_of(figure),
                "json": Markup(_json_block(_figure_json(figure))),
            }
        case LiveItem(data):
            if isinstance(data, str):
                return {"kind": "live", "id": _identifier("live", None, taken), "reason": data}
            text = json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)
            return {"kind": "live", "id": _identifier("live", None, taken), "json": Markup(_json_block(text))}
        case TableItem(key, caption, frame, rows, shown):
            return {
                "kind": "table",
                "id": _identifier("table", key, taken),
                "caption": annotated(caption, told),
                "columns": [str(column) for column in frame.columns],
                "numeric": is_numeric(frame),
                "rows": rows[:shown],
                "rest": rows[shown:],
                "n_rows": len(frame),
                "csv": Markup(_json_block(json.dumps(frame.head(MOST_ROWS).to_csv(index=False, lineterminator="\n")))),
            }


def _identifier(kind: str, name: str | None, taken: set[str]) -> str:
    """Return an HTML id from a name, if there is one, with a number if it is taken."""
    stem = kind if name is None else f"{kind}-{slug(name)}"
    identifier, count = stem, 1
    while identifier in taken:
        count += 1
        identifier = f"{stem}-{count}"
    taken.add(identifier)
    return identifier


def slug(name: str) -> str:
    """Return a name in lowercase letters, digits, dots, underscores and hyphens."""
    return re.sub(r"[^a-z0-9._]+", "-", name.lower()).strip("-.")[:80] or "untitled"


def _paragraphs(text: str) -> list[str]:
    return [part.strip() for part in re.split(r"\n\s*\n", str(text)) if part.strip()]


def _size(figure: go.Figure) -> str:
    """Return the size of a figure's box in CSS."""
    height, hints = height_of(figure), size_hints(figure)
    least = "".join(f"{name.replace('_', '-')}:{size}px;" for name, size in hints.items() if name.startswith("min_"))
    if "most_width" in hints:
        least += f"max-width:{hints['most_width']}px;"
    if "max_width" in hints:
        return f"{least}max-width:{hints['max_width']}px;aspect-ratio:{hints['max_width']}/{height}"
    return f"{least}height:{height}px"


def height_of(figure: go.Figure) -> int:
    """Return the height of a figure, in pixels."""
    return int(figure.layout.height or DEFAULT_HEIGHT)


def size_hints(figure: go.Figure) -> dict[str, int]:
    """Return a figure's "min_width" (narrower pages scroll), "max_width" (of square figures), "most_width" (of others
    with few columns) and "min_height" (if it cannot be drawn as low as the others in a column), in pixels."""
    meta = figure.layout.meta if isinstance(figure.layout.meta, dict) else {}
    names = ("min_width", "max_width", "most_width", "min_height")
    return {name: int(meta[name]) for name in names if isinstance(meta.get(name), int | float)}


def _figure_json(figure: go.Figure) -> str:
    content = aimed(json.loads(figure.to_json(validate=False, engine="json")))
    content.get("layout", {}).pop("template", None)  # the page has one template for all figures
    return json.dumps({"data": content.get("data", []), "layout": content.get("layout", {})}, separators=(",", ":"))


def _json_block(text: str) -> str:
    """Escape JSON for a script element: "<", ">" and "&" become \\u escapes."""
    escapes: dict[str, str | int | None] = {
        "<": "\\u003c",
        ">": "\\u003e",
        "&": "\\u0026",
        "\u2028": "\\u2028",
        "\u2029": "\\u2029",
    }
    return text.translate(str.maketrans(escapes))


def _settings() -> dict[str, Any]:
    return {"template": json.loads(json.dumps(theme.template().to_plotly_json())), "dark": theme.DARK}


@cache
def _plotly() -> tuple[str, str]:
    """Return plotly.js, compressed by gzip and encoded in base64, and the hash of its source."""
    from plotly.offline import get_plotlyjs

    source = get_plotlyjs()
    return base64.b64encode(gzip.compress(source.encode("utf-8"), mtime=0)).decode(), _sha256(source)


def _sha256(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode()


def variables() -> str:
    """Return the theme's colors as CSS variables, so that page and figures agree."""
    names = {
        "ink": theme.INK,
        "paper": theme.PAPER,
        "grid": theme.GRID,
        "accent": theme.BLUE,
        "warning": theme.VERMILLION,
    }
    names |= {f"series-{i}": color for i, color in enumerate(theme.COLORS)}
    names |= {f"token-{i}": color for i, color in enumerate(theme.COUNTED_COLORS)}
    light = "".join(f"--{name}:{color};" for name, color in names.items()) + "--muted:#59616B;--panel:#F5F7F9;"
    dark = (
        "".join(f"--{name}:{theme.DARK[color]};" for name, color in names.items()) + "--muted:#A6AFB9;--panel:#1F242B;"
    )
    return (
        f":root{{color-scheme:light;{light}}}\n"
        f":root[data-theme=dark]{{color-scheme:dark;{dark}}}\n"
        f"@media screen and (prefers-color-scheme:dark){{:root:not([data-theme=light]){{color-scheme:dark;{dark}}}}}\n"
        f"@media print{{:root:root{{color-scheme:light;{light}}}}}\n"
    )


@cache
def resource(name: str) -> str:
    return files("interp.report").joinpath(name).read_text(encoding="utf-8")
