"""The items of a page, from top to bottom: headings, text, tables, figures, a live panel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import pandas as pd

from interp.support.words import Mark

if TYPE_CHECKING:
    import plotly.graph_objects as go

About = Literal["task", "what", "how", "where", "proof"]
ABOUT: tuple[About, ...] = ("task", "what", "how", "where", "proof")
"""The topics of a verdict's paragraphs, in the order of the first screen."""
WORDS: dict[str, float] = {"task": 60, "what": 60, "how": 80, "where": 60, "proof": 60}
"""Most words of each topic on the first screen."""
Block = Literal["what", "how", "where", "proof", "method"]
BLOCKS: dict[str, str] = {
    "what": "What it computes",
    "how": "How",
    "where": "Where: parts and circuit",
    "proof": "Is it proved?",
    "method": "Method",
}
"""The blocks of a page, with their titles."""


@dataclass(frozen=True)
class Said:
    """A paragraph of a verdict. about: its topic, or "" for a verdict given as one text. pictures: keys of figures that
    illustrate it; the first one in the report is shown next to it."""

    text: str
    about: About | Literal[""] = ""
    pictures: tuple[str, ...] = ()

    @property
    def rank(self) -> int:
        return ABOUT.index(self.about) if self.about else -1


@dataclass(frozen=True)
class Heading:
    """A heading. level: 1 for one of several models, 2 for a section. block: the block that the section belongs to."""

    title: str
    level: Literal[1, 2] = 2
    block: Block | Literal[""] = ""


@dataclass(frozen=True)
class Text:
    text: str


@dataclass(frozen=True)
class Listing:
    """Source code, shown verbatim."""

    text: str


@dataclass(frozen=True)
class Verdict:
    """The verdict on one of several models. mark: its status, or "". rest: what does not fit into it."""

    said: tuple[Said, ...]
    mark: Mark | Literal[""] = ""
    rest: tuple[Said, ...] = ()


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
    """A table. rows: up to MOST_ROWS, as text; the first `shown` of them are visible at first."""

    key: str
    caption: str
    frame: pd.DataFrame
    rows: list[list[str]]
    shown: int


MOST_ROWS = 2000
"""Largest number of rows of a table on a page."""


@dataclass(frozen=True)
class LiveItem:
    """A live panel. data: the model for the page, or the reason why there is no panel."""

    data: Mapping[str, Any] | str


@dataclass(frozen=True)
class Drawing:
    """A small SVG picture of lines and text, made by interp."""

    svg: str
    caption: str


Item = Heading | Text | Listing | Drawing | Verdict | Metadata | FigureItem | TableItem | LiveItem


@dataclass(frozen=True)
class Page:
    """A whole report for rendering: its top part (said, on the first screen), its items, and what else was said."""

    title: str
    subtitle: str
    metadata: Mapping[str, str]
    said: tuple[Said, ...]
    mark: Mark | Literal[""]
    items: tuple[Item, ...]
    rest: tuple[Said, ...] = ()
