"""Reports: text, tables and figures on one self-contained HTML page.

    report = Report("count01/paper", metadata={"seed": "0"})
    report.verdict = "7 of 16 heads separate the classes."
    report.heading("Heads", "What each head alone can do.")
    report.add_table("heads", frame, "One row per head.", formats={"s_acc": ".3f"})
    report.add_figure("pairs", figures.heads_heatmap(frame, "s_acc"), "Separation accuracy of single heads and pairs.")
    report.save("report.html")

All text that is passed in (names, captions, cells, metadata, labels in figures) is escaped.
"""

from __future__ import annotations

import html
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pandas as pd

from interp.errors import InterpError, as_path, check_one_of, one_of, short
from interp.report.items import (
    ABOUT,
    MOST_ROWS,
    WORDS,
    About,
    Block,
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
from interp.report.reading import instead
from interp.report.render import render
from interp.report.static import save_figures
from interp.support.figures.cells import Format, cells, for_a_page
from interp.support.files import refuse_special, write_atomically
from interp.support.words import Mark, fitting, n_words

if TYPE_CHECKING:
    import plotly.graph_objects as go


class Named(dict[str, Any]):
    """A dict by name that lists its names where one is unknown. kind: what it holds."""

    def __init__(self, kind: str, *given: Any) -> None:
        super().__init__(*given)
        self.kind = kind

    def __missing__(self, name: str) -> Any:
        raise InterpError(one_of(self.kind, name, self))


@dataclass(frozen=True, repr=False)
class Excerpt:
    """One section of a report, as `report.section(name)` returns it; a notebook shows it."""

    title: str
    items: tuple[Item, ...]

    @property
    def text(self) -> str:
        """The paragraphs, without captions."""
        return "\n\n".join(item.text for item in self.items if isinstance(item, Text))

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        """Tables by key."""
        return Named("table of this section", {i.key: i.frame for i in self.items if isinstance(i, TableItem)})

    @property
    def figures(self) -> dict[str, go.Figure]:
        """Plotly figures by key."""
        return Named("figure of this section", {i.key: i.figure for i in self.items if isinstance(i, FigureItem)})

    def __repr__(self) -> str:
        keys = f"tables: {', '.join(self.tables) or 'none'}; figures: {', '.join(self.figures) or 'none'}"
        return f"{self.title} ({keys})\n{self.text}"

    def _repr_html_(self) -> str:
        return framed(self.title, render(Page(self.title, "", {}, (), "", self.items)), height=500)


def framed(title: str, page: str, height: int = 800) -> str:
    """Return a page in an iframe for Jupyter, so that its styles and scripts do not affect the notebook."""
    return (
        f'<iframe title="{html.escape(title)}" sandbox="allow-scripts allow-downloads" '
        f'style="display:block;box-sizing:border-box;width:100%;height:{height}px;border:1px solid #98a1ab;'
        'border-radius:6px;resize:vertical" '
        f'srcdoc="{html.escape(page)}"></iframe>'
    )


def check_out(path: str | Path) -> Path:
    """Return the path of a report. Raises InterpError if no report can be saved there."""
    path = as_path(path, "a report")
    if not os.path.isdir(path.parent):  # Path.is_dir raises if a name is too long
        raise InterpError(f"cannot save the report to {short(path)}: the folder {short(path.parent)} does not exist")
    if os.path.isdir(path):
        raise InterpError(f"cannot save the report to {path}: it is a folder; name a file such as report.html in it")
    refuse_special(path)
    return path


class Report:
    """A report page that is filled from top to bottom.

    Attributes:
        verdict: the answer in words, shown at the top.
        mark: the status of the answer: "proved", "refuted", "undecided", "measured", or "" for none.
        metadata: names and values shown next to the title (checkpoint, seed, versions).
        facts: numbers and words by name, for comparisons of several models.
        tables: tables by key.
        figures: figures by key.
        block: where new sections belong: "what", "how", "where", "proof", "method", or "" for a page without blocks.
        made: the items of each section, as the first and the one after the last (see `section`).
        in_words: sentences that replace figures, by the figures' keys (see replace_bare_figures).

    Example:

        >>> report = interp.analyze("count01/minimal", sections=["accuracy"])
        >>> report.mark, list(report.tables), report.facts["accuracy"]
        ('proved', ['certificate', 'accuracy'], 1.0)
    """

    def __init__(self, title: str, subtitle: str = "", metadata: Mapping[str, str] | None = None) -> None:
        self.title = str(title)
        self.subtitle = str(subtitle)
        self.metadata = {str(name): str(value) for name, value in (metadata or {}).items()}
        self._said: list[Said] = []
        self.block: Block | Literal[""] = ""
        self.mark: Mark | Literal[""] = ""
        self.items: list[Item] = []
        self.facts: dict[str, Any] = {}
        self.tables: dict[str, pd.DataFrame] = Named("table of this report")
        self.figures: dict[str, go.Figure] = Named("figure of this report")
        self.in_words: dict[str, str] = {}
        self.made: dict[str, tuple[int, int]] = {}
        self.list_sections: Callable[[], pd.DataFrame] | None = None

    def __repr__(self) -> str:
        tables, figures, facts = (", ".join(keys) or "none" for keys in (self.tables, self.figures, self.facts))
        return f"Report({self.title!r}, tables: {tables}; figures: {figures}; facts: {facts})"

    @property
    def sections(self) -> pd.DataFrame:
        """All sections, with their status for this report's model: see `interp sections`."""
        if self.list_sections is None:
            raise InterpError("a page on several models, or without a model, has no list of sections")
        return self.list_sections()

    @property
    def verdict(self) -> str:
        """The paragraphs of the first screen, in order: the task, what the model computes, how, and what is proved."""
        return "\n\n".join(paragraph.text for paragraph in self.first_screen)

    @verdict.setter
    def verdict(self, text: str) -> None:
        self._said = [Said(text)] if text else []

    @property
    def said(self) -> tuple[Said, ...]:
        """All paragraphs that sections said, in order."""
        return tuple(sorted(self._said, key=lambda paragraph: paragraph.rank))

    @property
    def first_screen(self) -> tuple[Said, ...]:
        """The paragraphs of the first screen: of each topic, whole sentences of at most WORDS words (see items)."""
        return tuple(short for short, _ in self._cut() if short.text)

    @property
    def rest(self) -> tuple[Said, ...]:
        """What does not fit on the first screen; it stands at the top of its block."""
        return tuple(left for _, left in self._cut() if left.text)

    def _cut(self) -> list[tuple[Said, Said]]:
        """Return each paragraph as what fits on the first screen, and the rest."""
        room, parts = dict(WORDS), []
        for paragraph in self.said:
            left = room.get(paragraph.about, math.inf)
            fresh = left == WORDS.get(paragraph.about, math.inf)
            short, rest = fitting(paragraph.text, int(left)) if left < n_words(paragraph.text) else (paragraph.text, "")
            if short.endswith(" ...") and not fresh:  # only a first sentence is cut within
                short, rest = "", paragraph.text
            room[paragraph.about] = 0 if rest else left - n_words(short)
            parts.append((replace(paragraph, text=short), replace(paragraph, text=rest)))
        return parts

    def say(self, sentence: str, about: About = "how", pictures: Sequence[str] = ()) -> None:
        """Add a paragraph to the verdict, and to the top of its block. "" adds nothing.

        pictures: keys of figures that illustrate it; the first one in the report is shown next to it.
        """
        check_one_of("subject of a sentence", about, ABOUT)
        if sentence:
            self._said.append(Said(sentence, about, tuple(pictures)))

    def add_fact(self, name: str, value: Any) -> None:
        """Add a number or a word under a name. Comparisons have one row of facts per model.

        Raises:
            InterpError: the name is taken.
        """
        self._check_key(name, "fact", self.facts)
        self.facts[name] = value

    def section(self, name: str) -> Excerpt:
        """Return what one section of a model's report holds: its title, text, tables and figures.

        name: as in `report.sections`. Raises InterpError, with the names, for a section that was not made.

        Example:

            >>> report = interp.analyze("algorithmic/max-of-k", sections=["patching"], inputs=200)
            >>> list(report.section("patching").figures)
            ['patching_stream', 'patching_heads']
        """
        check_one_of("section of this report", name, self.made)
        items = self.items[slice(*self.made[name])]
        title = next((item.title for item in items if isinstance(item, Heading)), name)
        return Excerpt(title, tuple(items))

    def heading(self, title: str, text: str = "") -> None:
        """Start a section of the current block, and list it in the table of contents."""
        self.items.append(Heading(str(title), block=self.block))
        if text:
            self.add_text(text)

    def add_text(self, text: str) -> None:
        """Add plain text, without markup; a blank line starts a new paragraph."""
        self.items.append(Text(str(text)))

    def add_code(self, text: str) -> None:
        """Add source code, with its spaces and line breaks."""
        self.items.append(Listing(str(text)))

    def add_drawing(self, svg: str, caption: str) -> None:
        """Add an SVG picture made by interp, with its text escaped. "" adds nothing."""
        if svg:
            self.items.append(Drawing(svg, str(caption)))

    def add_table(
        self,
        key: str,
        frame: pd.DataFrame,
        caption: str,
        formats: Mapping[str, Format] | None = None,
        max_rows: int = 40,
    ) -> None:
        """Add a table. The page shows its first `max_rows` rows, and more on request; `tables[key]` has all of them.

        Args:
            formats: formats of columns, e.g. {"s_acc": ".3f"}; by default, formats that fit the numbers.

        Raises:
            InterpError: the key is taken, or a format does not fit its column.
        """
        self._check_key(key, "table", self.tables)
        frame = frame.copy()
        # Format now, so that a bad format raises here.
        shown = for_a_page(frame)
        dropped = set(frame.columns) - set(shown.columns)
        formats = {name: form for name, form in (formats or {}).items() if name not in dropped}
        self.items.append(TableItem(key, str(caption), shown, cells(shown.head(MOST_ROWS), formats), max_rows))
        self.tables[key] = frame

    def add_figure(self, key: str, figure: go.Figure, caption: str) -> None:
        """Add a plotly figure with its caption below. The page sets its theme, light or dark.

        `layout.meta = {"min_width": 700}` lets a figure that needs 700 pixels scroll sideways on a phone.

        Raises:
            InterpError: the key is taken.
        """
        self._check_key(key, "figure", self.figures)
        self.items.append(FigureItem(key, str(caption), figure))
        self.figures[key] = figure

    def replace_bare_figures(self) -> None:
        """Replace figures that show at most two numbers, or only equal ones, by a sentence."""
        for number, item in enumerate(self.items):
            if isinstance(item, FigureItem) and (sentence := instead(item.figure)) is not None:
                self.items[number] = Text(f"{item.caption} {sentence}".strip())
                del self.figures[item.key]
                self.in_words[item.key] = sentence

    def add_live(self, data: Mapping[str, Any] | str) -> None:
        """Add a live panel, in which the page runs the model (see interp/report/sections/live_payload.py).

        data: the model, or a sentence on why there is no panel, which is shown instead.
        """
        self.items.append(LiveItem(data))

    def attach(self, other: Report, prefix: str) -> None:
        """Add the contents of another report under its title, with keys "prefix/key", for pages on several models.

        Raises:
            InterpError: a key is taken.
        """
        if other is self:
            raise InterpError(f"the report {self.title!r} cannot be attached to itself")
        for kind, theirs, ours in (("table", other.tables, self.tables), ("figure", other.figures, self.figures)):
            for key in theirs:
                self._check_key(f"{prefix}/{key}", kind, ours)  # check all keys before adding anything
        self.items.append(Heading(other.title, level=1))
        if other.subtitle:
            self.items.append(Text(other.subtitle))
        if other.verdict:
            first_screen, rest = (
                tuple(
                    replace(paragraph, pictures=tuple(f"{prefix}/{key}" for key in paragraph.pictures))
                    for paragraph in paragraphs
                )
                for paragraphs in (other.first_screen, other.rest)
            )
            self.items.append(Verdict(first_screen, other.mark, rest))
        if other.metadata:
            self.items.append(Metadata(tuple(other.metadata.items())))
        for item in other.items:
            self.items.append(
                replace(item, key=f"{prefix}/{item.key}") if isinstance(item, FigureItem | TableItem) else item
            )
        self.tables.update({f"{prefix}/{key}": frame for key, frame in other.tables.items()})
        self.figures.update({f"{prefix}/{key}": figure for key, figure in other.figures.items()})
        self.in_words.update({f"{prefix}/{key}": sentence for key, sentence in other.in_words.items()})

    def html(self) -> str:
        """Return the page as HTML. Equal reports give equal text, so diff can compare two reports."""
        first, rest = self.first_screen, self.rest
        return render(Page(self.title, self.subtitle, self.metadata, first, self.mark, tuple(self.items), rest))

    def save(self, path: str | Path) -> Path:
        """Write the page, either completely or not at all, and return its path.

        Raises:
            InterpError: the folder does not exist or cannot be written to, or the path is a folder.
        """
        return write_atomically(check_out(path), self.html())

    def save_figures(self, folder: str | Path, format: str = "svg") -> list[Path]:
        """Write each figure to its own file, named by its key, and return the paths. Creates the folder.

        Needs the optional extra `static` (kaleido) and a Chrome or Chromium on the machine.

        Raises:
            InterpError: the format is neither "svg" nor "png", kaleido or the browser is missing, or the folder cannot
                be written to.
        """
        return save_figures(self.figures, Path(folder), format)

    def _repr_html_(self) -> str:
        """Return the page in an iframe for Jupyter."""
        return framed(self.title, self.html())

    def _check_key(self, key: str, kind: str, taken: Mapping[str, object]) -> None:
        if key in taken:
            raise InterpError(f"the report {self.title!r} already has a {kind} {key!r}; give this one another key")
