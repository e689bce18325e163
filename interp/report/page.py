"""A report: words, tables and figures on one HTML page that opens from disk with no network.

    report = Report("count01/paper", metadata={"seed": "0"})
    report.verdict = "7 of 16 heads separate the classes."
    report.section("Heads", "What each head alone can do.")
    report.add_table("heads", frame, "One row per head.", formats={"s_acc": ".3f"})
    report.add_figure("pairs", figures.heads_heatmap(frame, "s_acc"), "Separation accuracy of single heads and pairs.")
    report.save("report.html")

Every word that comes from outside (names, captions, cells, metadata, labels inside figures) is escaped.
"""

from __future__ import annotations

import html
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from interp.errors import InterpError, UnsupportedError, as_path, of_type, one_of, short
from interp.files import write_atomically
from interp.report.cells import Format, cells
from interp.report.items import (
    ABOUT,
    MOST_ROWS,
    About,
    Code,
    Drawing,
    FigureItem,
    Heading,
    Item,
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
from interp.words import Mark

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go


class Report:
    """A page that is filled from top to bottom.

    Attributes:
        verdict: the answer in words, shown on top; "" shows none.
        mark: what the answer rests on, "proved", "refuted", "undecided" or "measured"; "" shows none.
        metadata: names and values shown beside the title (which checkpoint, which seed, which versions).
        facts: numbers and words by name, for comparisons of several models.
        tables: every table by its key.
        figures: every figure by its key.
        in_words: the sentences that stand in the place of figures, by their keys (see replace_bare_figures).

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
        self._answered: set[str] = set()
        self.mark: Mark | Literal[""] = ""
        self.items: list[Item] = []
        self.facts: dict[str, Any] = {}
        self.tables: dict[str, pd.DataFrame] = {}
        self.figures: dict[str, go.Figure] = {}
        self.in_words: dict[str, str] = {}

    def __repr__(self) -> str:
        tables, figures, facts = (", ".join(keys) or "none" for keys in (self.tables, self.figures, self.facts))
        return f"Report({self.title!r}, tables: {tables}; figures: {figures}; facts: {facts})"

    @property
    def verdict(self) -> str:
        """What was said, in the order of a first screen: the task, what the model computes, how, what is proved."""
        return "\n\n".join(one.text for one in self.said)

    @verdict.setter
    def verdict(self, text: str) -> None:
        self._said = [Said(text)] if text else []

    @property
    def said(self) -> tuple[Said, ...]:
        """The sentences of the verdict, in its order."""
        return tuple(sorted(self._said, key=lambda one: one.rank))

    def say(
        self,
        sentence: str,
        about: About = "how",
        pictures: Sequence[str] = (),
        *,
        answers: bool = False,
        aside: bool = False,
    ) -> None:
        """Adds a paragraph to the verdict, at its place: see `verdict`. "" adds none.

        pictures: keys of figures that show what is said; the first of them that the report draws stands beside it.
        answers: it answers the question. aside: where an earlier sentence does, this one stands in its section only.
        """
        if about not in ABOUT:
            raise InterpError(one_of("subject of a sentence", about, ABOUT))
        if aside and about in self._answered:
            self.add_text(sentence)
        elif sentence:
            self._said.append(Said(sentence, about, tuple(pictures)))

        if answers:
            self._answered.add(about)

    def add_fact(self, name: str, value: Any) -> None:
        """Adds a number or a word by name; one row of them for each model makes a comparison.

        Raises:
            InterpError: the name is empty or taken.
        """
        self._check_key(name, "fact", self.facts)
        self.facts[name] = value

    def section(self, title: str, text: str = "") -> None:
        """Starts a section, which the table of contents lists."""
        self.items.append(Heading(str(title)))
        if text:
            self.add_text(text)

    def add_text(self, text: str) -> None:
        """Adds text; a blank line starts a new paragraph. No markup: what is given is what is read."""
        self.items.append(Text(str(text)))

    def add_code(self, text: str) -> None:
        """Adds source code, with its spaces and line breaks."""
        self.items.append(Code(str(text)))

    def add_drawing(self, svg: str, caption: str) -> None:
        """Adds a picture that interp itself made as SVG, whose words it escaped; "" adds none."""
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
        """Adds a table. The page shows its first `max_rows` rows, and more on request; `tables[key]` has all of them.

        Args:
            formats: how columns are written, e.g. {"s_acc": ".3f"}; other columns get what suits their numbers.

        Raises:
            InterpError: the key is empty or taken, `max_rows` is below 1, or a format does not fit its column.
            UnsupportedError: `frame` is not a DataFrame.
        """
        import pandas as pd

        self._check_key(key, "table", self.tables)
        if not isinstance(frame, pd.DataFrame):
            raise UnsupportedError(f"table {key!r} is {of_type(frame)}; expected a pandas DataFrame")
        if max_rows < 1:
            raise InterpError(f"max_rows of table {key!r} is {max_rows}; it must be at least 1")
        frame = frame.copy()
        # Written down now, so that a bad format is refused where it is given.
        self.items.append(TableItem(key, str(caption), frame, cells(frame.head(MOST_ROWS), formats), max_rows))
        self.tables[key] = frame

    def add_figure(self, key: str, figure: go.Figure, caption: str) -> None:
        """Adds a plotly figure with its caption below. The page gives the figure its theme, light or dark.

        `layout.meta = {"min_width": 700}` lets a figure that needs 700 pixels scroll sideways on a phone.

        Raises:
            InterpError: the key is empty or taken.
            UnsupportedError: `figure` is not a plotly Figure.
        """
        import plotly.graph_objects as go

        self._check_key(key, "figure", self.figures)
        if not isinstance(figure, go.Figure):
            raise UnsupportedError(f"figure {key!r} is {of_type(figure)}; expected a plotly Figure")
        self.items.append(FigureItem(key, str(caption), figure))
        self.figures[key] = figure

    def replace_bare_figures(self) -> None:
        """Puts a sentence in the place of each figure that shows one or two numbers, or numbers that are all alike."""
        for number, item in enumerate(self.items):
            if isinstance(item, FigureItem) and (sentence := instead(item.figure)) is not None:
                self.items[number] = Text(f"{item.caption} {sentence}".strip())
                del self.figures[item.key]
                self.in_words[item.key] = sentence

    def add_live(self, data: Mapping[str, Any] | str) -> None:
        """Adds a live panel: the model that `data` describes, run by the page (see interp/sections/live_payload.py).

        A sentence in the place of the data stands there instead: why there is no panel.
        """
        self.items.append(LiveItem(data))

    def attach(self, other: Report, prefix: str) -> None:
        """Adds all of another report under its title, its keys as "prefix/key": one page for several models.

        Raises:
            InterpError: a key is taken.
        """
        if other is self:
            raise InterpError(f"the report {self.title!r} cannot be attached to itself")
        for kind, theirs, ours in (("table", other.tables, self.tables), ("figure", other.figures, self.figures)):
            for key in theirs:
                self._check_key(f"{prefix}/{key}", kind, ours)  # all of them before anything is added
        self.items.append(Heading(other.title, level=1))
        if other.subtitle:
            self.items.append(Text(other.subtitle))
        if other.verdict:
            said = (replace(one, pictures=tuple(f"{prefix}/{key}" for key in one.pictures)) for one in other.said)
            self.items.append(Verdict(tuple(said), other.mark))
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
        """The whole page. Equal reports give equal text, so that two reports can be compared with diff."""
        return render(Page(self.title, self.subtitle, self.metadata, self.said, self.mark, tuple(self.items)))

    def save(self, path: str | Path) -> Path:
        """Writes the page, all of it or nothing, and returns its path.

        Raises:
            InterpError: the folder does not exist or cannot be written to, or the path is a folder.
        """
        path = as_path(path, "a report")
        if not os.path.isdir(path.parent):
            raise InterpError(f"cannot save the report to {short(path)}: the folder {path.parent} does not exist")
        if os.path.isdir(path):  # Path.is_dir raises where a name is too long
            raise InterpError(
                f"cannot save the report to {path}: it is a folder; name a file such as report.html in it"
            )
        return write_atomically(path, self.html())

    def save_figures(self, folder: str | Path, format: str = "svg") -> list[Path]:
        """Writes each figure to a file of its own, named by its key, and returns the paths. Makes the folder.

        Needs the optional extra `static` (kaleido) and a Chrome or Chromium on the machine.

        Raises:
            InterpError: the format is neither "svg" nor "png", kaleido or the browser is missing, or the folder cannot
                be written to.
        """
        return save_figures(self.figures, Path(folder), format)

    def _repr_html_(self) -> str:
        """For Jupyter: the page in a frame of its own; neither its styles nor its scripts reach the notebook."""
        return (
            f'<iframe title="{html.escape(self.title)}" sandbox="allow-scripts allow-downloads" '
            'style="display:block;box-sizing:border-box;width:100%;height:800px;border:1px solid #98a1ab;'
            'border-radius:6px;resize:vertical" '
            f'srcdoc="{html.escape(self.html())}"></iframe>'
        )

    def _check_key(self, key: str, kind: str, taken: Mapping[str, object]) -> None:
        if not isinstance(key, str) or not key.strip():
            raise InterpError(f"the key of a {kind} is {key!r}; it must be a non-empty string")
        if key in taken:
            raise InterpError(f"the report {self.title!r} already has a {kind} {key!r}; give this one another key")
