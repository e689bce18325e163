"""What stands on a page, from top to bottom: headings, words, tables, figures, a live panel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from interp.words import Mark

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

About = Literal["task", "what", "how", "proof"]
ABOUT: tuple[About, ...] = ("task", "what", "how", "proof")
"""What a sentence of a verdict is about, in the order of the first screen."""


@dataclass(frozen=True)
class Said:
    """A sentence of a verdict. about: "" for a verdict that was given as one text. pictures: keys of figures that show
    it, of which the first that is drawn stands beside it."""

    text: str
    about: About | Literal[""] = ""
    pictures: tuple[str, ...] = ()

    @property
    def rank(self) -> int:
        return ABOUT.index(self.about) if self.about else -1


@dataclass(frozen=True)
class Heading:
    title: str
    level: Literal[1, 2] = 2


@dataclass(frozen=True)
class Text:
    text: str


@dataclass(frozen=True)
class Code:
    """Source, shown as it is."""

    text: str


@dataclass(frozen=True)
class Verdict:
    """Of one model of several. mark: what it rests on, "" for none."""

    said: tuple[Said, ...]
    mark: Mark | Literal[""] = ""


@dataclass(frozen=True)
class Metadata:
    entries: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class FigureItem:
    key: str
    caption: str
    figure: go.Figure


@dataclass(frozen=True)
class TableItem:
    """rows: as text, up to MOST_ROWS; the first `shown` of them are seen at once."""

    key: str
    caption: str
    frame: pd.DataFrame
    rows: list[list[str]]
    shown: int


MOST_ROWS = 2000
"""Rows of a table that a page carries."""


@dataclass(frozen=True)
class LiveItem:
    """data: what the page runs, or the reason why there is no panel."""

    data: Mapping[str, Any] | str


@dataclass(frozen=True)
class Drawing:
    """A small picture of lines and words as SVG, made by interp itself."""

    svg: str
    caption: str


Item = Heading | Text | Code | Drawing | Verdict | Metadata | FigureItem | TableItem | LiveItem


@dataclass(frozen=True)
class Page:
    """All of a report, as it is drawn: what stands on top, then its items."""

    title: str
    subtitle: str
    metadata: Mapping[str, str]
    said: tuple[Said, ...]
    mark: Mark | Literal[""]
    items: tuple[Item, ...]
